"""RocketMQ's limits in mode A, with the real broker and its Java clients, current and old.

That sends of every kind, consumers, retries, transactions and the VIP port are as they are directly: test_rocketmq_suite.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.brokers.rocketmq import RocketMQ
from support.clients.programs import RocketMQClient
from support.gateways import Gateway
from support.models.rates import bounds, in_its_best_second, let_through

pytestmark = pytest.mark.rocketmq

FLOOD_S = 12.0
USES = ["free", "flood", "limited-burst", "limited-half"]
SHARP: dict[str, object] = {"breaker": {"open_for": "0s"}}
# Messages/s. Far below what a Java client sends one after the other: 125 beside RabbitMQ's tests, below 31 behind a load of 18 (measured).
LIMITED = 10
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
def topics(rocketmq: RocketMQ) -> None:
    """All topics, created in one go: the broker then registers once."""
    rocketmq.create_topics(*(f"{use}-{version}" for version in ("5", "4") for use in USES))


def name(use: str, client: RocketMQClient) -> str:
    return f"{use}-{client.version}"


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
    best_second = in_its_best_second({int(slot): count for slot, count in quiet["accepted_per_100ms"].items()})
    assert best_second >= 1.5 * LIMITED, "as fast as a busy machine lets it, and not as the limited one"
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
