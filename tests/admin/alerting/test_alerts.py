"""A limit that is over as an alert: what identifies it, what is said of it, and what strangers' names cannot do to it."""

from __future__ import annotations

import json
import re
import shlex
from datetime import datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from admin.alerting.alerts import MAX_LABEL_CHARS, RUNBOOK, Alert, fingerprint, labels_of, safe
from admin.alerting.payloads import NO_TIME, alertmanager_alert, webhook_alert, webhook_message
from common.views.view import merge_all
from support.overruns import GATEWAY, SINCE, overrun

ROOT = Path(__file__).parents[3]
URL = "http://127.0.0.1:9180/"
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
TIME = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$"}


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


# https://prometheus.io/docs/alerting/latest/configuration/#webhook_config
VERSION_4 = closed(
    version={"const": "4"},
    groupKey={"type": "string", "minLength": 1},
    truncatedAlerts={"type": "integer", "minimum": 0},
    status={"enum": ["firing", "resolved"]},
    receiver={"type": "string"},
    groupLabels=TEXTS,
    commonLabels=TEXTS,
    commonAnnotations=TEXTS,
    externalURL={"type": "string", "pattern": "^https?://"},
    alerts={
        "type": "array",
        "items": closed(
            status={"enum": ["firing", "resolved"]},
            labels=TEXTS,
            annotations=TEXTS,
            startsAt=TIME,
            endsAt=TIME,
            generatorURL={"type": "string"},
            fingerprint={"type": "string", "pattern": "^[0-9a-f]{16}$"},
        ),
    },
)
# https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml, postableAlerts
POSTABLE = {"type": "array", "items": closed(labels=TEXTS, annotations=TEXTS, startsAt=TIME, endsAt=TIME, generatorURL={"type": "string"})}
jsonschema.Draft202012Validator.check_schema(VERSION_4)


def alert_of(**facts: Any) -> Alert:
    return Alert(overrun(**facts), GATEWAY)


def message(*alerts: Alert, firing: bool = True, truncated: int = 0) -> Any:
    written = [webhook_alert(alert, URL) for alert in alerts]
    found = webhook_message(written, receiver="ops", gateway=GATEWAY, external_url=URL, firing=firing, truncated=truncated)
    shown = json.loads(json.dumps(found))
    jsonschema.Draft202012Validator(VERSION_4).validate(shown)
    return shown


def test_a_topic_over_its_limit_is_named_by_labels_that_stay() -> None:
    alert = alert_of()
    assert alert.labels == {
        "alertname": "SluiceLimitReached", "severity": "warning", "gateway": GATEWAY, "per": "topic",
        "thing": "%2F/orders/order.created", "rule": "orders", "operation": "produce", "protocol": "amqp",
        "topic": "%2F/orders/order.created",
    }  # fmt: skip
    later = overrun(client="10.0.0.9", rate=1, refused=5000, listener="other", user="", origin="override", limit="600/s", since=SINCE + 9)
    assert fingerprint(labels_of(later, GATEWAY)) == alert.fingerprint


@pytest.mark.parametrize(
    ("facts", "labels"),
    [
        ({"per": "client", "thing": "10.0.0.7"}, {"per": "client", "thing": "10.0.0.7"}),
        ({"per": "rule", "thing": ""}, {"per": "rule"}),
        ({"per": "listener", "thing": "rabbit"}, {"per": "listener", "thing": "rabbit", "listener": "rabbit"}),
        ({"per": "topic", "thing": ""}, {"per": "topic"}),
    ],
)
def test_other_limits_have_no_label_that_changes_with_the_sender(facts: dict[str, Any], labels: dict[str, str]) -> None:
    always = {"alertname": "SluiceLimitReached", "severity": "warning", "gateway": GATEWAY, "rule": "orders", "operation": "produce"}
    assert labels_of(overrun(**facts), GATEWAY) == always | labels


def test_a_message_of_version_4_has_alertmanagers_fields() -> None:
    one, other = alert_of(), alert_of(thing="%2F/orders/order.paid", rule="paid")
    other.end(SINCE + 60)
    shown = message(one, other, truncated=3)
    assert (shown["status"], shown["receiver"], shown["truncatedAlerts"]) == ("firing", "ops", 3)
    assert shown["groupLabels"] == {"alertname": "SluiceLimitReached", "gateway": GATEWAY}
    assert shown["groupKey"] == '{}:{alertname="SluiceLimitReached", gateway="orders-sidecar"}'
    assert "topic" not in shown["commonLabels"]
    assert shown["commonLabels"]["protocol"] == "amqp"
    assert [alert["status"] for alert in shown["alerts"]] == ["firing", "resolved"]
    assert [alert["startsAt"] for alert in shown["alerts"]] == ["2026-11-25T13:21:04.000000Z"] * 2
    assert [alert["endsAt"] for alert in shown["alerts"]] == [NO_TIME, "2026-11-25T13:22:04.000000Z"]


def test_annotations_say_what_happens_and_what_to_do() -> None:
    texts = alert_of(refused=1234, delayed=5).annotations()
    assert texts["summary"] == "AMQP topic %2F/orders/order.created is over its limit of 500/s (rule orders)"
    told = "1234 messages were refused and 5 had to wait"
    for part in (
        "Since 2026-11-25T13:21:04.000Z",
        "700 messages/s",
        told,
        "client 10.0.0.7, user shop",
        "the worst of 3: 90 % of it",
        "limits.yaml:7",
    ):
        assert part in texts["description"]
    assert texts["command"] == "sluice why amqp / orders order.created"
    page, _, anchor = texts["runbook"].partition("#")
    assert anchor in [title.lower() for title in re.findall(r"^## (\w+)$", (ROOT / page).read_text(), re.MULTILINE)]
    assert texts["runbook"] == RUNBOOK


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        ("30/s", "3900 messages wait now, a new one will wait 2min 10s."),
        ("0/s", "3900 messages wait now, without end at this limit."),
        ("1MiB/s", "3900 messages wait now."),
    ],
)
def test_what_waits_says_how_long_and_whose_it_is(limit: str, told: str) -> None:
    """At three in the morning a page of what a limit holds said "0 messages were refused", and not for how long or which group's."""
    text = alert_of(limit=limit, refused=0, delayed=80_000, waiting=3900, group="night", clients=1).annotations()["description"]
    assert told in text
    assert "client 10.0.0.7, user shop, group night, by listener rabbit" in text
    assert "% of it" not in text, "who is the only one"


def test_a_resolved_alert_says_from_when_to_when_and_why() -> None:
    alert = alert_of()
    alert.end(SINCE + 60, "The gateway has stopped.")
    texts = alert.annotations()
    assert "From 2026-11-25T13:21:04.000Z to 2026-11-25T13:22:04.000Z" in texts["description"]
    assert texts["description"].endswith("The gateway has stopped.")


def test_an_alert_does_not_end_before_it_began_though_the_clock_jumps_back() -> None:
    alert = alert_of()
    alert.end(SINCE - 3600)
    assert alert.ends_at == SINCE


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"thing": "%2F/amq.default/jobs"}, ["amqp", "/", "amq.default", "jobs"]),
        ({"thing": "%2F/orders/%24%28reboot%29"}, ["amqp", "/", "orders", "$(reboot)"]),
        ({"protocol": "rocketmq", "thing": "orders'; reboot"}, ["rocketmq", "orders'; reboot"]),
    ],
)
def test_the_command_is_safe_to_paste_into_a_shell(facts: dict[str, Any], words: list[str]) -> None:
    assert shlex.split(alert_of(**facts).annotations()["command"]) == ["sluice", "why", *words]


@pytest.mark.parametrize("topic", ["%2F/orders/%0Areboot", "%2F/orders/%FF", "%2F/orders/" + "x" * 900, "no-parts"])
def test_a_name_that_cannot_be_shown_whole_is_in_no_command(topic: str) -> None:
    assert alert_of(thing=topic).annotations()["command"] == "sluice topics --sort refused"


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31mred", "\udcff", "\u202egnp", "x" * 5000, "\x00" * 5000, "名" * 5000])
def test_names_of_strangers_are_bounded_printable_and_told_apart(name: str) -> None:
    shown = safe(name)
    assert shown.isprintable()
    assert len(shown) <= MAX_LABEL_CHARS
    assert shown.encode()
    assert safe(name + "y") != shown
    labels = alert_of(thing=name, topic=name, user=name, client=name).labels
    assert all(len(text) <= MAX_LABEL_CHARS for text in labels.values())
    hostile = message(alert_of(thing=name, topic=name, user=name, client=name, listener=name, rule=name))
    assert all(text.isprintable() for alert in hostile["alerts"] for text in alert["annotations"].values())


def test_ordinary_names_stay_as_they_are() -> None:
    for name in ("orders", "%RETRY%group", "名前", "a b", "%2F/amq.default/jobs"):
        assert safe(name) == name


def test_one_limit_over_in_two_workers_is_one_alert() -> None:
    (facts,) = merge_all([[overrun(since=SINCE + 5, client="10.0.0.1", client_over={"10.0.0.1": 1})], [overrun(refused=10, clients=1)]])
    sums = {name: getattr(facts, name) for name in ("since", "rate", "refused", "clients", "client")}
    assert sums == {"since": SINCE, "rate": 1400, "refused": 1210, "clients": 4, "client": "10.0.0.7"}


def test_what_the_gateway_tells_apart_are_alerts_of_their_own_and_no_others() -> None:
    """The gateway goes by a tuple, receivers by the fingerprint."""
    different = [
        overrun(), overrun("b"), overrun(rule="b"), overrun(operation="consume"), overrun(protocol="rocketmq"), overrun(per="client"),
        overrun(""), overrun(per="rule", thing=""), overrun(operations="produce, declare"),
    ]  # fmt: skip
    assert len(merge_all([different])) == len({Alert(facts, GATEWAY).fingerprint for facts in different}) == len(different)
    same = [
        overrun("", protocol="amqp"),
        overrun("", protocol="rocketmq", topic="x", client="y", listener="z", limit="1/s", origin="quota"),
    ]
    several = [overrun(operations="produce, declare", operation=operation) for operation in ("produce", "declare")]
    for each in (same, several):
        assert len(merge_all([each])) == len({Alert(facts, GATEWAY).fingerprint for facts in each}) == 1


def test_what_is_posted_to_alertmanager_ends_by_itself() -> None:
    over = alert_of(thing="b")
    over.end(SINCE + 3)
    shown = json.loads(json.dumps([alertmanager_alert(alert, URL, SINCE + 10, 60) for alert in (alert_of(), over)]))
    jsonschema.Draft202012Validator(POSTABLE).validate(shown)
    assert [alert["endsAt"] for alert in shown] == ["2026-11-25T13:25:14.000000Z", "2026-11-25T13:21:07.000000Z"]
    assert datetime.fromisoformat(shown[0]["startsAt"]).timestamp() == SINCE
    set_back = alertmanager_alert(alert_of(), URL, SINCE - 3600, 60)
    assert str(set_back["endsAt"]) > str(set_back["startsAt"]), "else Alertmanager refuses it, and others of the post with it"


def test_the_documented_example_is_what_is_posted() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text()
    shown = json.loads(re.findall(r"```json\n(.*?)```", page, re.DOTALL)[0])
    assert shown == message(alert_of())
