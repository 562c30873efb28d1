"""Whatever is done on one topic, another one's messages are as fast as in the calm (docs/design/reliability.md I4), before real brokers.

Calm stretches and those with a disturbance of each kind follow each other in turn, on one gateway. Messages of the other topic are sent at
a steady rate, on a connection of their own, and the time from when each was due until its answer counts. A disturbed stretch may be as slow
as 1.2 times the calm one, and 2 ms: a rank test says whether it is slower than that, and not by chance. Gateway, broker and the steady
sender have the machine before what else runs on it, where that may be had.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack, closing

import pytest

from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.brokers.rocketmq import RocketMQ
from support.clients.disturber import KINDS, PROTOCOLS, Disturber
from support.gateways import Gateway, amqp_listener
from support.priority import before_others
from support.processes import LOOPBACK
from support.rank_test import chance

ROUNDS = 5  # of a calm stretch and a disturbed one: by chance all of one kind are slower than all of the other once in 252 times
MOST_ROUNDS = 9
SENDS = 150
RATE = 100  # messages a second
FACTOR = 1.2
ALLOWED_S = 0.002
PERCENTILES = (50, 99)  # the median as well: where the machine is busy, it hides in the 99th what costs each message something
BY_CHANCE = 0.01
PATIENCE_S = 10.0
QUIET = "quiet"
NOISY = "noisy"
STORED = 1500  # messages that a consumer could read
LEAST = {"storm": 500, "stalled consumers": 3, "churn": 5, "wrong bytes": 5, "huge messages": 2}  # done in each disturbed stretch
RULES: list[dict[str, object]] = [{"name": "all", "per": "topic", "limit": {"messages": "200/s", "bytes": "8MiB/s"}}]


class Steady:
    """One connection on which the quiet topic's messages are sent."""

    def __init__(self, protocol: str, port: int) -> None:
        self._wire = PROTOCOLS[protocol](QUIET)
        self._client = self._wire.connected(port)
        self._number = 0

    def stretch(self) -> dict[int, float]:
        """Send for a while; percentiles of the seconds until the answer."""
        took = []
        began = time.monotonic()
        for number in range(SENDS):
            due = began + number / RATE
            time.sleep(max(0.0, due - time.monotonic()))
            self._number += 1
            self._client.sendall(self._wire.message(b"x" * 200, self._number))
            self._wire.await_answer(self._client)
            took.append(time.monotonic() - due)
            assert took[-1] < PATIENCE_S, f"message {number} of a stretch took {took[-1]:.1f} s"
        return {percentile: statistics.quantiles(took, n=100)[percentile - 1] for percentile in PERCENTILES}

    def close(self) -> None:
        self._client.close()


class Story:
    """What became of the quiet topic: percentiles of each stretch, in seconds, calm or by what was done on the noisy one."""

    def __init__(self, protocol: str, port: int, pids: list[int], before_noise: dict[str, Callable[[], None]]) -> None:
        self.calm: list[dict[int, float]] = []
        self.disturbed: dict[str, list[dict[int, float]]] = {kind: [] for kind in KINDS}
        with ExitStack() as stack:
            self.prioritised = stack.enter_context(before_others(*pids))
            disturbers = {kind: stack.enter_context(Disturber(protocol, kind, port, NOISY)) for kind in KINDS}
            steady = stack.enter_context(closing(Steady(protocol, port)))
            steady.stretch()
            while len(self.calm) < ROUNDS or (len(self.calm) < MOST_ROUNDS and any(self.slower(kind) for kind in KINDS)):
                self.calm.append(steady.stretch())
                for kind, disturber in disturbers.items():
                    before_noise.get(kind, lambda: None)()
                    with disturber.disturbing() as done:
                        self.disturbed[kind].append(steady.stretch())
                    assert done["done"] >= LEAST[kind], f"{kind}: that was no disturbance: {done}"

    def slower(self, kind: str) -> dict[int, float]:
        """The percentiles that are beyond what is allowed, each with how likely it is to seem so by chance."""
        found = {}
        for percentile in PERCENTILES:
            allowed = [FACTOR * each[percentile] + ALLOWED_S for each in self.calm]
            likely = chance([each[percentile] for each in self.disturbed[kind]], allowed)
            if likely < BY_CHANCE:
                found[percentile] = likely
        return found

    def told(self, kind: str) -> str:
        each = [f"p{percentile} {in_ms(self.calm, percentile)} / {in_ms(self.disturbed[kind], percentile)}" for percentile in PERCENTILES]
        return f"ms calm / {kind}: {'; '.join(each)}{'' if self.prioritised else '; at an ordinary priority'}"


def in_ms(stretches: list[dict[int, float]], percentile: int) -> str:
    return " ".join(f"{1000 * each:.1f}" for each in sorted(stretch[percentile] for stretch in stretches))


@pytest.fixture(scope="module")
def on_rabbitmq(rabbitmq: RabbitMQ, tmp_path_factory: pytest.TempPathFactory) -> Story:
    with (
        Gateway(tmp_path_factory.mktemp("isolation"), [amqp_listener(f"{LOOPBACK}:{rabbitmq.port}")], RULES) as gateway,
        Queue(rabbitmq.url, QUIET),
        Queue(rabbitmq.url, NOISY) as noisy,
    ):
        fill = {"stalled consumers": lambda: noisy.fill(STORED - noisy.depth(), b"x" * 1000)}
        return Story("amqp", gateway.port("rabbit"), [gateway.process.pid, rabbitmq.pid], fill)


@pytest.fixture(scope="module")
def on_rocketmq(rocketmq: RocketMQ, tmp_path_factory: pytest.TempPathFactory) -> Story:
    listener = {"name": "rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:0", "upstream": f"{LOOPBACK}:{rocketmq.port}"}
    rocketmq.create_topics(QUIET, NOISY)
    fill(rocketmq.port, NOISY)
    with Gateway(tmp_path_factory.mktemp("isolation"), [listener], RULES) as gateway:
        return Story("rocketmq", gateway.port("rocket"), [gateway.process.pid, rocketmq.pid], {})


def fill(port: int, topic: str) -> None:
    """Store messages, directly at the broker."""
    wire = PROTOCOLS["rocketmq"](topic)
    with wire.connected(port) as client:
        for number in range(STORED // 32):
            client.sendall(b"".join(wire.message(b"x" * 1000, 32 * number + each) for each in range(32)))
            answered = 0
            while answered < 32:
                answered += client.recv(1 << 16).count(b'"code":0')


@pytest.mark.parametrize(
    "story", [pytest.param("on_rabbitmq", marks=pytest.mark.rabbitmq), pytest.param("on_rocketmq", marks=pytest.mark.rocketmq)]
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_is_as_fast_as_in_the_calm(
    request: pytest.FixtureRequest, story: str, kind: str, record_property: Callable[[str, object], None]
) -> None:
    found: Story = request.getfixturevalue(story)
    record_property("remark", found.told(kind))
    assert not found.slower(kind), found.told(kind)
