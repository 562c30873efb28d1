"""RocketMQ through the gateway in mode A, with the real broker and its Java clients, current and old."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.brokers.rocketmq import RocketMQ
from support.clients.programs import RocketMQClient
from support.gateways import Gateway
from support.models.rates import bounds, in_its_best_second, let_through

pytestmark = pytest.mark.rocketmq

FLOOD_S = 12.0
USES = ["sync", "async", "oneway", "batch", "ordered", "retried", "vip", "transaction", "free", "flood", "limited-burst", "limited-half"]
SHARP: dict[str, object] = {"breaker": {"open_for": "0s"}}
# Messages/s. Far below what a Java client sends one after the other on a machine that RabbitMQ's tests keep busy: 125 (measured).
LIMITED = 25
HALF = 5
FLOODED = 150
QUIET = 50
RULES: list[dict[str, object]] = [
    {"name": "half", "match": {"protocol": "rocketmq", "topic": "limited-half-*"}, "per": "topic", "limit": {"messages": f"{HALF}/s"}},
    {"name": "limited", "match": {"protocol": "rocketmq", "topic": "limited-*"}, "per": "topic", "limit": {"messages": f"{LIMITED}/s"}},
    {
        "name": "flood",
        "match": {"protocol": "rocketmq", "topic": "flood-*"},
        "per": "topic",
        "limit": {"messages": f"{FLOODED}/s"},
        **SHARP,
    },
    {"name": "others", "match": {"protocol": "rocketmq"}, "per": "topic", "limit": {"messages": "50k/s"}},
]


@pytest.fixture(scope="module")
def gateway(rocketmq: RocketMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One gateway for all tests of this file: it stands at the broker's advertised address, and there is only one."""
    with Gateway(tmp_path_factory.mktemp("gateway"), rocketmq.listeners, RULES) as running:
        yield running


@pytest.fixture(scope="module")
def topics(rocketmq: RocketMQ) -> list[str]:
    """All topics, created in one go: the broker then registers once."""
    names = [f"{use}-{version}" for version in ("5", "4") for use in USES]
    retries = [f"%RETRY%readers-{version}:1" for version in ("5", "4")]  # else clients learn of them up to 50 s late
    rocketmq.create_topics(*names, *retries)
    return names


def name(use: str, client: RocketMQClient) -> str:
    return f"{use}-{client.version}"


def ids(topic: str, count: int) -> set[str]:
    return {f"run-{topic}-0-{sequence}" for sequence in range(count)}


@pytest.mark.usefixtures("topics", "gateway")
def test_sends_of_every_kind_arrive_and_are_consumed(rocketmq: RocketMQ, rocketmq_client: RocketMQClient) -> None:
    jobs: list[dict[str, object]] = [
        {"topic": name("sync", rocketmq_client), "mode": "sync", "count": 200},
        {"topic": name("async", rocketmq_client), "mode": "async", "count": 200},
        {"topic": name("oneway", rocketmq_client), "mode": "oneway", "count": 200},
        {"topic": name("batch", rocketmq_client), "mode": "batch", "count": 20, "batch": 10},
        {"topic": name("ordered", rocketmq_client), "mode": "ordered", "count": 200},
    ]
    lines = rocketmq_client.produce("run", *jobs).result()
    assert [(line["ok"], line["codes"]) for line in lines] == [(job["count"], {}) for job in jobs]
    ordered = name("ordered", rocketmq_client)
    batched = name("batch", rocketmq_client)
    in_order = rocketmq_client.consume(f"in-order-{rocketmq_client.version}", ordered, expected=200, orderly=True)
    of_batches = rocketmq_client.consume(f"of-batches-{rocketmq_client.version}", batched, expected=200)
    assert in_order.result()[0]["consumed"] == [f"run-{ordered}-0-{sequence}" for sequence in range(200)]
    assert set(of_batches.result()[0]["consumed"]) == ids(batched, 200)
    assert rocketmq.stored(*(str(job["topic"]) for job in jobs)) == {str(job["topic"]): 200 for job in jobs}


@pytest.mark.usefixtures("topics", "gateway")
def test_messages_that_a_consumer_fails_on_are_sent_back_and_come_again(rocketmq: RocketMQ, rocketmq_client: RocketMQClient) -> None:
    topic = name("retried", rocketmq_client)
    rocketmq_client.produce("run", {"topic": topic, "mode": "async", "count": 200}).result()
    group = name("readers", rocketmq_client)
    line = rocketmq_client.consume(group, topic, expected=200, send_back_every=10).result()[0]
    assert set(line["consumed"]) == ids(topic, 200)
    assert line["sent_back"] == 20
    assert set(line["retried"]) == {f"run-{topic}-0-{sequence}" for sequence in range(0, 200, 10)}
    assert rocketmq.stored(f"%RETRY%{group}") == {f"%RETRY%{group}": 20}


@pytest.mark.usefixtures("topics", "gateway")
def test_the_vip_port_is_served_too(rocketmq_client: RocketMQClient, rocketmq: RocketMQ) -> None:
    topic = name("vip", rocketmq_client)
    (line,) = rocketmq_client.produce("run", {"topic": topic, "count": 50}, vip=True).result()
    assert (line["ok"], line["codes"]) == (50, {})
    assert rocketmq.stored(topic) == {topic: 50}


@pytest.mark.usefixtures("topics", "gateway")
def test_transactions_commit_roll_back_and_are_asked_about(rocketmq: RocketMQ, rocketmq_client: RocketMQClient) -> None:
    topic = name("transaction", rocketmq_client)
    (line,) = rocketmq_client.transact("run", topic, count=9).result()
    assert line["codes"] == {}
    assert len(line["committed"]) == len(line["rolled_back"]) == 3
    assert {f"run-{topic}-0-{sequence}" for sequence in (2, 5, 8)} <= set(line["asked"])
    assert rocketmq.stored(topic) == {topic: 6}


@pytest.mark.usefixtures("topics")
def test_a_limited_topic_surfaces_as_215_and_a_free_one_on_the_same_connection_keeps_its_rate(
    rocketmq: RocketMQ, rocketmq_client: RocketMQClient, gateway: Gateway
) -> None:
    limited, free = name("limited-burst", rocketmq_client), name("free", rocketmq_client)
    flooded, quiet = rocketmq_client.produce(
        "run",
        {"topic": limited, "mode": "sync", "seconds": 4, "rate": 2000},
        {"topic": free, "mode": "sync", "seconds": 4, "rate": QUIET},
    ).result()
    assert set(flooded["codes"]) == {"215"}
    assert flooded["codes"]["215"] == flooded["sent"] - flooded["ok"] > 0
    assert all(f"[RateLimit] for {limited} need wait:" in text for text in flooded["errors"])
    _, at_most = bounds(LIMITED, flooded["elapsed_s"], LIMITED)
    assert flooded["ok"] <= at_most
    assert (quiet["ok"], quiet["codes"]) == (quiet["sent"], {})
    assert (
        in_its_best_second({int(slot): count for slot, count in quiet["accepted_per_100ms"].items()}) >= 0.6 * QUIET
    )  # LIMITED is half of it
    assert rocketmq.stored(limited, free) == {limited: flooded["ok"], free: quiet["ok"]}
    fates = gateway.messages_by_fate("rocketmq", limited)
    assert (fates["received"], fates["forwarded"], fates["refused"]) == (flooded["sent"], flooded["ok"], flooded["codes"]["215"])


@pytest.mark.usefixtures("topics", "gateway")
def test_a_refused_transaction_never_runs_its_local_part(rocketmq: RocketMQ, rocketmq_client: RocketMQClient) -> None:
    topic = name("limited-half", rocketmq_client)
    (flood,) = rocketmq_client.produce("spend", {"topic": topic, "mode": "async", "count": 200}).result()
    assert flood["codes"].keys() == {"215"}
    # The bucket is dry and its breaker open for the first of these; which of the later ones pass depends on how fast Java starts.
    (line,) = rocketmq_client.transact("run", topic, count=600).result()
    refused = line["codes"].get("215", 0)
    assert refused > 0
    assert line["codes"].keys() == {"215"}
    assert line["executed"] == 600 - refused


@pytest.mark.slow
@pytest.mark.usefixtures("topics")
def test_four_connections_flooding_one_topic_share_exactly_its_limit(
    rocketmq: RocketMQ, rocketmq_client: RocketMQClient, gateway: Gateway
) -> None:
    """Without a breaker: it lets a bucket pass at once, and these senders, who wait for each answer, need not have the time to fetch it."""
    topic = name("flood", rocketmq_client)
    job: dict[str, object] = {"topic": topic, "mode": "sync", "seconds": FLOOD_S, "threads": 4, "rate": 250}
    (line,) = rocketmq_client.produce("run", job, connections=4).result()
    _, at_most = bounds(FLOODED, line["elapsed_s"], FLOODED)
    at_least = 0.99 * (let_through({int(slot): count for slot, count in line["begun_per_100ms"].items()}, FLOODED, FLOODED) - FLOODED)
    assert line["sent"] > 1.5 * line["ok"], "the flood was none"
    assert at_least > 0.5 * FLOODED * FLOOD_S, "the flood was none"
    assert at_least <= line["ok"] <= at_most
    assert set(line["codes"]) == {"215"}
    assert rocketmq.stored(topic) == {topic: line["ok"]}
