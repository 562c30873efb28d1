"""By which way a listener's messages were judged: real sessions, threads of their own, a judge that is slow or fails."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from common.views.listeners import JudgingView
from gateway.session.listener_config import ListenerConfig
from limiter.bypass import BypassBound
from limiter.executor import NEVER, TRUSTED
from limiter.limits import Limit, Rate
from limiter.request import Request
from limiter.rules.rule_set import Match, Rule
from support.amqp import frames as amqp
from support.processes import HANG_S
from support.rocketmq.frames import read_response, send, split_frames
from support.wires.wires import Decide, Wires

SECOND = 1_000_000_000


def ten_each() -> Rule:
    """Ten messages of each topic, and no more of it for hours."""
    return Rule("all", Match(protocol="rocketmq"), "topic", Limit(Rate(1, 3600 * SECOND), messages_burst=10), open_for_ns=0)


class Stuck:
    """Between the executor and the judge: requests for `topic` wait for the gate, off the loop's thread only."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.gate = threading.Event()

    def __call__(self, decide: Decide) -> Decide:
        def judge(requests: list[Request], now: int) -> None:
            if threading.current_thread() is not threading.main_thread():
                for request in requests:
                    if request.key is not None and request.key.text == self.topic:
                        assert self.gate.wait(HANG_S)
            decide(requests, now)

        return judge


def config(name: str) -> ListenerConfig:
    return ListenerConfig(name, "rocketmq", 1 << 24, 10 * SECOND)


def test_a_flood_that_fills_its_threads_queue_leaves_the_other_threads_sessions_judged() -> None:
    stuck = Stuck("slow")
    with Wires(ten_each(), threads=2, queue=1, wrap=stuck) as wires:
        flood, calm = config("flood"), config("calm")
        clients = {number: wires.connect("rocketmq", config=calm if number == 1 else flood) for number in range(1, 7)}
        wires.run(0.003)

        def say(number: int, topic: str, messages: int = 1) -> None:
            clients[number][0].sendall(b"".join(send(topic, opaque=each) for each in range(messages)))

        say(2, "slow")  # sessions 2, 4 and 6 are thread 0's
        wires.until(lambda: wires.session(2).batch is not None and wires.executor.depth == 0)
        say(4, "flood")
        wires.until(lambda: wires.executor.depth == 1)
        say(6, "flood", 50)
        wires.until(lambda: wires.session(6).upstream.sent > 0)
        assert len(split_frames(wires.received(clients[6][1]))) == 50, "unjudged: the queue is full"
        say(1, "calm", 50)  # session 1 is thread 1's
        wires.until(lambda: wires.session(1).upstream.sent > 0)
        assert len(split_frames(wires.received(clients[1][1]))) == 10
        stuck.gate.set()
        wires.until(lambda: wires.session(2).upstream.sent > 0 and wires.session(4).upstream.sent > 0)
        assert calm.judging.describe() == JudgingView(queued=1, inline=0, bypassed=0, bypassed_messages=0)
        assert flood.judging.describe() == JudgingView(queued=2, inline=0, bypassed=1, bypassed_messages=50)
        assert repr(flood.judging) == "<JudgingCounts queued=2 inline=0 bypassed=1>"


@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_mixed_stands_in_the_queue_as_what_it_may_be_cut_into(threads: int) -> None:
    stuck = Stuck("slow")
    every = Rule("all", limit=Limit(Rate(1000)))
    with Wires(every, threads=threads, queue=100, wrap=stuck) as wires:
        slow, _, (client, broker) = [wires.connect(protocol) for protocol in ("rocketmq", "rocketmq", "amqp")]
        client.sendall(amqp.greeting(channels=(1,), confirms=(), heartbeat=0))
        broker.sendall(amqp.broker_opens() + amqp.opened(1))
        wires.run(0.003)
        slow[0].sendall(send("slow"))  # sessions 1 and 3 have one thread
        wires.until(lambda: wires.session(1).batch is not None and wires.executor.depth == 0)
        client.sendall(b"".join(amqp.publish(1, f"topic-{number % 7}", b"x") for number in range(40)))
        wires.until(lambda: wires.executor.depth > 0)
        batch = wires.session(3).batch
        assert batch is not None
        assert (len(batch.requests), wires.executor.depth) == (1, 40)
        stuck.gate.set()
        wires.until(lambda: wires.executor.depth == 0)


def test_beyond_max_bypass_a_full_queue_lets_nothing_pass_unjudged() -> None:
    stuck = Stuck("slow")
    with Wires(ten_each(), threads=1, queue=1, max_bypass=BypassBound(100_000, 10 * SECOND), wrap=stuck) as wires:
        one = config("one")
        clients = [wires.connect("rocketmq", config=one) for _ in range(4)]
        wires.run(0.003)
        clients[0][0].sendall(send("slow"))
        wires.until(lambda: wires.session(1).batch is not None and wires.executor.depth == 0)
        clients[1][0].sendall(send("calm"))
        wires.until(lambda: wires.executor.depth == 1)
        clients[2][0].sendall(b"".join(send("flood", opaque=each) for each in range(50)))
        wires.until(lambda: wires.session(3).upstream.sent > 0)
        assert len(split_frames(wires.received(clients[2][1]))) == 10, "judged on the loop: nothing else was judged lately"
        clients[3][0].sendall(b"".join(send("more", opaque=each) for each in range(5)))
        wires.until(lambda: wires.session(4).upstream.sent > 0)
        assert one.judging.describe() == JudgingView(queued=0, inline=1, bypassed=1, bypassed_messages=5), "5 of the 55 settled lately"
        assert wires.totals("rocketmq", "more")["bypassed"] == 5
        stuck.gate.set()
        wires.until(lambda: wires.session(2).upstream.sent > 0)
        assert one.judging.queued == 2


def test_messages_that_a_failing_judge_lets_pass_are_counted_for_their_listener() -> None:
    def failing(_: Decide) -> Decide:
        def judge(requests: list[Request], now: int) -> None:
            raise RuntimeError("injected")

        return judge

    with Wires(ten_each(), threads=0, wrap=failing) as wires:
        one = config("one")
        client, broker = wires.connect("rocketmq", config=one)
        client.sendall(b"".join(send("flood", opaque=each) for each in range(50)))
        wires.until(lambda: wires.session().upstream.sent > 0)
        assert len(split_frames(wires.received(broker))) == 50
        assert one.judging.describe() == JudgingView(queued=0, inline=0, bypassed=1, bypassed_messages=50)


@pytest.mark.parametrize("inline", [NEVER, TRUSTED])
def test_with_inline_never_no_batch_is_judged_on_the_loop_and_limits_and_order_are_as_ever(inline: str) -> None:
    """A hundred batches, one after the other, of a judge that is quick: with `trusted` the loop judges most of them."""
    judges: set[str] = set()

    def watched(decide: Decide) -> Decide:
        def judge(requests: list[Request], now: int) -> None:
            judges.add(threading.current_thread().name)
            decide(requests, now)

        return judge

    with Wires(ten_each(), threads=1, inline=inline, wrap=watched) as wires:
        one = config("one")
        client, broker = wires.connect("rocketmq", config=one)

        def all_judged(batches: int) -> bool:
            return one.judging.queued + one.judging.inline == batches

        for number in range(100):
            client.sendall(b"".join(send(f"topic-{number // 10}", opaque=number * 3 + each) for each in range(3)))
            wires.until(partial(all_judged, number + 1))
        wires.until(lambda: wires.session().batch is None and wires.session().upstream.sent == wires.session().upstream.queued)
        passed = [read_response(each)["opaque"] for each in split_frames(wires.received(broker))]
        assert passed == [topic * 30 + each for topic in range(10) for each in range(10)], "ten of each topic, in order"
        judged = one.judging.describe()
    if inline == NEVER:
        assert judged == JudgingView(queued=100, inline=0, bypassed=0, bypassed_messages=0)
        assert judges == {"sluice-limiter-0"}
    else:
        assert judged.inline > 0
