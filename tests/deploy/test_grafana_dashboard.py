"""The dashboard that `deploy/` ships: a real Prometheus, which scrapes a real gateway with traffic, answers each of its queries."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import pytest

from support.brokers import swallowing
from support.cases import in_one_loop
from support.gateways import Gateway, amqp_listener
from support.processes import LOOPBACK, wait_until
from support.prometheus import Prometheus, each_second, unknown_metrics

ROOT: Final = Path(__file__).parents[2]
DASHBOARD: Final[dict[str, Any]] = json.loads((ROOT / "deploy" / "grafana" / "sluice.json").read_text())
PANELS: Final[list[dict[str, Any]]] = DASHBOARD["panels"]
VARIABLES: Final[list[dict[str, Any]]] = DASHBOARD["templating"]["list"]
QUERIES: Final = [
    *((panel["title"], target["expr"]) for panel in PANELS for target in panel.get("targets", [])),
    *((f"annotation {each['name']}", each["expr"]) for each in DASHBOARD["annotations"]["list"]),
]
EMPTY: Final = {  # panel, and a metric of the query -> why it has no answer here
    ("Age of quotas", "sluice_quota_age_seconds"): "no quotas were published",
    ("Refused by quotas", "sluice_quota_refused_ratio"): "no quotas were published",
    ("Refused by quotas", "sluice_quota_shadow_refused_ratio"): "no quotas were published",
    ("Refused by quotas", "sluice_quota_target_ratio"): "no quotas were published",
    ("Refused and dropped", "sluice_messages_dropped_total"): "no rule drops",
    ("Connections", "sluice_connections_closed_total"): "no connection ends while it is looked at",
    ("annotation Reload failed", "sluice_config_last_reload_successful"): "no reload has failed",
}
RULES: Final[list[dict[str, object]]] = [
    {"name": "amqp-topics", "match": {"protocol": "amqp"}, "per": "topic", "limit": {"messages": "2/s"}},
    {"name": "rocket-topics", "match": {"protocol": "rocketmq"}, "per": "topic", "limit": {"messages": "100/s", "bytes": "5MiB/s"}},
]


PAGE: Final = {  # what a chart of the page shows -> where the board does: its panel, and the end of the legend
    "received": ("Rate against limit: messages", ": received"),
    "forwarded": ("Rate against limit: messages", ": passed"),
    "limit": ("Rate against limit: messages", ": limit ({{origin}})"),
    "refused": ("Refused and dropped", ": {{reason}}"),
    "waiting": ("Waiting and delayed", ": waiting"),
}


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, Prometheus]]:
    """It scrapes a gateway each second, one that refuses messages of both protocols; a limit has just been changed."""
    with ExitStack() as stack:
        rabbit = stack.enter_context(swallowing.SwallowingBroker(swallowing.amqp))
        rocket = stack.enter_context(swallowing.SwallowingBroker(swallowing.rocketmq))
        listeners: list[dict[str, object]] = [
            amqp_listener(rabbit.address),
            {"name": "rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:0", "upstream": rocket.address},
        ]
        gateway = stack.enter_context(Gateway(tmp_path_factory.mktemp("gateway"), listeners, RULES))
        stack.enter_context(swallowing.rocketmq_producer(gateway.port("rocket"), [("orders", 300.0)]))
        stack.enter_context(swallowing.amqp_producer(gateway.amqp_url(), [("orders", "order.created")], 20))
        server = stack.enter_context(
            Prometheus(
                tmp_path_factory.mktemp("prometheus"),
                each_second(
                    f"{LOOPBACK}:{gateway.admin_port}",
                    gateway.directory / "state" / "admin.token",
                    ROOT / "deploy" / "prometheus" / "alerts.yaml",
                ),
            )
        )
        refused = "count(rate(sluice_messages_refused_total[10s]) > 0) == 2"
        wait_until(lambda: bool(server.query(refused)), within=60, what="topics of both protocols are refused", every=0.5)
        gateway.cli("limits", "set", "rocketmq", "orders", "--messages", "90/s", "--reason", "a change to see", "--yes")
        yield gateway, server


@pytest.fixture(scope="module")
def prometheus(watched: tuple[Gateway, Prometheus]) -> Prometheus:
    return watched[1]


def filled(query: str) -> str:
    """The query as Grafana sends it when all is chosen, a short window put in for its own."""
    text = query.replace("$__rate_interval", "10s")
    for variable in VARIABLES:
        text = text.replace(f"${variable['name']}", variable.get("allValue", ""))
    assert "$" not in text, text
    return text


def reason_to_be_empty(title: str, query: str) -> str | None:
    return next((why for (panel, metric), why in EMPTY.items() if panel == title and metric in query), None)


@pytest.mark.slow
@pytest.mark.parametrize(("title", "query"), QUERIES, ids=[f"{title}-{number}" for number, (title, _) in enumerate(QUERIES)])
def test_a_query_has_an_answer(title: str, query: str, prometheus: Prometheus) -> None:
    asked = filled(query)
    if title.startswith("annotation "):  # of a moment, which may be a while ago
        asked = f"last_over_time(({asked})[1h:1s])"
    if reason_to_be_empty(title, query):
        prometheus.query(asked)  # which fails where it is not understood
        return

    def answered() -> bool:
        return any(not math.isnan(float(series["value"][1])) for series in prometheus.query(asked))

    wait_until(answered, within=60, what=f"{title}: {asked}", every=0.5)


@pytest.mark.slow
def test_the_board_shows_what_the_charts_of_the_page_show(watched: tuple[Gateway, Prometheus]) -> None:
    """The same topic, the last ten seconds of both: what came, passed, was refused, waits, and the limit."""
    gateway, prometheus = watched
    path = "/v1/series?range=15m&protocol=rocketmq&topic=orders"

    def of_page(name: str) -> float:
        known = [float(value) for value in gateway.get(path)["points"][name][-11:-1] if value is not None]
        return sum(known) / max(len(known), 1)

    def of_board(name: str) -> float:
        title, legend = PAGE[name]
        targets = next(panel["targets"] for panel in PANELS if panel["title"] == title)
        (query,) = (target["expr"] for target in targets if target["legendFormat"].endswith(legend))
        found = prometheus.query(filled(query).replace('topic=~".*"', 'topic="orders"'))
        return sum([float(each["value"][1]) for each in found if each["metric"]["protocol"] == "rocketmq"])

    def is_the_same(name: str) -> bool:
        """Or nearly: the two windows are not of the same moment, and the producer has little time on a busy machine."""
        return abs(of_page(name) - of_board(name)) <= 0.3 * of_page("limit")

    assert set(PAGE) == set(gateway.get(path)["points"]) - {"bytes"}, "bytes are in no chart"
    for name in PAGE:
        wait_until(lambda name=name: is_the_same(name), within=60, what=f"{name} is the same", every=0.5)  # type: ignore[misc]
        assert name == "waiting" or of_board(name) > 0


def test_each_reason_to_be_empty_is_that_of_a_query() -> None:
    assert all(any(title == panel and metric in query for title, query in QUERIES) for panel, metric in EMPTY)


@pytest.mark.slow
def test_variables_offer_what_there_is(prometheus: Prometheus) -> None:
    expected = {"protocol": {"amqp", "rocketmq"}, "topic": {"orders", "%2F/orders/order.created"}}
    for variable in VARIABLES:
        if variable["type"] != "query":
            continue
        found = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
        assert found is not None, variable
        assert unknown_metrics(found[1]) == []
        offered = set(prometheus.ask(f"label/{found[2]}/values", **{"match[]": filled(found[1])}))
        assert offered == expected.get(variable["name"], offered)
        assert offered, variable["name"]


@pytest.mark.slow
def test_a_running_prometheus_evaluates_every_alert(prometheus: Prometheus) -> None:
    def rules() -> list[dict[str, Any]]:
        return [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]

    wait_until(lambda: all(rule["health"] != "unknown" for rule in rules()), within=60, what="each rule was evaluated once", every=0.5)
    assert {(rule["name"], rule["health"]) for rule in rules()} == {(rule["name"], "ok") for rule in rules()}
    assert not {rule["name"] for rule in rules() if rule["state"] == "firing"}


@in_one_loop
@pytest.mark.parametrize(("title", "query"), QUERIES, ids=[f"{title}-{number}" for number, (title, _) in enumerate(QUERIES)])
def test_a_query_names_metrics_that_exist_and_the_chosen_gateways_only(title: str, query: str) -> None:
    assert unknown_metrics(query) == []
    outside = re.findall(r"\b(?:sluice|process)_\w+\{(?!instance=~\"\$instance\")", query)
    assert not outside, title


def test_panels_have_a_number_a_title_and_a_place_of_their_own() -> None:
    assert max(Counter(panel["id"] for panel in PANELS).values()) == 1
    for panel in PANELS:
        assert panel["title"], panel["id"]
        if panel["type"] != "row":
            assert panel["description"], panel["title"]
            assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]) > 0
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
    for one, other in combinations([panel["gridPos"] for panel in PANELS], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, (one, other)
