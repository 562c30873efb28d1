"""What polls over their limit ask of a session: they wait without holding anything else up, and their messages are counted as they pass."""

from __future__ import annotations

import socket
import threading
from functools import partial

import pytest

from common.views.connections import HeldView
from gateway.clock import now_ns
from gateway.event_loop.sweeper import IDLE
from gateway.session import description
from gateway.session.listener_config import ListenerConfig
from gateway.transport.channel import READ_BYTES
from limiter.limits import NEVER, Limit, Rate
from limiter.request import Request
from limiter.rules.rule_set import Match, Rule, RuleSet
from support.processes import HANG_S
from support.rocketmq import stored_messages
from support.rocketmq.frames import encode_request, heartbeat, read_response, response, send, split_frames
from support.rocketmq.stored_messages import found, nothing_found, stored
from support.wires.conversations import rule
from support.wires.wires import Decide, Wires

pull = partial(stored_messages.pull, signed=True)  # so that it stays as it is, whatever passes in a second

FATES = ("received", "forwarded", "refused", "dropped", "abandoned", "waiting")


def limit(messages: int, burst: int | None = None) -> Rule:
    match = Match(protocol="rocketmq", topic="orders", operation="consume")
    return Rule("orders", match=match, limit=Limit(messages=Rate(messages), messages_burst=burst))


def consumed(wires: Wires, topic: str = "orders") -> list[int]:
    totals = wires.totals("rocketmq", topic, "consume")
    return [totals[fate] for fate in FATES]


class Gate:
    """Before the judge: while it is shut no verdict is given (for 5 s at most)."""

    def __init__(self) -> None:
        self._opened = threading.Event()
        self._opened.set()

    def before(self, decide: Decide) -> Decide:
        def judged(requests: list[Request], now: int) -> None:
            self._opened.wait(HANG_S)
            decide(requests, now)

        return judged

    def shut(self) -> None:
        self._opened.clear()

    def open(self) -> None:
        self._opened.set()


def test_the_first_empty_answer_of_a_slaves_listener_keeps_the_consumer_there() -> None:
    config = ListenerConfig("names/broker-a/1", "rocketmq", 1 << 24, 10_000_000_000)
    config.broker_id = 1
    with Wires(limit(0)) as wires:
        client, _ = wires.connect("rocketmq", config=config)
        client.sendall(pull("orders", opaque=1))
        wires.elapse(15)
        answer = read_response(wires.received(client))
        assert answer["extFields"]["suggestWhichBrokerId"] == "1"  # type: ignore[index]


@pytest.mark.parametrize("threads", [0, 1])
def test_messages_that_consumers_get_are_counted_with_and_without_a_rule(threads: int) -> None:
    with Wires(limit(1000), threads=threads) as wires:
        client, broker = wires.connect("rocketmq")
        requests = pull("mail", opaque=1) + pull("orders", opaque=2)
        client.sendall(requests)
        wires.until(lambda: wires.session().forward.messages == 1)
        assert wires.received(broker) == requests
        answers = found(1, *[stored(b"1234")] * 5) + found(2, *[stored(b"123")] * 7)
        broker.sendall(answers)
        wires.run()
        assert wires.received(client) == answers
        assert consumed(wires, "mail") == [5, 5, 0, 0, 0, 0]
        assert consumed(wires) == [7, 7, 0, 0, 0, 0]
        assert wires.accounts.totals("rocketmq", "orders", "consume").bytes == 21
        wires.until(lambda: wires.judge.states(now_ns())[0].admitted == 7)


def test_a_held_pull_waits_while_everything_else_goes_on_and_is_seen() -> None:
    with Wires(limit(0)) as wires:
        client, broker = wires.connect("rocketmq")
        others = [pull("mail", opaque=2), send("orders", opaque=3), heartbeat(opaque=4)]
        client.sendall(pull("orders", opaque=1) + b"".join(others))
        wires.run()
        assert wires.received(broker) == b"".join(others)
        answers = response(3) + response(4) + nothing_found(2)
        broker.sendall(answers)
        wires.run()
        assert wires.received(client) == answers
        session = wires.session()
        told = description.describe(session, now_ns())
        assert (told.state, told.bottleneck, told.held_polls, told.held_messages) == ("throttled", "limit", 1, 0)
        assert told.held_by == HeldView(rule="orders", topic="orders", operation="consume")
        assert consumed(wires) == [0, 0, 0, 0, 0, 0], "a pull is no message"
        assert wires.judge.states(now_ns())[0].held == 1


def test_a_held_pull_goes_on_by_itself_when_it_may() -> None:
    with Wires(limit(20, burst=1)) as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(pull(queue=0, opaque=1) + pull(queue=1, opaque=2))
        wires.run()
        assert wires.received(broker) == pull(queue=0, opaque=1)
        broker.sendall(found(1, stored(), stored()))
        wires.until(lambda: wires.session().conversation.budget.held_polls == 0)
        wires.run()
        assert wires.received(broker) == pull(queue=1, opaque=2)


def test_a_held_pull_is_answered_when_its_clients_patience_is_over() -> None:
    with Wires(limit(0)) as wires:
        client, _ = wires.connect("rocketmq")
        client.sendall(pull(opaque=5, offset=77))
        wires.run()
        wires.elapse(9.2)
        answer = read_response(wires.received(client))
        assert (answer["code"], answer["opaque"]) == (19, 5)
        assert consumed(wires) == [0, 0, 0, 0, 0, 0]


def test_no_sides_end_waits_for_a_held_pull() -> None:
    with Wires(limit(0)) as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(pull(opaque=1) + send("mail", opaque=2))
        wires.run()
        assert wires.received(broker) == send("mail", opaque=2)
        broker.sendall(response(2))
        wires.run()
        client.close()
        wires.run()
        assert broker.recv(1) == b""
        broker.close()
        wires.until(lambda: bool(wires.ended))
        assert [(session.cause, error) for session, error in wires.ended] == [("client", None)]
        assert consumed(wires) == [0, 0, 0, 0, 0, 0], "nothing is abandoned: the client would ask again"


def test_what_the_pull_of_a_client_that_has_ended_had_reserved_comes_back() -> None:
    with Wires(limit(1, burst=1), rule("delay", messages=1, burst=1, protocol="rocketmq", topic="mail")) as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(
            send("mail", opaque=1) + send("mail", opaque=2) + encode_request(9_999, None, bytes(2 * READ_BYTES)) + pull(opaque=3)
        )
        client.shutdown(socket.SHUT_WR)
        wires.run()
        assert [read_response(each)["code"] for each in split_frames(wires.received(broker))] == [310, 9_999]
        assert {state.thing: state.fill for state in wires.judge.states(wires.now())}["orders"] == 0
        wires.elapse(2)
        assert split_frames(wires.received(broker)) == [send("mail", opaque=2)]
        assert {state.thing: state.fill for state in wires.judge.states(wires.now())}["orders"] == 1


def test_the_brokers_stream_goes_on_while_a_slow_judge_settles() -> None:
    """Of topics nobody limits; a settlement keeps only its own connection's broker from being read, and only while it lasts."""
    gate = Gate()
    with Wires(limit(1000), threads=1, wrap=gate.before) as wires:
        client, broker = wires.connect("rocketmq")
        free_client, free_broker = wires.connect("rocketmq", "10.0.0.8")
        client.sendall(pull("orders", opaque=1))
        free_client.sendall(pull("mail", opaque=1))
        wires.until(lambda: wires.session().forward.messages == 1)
        wires.run()
        gate.shut()
        limited = found(1, stored())
        broker.sendall(limited)
        wires.run()
        assert wires.received(client) == limited, "the answer itself never waits"
        free = found(1, stored(), stored())
        free_broker.sendall(free)
        wires.run()
        assert wires.received(free_client) == free
        gate.open()
        wires.until(lambda: wires.judge.states(now_ns())[0].admitted == 1)


def test_the_loop_does_not_turn_round_while_the_judge_has_a_settlement_and_another_is_due() -> None:
    gate = Gate()
    with Wires(limit(1000), threads=1, wrap=gate.before) as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(pull("orders", queue=0, opaque=1) + pull("orders", queue=1, opaque=2))
        wires.until(lambda: wires.session().forward.messages == 2)
        wires.run()
        gate.shut()
        broker.sendall(found(1, stored()))
        wires.run()
        wires.stand_still(1.5)  # the second pull's reservation is to be given back, but the judge still has the first
        wires.sweeper.sweep(wires.now())
        for _ in range(3):
            assert wires.sweeper.sweep(wires.now()) == IDLE
        gate.open()
        wires.until(lambda: wires.judge.states(wires.now())[0].admitted == 1)
        wires.until(lambda: wires.session().conversation.budget.ask_due == NEVER)


@pytest.mark.parametrize("held", [pull("orders", opaque=1), send("slow", opaque=1)])
def test_the_loop_does_not_turn_round_for_what_is_held_when_the_connection_is_being_closed(held: bytes) -> None:
    slow = Rule("slow", match=Match(protocol="rocketmq", topic="slow"), limit=Limit(messages=Rate(0)), action="delay")
    bad = Rule("bad", match=Match(protocol="rocketmq", topic="bad"), limit=Limit(messages=Rate(0)), action="close")
    with Wires(limit(0), slow, bad) as wires:
        client, _ = wires.connect("rocketmq")
        client.sendall(held)
        wires.run()
        client.sendall(send("bad", opaque=2))
        wires.run()
        assert client.recv(1) == b"", "told, and it does not go"
        wires.stand_still(0.2)
        wires.sweeper.sweep(wires.now())
        for _ in range(3):
            assert wires.sweeper.sweep(wires.now()) == IDLE


def test_a_failing_judge_lets_pulls_pass_and_says_so() -> None:
    def wrap(decide: Decide) -> Decide:
        def failing(requests: list[Request], now: int) -> None:
            raise RuntimeError("injected")

        return failing

    with Wires(limit(0), wrap=wrap) as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(pull(opaque=1))
        wires.run()
        assert wires.received(broker) == pull(opaque=1)
        broker.sendall(found(1, stored(), stored()))
        wires.run()
        assert consumed(wires) == [2, 2, 0, 0, 0, 0]
        assert wires.totals("rocketmq", "orders", "consume")["bypassed"] == 2


def test_other_rules_free_a_held_pull() -> None:
    with Wires(limit(0)) as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(pull(opaque=1))
        wires.run()
        wires.enforce(RuleSet((limit(100),)))
        wires.elapse(1)  # from nothing at all the bucket begins empty
        assert wires.received(broker) == pull(opaque=1)
