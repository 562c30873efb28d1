"""Sessions in a sweeper over socket pairs: what reaches whom, in what order, and how the end travels."""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import suppress

import pytest

from common.views.connections import HeldView
from gateway.event_loop.sweeper import IDLE
from gateway.pipeline.pipeline import Handler
from gateway.session import description
from gateway.session.session import Session
from limiter.limits import Limit, Rate
from limiter.request import Request
from limiter.rules.rule_set import Match, Rule
from support.processes import HANG_S
from support.rocketmq.frames import heartbeat, read_response, response, send, split_frames
from support.wires.wires import Decide, Wires


def limited(topic: str = "flood", rate: int = 1, **more: object) -> Rule:
    limit = Limit(messages=Rate(rate), messages_burst=10)
    return Rule("limited", Match(protocol="rocketmq", topic=topic), "topic", limit, open_for_ns=0, **more)  # type: ignore[arg-type]


def reset(end: socket.socket) -> None:
    """Close with RST."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()


@pytest.mark.parametrize("threads", [0, 1, 2])
def test_unlimited_traffic_passes_byte_for_byte_in_both_directions(threads: int) -> None:
    upward = b"".join(send("orders", opaque=number) + heartbeat(opaque=1000 + number) for number in range(250))
    downward = b"".join(response(number) for number in range(250))
    with Wires(limited(), threads=threads) as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(upward)
        broker.sendall(downward)
        wires.run()
        assert wires.received(broker) == upward
        assert wires.received(client) == downward


@pytest.mark.parametrize("threads", [0, 1, 2])
def test_a_flood_is_refused_and_the_rest_of_the_connection_is_not(threads: int) -> None:
    with Wires(limited(), threads=threads) as wires:
        client, broker = wires.connect("rocketmq")
        calm = [send("calm", opaque=1000 + number) for number in range(50)]
        flood = [send("flood", opaque=number) for number in range(50)]
        client.sendall(b"".join(frame for pair in zip(calm, flood, strict=True) for frame in pair))
        wires.run()
        forwarded = split_frames(wires.received(broker))
        refusals = [read_response(frame) for frame in split_frames(wires.received(client))]
        assert forwarded == [frame for pair in zip(calm, flood, strict=True) for frame in pair if frame in calm or frame in flood[:10]]
        assert [refusal["opaque"] for refusal in refusals] == list(range(10, 50))
        assert {refusal["code"] for refusal in refusals} == {215}
        assert wires.totals("rocketmq", "flood") == {
            "received": 50, "forwarded": 10, "refused": 40, "dropped": 0, "abandoned": 0, "bypassed": 0, "delayed": 0, "waiting": 0,
        }  # fmt: skip


def test_a_session_waits_its_turn_while_the_judge_is_slow_and_nothing_is_reordered() -> None:
    gate = threading.Event()

    def slow(decide: Decide) -> Decide:
        def judge(requests: list[Request], now: int) -> None:
            gate.wait(HANG_S)
            decide(requests, now)

        return judge

    first = b"".join(send("orders", opaque=number) for number in range(20))
    second = heartbeat(opaque=99) + send("orders", opaque=20)
    with Wires(limited(), threads=1, wrap=slow) as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(first)
        wires.until(lambda: wires.sweeper.submissions == 1)
        client.sendall(second)
        broker.sendall(response(5))
        wires.run()
        assert wires.received(broker) == b""
        assert wires.received(client) == response(5)  # the other direction is not stalled by the judge
        gate.set()
        wires.until(lambda: wires.session().upstream.sent == len(first + second))
        assert wires.received(broker) == first + second


def test_a_failing_judge_lets_messages_pass_in_order_and_counts_them() -> None:
    def failing(_: Decide) -> Decide:
        def judge(_requests: list[Request], _now: int) -> None:
            raise RuntimeError("injected")

        return judge

    flood = b"".join(send("flood", opaque=number) for number in range(50))
    with Wires(limited(), threads=1, wrap=failing) as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(flood)
        wires.until(lambda: wires.session().upstream.sent == len(flood))
        assert wires.received(broker) == flood
        assert wires.totals("rocketmq", "flood")["bypassed"] == 50
        assert wires.executor.failed > 0


@pytest.mark.parametrize(("on_rejection", "passes"), [("pass", 50), ("judge", 10)])
def test_a_full_queue_lets_pass_or_judges_inline_and_counts(on_rejection: str, passes: int) -> None:
    gate = threading.Event()
    blocker = [True]

    def first_is_slow(decide: Decide) -> Decide:
        def judge(requests: list[Request], now: int) -> None:
            if blocker and blocker.pop():
                gate.wait(HANG_S)
            decide(requests, now)

        return judge

    with Wires(limited(), threads=1, queue=1, on_rejection=on_rejection, wrap=first_is_slow) as wires:
        ends = [wires.connect("rocketmq", f"10.0.0.{number}") for number in range(3)]
        ends[0][0].sendall(send("other"))
        wires.until(lambda: wires.executor.depth == 0 and wires.sweeper.submissions == 1)
        time.sleep(0.01)
        ends[1][0].sendall(send("other"))  # waits in the queue behind the slow one
        wires.until(lambda: wires.executor.depth == 1)
        ends[2][0].sendall(b"".join(send("flood", opaque=number) for number in range(50)))
        wires.until(lambda: wires.sweeper.submissions == 3)
        wires.run()
        assert len(split_frames(wires.received(ends[2][1]))) == passes
        assert wires.executor.rejected == 1
        assert wires.totals("rocketmq", "flood")["bypassed"] == (50 if on_rejection == "pass" else 0)
        gate.set()
        wires.until(lambda: wires.session(2).upstream.sent > 0)
        assert split_frames(wires.received(ends[1][1])) == [send("other")]


def test_the_clients_fin_reaches_the_broker_after_its_bytes_and_answers_still_come() -> None:
    with Wires(limited()) as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(send("orders"))
        client.shutdown(socket.SHUT_WR)
        wires.run()
        assert broker.recv(1 << 20) == send("orders")
        assert broker.recv(1 << 20) == b""
        broker.sendall(response(1))
        broker.close()
        wires.run()
        assert client.recv(1 << 20) == response(1)
        assert client.recv(1 << 20) == b""
        assert [(session.cause, error) for session, error in wires.ended] == [("client", None)]


def test_the_brokers_close_reaches_the_client_after_its_bytes() -> None:
    with Wires(limited()) as wires:
        client, broker = wires.connect("rocketmq")
        broker.sendall(response(1) * 100)
        broker.close()
        wires.run()
        assert wires.received(client) == response(1) * 100
        assert client.recv(1) == b""
        client.close()
        wires.until(lambda: bool(wires.ended))
        assert wires.ended[0][0].cause == "broker"


def test_held_messages_are_abandoned_and_counted_when_the_client_goes_away_for_good() -> None:
    with Wires(limited(action="delay", max_delay_ns=2_000_000_000)) as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(b"".join(send("flood", opaque=number) for number in range(30)))
        wires.until(lambda: wires.session().conversation.budget.held_messages == 20)
        client.close()
        broker.close()
        wires.until(lambda: bool(wires.ended))
        totals = wires.totals("rocketmq", "flood")
        assert (totals["forwarded"], totals["abandoned"], totals["waiting"]) == (10, 20, 0)


def test_the_rule_and_topic_that_hold_a_connection_are_shown_until_the_hold_is_over() -> None:
    with Wires(limited(rate=20, action="delay", max_delay_ns=2_000_000_000)) as wires:
        client, _ = wires.connect("rocketmq")

        def held_by() -> object:
            return description.describe(wires.session(), time.monotonic_ns()).held_by

        client.sendall(b"".join(send("flood", opaque=number) for number in range(30)))
        wires.until(lambda: wires.session().conversation.budget.held_messages > 0)
        assert held_by() == HeldView(rule=limited().name, topic="flood", operation="produce")
        wires.until(lambda: wires.session().conversation.budget.held_messages == 0)
        assert held_by() is None


def test_delayed_requests_pass_when_tokens_come_and_others_are_not_kept_waiting() -> None:
    with Wires(limited(rate=500, action="delay", max_delay_ns=2_000_000_000)) as wires:
        client, broker = wires.connect("rocketmq")
        flood = [send("flood", opaque=number) for number in range(30)]
        client.sendall(b"".join(flood) + send("calm", opaque=77))
        wires.until(lambda: wires.session().conversation.budget.held_messages > 0)
        early = split_frames(wires.received(broker))
        assert early == [*flood[: len(early) - 1], send("calm", opaque=77)]
        wires.until(lambda: wires.session().conversation.budget.held_messages == 0)
        wires.run()
        assert early[:-1] + split_frames(wires.received(broker)) == flood
        assert wires.totals("rocketmq", "flood")["delayed"] == 30 - (len(early) - 1)


def test_a_broker_that_does_not_read_stops_the_reader_and_loses_nothing() -> None:
    frames = [send("orders", b"x" * 16384, opaque=number) for number in range(400)]
    stream = b"".join(frames)
    with Wires(limited(), backlog_bytes=65536) as wires:
        client, broker = wires.connect("rocketmq")
        client.setblocking(False)
        sent = 0
        for _ in range(200):
            with suppress(BlockingIOError):
                sent += client.send(stream[sent:])
            wires.sweeper.sweep(time.monotonic_ns(), 0.0)
        session = wires.session()
        assert sent < len(stream)
        assert session.upstream.backlog + session.decode.undecoded() < 65536 + 2 * 262144 + 20000
        assert session.withheld()
        assert description.bottleneck(session, time.monotonic_ns()) == "broker"
        got = bytearray()
        deadline = time.monotonic() + 60
        while len(got) < len(stream):
            assert time.monotonic() < deadline
            got += wires.received(broker)
            if sent < len(stream):
                with suppress(BlockingIOError):
                    sent += client.send(stream[sent:])
            wires.sweeper.sweep(time.monotonic_ns(), 0.001)
        assert bytes(got) == stream


def test_a_client_that_does_not_read_stops_only_its_own_broker_connection() -> None:
    with Wires(limited(), backlog_bytes=65536) as wires:
        _, slow_broker = wires.connect("rocketmq")
        other, other_broker = wires.connect("rocketmq")
        slow_broker.setblocking(False)
        chunk = response(1, body=b"y" * 10000)
        for _ in range(500):
            with suppress(BlockingIOError):
                slow_broker.send(chunk)
            wires.sweeper.sweep(time.monotonic_ns(), 0.0)
        assert wires.session(1).client.backlog < 65536 + 262144 + 1
        other_broker.sendall(response(2))
        wires.run()
        assert wires.received(other) == response(2)


def test_an_exception_in_one_session_closes_that_session_only() -> None:
    with Wires(limited()) as wires:
        client, _ = wires.connect("rocketmq")
        good, good_broker = wires.connect("rocketmq")
        wires.session(1).pipeline.handlers = [Handler()]  # a handler that can do nothing raises
        client.sendall(send("orders"))
        good.sendall(send("orders"))
        wires.until(lambda: bool(wires.ended))
        wires.run()
        assert wires.received(good_broker) == send("orders")
        assert client.recv(1) == b""
        session, error = wires.ended[0]
        assert session.cause == "gateway_error"
        assert isinstance(error, NotImplementedError)


def test_pipelines_of_many_sessions_share_one_submission_per_sweep() -> None:
    rule = Rule("all", Match(protocol="rocketmq"), "topic", Limit(messages=Rate(100_000), messages_burst=100))
    with Wires(rule, threads=1) as wires:
        ends = [wires.connect("rocketmq", f"10.0.0.{number}") for number in range(20)]
        wires.run()
        before = wires.sweeper.submissions
        for client, _ in ends:
            client.sendall(send("orders"))
        forwarded = [b""] * len(ends)

        def have_all() -> bool:
            for at, (_, broker) in enumerate(ends):
                forwarded[at] += wires.received(broker)
            return all(forwarded)

        wires.until(have_all)  # not `run`, which ends where the judge's thread gets no turn for some time
        assert wires.sweeper.submissions - before <= 2
        assert forwarded == [send("orders")] * len(ends)


def test_verdicts_of_a_thread_that_come_with_those_given_on_the_loop_are_carried_on_too() -> None:
    """A submission finished by a thread was collected together with one settled on the loop, and its sessions were never sent (2026-11)."""
    gates = {"large": threading.Event(), "stuck": threading.Event()}

    def gated(decide: Decide) -> Decide:
        def judge(requests: list[Request], now: int) -> None:
            for request in requests:
                if request.key is not None and request.key.text in gates:
                    gates[request.key.text].wait(HANG_S)
            decide(requests, now)

        return judge

    with Wires(limited(), threads=2, queue=1, on_rejection="judge", wrap=gated) as wires:
        ends = [wires.connect("rocketmq", f"10.0.0.{number}") for number in range(6)]
        wires.until(lambda: wires.sweeper.sweep(time.monotonic_ns()) == IDLE)

        def say(number: int, topic: str) -> None:
            ends[number - 1][0].sendall(send(topic))

        say(1, "large")  # session 1: thread 1
        wires.until(lambda: wires.session(1).batch is not None)
        say(2, "stuck")  # the others: thread 0, which stands, and whose queue is full
        wires.until(lambda: wires.session(2).batch is not None and wires.executor.depth == 0)
        say(4, "calm")
        wires.until(lambda: wires.executor.depth == 1)
        wires.session(3).pipeline.handlers = [Handler()]

        def finish(_session: Session, _error: BaseException | None) -> None:
            """Called within a sweep, before session 6 takes its turn: the thread finishes only now."""
            wires.at_end = None
            gates["large"].set()
            while not wires.executor._done:
                time.sleep(0.001)

        wires.at_end = finish
        say(3, "calm")
        say(6, "calm")
        wires.until(lambda: wires.session(6).upstream.sent > 0)
        assert wires.executor.rejected == 1
        wires.until(lambda: wires.session(1).upstream.sent > 0)
        gates["stuck"].set()
        wires.until(lambda: wires.session(2).upstream.sent > 0 and wires.session(4).upstream.sent > 0)
