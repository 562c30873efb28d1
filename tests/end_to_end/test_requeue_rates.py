"""The fastest loop that a broker yields to one consumer, held at its limit within 2 %, while another consumer on its connection gets its
full rate: before a real RabbitMQ, before a stand-in that yields more than 20,000 redeliveries a second, and before a real RocketMQ.
"""

from __future__ import annotations

import json
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Final

import pytest
from pamqp import commands

from support.amqp import frames as amqp
from support.amqp.pretend_wire import ACK, DELIVER, NACK, cut_frames, frame
from support.brokers.name_servers import read_frame
from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.brokers.rocketmq import RocketMQ
from support.brokers.stand_ins import StandIn
from support.clients.raw_amqp import opening
from support.clients.storm import original
from support.gateways import Gateway, amqp_listener
from support.processes import HANG_S, LOOPBACK
from support.rocketmq.frames import encode_request, send
from support.rocketmq.stored_messages import pull
from support.wires.receiving import receive_exactly

LOOP: Final = 1  # channels
BESIDE: Final = 2
QUEUES: Final = {LOOP: "loop", BESIDE: "beside"}
RATES: Final = {LOOP: 200, BESIDE: 400}  # a second: requeues; deliveries
BURST_S: Final = 0.25  # of each rate: what a busy machine has been late with is made up for
PREFETCH: Final = 200  # of each channel, all of it on its way all the time
BEGINNING_S: Final = 1.0  # the bursts are gone
WINDOW_S: Final = 6.0
WINDOWS: Final = 5  # at most, until one is as it should be: a busy machine is late by more than 2 % of one; none may be above its limit
OFF: Final = 0.02
FASTEST_S: Final = 0.25  # of which the fastest says how fast a loop is: others have the machine for the rest
STORM: Final = 20_000  # redeliveries a second
BODY: Final = b"x" * 100
RULES: Final[dict[str, list[dict[str, object]]]] = {
    protocol: [
        {
            "name": QUEUES[channel], "match": {**match, "operation": operation}, "action": "delay",
            "limit": {"messages": f"{RATES[channel]}/s", "burst": f"{1000 * BURST_S:.0f}ms"},
        }
        for channel, operation, match in ((LOOP, "requeue", {whose: QUEUES[LOOP]}), (BESIDE, "consume", {what: QUEUES[BESIDE]}))
    ]
    for protocol, whose, what in (("amqp", "queue", "queue"), ("rocketmq", "group", "topic"))
}  # fmt: skip


class Client:
    """What both clients do. `got` by channel."""

    def __init__(self, port: int) -> None:
        self.got: Counter[int] = Counter()
        self._rest = b""
        self._socket = socket.create_connection((LOOPBACK, port), timeout=HANG_S)

    def rates(self, seconds: float) -> dict[int, float]:
        """What comes in a second on each channel, over so long."""
        before, began = self.got.copy(), time.monotonic()
        while (took := time.monotonic() - began) < seconds:
            self._socket.sendall(self.answers(self._rest + self._socket.recv(1 << 18)))
        return {channel: (self.got[channel] - before[channel]) / took for channel in QUEUES}

    def answers(self, data: bytes) -> bytes:
        """What is said to `data`, whose rest is kept."""
        raise NotImplementedError

    def close(self) -> None:
        self._socket.close()


class Consumer(Client):
    """RabbitMQ's: gives back all that comes on the one channel and acknowledges all on the other, as fast as it comes."""

    def __init__(self, port: int, *channels: int) -> None:
        super().__init__(port)
        consuming = [
            amqp.method(channel, commands.Basic.Qos(prefetch_count=PREFETCH))
            + amqp.method(channel, commands.Basic.Consume(queue=QUEUES[channel], consumer_tag="c", nowait=True))
            for channel in channels
        ]
        self._socket.sendall(opening(*channels) + b"".join(consuming))

    def answers(self, data: bytes) -> bytes:
        found, self._rest = cut_frames(data)
        said = []
        for kind, channel, payload in found:
            if kind == 1 and payload.startswith(DELIVER):
                at = 5 + payload[4]
                self.got[channel] += 1
                tag = payload[at : at + 8]
                said.append(frame(1, channel, NACK + tag + b"\2" if channel == LOOP else ACK + tag + b"\0"))
        return b"".join(said)


class Group(Client):
    """RocketMQ's: gives one message back again and again, PREFETCH times at once, and pulls another topic."""

    def __init__(self, port: int, offset: int, *channels: int) -> None:
        super().__init__(port)
        self.refused = 0
        self._read = 0  # messages of the other topic
        self._back = {"group": QUEUES[LOOP], "offset": str(offset), "originTopic": QUEUES[LOOP], "delayLevel": "18"}
        for opaque in (*(range(PREFETCH) if LOOP in channels else ()), *([PREFETCH] if BESIDE in channels else ())):
            self._socket.sendall(self._ask(opaque))

    def _ask(self, opaque: int) -> bytes:
        if opaque == PREFETCH:
            return pull(QUEUES[BESIDE], offset=self._read, group=QUEUES[BESIDE], opaque=opaque)
        return encode_request(36, {**self._back, "maxReconsumeTimes": "16", "unitMode": "false"}, opaque=opaque)

    def answers(self, data: bytes) -> bytes:
        said = []
        while len(data) >= 4 and len(data) >= (size := 4 + int.from_bytes(data[:4], "big")):
            answer, data = data[:size], data[size:]
            header = json.loads(answer[8 : 8 + int.from_bytes(answer[5:8], "big")])
            opaque = int(header["opaque"])
            if opaque == PREFETCH:
                read = int(header["extFields"]["nextBeginOffset"])
                self.got[BESIDE] += read - self._read
                self._read = read
            elif header["code"] == 0:
                self.got[LOOP] += 1
            else:
                self.refused += 1
            said.append(self._ask(opaque))
        self._rest = data
        return b"".join(said)


def serve(client: socket.socket) -> None:
    """A broker whose queues have PREFETCH messages for each consumer: one that is answered for is delivered (again) at once."""
    receive_exactly(client, 8)
    client.sendall(amqp.broker_opens())
    tags: Counter[int] = Counter()
    content = {channel: amqp.content(channel, BODY) for channel in QUEUES}

    def deliver(channel: int) -> bytes:
        tags[channel] += 1
        return frame(1, channel, DELIVER + b"\1c" + tags[channel].to_bytes(8, "big") + b"\1\0\4loop") + content[channel]

    rest = b""
    while data := client.recv(1 << 18):
        found, rest = cut_frames(rest + data)
        said = []
        for kind, channel, payload in found:
            method = payload[:4]
            if kind == 1 and method in {ACK, NACK}:
                said.append(deliver(channel))
            elif method == b"\0\x14\0\x0a":
                said.append(amqp.opened(channel))
            elif method == b"\0\x3c\0\x0a":
                said.append(amqp.method(channel, commands.Basic.QosOk()))
            elif method == b"\0\x3c\0\x14":
                said += [deliver(channel) for _ in range(PREFETCH)]
        client.sendall(b"".join(said))


@contextmanager
def a_stand_in(_: pytest.FixtureRequest) -> Iterator[int]:
    with StandIn(serve) as stand_in:
        yield stand_in.port


@contextmanager
def a_real_one(request: pytest.FixtureRequest) -> Iterator[int]:
    rabbitmq: RabbitMQ = request.getfixturevalue("rabbitmq")
    with Queue(rabbitmq.url, QUEUES[LOOP]) as loop, Queue(rabbitmq.url, QUEUES[BESIDE]) as beside:
        loop.fill(PREFETCH, BODY)
        beside.fill(int(RATES[BESIDE] * (BEGINNING_S + (WINDOWS + 1) * WINDOW_S)), BODY)
        yield rabbitmq.port


def is_at(rates: dict[int, float]) -> bool:
    return all(rates[channel] == pytest.approx(RATES[channel], rel=OFF) for channel in RATES)


def fastest(client: Client) -> float:
    with closing(client):
        return max(client.rates(FASTEST_S)[LOOP] for _ in range(20))


def check(client: Client, fastest: float) -> str:
    """What is to be told, where both are at their rates."""
    with closing(client):
        client.rates(BEGINNING_S)
        found = [client.rates(WINDOW_S)]
        while not is_at(found[-1]) and len(found) < WINDOWS:
            found.append(client.rates(WINDOW_S))
    rates = "; ".join(f"{each[LOOP]:.1f}/s, beside it {each[BESIDE]:.1f}/s" for each in found)
    told = f"{fastest:,.0f}/s without the gateway; at {RATES[LOOP]}/s, beside {RATES[BESIDE]}/s: {rates}"
    assert all(each[channel] <= RATES[channel] * (1 + OFF + BURST_S / WINDOW_S) for each in found for channel in RATES), told
    assert is_at(found[-1]), told
    return told


@pytest.mark.long
@pytest.mark.parametrize("broker", [pytest.param(a_real_one, marks=pytest.mark.rabbitmq), a_stand_in])
def test_the_fastest_loop_is_held_and_its_neighbour_has_its_full_rate(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    broker: Callable[[pytest.FixtureRequest], AbstractContextManager[int]],
) -> None:
    with broker(request) as port:
        loops = fastest(Consumer(port, LOOP))
        assert loops > STORM or broker is a_real_one
        with Gateway(tmp_path, [amqp_listener(f"{LOOPBACK}:{port}")], RULES["amqp"]) as gateway:
            record_property("remark", check(Consumer(gateway.port("rabbit"), LOOP, BESIDE), loops))


@pytest.mark.long
@pytest.mark.rocketmq
def test_a_group_that_sends_back_is_held_and_its_neighbour_has_its_full_rate(
    rocketmq: RocketMQ, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    rocketmq.create_topics(QUEUES[LOOP], f"{QUEUES[BESIDE]}:1")
    offset = original((LOOPBACK, rocketmq.port), QUEUES[LOOP], len(BODY))
    with socket.create_connection((LOOPBACK, rocketmq.port), timeout=HANG_S) as connection:
        for _ in range(int(RATES[BESIDE] * (BEGINNING_S + (WINDOWS + 1) * WINDOW_S))):
            connection.sendall(send(QUEUES[BESIDE], BODY, opaque=0))
            read_frame(connection)
    loops = fastest(Group(rocketmq.port, offset, LOOP))
    listener = {"name": "rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:0", "upstream": f"{LOOPBACK}:{rocketmq.port}"}
    with Gateway(tmp_path, [listener], RULES["rocketmq"]) as gateway:
        record_property("remark", check(Group(gateway.port("rocket"), offset, LOOP, BESIDE), loops))
