"""What a gateway keeps in memory when nothing passes: the base, each idle connection, each topic seen, each rule. Bounds, no timings.

A round once lost what the one before had won, 42.9 → 55.0 MB at the base and 297 → 960 MB for a million topics, since nothing held it.
Each bound is what was measured (2026-11) and a tenth, the base's a twenty-fifth. Where a change costs more for a good reason, raise it in
that change, and say the reason there.
"""

from __future__ import annotations

import socket
import time
from typing import Final, NamedTuple

import pytest

from support.gateways import Gateway, StartGateway
from support.rocketmq import frames as rocketmq
from support.wires.idle_connections import AMQP, ROCKETMQ, Dialogue, IdleConnections, allow_open_files

pytestmark = pytest.mark.slow

WARM: Final = 50  # connections before the first look: what is allocated once is there then
IDLE: Final = 1000
TOPICS: Final = 6000  # fewer than one client may use at once, and than have totals of their own
AT_ONCE: Final = 100
RULES: Final = 3000
SETTLE_S: Final = 1.0  # what the last one left to do is done; the log's lines of a second are written
EVERYTHING: Final[dict[str, object]] = {"name": "all", "match": {"protocol": "rocketmq"}, "per": "topic", "limit": {"messages": "1M/s"}}


class Bound(NamedTuple):
    """Bytes, by build."""

    compiled: int
    python: int

    def of(self, gateway: Gateway) -> int:
        return self.compiled if '"build": "compiled"' in gateway.log() else self.python


BASE: Final = Bound(53_100_000, 50_400_000)
CONNECTION: Final = {"amqp": Bound(8_900, 14_400), "rocketmq": Bound(8_900, 13_300)}
TOPIC: Final = Bound(9_200, 9_200)  # with totals of its own, series and a line in the log; they are bounded, so a million cost less each
RULE: Final = Bound(1_900, 1_800)


def settled(gateway: Gateway) -> int:
    time.sleep(SETTLE_S)
    return gateway.resident_bytes()


def listener(protocol: str, idle: IdleConnections) -> dict[str, object]:
    return {"name": "idle", "protocol": protocol, "bind": "127.0.0.1:0", "upstream": idle.upstream}


def test_the_base(start_gateway: StartGateway) -> None:
    with IdleConnections(AMQP) as idle:
        gateway = start_gateway([listener("amqp", idle)], [])
        assert settled(gateway) <= BASE.of(gateway)


@pytest.mark.parametrize(("protocol", "dialogue"), [("amqp", AMQP), ("rocketmq", ROCKETMQ)])
def test_an_idle_connection(start_gateway: StartGateway, protocol: str, dialogue: Dialogue) -> None:
    """Each has been used (AMQP: handshake, channel, an acked publish; RocketMQ: sends, long polls) under a rule that knows it."""
    allow_open_files(2 * (WARM + IDLE) + 200)
    rule = {"name": "all", "match": {"protocol": protocol}, "per": "topic", "limit": {"messages": "1M/s"}}
    with IdleConnections(dialogue) as idle:
        gateway = start_gateway([listener(protocol, idle)], [rule])
        port = gateway.port("idle")
        idle.add(WARM, port)
        base = settled(gateway)
        idle.add(IDLE, port)
        each = (settled(gateway) - base) / IDLE
    assert 0 < each <= CONNECTION[protocol].of(gateway), f"{each:,.0f} bytes for each idle connection"


def test_a_topic(start_gateway: StartGateway) -> None:
    """Access log, series and counters as they are by default."""
    with IdleConnections(ROCKETMQ) as idle:
        gateway = start_gateway([listener("rocketmq", idle)], [EVERYTHING])
        idle.add(1, gateway.port("idle"))
        client, broker = idle.pairs[0]
        use_topics(client, broker, range(WARM))
        base = settled(gateway)
        use_topics(client, broker, range(WARM, WARM + TOPICS))
        each = (settled(gateway) - base) / TOPICS
    assert 0 < each <= TOPIC.of(gateway), f"{each:,.0f} bytes for each topic"


def use_topics(client: socket.socket, broker: socket.socket, numbers: range) -> None:
    """One message to each topic, which wants no answer."""
    for first in range(numbers.start, numbers.stop, AT_ONCE):
        some = range(first, min(first + AT_ONCE, numbers.stop))
        said = b"".join(rocketmq.send(f"orders-{number:05}", opaque=100 + number, one_way=True) for number in some)
        client.sendall(said)
        heard = 0
        while heard < len(said):
            got = len(broker.recv(65536))
            assert got, "the gateway has hung up"
            heard += got


def test_a_rule(start_gateway: StartGateway) -> None:
    rules: list[dict[str, object]] = [
        {"name": f"team-{number}", "match": {"protocol": "rocketmq", "topic": f"orders-{number}"}, "limit": {"messages": "500/s"}}
        for number in range(RULES)
    ]
    with IdleConnections(ROCKETMQ) as idle:
        few, many = (start_gateway([listener("rocketmq", idle)], [*some, EVERYTHING]) for some in (rules[:10], rules))
        each = (settled(many) - settled(few)) / RULES
    assert 0 < each <= RULE.of(many), f"{each:,.0f} bytes for each rule"
