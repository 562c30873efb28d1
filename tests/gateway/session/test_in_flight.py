"""Limits on what is in flight, on real sessions: slots are taken when a request goes on and come back once, however it ends."""

from __future__ import annotations

import socket
import threading
from random import Random

import pamqp.commands as amqp
import pytest
from pamqp.base import Frame

from gateway.protocols.rocketmq.outstanding import LATE_NS
from limiter.limit_state import LimitState
from limiter.limits import Limit
from limiter.request import Request
from limiter.rules.rule_set import Match, Rule
from support.amqp import frames
from support.processes import HANG_S
from support.rocketmq.frames import read_response, response, send, split_frames
from support.wires.wires import Decide, Wires

MS = 1_000_000


def step(wires: Wires, at: int = 0) -> None:
    """All that was written is read and passed on, now or `at` a time. Not until it is quiet: what is held is judged again and again."""
    for _ in range(8):
        wires.sweeper.sweep(at or wires.now(), 0.0)


def few(concurrent: int, action: str = "reject", algorithm: str = "concurrency", per: str = "topic", **match: str) -> Rule:
    return Rule("few", Match(**match), per=per, limit=Limit(concurrent=concurrent), algorithm=algorithm, action=action)


def state(wires: Wires) -> LimitState:
    (found,) = wires.judge.states(wires.now())
    return found


def in_flight(wires: Wires) -> int:
    return sum(found.in_flight or 0 for found in wires.judge.states(wires.now()))


def sends(first: int, count: int, topic: str = "orders", *, one_way: bool = False) -> bytes:
    return b"".join(send(topic, opaque=number, one_way=one_way) for number in range(first, first + count))


def codes(data: bytes) -> list[tuple[object, object]]:
    return [(answer["opaque"], answer["code"]) for answer in map(read_response, split_frames(data))]


def opened(wires: Wires, *, confirms: bool = True, channels: int = 1) -> tuple[socket.socket, socket.socket]:
    """An AMQP session with its channels open."""
    client, broker = wires.connect("amqp")
    client.sendall(frames.greeting(capabilities={"connection.blocked": True, "basic.nack": True}))
    step(wires)
    broker.sendall(frames.broker_opens())
    for number in range(1, channels + 1):
        exchange(wires, client, broker, number, amqp.Channel.Open(), amqp.Channel.OpenOk())
        if confirms:
            exchange(wires, client, broker, number, amqp.Confirm.Select(), amqp.Confirm.SelectOk())
    step(wires)
    wires.received(client)
    wires.received(broker)
    return client, broker


def exchange(wires: Wires, client: socket.socket, broker: socket.socket, channel: int, said: Frame, answered: Frame) -> None:
    client.sendall(frames.method(channel, said))
    step(wires)
    broker.sendall(frames.method(channel, answered))
    step(wires)


def arrived(wires: Wires, end: socket.socket, count: int) -> list[bytes]:
    """The next `count` RocketMQ frames at `end`. What is held is judged again and again, so the wires are never quiet."""
    found = b""

    def all_there() -> bool:
        nonlocal found
        found += wires.received(end)
        return len(split_frames(found)) >= count

    wires.until(all_there)
    return split_frames(found)


def flood(count: int, key: str = "orders", channel: int = 1) -> bytes:
    return b"".join(frames.publish(channel, key, b"%04d" % number) for number in range(count))


# ---- RocketMQ ------------------------------------------------------------------------------------------------------


def test_sends_beyond_the_limit_are_refused_natively_and_each_answer_makes_room() -> None:
    with Wires(few(3)) as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(sends(1, 5))
        step(wires)
        assert len(split_frames(wires.received(broker))) == 3
        assert codes(wires.received(client)) == [(4, 215), (5, 215)]
        assert (state(wires).in_flight, state(wires).concurrent) == (3, 3)
        broker.sendall(response(2) + response(1))
        step(wires)
        assert state(wires).in_flight == 1
        client.sendall(sends(6, 3))
        step(wires)
        assert len(split_frames(wires.received(broker))) == 2
        broker.sendall(response(3) + response(6) + response(7, 1, remark="no"))
        step(wires)
        assert state(wires).in_flight == 0


def test_one_way_sends_hold_no_slot_and_are_not_limited() -> None:
    with Wires(few(2)) as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(sends(1, 5, one_way=True) + sends(6, 3))
        step(wires)
        assert len(split_frames(wires.received(broker))) == 7
        assert codes(wires.received(client)) == [(8, 215)]
        assert state(wires).in_flight == 2


def test_an_opaque_used_twice_holds_two_slots() -> None:
    with Wires(few(3)) as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(sends(7, 1) * 5)
        step(wires)
        assert len(split_frames(wires.received(broker))) == 3
        for left in (2, 1, 0):
            broker.sendall(response(7))
            step(wires)
            assert state(wires).in_flight == left


def test_an_unanswered_send_gives_its_slot_back_after_a_while_and_a_late_answer_counts_no_more() -> None:
    with Wires(few(2)) as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(sends(1, 2))
        step(wires)
        wires.elapse(LATE_NS / 1e9 - 1)
        assert state(wires).in_flight == 2
        wires.elapse(2)
        assert state(wires).in_flight == 0
        client.sendall(sends(3, 2))
        step(wires)
        broker.sendall(response(1) + response(2))
        step(wires)
        assert state(wires).in_flight == 2


def test_a_connection_that_ends_gives_all_its_slots_back() -> None:
    with Wires(few(4)) as wires:
        client, broker = wires.connect("rocketmq")
        other, _ = wires.connect("rocketmq")
        client.sendall(sends(1, 3))
        other.sendall(sends(1, 1))
        step(wires)
        assert state(wires).in_flight == 4
        client.close()
        broker.close()
        wires.until(lambda: 1 not in wires.sweeper.sessions)
        assert state(wires).in_flight == 1


def test_a_held_send_goes_on_as_soon_as_an_answer_has_made_room() -> None:
    with Wires(few(1, "delay")) as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(sends(1, 4))
        for number in range(1, 5):
            (frame,) = arrived(wires, broker, 1)
            assert read_response(frame)["opaque"] == number
            assert state(wires).in_flight == 1
            broker.sendall(response(number))
        wires.until(lambda: state(wires).in_flight == 0)
        assert wires.totals("rocketmq", "orders")["forwarded"] == 4


def test_a_later_send_never_keeps_the_slot_that_an_earlier_one_waits_for() -> None:
    """Judged while the slot is free and the earlier one not due, it must go behind it: with its slot kept, neither would ever go."""
    with Wires(few(1, "delay")) as wires:
        client, broker = wires.connect("rocketmq")
        other, other_broker = wires.connect("rocketmq")
        at = wires.now()
        other.sendall(sends(1, 1))
        step(wires, at)
        client.sendall(sends(2, 1))
        step(wires, at)
        other_broker.sendall(response(1))
        step(wires, at)
        client.sendall(sends(3, 1))
        step(wires, at)
        for number in (2, 3):
            (frame,) = split_frames(wires.received(broker))
            assert read_response(frame)["opaque"] == number
            broker.sendall(response(number))
            at += 10 * MS
            step(wires, at)
        assert in_flight(wires) == 0
        assert state(wires).admitted == 3


def test_busy_answers_tighten_an_adaptive_limit_at_once() -> None:
    with Wires(few(1000, algorithm="adaptive")) as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(sends(1, 10))
        step(wires)
        assert state(wires).concurrent == 20
        busy = "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 210ms, size of queue: 9"
        broker.sendall(b"".join(response(number, 2, remark=busy) for number in range(1, 11)))
        step(wires)
        assert (state(wires).concurrent, state(wires).in_flight) == (14, 0)


# ---- AMQP ----------------------------------------------------------------------------------------------------------


def test_publishes_beyond_the_limit_are_nacked_and_each_confirm_makes_room() -> None:
    with Wires(few(3)) as wires:
        client, broker = opened(wires)
        client.sendall(flood(5))
        step(wires)
        assert frames.names(wires.received(broker)).count("Basic.Publish") == 3
        assert [confirm.tag for confirm in frames.confirms(wires.received(client))] == [4, 5]
        broker.sendall(frames.ack(1, 2, multiple=True))
        step(wires)
        assert state(wires).in_flight == 1
        broker.sendall(frames.ack(1, 2, multiple=True) + frames.nack(1, 3))
        step(wires)
        assert state(wires).in_flight == 0


def test_publishes_without_confirms_hold_no_slot_and_are_not_limited() -> None:
    with Wires(few(2)) as wires:
        client, broker = opened(wires, confirms=False)
        client.sendall(flood(5))
        step(wires)
        assert frames.names(wires.received(broker)).count("Basic.Publish") == 5
        assert in_flight(wires) == 0


@pytest.mark.parametrize("how", ["client", "broker", "connection"])
def test_a_channel_that_is_closed_gives_its_slots_back(how: str) -> None:
    with Wires(few(4)) as wires:
        client, broker = opened(wires, channels=2)
        client.sendall(flood(2) + flood(1, channel=2))
        step(wires)
        assert state(wires).in_flight == 3
        if how == "client":
            exchange(wires, client, broker, 1, amqp.Channel.Close(200, "", 0, 0), amqp.Channel.CloseOk())
        elif how == "broker":
            broker.sendall(frames.method(1, amqp.Channel.Close(404, "no exchange", 60, 40)))
            step(wires)
        else:
            broker.sendall(frames.method(0, amqp.Connection.Close(320, "bye", 0, 0)))
            step(wires)
        assert state(wires).in_flight == (0 if how == "connection" else 1)


def test_a_broker_that_blocks_tightens_an_adaptive_limit_at_once() -> None:
    with Wires(few(1000, algorithm="adaptive")) as wires:
        client, broker = opened(wires)
        client.sendall(flood(10))
        step(wires)
        broker.sendall(frames.method(0, amqp.Connection.Blocked("low on memory")))
        step(wires)
        assert (state(wires).concurrent, state(wires).in_flight) == (14, 10)
        broker.sendall(frames.method(0, amqp.Connection.Unblocked()) + frames.ack(1, 10, multiple=True))
        step(wires)
        assert (state(wires).concurrent, state(wires).in_flight) == (14, 0)


def test_held_publishes_go_on_in_order_as_confirms_make_room() -> None:
    with Wires(few(2, "delay")) as wires:
        client, broker = opened(wires)
        client.sendall(flood(7))
        forwarded = b""
        for tag in range(1, 8):

            def came(tag: int = tag) -> bool:
                nonlocal forwarded
                forwarded += wires.received(broker)
                return frames.names(forwarded).count("Basic.Publish") >= tag

            wires.until(came)
            assert (state(wires).in_flight or 0) <= 2
            broker.sendall(frames.ack(1, tag))
        assert forwarded == flood(7)
        wires.until(lambda: in_flight(wires) == 0)


def test_a_publish_that_waits_behind_another_keeps_no_slot_from_other_channels() -> None:
    """Channel 1: `a` waits, `b` behind it; channel 2: `b` waits, `a` behind it. Kept slots would lock them until they are refused."""
    rules = [Rule(name, Match(queue=name), limit=Limit(concurrent=1), algorithm="concurrency", action="delay") for name in ("a", "b")]
    with Wires(*rules) as wires:
        first, first_broker = opened(wires)
        client, broker = opened(wires, channels=2)
        at = wires.now()
        first.sendall(flood(1, "a") + flood(1, "b"))
        step(wires, at)
        client.sendall(flood(1, "a", 1) + flood(1, "b", 2))
        step(wires, at)
        first_broker.sendall(frames.ack(1, 2, multiple=True))
        step(wires, at)
        client.sendall(flood(1, "b", 1) + flood(1, "a", 2))
        step(wires, at)
        confirmed = {1: 0, 2: 0}
        for _ in range(4):
            at += 10 * MS
            step(wires, at)
            for frame in frames.read(wires.received(broker)):
                if frame.name == "Basic.Publish":
                    confirmed[frame.channel] += 1
                    broker.sendall(frames.ack(frame.channel, confirmed[frame.channel]))
            step(wires, at)
        assert confirmed == {1: 2, 2: 2}
        assert in_flight(wires) == 0


# ---- the session and its judge -------------------------------------------------------------------------------------


def test_a_client_that_goes_while_its_batch_is_with_the_judge_leaves_no_slot_taken() -> None:
    gate = threading.Event()
    entered = threading.Event()

    def slow(decide: Decide) -> Decide:
        def judged(requests: list[Request], now: int) -> None:
            entered.set()
            gate.wait(HANG_S)
            decide(requests, now)

        return judged

    with Wires(few(9), threads=1, wrap=slow) as wires:
        client, _ = wires.connect("rocketmq")
        client.sendall(sends(1, 5))
        wires.until(entered.is_set)
        session = wires.session()
        session.abort("client", "gone")
        wires.sweeper.end(session)
        assert not wires.sweeper.sessions
        gate.set()
        wires.until(lambda: wires.executor.depth == 0)
        wires.until(lambda: [found.admitted for found in wires.judge.states(wires.now())] == [5])
        wires.until(lambda: in_flight(wires) == 0)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("protocol", ["rocketmq", "amqp"])
def test_after_any_sends_answers_and_ends_all_slots_are_free(protocol: str, seed: int) -> None:
    random = Random(f"{protocol} {seed}")
    action = random.choice(["reject", "delay", "block", "close"])
    rules = (
        few(random.randint(1, 6), action, random.choice(["concurrency", "adaptive"])),
        Rule("all", per="rule", limit=Limit(concurrent=8), algorithm="concurrency", action=random.choice(["reject", "delay"])),
    )
    with Wires(*rules) as wires:
        talks = [RocketmqTalk(wires, random) if protocol == "rocketmq" else AmqpTalk(wires, random) for _ in range(2)]
        for _ in range(40):
            talk = random.choice(talks)
            random.choice([talk.send, talk.send, talk.answer, talk.answer, talk.end])()
            step(wires)
            for found in wires.judge.states(wires.now()):
                assert found.in_flight is not None
                assert 0 <= found.in_flight <= 8
            if random.random() < 0.1:
                wires.elapse(0.5)
        for talk in talks:
            talk.close()
        wires.until(lambda: not wires.sweeper.sessions)
        assert in_flight(wires) == 0


class RocketmqTalk:
    """A client and its broker, which do something at random; the broker answers what it has got, sometimes with errors."""

    def __init__(self, wires: Wires, random: Random) -> None:
        self.wires = wires
        self.random = random
        self.opaque = 0
        self.begin()

    def begin(self) -> None:
        self.client, self.broker = self.wires.connect("rocketmq")
        self.asked: list[int] = []

    def send(self) -> None:
        count = self.random.randint(1, 5)
        try:
            self.client.sendall(sends(self.opaque, count, self.random.choice(["orders", "bills"]), one_way=self.random.random() < 0.1))
        except OSError:
            self.end()
        self.opaque += count

    def answer(self) -> None:
        self.asked += [int(str(read_response(frame)["opaque"])) for frame in split_frames(self.wires.received(self.broker))]
        self.random.shuffle(self.asked)
        count = self.random.randint(0, len(self.asked))
        for opaque in self.asked[:count]:
            self.say(response(opaque, self.random.choice([0, 0, 0, 1, 2, 14]), remark="r"))
        self.asked = self.asked[count:]

    def say(self, data: bytes) -> None:
        try:
            self.broker.sendall(data)
        except OSError:
            self.end()

    def end(self) -> None:
        if self.random.random() < 0.3:
            self.close()
            self.begin()

    def close(self) -> None:
        self.client.close()
        self.broker.close()


class AmqpTalk(RocketmqTalk):
    """The same with publishes on a channel with confirms, which either side closes now and then."""

    def begin(self) -> None:
        self.client, self.broker = opened(self.wires)
        self.forwarded = 0
        self.confirmed = 0

    def send(self) -> None:
        try:
            self.client.sendall(flood(self.random.randint(1, 5), self.random.choice(["orders", "bills"])))
        except OSError:
            self.end()

    def answer(self) -> None:
        self.forwarded += frames.names(self.wires.received(self.broker)).count("Basic.Publish")
        if self.forwarded > self.confirmed:
            tag = self.random.randint(self.confirmed + 1, self.forwarded)
            if self.random.random() < 0.5:
                self.confirmed = tag
                self.say(frames.ack(1, tag, multiple=True))
            else:
                self.confirmed += 1
                self.say(self.random.choice([frames.ack, frames.nack])(1, self.confirmed))

    def end(self) -> None:
        chance = self.random.random()
        if chance < 0.15:
            self.say(frames.method(1, amqp.Channel.Close(404, "gone", 60, 40)))
            self.close_after()
        elif chance < 0.3:
            self.close()
            self.begin()

    def close_after(self) -> None:
        step(self.wires)
        self.close()
        self.begin()
