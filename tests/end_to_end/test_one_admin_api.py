"""The admin API over one process, three workers and two gateways of a fleet: whoever asks is told the same, and a change holds everywhere.

The same senders send the same messages, and keep a ledger of the answers. What is shown is held against it: the sum over the gateways,
each of which shows the sum over its workers.
"""

from __future__ import annotations

import csv
import io
import os
import signal
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pika
import pika.exceptions
import pytest

from support.brokers.redis_server import RedisServer
from support.brokers.stand_ins import rabbitmq, rocketmq
from support.gateways import Gateway, amqp_listener
from support.processes import HANG_S, LOOPBACK, wait_until
from support.rocketmq.frames import read_response, send
from support.wires.receiving import receive_frame

SENDERS = 12  # connections of each protocol; twelve go to one of three workers once in 170,000 runs
EACH = 7  # messages of each sender and topic
LIMITED, FREE = "orders", "mails"
FEW = {"messages": "1/h", "burst": {"messages": 20}}
RULES: list[dict[str, object]] = [
    {"name": "few", "match": {"topic": LIMITED}, "per": "topic", "limit": {"messages": "1/h", "burst": {"messages": 20}}},
    {
        "name": "few-keys",
        "match": {"protocol": "amqp", "exchange": LIMITED},
        "per": "topic",
        "limit": {"messages": "1/h", "burst": {"messages": 20}},
    },
    {"name": "others", "match": {}, "per": "topic", "limit": {"messages": "100000/s"}},
]
Place = tuple[str, str]  # protocol, topic as the API writes it
Send = Callable[[str], bool]  # one message to a topic; whether it was taken


class Shape(NamedTuple):
    """How many processes serve."""

    gateways: int
    workers: int


SHAPES = {"one process": Shape(1, 1), "three workers": Shape(1, 3), "two gateways": Shape(2, 1)}


class Deployment:
    """Gateways in front of one broker of each protocol, with senders that are connected to them in turn."""

    def __init__(self, shape: Shape, directory: Path, running: ExitStack) -> None:
        rabbit, rocket = running.enter_context(rabbitmq(delivers=True)), running.enter_context(rocketmq(delivers=True))
        listeners: list[dict[str, object]] = [
            amqp_listener(rabbit.address),
            {"name": "rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:0", "upstream": rocket.address},
        ]
        settings: dict[str, object] = {}
        if shape.gateways > 1:
            redis = running.enter_context(RedisServer(directory / "redis"))
            settings["fleet"] = {"redis": {"url": redis.url, "name": "one-api"}}
        self.shape = shape
        self.gateways: list[Gateway] = []
        for number in range(shape.gateways):
            own = {"name": f"gateway-{number}", "state_directory": "state", "workers": shape.workers}
            made = Gateway(directory / f"gateway-{number}", listeners, RULES, {**settings, "gateway": own})
            self.gateways.append(running.enter_context(made))
        if shape.gateways > 1:
            wait_until(self._joined, within=HANG_S, what="each gateway knows of the other")
        self.taken: Counter[Place] = Counter()  # by the ledger of the senders
        self.refused: Counter[Place] = Counter()
        self._senders: list[tuple[str, Send]] = []
        for number in range(SENDERS):
            gateway = self.gateways[number % shape.gateways]
            self._senders += [("amqp", publisher(gateway, running)), ("rocketmq", producer(gateway, running))]

    def _joined(self) -> bool:
        return all(gateway.get("/v1/status")["fleet"]["gateways"] == len(self.gateways) for gateway in self.gateways)

    def send(self, topic: str, messages: int = 1) -> list[bool]:
        """So many messages of each sender; whether each was taken."""
        answers = []
        for protocol, say in self._senders:
            place = protocol, f"%2F/{topic}/created" if protocol == "amqp" else topic
            for _ in range(messages):
                answers.append(say(topic))
                (self.taken if answers[-1] else self.refused)[place] += 1
        return answers

    def items(self, path: str) -> list[dict[str, Any]]:
        """The whole list of each gateway, page by page."""
        found = []
        for gateway in self.gateways:
            page = gateway.get(f"{path}{'&' if '?' in path else '?'}limit=5")
            found += page["items"]
            while page["next"]:
                page = gateway.get(f"{path}{'&' if '?' in path else '?'}limit=5&cursor={page['next']}")
                found += page["items"]
        return found

    def counts(self, name: str) -> Counter[Place]:
        """One of the counts of topics, summed over the gateways."""
        found: Counter[Place] = Counter()
        for item in self.items("/v1/topics"):
            found[item["protocol"], item["topic"]] += item[name]
        return found


def publisher(gateway: Gateway, running: ExitStack) -> Send:
    connection = pika.BlockingConnection(pika.URLParameters(f"{gateway.amqp_url()}?heartbeat=0"))
    running.callback(quietly, connection.close)
    channel = connection.channel()
    channel.confirm_delivery()

    def publish(topic: str) -> bool:
        try:
            channel.basic_publish(topic, "created", b"x")
        except pika.exceptions.NackError:
            return False
        return True

    return publish


def quietly(close: Callable[[], object]) -> None:
    with suppress(pika.exceptions.AMQPError):
        close()


def producer(gateway: Gateway, running: ExitStack) -> Send:
    talk = running.enter_context(socket.create_connection((LOOPBACK, gateway.port("rocket")), HANG_S))

    def produce(topic: str) -> bool:
        talk.sendall(send(topic))
        return read_response(receive_frame(talk))["code"] == 0

    return produce


@pytest.fixture(scope="module", params=list(SHAPES.values()), ids=list(SHAPES))
def deployment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with ExitStack() as running:
        made = Deployment(request.param, tmp_path_factory.mktemp("deployment"), running)
        made.send(LIMITED, EACH)
        made.send(FREE, EACH)
        wait_until(lambda: made.counts("forwarded") == made.taken, within=HANG_S, what="all that was taken is counted")
        yield made


def test_counts_of_topics_are_the_senders_own(deployment: Deployment) -> None:
    assert deployment.counts("forwarded") == deployment.taken
    assert deployment.counts("refused") == deployment.refused
    assert sum(deployment.refused.values()) > 0
    for protocol in ("amqp", "rocketmq"):
        assert sum(taken for (its, topic), taken in deployment.taken.items() if its == protocol and LIMITED in topic) <= 20, "one limit"


def test_lists_are_paged_sorted_and_searched_alike(deployment: Deployment) -> None:
    for gateway in deployment.gateways:
        whole = gateway.get("/v1/topics?sort=refused&limit=500")
        named = [(each["protocol"], each["topic"]) for each in whole["items"]]
        assert whole["total"] == len(named) == len(set(named)) == 4
        assert {topic for _, topic in (each for each in named if LIMITED in each[1])} == {LIMITED, f"%2F/{LIMITED}/created"}
        searched = gateway.get(f"/v1/topics?q={FREE.upper()}&protocol=rocketmq")["items"]
        assert [each["topic"] for each in searched] == [FREE]


def test_the_clients_that_are_refused_are_one_line_each_with_all_their_refusals(deployment: Deployment) -> None:
    refused: Counter[str] = Counter()
    lines: Counter[tuple[str, str, str]] = Counter()
    for item in deployment.items("/v1/clients"):
        refused[item["protocol"]] += item["refused"]
        lines[item["protocol"], item["listener"], item["client"]] += 1
    assert refused == Counter({p: sum(n for (its, _), n in deployment.refused.items() if its == p) for p in ("amqp", "rocketmq")})
    assert set(lines.values()) == {deployment.shape.gateways}


def test_every_connection_is_described_by_the_process_that_serves_it(deployment: Deployment) -> None:
    found = deployment.items("/v1/connections")
    assert len(found) == 2 * SENDERS
    assert {each["state"] for each in found} == {"running"}
    workers = {each.get("worker") for each in found}
    assert workers <= ({1, 2, 3} if deployment.shape.workers > 1 else {None})
    assert len(workers) > 1 or deployment.shape.workers == 1
    by_listener = Counter(each["listener"] for each in found)
    taken: Counter[str] = Counter()
    for listener in deployment.items("/v1/listeners"):
        taken[listener["name"]] += listener["seats"]["taken"]
    assert by_listener == taken == Counter(rabbit=SENDERS, rocket=SENDERS)
    assert sum(gateway.get("/v1/status")["connections"] for gateway in deployment.gateways) == 2 * SENDERS


def test_a_spreadsheet_has_the_rows_of_the_list(deployment: Deployment) -> None:
    for path, key in (("topics", "topic"), ("connections", "id"), ("clients", "client"), ("limits", "for")):
        for gateway in deployment.gateways:
            rows = list(csv.DictReader(io.StringIO(gateway.request("GET", f"/v1/{path}?format=csv").text)))
            items = gateway.get(f"/v1/{path}?limit=500")["items"]
            told = [str(each.get(key) if path != "limits" else each["level"]["thing"] or "") for each in items]
            assert sorted(row[key] for row in rows) == sorted(told), path


def test_metrics_and_lists_have_the_same_counts(deployment: Deployment) -> None:
    fates: Counter[Place] = Counter()
    for gateway in deployment.gateways:
        for sample in gateway.samples():
            if sample.name == "sluice_messages_forwarded_total" and sample.labels.get("operation") == "produce":
                fates[sample.labels["protocol"], sample.labels["topic"]] += int(sample.value)
    assert {place: fates[place] for place in deployment.taken} == dict(deployment.taken)


def test_a_change_holds_in_every_process_from_its_answer_on_and_its_end_too(deployment: Deployment) -> None:
    words = ("rocketmq", FREE), ("amqp", "/", FREE, "created")
    for gateway in deployment.gateways:
        for each in words:
            gateway.cli("limits", "set", *each, "--messages", "0/s", "--reason", "incident 12")
    assert not any(deployment.send(FREE))
    for gateway in deployment.gateways:
        for each in words:
            gateway.cli("limits", "unset", *each)
    wait_until(lambda: all(deployment.send(FREE)), within=HANG_S, what="all may send again")
    wait_until(lambda: deployment.counts("refused") == deployment.refused, within=HANG_S, what="all refusals are counted")


def test_a_stale_change_is_refused_and_a_preview_changes_nothing(deployment: Deployment) -> None:
    path = f"/v1/limits/rocketmq/{FREE}"
    for gateway in deployment.gateways:
        seen = gateway.request("GET", path)
        body = {"messages": "50000/s", "reason": "a try"}
        assert gateway.request("PUT", f"{path}?dry_run=1", body, If_Match=seen.etag).status == 200
        assert gateway.request("GET", path).etag == seen.etag
        assert gateway.request("PUT", path, body, If_Match=seen.etag).status in {200, 201}
        assert gateway.request("PUT", path, body, If_Match=seen.etag).status == 412
        assert gateway.request("DELETE", path, If_Match=gateway.request("GET", path).etag).status in {200, 204}


def test_the_connection_that_is_meant_is_closed_and_no_other(deployment: Deployment) -> None:
    for gateway in deployment.gateways:
        before = ids(gateway)
        with socket.create_connection((LOOPBACK, gateway.port("rocket")), HANG_S) as talk:
            talk.sendall(send(FREE))
            assert read_response(receive_frame(talk))["code"] == 0, "a connection is listed once it has said something"
            deployment.taken["rocketmq", FREE] += 1
            wait_for_ids(gateway, len(before) + 1)
            (number,) = ids(gateway) - before
            assert gateway.request("DELETE", f"/v1/connections/{number}?reason=test").status == 200
            assert talk.recv(1) == b""
        wait_for_ids(gateway, len(before))
        assert ids(gateway) == before


def wait_for_ids(gateway: Gateway, number: int) -> None:
    wait_until(lambda: len(ids(gateway)) == number, within=HANG_S, what=f"{number} connections")


def ids(gateway: Gateway) -> set[int]:
    return {each["id"] for each in gateway.get("/v1/connections?limit=500")["items"]}


def test_a_worker_that_is_killed_takes_no_count_with_it(deployment: Deployment) -> None:
    """Last: its senders are gone."""
    if deployment.shape.workers == 1:
        assert deployment.gateways[0].get("/v1/status").get("workers") is None
        return
    (gateway,) = deployment.gateways
    before = deployment.counts("forwarded"), deployment.counts("refused")
    wait_until(lambda: served(gateway) == {1, 2, 3}, within=HANG_S, what="all workers serve")
    os.kill(gateway.get("/v1/status")["workers"][1]["pid"], signal.SIGKILL)
    wait_until(lambda: gateway.get("/v1/status")["workers_replaced"] == 1, within=HANG_S, what="it is replaced")
    wait_until(lambda: served(gateway) == {1, 2, 3}, within=HANG_S, what="the new one serves")
    assert (deployment.counts("forwarded"), deployment.counts("refused")) == before


def served(gateway: Gateway) -> set[int]:
    return {each["worker"] for each in gateway.get("/v1/status")["workers"] if each["serves"]}
