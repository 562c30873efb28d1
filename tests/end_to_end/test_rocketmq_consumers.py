"""Consumers behind a gateway: their send-backs under a limit, what is never limited of theirs, and what they get under a limit.

One gateway that lets no send to any topic pass, but for a few to retry topics. Messages are put into the broker past it. Java's consumers
under a limit on what they get are in `test_rocketmq_consume.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import pytest

from support.brokers.rocketmq import RocketMQ
from support.brokers.rocketmq_store import store
from support.clients.rocketmq_probes import LIBRARIES, Consumed, RocketmqProbe, word
from support.gateways import Gateway
from support.java import MavenUnreachableError
from support.processes import wait_until

pytestmark = pytest.mark.rocketmq

TWO_A_MINUTE = {"messages": "1/min", "burst": {"messages": 2}}
TWO_A_SECOND = {"messages": "2/s", "burst": {"messages": 2}}
RULES: list[dict[str, object]] = [
    {"name": "tight", "match": {"protocol": "rocketmq", "topic": "%RETRY%tight-*"}, "per": "topic", "limit": TWO_A_MINUTE},
    {"name": "steady", "match": {"protocol": "rocketmq", "topic": "%RETRY%steady-*"}, "per": "topic", "limit": TWO_A_SECOND},
    {
        "name": "slow",
        "match": {"protocol": "rocketmq", "operation": "consume", "topic": "slow-*"},
        "per": "topic",
        "limit": {"messages": "20/s"},
    },
    {"name": "nothing", "match": {"protocol": "rocketmq"}, "per": "topic", "limit": {"messages": "0/s"}},
]
FAILING = 5
SLOW_RATE, SLOW_BURST = 20, 20  # messages per second, messages; as in the rule
SLOW_QUEUES = 4
SLOW_COUNT = 160
PULL = 32  # messages that one request asks for; what it brings beyond its reservation is paid later
LEAST_HOT_LOOP = 20  # requests per second and queue; unheld, the clients below ask 600 to 2,000 times
KNOWN_AS = {"cpp": ("CPP", 63), "go": ("GO", 317), "node": ("JAVA", 121)}  # language and version in their requests
BODIES = [f"m-{number}" for number in range(20)]


@pytest.fixture(scope="module")
def gateway(rocketmq: RocketMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    topics = [f"{use}-{word(library)}" for use in ("failed", "unlimited") for library in LIBRARIES]
    # Groups of no other file: a client that vanished there keeps its queues for two minutes more.
    groups = [f"{use}-{word(library)}" for use in ("tight", "steady", "untouched", "ordered", "slow") for library in LIBRARIES]
    retries = [f"%RETRY%{group}" for group in [*groups, "rebalanced"]]  # else clients learn of them up to 50 s late
    rocketmq.create_topics(
        *(f"{name}:1" for name in [*topics, *retries]), "rebalanced:4", *(f"slow-{library}:{SLOW_QUEUES}" for library in KNOWN_AS)
    )
    with Gateway(tmp_path_factory.mktemp("gateway"), rocketmq.listeners, RULES) as running:
        yield running


@pytest.fixture(scope="module")
def probe(rocketmq: RocketMQ, gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], RocketmqProbe]]:
    """A function from library to its probe; each is started once."""
    with ExitStack() as running:
        started = {library: RocketmqProbe(library, tmp_path_factory.mktemp(word(library)), rocketmq.name_server) for library in LIBRARIES}
        for one in started.values():
            running.callback(one.close)
        yield started.__getitem__


def consumed_at_once(orders: Mapping[str, Callable[[], Consumed]]) -> dict[str, Consumed]:
    """What each of the libraries consumes, all at the same time."""
    with ThreadPoolExecutor(len(orders)) as at_work:
        asked = {library: at_work.submit(order) for library, order in orders.items()}
        try:
            return {library: answer.result() for library, answer in asked.items()}
        except MavenUnreachableError as error:
            pytest.skip(f"A ROCKETMQ CLIENT IS NOT TESTED, its jars cannot be fetched: {error}")


def test_messages_sent_back_over_the_limit_are_consumed_all_the_same(
    rocketmq: RocketMQ, gateway: Gateway, probe: Callable[[str], RocketmqProbe]
) -> None:
    """Whatever the client makes of a refusal; and send-backs and sends to the retry topic share its limit.

    The C++ core sends back all of what it was given at once when one of these failed, and takes no refusal.
    """
    groups = {library: f"{'steady' if library == 'cpp' else 'tight'}-{word(library)}" for library in LIBRARIES}
    orders: dict[str, Callable[[], Consumed]] = {}
    for library, group in groups.items():
        topic = f"failed-{word(library)}"
        store(rocketmq, topic, BODIES)
        failing = 1 if library == "cpp" else FAILING
        orders[library] = partial(probe(library).consume, topic, group, expected=len(BODIES), fail_first=failing)
    consumed = consumed_at_once(orders)
    assert {library: sorted(set(one.consumed)) for library, one in consumed.items()} == dict.fromkeys(LIBRARIES, sorted(BODIES))

    stored = rocketmq.stored(*(f"%RETRY%{group}" for group in groups.values()))
    for library, group in groups.items():
        fates = gateway.messages_by_fate("rocketmq", f"%RETRY%{group}")
        assert stored[f"%RETRY%{group}"] == fates["forwarded"]
        if library == "cpp":
            assert fates["refused"] == 0
            assert 2 < fates["forwarded"] <= len(BODIES)
            continue
        over = FAILING - 2
        sent_instead = 0 if library == "go" else over
        assert (fates["received"], fates["forwarded"], fates["refused"]) == (FAILING + sent_instead, 2, over + sent_instead)


def test_a_limit_of_nothing_leaves_consumers_alone(rocketmq: RocketMQ, gateway: Gateway, probe: Callable[[str], RocketmqProbe]) -> None:
    """Every message comes, once; what was consumed is committed: the next consumer of the group goes on behind it. Queues are locked.

    A client that stops as soon as it has what it expects may not have committed the last of it, on a busy machine none of it. So the last
    message is stored when the broker has the offset of those before it; that one may come again.
    """
    first, second = BODIES[:15], BODIES[15:]
    topics = {library: f"unlimited-{word(library)}" for library in LIBRARIES}
    groups = {library: f"untouched-{word(library)}" for library in LIBRARIES}

    def consume(library: str, bodies: Sequence[str]) -> Consumed:
        expected = BODIES.index(bodies[-1]) + 1 - rocketmq.committed(topics[library], groups[library])
        with ThreadPoolExecutor(1) as at_work:
            asked = at_work.submit(probe(library).consume, topics[library], groups[library], expected=expected)
            store(rocketmq, topics[library], bodies[:-1])
            if bodies == first:
                wait_until(
                    lambda: asked.done() or rocketmq.committed(topics[library], groups[library]) >= len(bodies) - 1,
                    within=30,
                    what=f"{library}'s offset behind all but the last message",
                    every=0.5,
                )
            store(rocketmq, topics[library], bodies[-1:])
            return asked.result()

    for bodies in (first, second):
        consumed = consumed_at_once({library: partial(consume, library, bodies) for library in LIBRARIES})
        again = {first[-1]} - {*bodies}
        new = {library: sorted(body for body in one.consumed if body not in again) for library, one in consumed.items()}
        assert new == dict.fromkeys(LIBRARIES, sorted(bodies))

    ordered = {
        library: partial(probe(library).consume, f"unlimited-{word(library)}", f"ordered-{word(library)}", expected=len(BODIES), orderly=1)
        for library in LIBRARIES
        if library.startswith("java")
    }
    assert [one.consumed for one in consumed_at_once(ordered).values()] == [BODIES] * len(ordered)


def test_a_limit_of_nothing_leaves_rebalancing_alone(rocketmq: RocketMQ, gateway: Gateway, probe: Callable[[str], RocketmqProbe]) -> None:
    """Two consumers of a group share four queues: each gets what only a new share-out can give it."""
    with ThreadPoolExecutor(2) as at_work:
        asked = [at_work.submit(probe(library).consume, "rebalanced", "rebalanced", expected=20) for library in ("java-5", "java-4")]
        sent = 0
        while not all(one.done() for one in asked):
            store(rocketmq, "rebalanced", [f"m-{sent + number}" for number in range(4)], queues=4)
            sent += 4
        try:
            both = [one.result().consumed for one in asked]
        except MavenUnreachableError as error:
            pytest.skip(f"A ROCKETMQ CLIENT IS NOT TESTED, its jars cannot be fetched: {error}")
    assert all(len(set(one)) >= 20 for one in both)
    refused = gateway.messages_by_fate("rocketmq", "rebalanced")
    assert refused["received"] == 0


def test_a_limit_on_what_they_get_is_kept_and_nobody_asks_in_a_loop(
    rocketmq: RocketMQ, gateway: Gateway, probe: Callable[[str], RocketmqProbe]
) -> None:
    bodies = [f"m-{number}" for number in range(SLOW_COUNT)]
    for library in KNOWN_AS:
        store(rocketmq, f"slow-{library}", bodies, queues=SLOW_QUEUES)
    asked: dict[tuple[str, int], int] = {}  # requests by connection, as last seen
    with ThreadPoolExecutor(len(KNOWN_AS)) as at_work:
        under_way = {
            library: at_work.submit(probe(library).consume, f"slow-{library}", f"slow-{library}", expected=SLOW_COUNT)
            for library in KNOWN_AS
        }
        while not all(one.done() for one in under_way.values()):
            for connection in gateway.get("/v1/connections")["items"]:
                for library, known_as in KNOWN_AS.items():
                    if known_as == (connection["language"], connection["version"]):
                        asked[library, connection["id"]] = connection["limited_polls"]
            time.sleep(0.2)
    for library, one in under_way.items():
        consumed = one.result()
        assert sorted(consumed.consumed) == sorted(bodies), library
        assert SLOW_RATE * consumed.elapsed_s + SLOW_BURST + PULL >= SLOW_COUNT, library
        requests = sum(number for (whose, _), number in asked.items() if whose == library)
        assert SLOW_COUNT / PULL <= requests < LEAST_HOT_LOOP * SLOW_QUEUES * consumed.elapsed_s, library
