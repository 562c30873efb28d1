"""A gateway in a control group that the kernel guards, under more load than fits into it (docs/design/reliability.md F41).

Strangers begin frames of 16 MiB, consumers do not read, a storm and huge messages are over their limit, all at once and again and again.
The kernel kills nothing, and a publisher and a consumer of another topic go on.
"""

from __future__ import annotations

import shlex
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, suppress

import pika
import pytest

from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.brokers.rocketmq import RocketMQ
from support.clients.disturber import PROTOCOLS, Disturber
from support.gateways import StartGateway, amqp_listener, command
from support.memory_group import MemoryGroup, NoMemoryGroupError
from support.processes import HANG_S, LOOPBACK
from support.rocketmq import frames as rocketmq_frames
from support.threads import working

pytestmark = [pytest.mark.rabbitmq, pytest.mark.rocketmq]

MIB = 1 << 20
LIMIT = 192 * MIB
STRANGERS = 60  # each with most of 16 MiB: five times the limit
STRANGERS_S = 5.0  # from when on they begin anew
PATIENCE_S = HANG_S  # for one message of the quiet topic: publishers wait while memory is short
RULES: list[dict[str, object]] = [{"name": "noisy", "match": {"topic": "*noisy*"}, "per": "topic", "limit": {"messages": "200/s"}}]


class Strangers:
    """Clients that begin a frame of 16 MiB each, again and again, and never end one."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._stopping = threading.Event()
        self.rounds = 0

    def _run(self) -> None:
        batch = rocketmq_frames.send("noisy", rocketmq_frames.batch_body(*[b"x" * MIB] * 15, b"x" * 900_000), code=320, batch=True)
        begun = memoryview(batch)[: len(batch) - 200_000]
        while not self._stopping.is_set():
            with ExitStack() as stack:
                left = {}
                for _ in range(STRANGERS):
                    with suppress(OSError):
                        client = stack.enter_context(socket.create_connection((LOOPBACK, self._port), timeout=10))
                        client.setblocking(False)
                        left[client] = begun
                until = time.monotonic() + STRANGERS_S
                while time.monotonic() < until and not self._stopping.wait(0.02):
                    for client, rest in left.items():
                        with suppress(OSError):
                            left[client] = rest[client.send(rest[:262_144]) :]
                self.rounds += 1

    def coming(self) -> AbstractContextManager[None]:
        return working(self._run, self._stopping)


class Steady:
    """One connection that publishes on the quiet topic."""

    def __init__(self, port: int) -> None:
        self._wire = PROTOCOLS["amqp"]("quiet")
        self._client = self._wire.connected(port)
        self._client.settimeout(PATIENCE_S)
        self.sent = 0
        self.longest_s = 0.0

    def send(self) -> None:
        """Publish, and wait for the confirm. Raises TimeoutError."""
        began = time.monotonic()
        self._client.sendall(self._wire.message(b"x" * 200, self.sent))
        self._wire.await_answer(self._client)
        self.sent += 1
        self.longest_s = max(self.longest_s, time.monotonic() - began)

    def close(self) -> None:
        self._client.close()


class Consumer:
    """A consumer of the quiet queue; what it gets is published at the broker."""

    def __init__(self, url: str, queue: Queue) -> None:
        self._queue = queue
        self._connection = pika.BlockingConnection(pika.URLParameters(url + "?heartbeat=0"))
        self._incoming = self._connection.channel().consume(queue.name, auto_ack=True, inactivity_timeout=PATIENCE_S)
        self.longest_s = 0.0

    def receive(self) -> None:
        """One message more, at least."""
        began = time.monotonic()
        self._queue.fill(1, b"x" * 200)
        method, _, _ = next(self._incoming)
        assert method is not None, f"nothing in {PATIENCE_S:g} s"
        self.longest_s = max(self.longest_s, time.monotonic() - began)

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def group() -> Iterator[MemoryGroup]:
    """Asked for before the gateway that lives in it, so that it is removed after that has ended."""
    with ExitStack() as stack:
        try:
            yield stack.enter_context(MemoryGroup(LIMIT))
        except NoMemoryGroupError as error:
            pytest.skip(f"A GATEWAY THAT RUNS OUT OF MEMORY IS NOT TESTED: {error}")


@pytest.mark.parametrize("seconds", [20, pytest.param(600, marks=pytest.mark.long)])
def test_more_load_than_memory_kills_nothing_and_stops_nobody_for_good(
    group: MemoryGroup,
    rabbitmq: RabbitMQ,
    rocketmq: RocketMQ,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
    seconds: int,
) -> None:
    with ExitStack() as stack:
        monkeypatch.setenv("SLUICE_COMMAND", group.command(shlex.join(command())))
        listeners = [
            amqp_listener(f"{LOOPBACK}:{rabbitmq.port}"),
            {"name": "rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:0", "upstream": f"{LOOPBACK}:{rocketmq.port}"},
        ]
        gateway = start_gateway(listeners, RULES)
        monkeypatch.undo()
        rabbit, rocket = gateway.port("rabbit"), gateway.port("rocket")
        quiet = stack.enter_context(Queue(rabbitmq.url, "quiet"))
        noisy = stack.enter_context(Queue(rabbitmq.url, "noisy"))
        noisy.fill(3000, b"x" * 4000)
        for kind, protocol, port in (
            ("storm", "amqp", rabbit),
            ("stalled consumers", "amqp", rabbit),
            ("huge messages", "rocketmq", rocket),
        ):
            disturber = stack.enter_context(Disturber(protocol, kind, port, "noisy"))
            stack.enter_context(disturber.disturbing())
        strangers = Strangers(rocket)
        stack.enter_context(strangers.coming())
        publisher = stack.enter_context(closing(Steady(rabbit)))
        consumer = stack.enter_context(closing(Consumer(gateway.amqp_url(), quiet)))
        most = 0
        steps: set[float] = set()
        until = time.monotonic() + seconds
        while time.monotonic() < until or strangers.rounds < 2:
            publisher.send()
            consumer.receive()
            most = max(most, gateway.resident_bytes())
            steps |= {sample.value for sample in gateway.samples() if sample.name == "sluice_memory_limit_step"}
        record_property(
            "remark",
            f"{most >> 20} of {LIMIT >> 20} MiB at most, steps {sorted(steps)}, {strangers.rounds} rounds of strangers, "
            f"{publisher.sent} messages, {publisher.longest_s:.1f} s to publish and {consumer.longest_s:.1f} s to receive at most",
        )
        assert group.kills() == 0
        assert gateway.alive()
        assert publisher.sent > 1
        assert most > LIMIT / 2, "that was no load"
