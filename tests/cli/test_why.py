"""`sluice why` on a gateway whose limits are being reached, with a viewer's token."""

from __future__ import annotations

import io
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import pytest

from cli.main import main
from support.busy_gateway import RULES, VIEWER, BusyGateway, busy_gateway
from support.gateways import command, limit_path
from support.processes import wait_until
from support.terminals import Terminal

pytestmark = pytest.mark.slow  # a gateway with floods, and a process for each

RABBIT = ("amqp", "/", "orders", "order.created")
ROCKET = ("rocketmq", "orders")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BusyGateway]:
    with busy_gateway(tmp_path_factory.mktemp("busy")) as found:
        yield found


def why(gateway: BusyGateway, *words: str) -> subprocess.CompletedProcess[str]:
    """With the viewer's token, as a team that publishes has it. In this process: many tests ask until it is so; on a terminal it is one."""
    said, complained = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said), redirect_stderr(complained):
        for name, value in {"SLUICE_ADMIN": gateway.admin, "SLUICE_TOKEN": VIEWER, "COLUMNS": "80"}.items():
            patch.setenv(name, value)
        code = main(["why", *words])
    return subprocess.CompletedProcess(["why", *words], code, said.getvalue(), complained.getvalue())


def found(gateway: BusyGateway, *words: str) -> Any:
    done = why(gateway, *words, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def told_in_time(gateway: BusyGateway, headline: str, *words: str) -> str:
    """The page once it begins so. On a busy machine a flood stands still for seconds, and its limit has recovered meanwhile."""
    pages = [""]

    def begins() -> bool:
        pages.append(why(gateway, *words).stdout)
        return re.sub(r"\s+", " ", pages[-1]).startswith(headline)

    wait_until(begins, within=60, what=f"{headline!r} is the headline")
    return pages[-1]


def found_in_time(gateway: BusyGateway, *words: str) -> Any:
    """The same as JSON, once the key is limited now."""
    answers = [found(gateway, *words)]

    def limited() -> bool:
        if answers[-1]["state"] != "limited_now":
            answers.append(found(gateway, *words))
        return bool(answers[-1]["state"] == "limited_now")

    wait_until(limited, within=60, what="it is limited now")
    return answers[-1]


def part(text: str, name: str) -> str:
    """What stands beside a name, on one line."""
    lines = re.search(rf"(?m)^  {name} +(.*(?:\n {{12}}.*)*)", text)
    assert lines is not None, text
    return re.sub(r"\s+", " ", lines[1])


def test_a_limit_in_force_is_explained_from_since_when_to_what_to_do(gateway: BusyGateway) -> None:
    done = why(gateway, *RABBIT)
    assert (done.returncode, done.stderr) == (0, "")
    text = told_in_time(gateway, "amqp / orders order.created: limited now", *RABBIT)
    assert re.match(r"amqp / orders order\.created: limited now, since \d\d:\d\d:\d\d UTC \(\d+", text)
    assert part(text, "limit").startswith("20/s (burst 20), for this topic")
    assert part(text, "set by") == "rule orders (limits.yaml:2), as for all that it matches"
    assert re.match(r"\S+/s: \S+/s passes, \S+/s is over the limit", part(text, "demand"))
    assert part(text, "action") == "reject: nacked; where a channel has no confirms, its channel waits"
    assert part(text, "clients").startswith("127.0.0.1 (checkout, user shop, pika): ")
    assert part(text, "also") == "1000/s (burst 1000) for the user shop of rule users: within it"
    assert "  pika\n    NackError from basic_publish\n" in text
    assert re.search(r"sluice limits set amqp / orders order\.created --messages \d+/s --for 1h --reason '\.\.\.'", text)


def test_json_has_it_all_for_programs(gateway: BusyGateway) -> None:
    answer = found_in_time(gateway, *ROCKET)
    assert (answer["state"], answer["topic"], answer["limit"]["rule"]) == ("limited_now", "orders", "rocketmq-topics")
    assert answer["since"] <= answer["last_over"]
    assert answer["offered_per_second"] > 30
    assert answer["clients"][0]["libraries"] == ["RocketMQ Java 5"]
    assert "code 215" in answer["advice"][0]["shows"]["refused"]
    raised = re.search(r"--messages (\d+)/s", answer["commands"][0])
    assert raised is not None
    assert int(raised[1]) >= 30 * 1.3


def test_a_live_change_names_its_author_reason_and_end(gateway: BusyGateway) -> None:
    gateway.cli("limits", "set", *RABBIT, "--messages", "10/s", "--reason", "incident 12", "--for", "30m")
    try:
        wait_until(lambda: found(gateway, *RABBIT)["limit"]["origin"] == "override", within=30, what="the change is seen")
        said = part(why(gateway, *RABBIT).stdout, "set by")
        assert re.fullmatch(
            r"admin at \S+ UTC, a live change over rule orders \(limits\.yaml:2\), which says 20/s \(burst 20\) "
            r"reason: incident 12 until \S+(?: \S+)? UTC",
            said,
        )
    finally:
        gateway.cli("limits", "unset", *RABBIT)


def test_the_wait_for_a_limit_that_is_being_hit_is_told(gateway: BusyGateway) -> None:
    """Of one message every ten seconds, which the flood takes at once: the next has to wait for the rest of them."""
    gateway.cli("limits", "set", *ROCKET, "--messages", "6/min", "--burst-messages", "1", "--open-for", "0s")
    try:
        waits = re.compile(r"((?:\d+\.?\d*)(?:ms|s)) until the next message passes")
        wait_until(lambda: bool(waits.fullmatch(part(why(gateway, *ROCKET).stdout, "wait"))), within=30, what="there is a wait")
        answer = found_in_time(gateway, *ROCKET)
        assert (answer["state"], answer["limit"]["limit"]["messages"]) == ("limited_now", "0.1/s")
        wait_until(lambda: 0 < (found(gateway, *ROCKET)["wait_ms"] or 0) <= 10_000, within=30, what="it is at most that of one message")
        gateway.cli("limits", "set", *ROCKET, "--messages", "0/s")
        wait_until(
            lambda: part(why(gateway, *ROCKET).stdout, "wait") == "without end: the limit is 0", within=30, what="a limit of 0 has no end"
        )
    finally:
        gateway.cli("limits", "unset", *ROCKET)


def test_a_limit_of_the_client_alone_is_named_as_what_refuses_the_topic(gateway: BusyGateway) -> None:
    """No rule is per client here: only a live change of that one client's limit, set in an incident."""
    gateway.cli("limits", "set", "client", "127.0.0.1", "--messages", "5/s", "--reason", "incident 13", "--for", "30m")
    try:
        headline = "amqp / orders order.created: limited now by the limit for the client 127.0.0.1, since "
        text = told_in_time(gateway, headline, *RABBIT)
        assert part(text, "limit").startswith("5/s (burst ")
        assert part(text, "set by").startswith("admin at ")
        assert "reason: incident 13" in part(text, "set by")
        assert "of rule orders: " in part(text, "also")
        raised, back, _ = found(gateway, *RABBIT)["commands"]
        assert re.fullmatch(r"sluice limits set client 127\.0\.0\.1 --messages \d+/s --for 1h --reason '\.\.\.'", raised)
        assert back == "sluice limits unset client 127.0.0.1 --reason '...'"
    finally:
        gateway.cli("limits", "unset", "client", "127.0.0.1")
    wait_until(lambda: found(gateway, *RABBIT)["limit"]["per"] == "topic", within=30, what="it is the topic's own again")


def test_a_quota_names_its_night(gateway: BusyGateway) -> None:
    quota = {"protocol": "rocketmq", "topic": "orders", "messages": {"rate": 25, "burst": 25}}
    snapshot = {"version": 1, "computed_at": "2026-11-21T01:00:00Z", "code": "test", "inputs": [], "parameters": {}, "quotas": [quota],
                "date": "2026-11-20"}  # fmt: skip
    gateway.put("/v1/quotas", snapshot)
    try:
        said = part(why(gateway, *ROCKET).stdout, "set by")
        assert said.startswith("the published quota of 2026-11-20, over rule rocketmq-topics (limits.yaml:")
        assert "published by admin at " in said
        gateway.cli("rules", "add", "roof", "--match", "topic=*", "--messages", "9/s", "--ceiling", "--for", "5m")
        try:
            text = why(gateway, *ROCKET).stdout
            assert part(text, "limit").startswith("9/s (burst 9)")
            assert "held down by the ceiling of roof" in part(text, "set by")
        finally:
            gateway.cli("rules", "remove", "roof")
        assert part(why(gateway, *ROCKET).stdout, "limit").startswith("25/s")
    finally:
        gateway.put("/v1/quotas", {**snapshot, "quotas": []})


def test_a_key_never_seen_shows_the_limit_that_would_hold(gateway: BusyGateway) -> None:
    done = why(gateway, "amqp", "/", "orders", "never.seen")
    assert done.returncode == 0
    assert done.stdout.startswith("amqp / orders never.seen: no message of it has come yet\n")
    assert (
        part(done.stdout, "limit").startswith("1000/s (burst 1000), for each user apart")
        or "20/s (burst 20), for this topic" in done.stdout
    )
    assert "not since the start of this gateway" in part(done.stdout, "seen")
    assert found(gateway, "amqp", "/", "orders", "never.seen")["state"] == "unseen"


def test_a_key_without_a_limit_says_so(gateway: BusyGateway) -> None:
    gateway.write_rules([])
    gateway.cli("reload")
    try:
        assert found(gateway, "rocketmq", "free")["state"] == "unlimited"
        assert why(gateway, "rocketmq", "free").stdout.startswith("rocketmq free: no limit holds for it\n")
    finally:
        gateway.write_rules(RULES)
        gateway.cli("reload")


def test_a_library_is_chosen_by_the_words_people_use(gateway: BusyGateway) -> None:
    assert [row["library"] for row in found(gateway, *RABBIT, "--library", "celery")["advice"]] == ["Celery / kombu (py-amqp)"]
    assert len(found(gateway, *RABBIT, "--all-libraries")["advice"]) == 10
    done = why(gateway, *RABBIT, "--library", "fortran")
    assert done.returncode == 7
    assert "there are pika, aio-pika" in done.stderr


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_on_a_terminal_lines_fit(gateway: BusyGateway, columns: int) -> None:
    environment = {"SLUICE_ADMIN": gateway.admin, "SLUICE_TOKEN": VIEWER}
    with Terminal([*command(), "why", *RABBIT], env=environment, columns=columns) as terminal:
        assert terminal.end() == 0
    lines = [line for line in terminal.text.splitlines() if "sluice " not in line]  # a command stays whole, to be copied
    assert max(map(len, lines)) <= min(columns, 100)
    assert any(len(line) > 60 for line in lines), "nor is it folded to a ribbon"


def test_a_wrong_key_says_how_to_write_one(gateway: BusyGateway) -> None:
    assert why(gateway, "amqp", "/", "orders").returncode == 2
    assert "such as: amqp / amq.default orders" in why(gateway, "amqp", "/", "orders").stderr
    assert gateway.request("GET", limit_path("amqp", "/", "orders", "order.created")).status == 200


def test_a_pattern_and_a_misspelt_name_are_told_the_topics_that_come(gateway: BusyGateway) -> None:
    pattern = why(gateway, "amqp", "/", "orders", "order.*")
    assert "`why` takes one topic's own name, not a pattern; seen are: / orders order.created" in part(pattern.stdout, "seen")
    assert found(gateway, "amqp", "/", "orders", "order.creatd")["near"] == ["/ orders order.created"]
    assert found(gateway, *RABBIT)["near"] == []


def test_what_is_no_topic_says_what_to_type(gateway: BusyGateway) -> None:
    queue = why(gateway, "queue", "/", "jobs").stdout
    assert queue.startswith("amqp / amq.default jobs: ")
    assert "No limit holds for its deliveries to consumers. This sets one:\n  sluice limits set queue / jobs --messages 100/s" in queue
    assert queue.rstrip().endswith("  sluice why amqp / orders order.created")
    assert "  rabbitmqctl list_bindings -p / source_name routing_key destination_name | grep -wF -e jobs\n" in queue
    client = why(gateway, "client", "10.0.0.7")
    assert (client.returncode, "sluice limits get client 10.0.0.7" in client.stderr) == (2, True)
    word = why(gateway, "orders")
    assert word.returncode == 2
    assert "a topic is amqp VHOST EXCHANGE ROUTING_KEY or rocketmq TOPIC" in re.sub(r"\s+", " ", word.stderr)
    assert "sluice topics -q orders" in word.stderr


def test_the_last_hint_of_a_queue_leads_to_a_key_that_is_limited(gateway: BusyGateway) -> None:
    """Found by a reader: it named a search that finds nothing, as a routing key seldom has the queue's name in it."""
    *_, last = why(gateway, "queue", "/", "jobs").stdout.splitlines()
    name, *words = shlex.split(last)
    assert name == "sluice"
    told_in_time(gateway, "amqp / orders order.created: limited now", *words[1:])
    gateway.cli("limits", "set", "queue", "/", "jobs", "--messages", "9/s")
    try:
        assert "No limit holds for its deliveries" not in why(gateway, "queue", "/", "jobs").stdout
    finally:
        gateway.cli("limits", "unset", "queue", "/", "jobs")
    assert "of the other exchanges" not in why(gateway, "queue", "other", "jobs").stdout, "nothing is published there"


def test_a_candidate_is_told_beside_the_limit(gateway: BusyGateway) -> None:
    gateway.cli("rules", "set", "orders", "--candidate-messages", "5/s")
    try:
        wait_until(lambda: "would have refused" in part(why(gateway, *RABBIT).stdout, "tried"), within=30, what="it has judged something")
        gateway.cli("limits", "set", *RABBIT, "--messages", "10/s")
        said = "5/s (burst 5): would change nothing here, the live change holds over it"
        assert part(why(gateway, *RABBIT).stdout, "tried") == said
    finally:
        gateway.cli("limits", "unset", *RABBIT, check=False)
        gateway.cli("rules", "reset", "orders")
