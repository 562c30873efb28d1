"""Thousands of connections that were used and now only say that they are there: memory and processor time of the gateway.

Both ends are played by this process, so it needs as many descriptors as the gateway: two for each connection. Heartbeats go both ways each
HEARTBEAT_S, evenly spread: for AMQP each hop has its own, for RocketMQ the client's is answered by the broker.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scale.figures import Row, at_most, number
from scale.rig import LIMIT, listener, sluice
from scale.sampling import look
from support.gateways import Gateway
from support.rocketmq import frames as rocketmq
from support.wires.idle_connections import AMQP, ROCKETMQ, Dialogue, IdleConnections, allow_open_files

DIALOGUES: dict[str, Dialogue] = {"rocketmq": ROCKETMQ, "amqp": AMQP}
HEARTBEAT_S = 30.0  # AMQP: half of the 60 s agreed on; RocketMQ: what its clients do
AMQP_HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"
OVER_BASE_MB, BASE_MB, PROCESSOR = 100, 45, 2.0  # issue 7; MB are 10**6 bytes, processor in percent of one
SPARE = 300  # descriptors beside those of connections


@dataclass(frozen=True)
class Plan:
    connections: int = 9500
    seconds: float = 60.0


class Ends(IdleConnections):
    """Both ends of many connections through one gateway, opened one after the other and then kept. A context manager."""

    def __init__(self, protocol: str) -> None:
        super().__init__(DIALOGUES[protocol])
        self.protocol = protocol
        self.beats = 0

    def beat(self, client: socket.socket, broker: socket.socket) -> None:
        """What this connection's two ends do each HEARTBEAT_S."""
        self.beats += 1
        if self.protocol == "amqp":
            for end in (client, broker):
                end.sendall(AMQP_HEARTBEAT)
                drain(end)
            return
        said, answered = rocketmq.heartbeat(opaque=10 + self.beats), rocketmq.response(10 + self.beats)
        client.sendall(said)
        carry(broker, said, answered, client)

    def keep(self, seconds: float) -> None:
        """Heartbeats for so long, connection by connection. One that has ended is an error."""
        begun, first = time.monotonic(), self.beats
        while (elapsed := time.monotonic() - begun) < seconds:
            while self.beats - first < int(elapsed / HEARTBEAT_S * len(self.pairs)):
                self.beat(*self.pairs[self.beats % len(self.pairs)])
            time.sleep(0.01)


def carry(broker: socket.socket, said: bytes, answered: bytes, client: socket.socket) -> None:
    """The broker hears exactly what was said and answers, the client hears exactly that."""
    hear(broker, said)
    broker.sendall(answered)
    hear(client, answered)


def hear(end: socket.socket, expected: bytes) -> None:
    got = b""
    while len(got) < len(expected):
        data = end.recv(len(expected) - len(got))
        if not data:
            raise SystemExit(f"idle: a connection ended after {len(got)} of {len(expected)} bytes")
        got += data
    if got != expected:
        raise SystemExit(f"idle: {got!r} came instead of {expected!r}")


def drain(end: socket.socket) -> None:
    """Heartbeats that have come; nothing else is expected. A socket with a time-out would wait even with MSG_DONTWAIT."""
    end.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        data = end.recv(4096)
        if not data or data.replace(AMQP_HEARTBEAT, b""):
            raise SystemExit(f"idle: an idle connection was told {data!r}")
    end.setblocking(True)


def measure(scratch: Path, protocol: str, plan: Plan) -> dict[str, Any]:
    """Resident bytes before and after, and processor time per second before (a gateway without clients) and while they are kept."""
    connections, seconds = plan.connections, plan.seconds
    allow_open_files(2 * connections + SPARE)
    rule: dict[str, object] = {"name": "all", "match": {"protocol": protocol}, "per": "topic", "limit": LIMIT}
    with Ends(protocol) as ends, sluice(scratch / protocol, [listener("idle", protocol, ends.upstream)], [rule]) as gateway:
        port = gateway.port("idle")
        empty = watched(gateway, lambda: time.sleep(seconds / 4))
        base = look(gateway.process.pid)
        begun = time.monotonic()
        ends.add(connections, port)
        opened_s = time.monotonic() - begun
        time.sleep(min(2.0, seconds))
        held = look(gateway.process.pid)
        kept = watched(gateway, lambda: ends.keep(seconds))
        end = look(gateway.process.pid)
        active = sum(sample.value for sample in gateway.samples() if sample.name == "sluice_connections_active")
    if active != connections:
        raise SystemExit(f"idle: {active:.0f} of {connections} connections are open at the end")
    return {
        "protocol": protocol, "connections": connections, "seconds": seconds, "heartbeats": ends.beats, "opened_s": opened_s,
        "base_resident": base.resident, "held_resident": held.resident, "end_resident": end.resident,
        "descriptors": end.descriptors, "processor_empty": empty, "processor": kept,
    }  # fmt: skip


def watched(gateway: Gateway, act: Callable[[], None]) -> float:
    """Processor seconds per second that the gateway used meanwhile."""
    before = look(gateway.process.pid)
    act()
    after = look(gateway.process.pid)
    return (after.processor_s - before.processor_s) / (after.at - before.at)


def rows(found: dict[str, Any]) -> list[Row]:
    over = found["end_resident"] - found["base_resident"]
    what = f"{found['connections']:,} idle {found['protocol']} connections"
    return [
        at_most(f"{what}: resident, over the base", over / 1e6, OVER_BASE_MB, "MB"),
        at_most("  the base, without clients", found["base_resident"] / 1e6, BASE_MB, "MB"),
        Row("  for each connection", f"{number(over / found['connections'])} bytes"),
        at_most("  processor, with heartbeats", 100 * found["processor"], PROCESSOR, "% of one"),
        Row("  processor, without clients", f"{number(100 * found['processor_empty'])} % of one"),
        Row("  opened in", f"{number(found['opened_s'])} s"),
    ]
