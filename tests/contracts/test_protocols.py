"""What every protocol promises, whatever it is called: runs over each member of PROTOCOLS, and over a toy that registers itself here.

The toy stands in the source tree's run only: interpreted classes cannot inherit from compiled ones. (They could if Conversation allowed it,
but then each look at one of its attributes checks whether it is there: half a nanosecond, on the way of every message.)

A protocol brings a script: what client and broker say to each other, turn by turn, publishes included. To add a protocol, add its script.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands

import limiter.rules.rule
from common.views.connections import ConnectionView
from gateway.close_causes import by_cause
from gateway.listeners.protocol_detection import check_protocol
from gateway.pipeline.actions.table import ACTIONS
from gateway.pipeline.conversation import Conversation
from gateway.pipeline.errors import ProtocolError
from gateway.pipeline.parts import REQUEST
from gateway.protocols import PROTOCOLS
from limiter.limits import NEVER
from support.amqp import frames as amqp
from support.builds import build_of
from support.rocketmq import frames as rocketmq
from support.wires.conversations import SECOND, Talk, bytewise, randomly, rule, say_close
from support.wires.wires import Wires

TOYS: tuple[str, ...] = ()
if build_of("gateway.pipeline.conversation")[0] != "compiled":
    from support.wires import toy_protocol
    from support.wires.toy_protocol import TOY

    TOYS = (TOY.name,)

Step = tuple[str, bytes]  # who speaks ("client" or "broker"), and what
Chunks = Callable[[bytes], Iterable[bytes]]


# ---- the scripts -------------------------------------------------------------------------------------------------------


def rocketmq_script() -> list[Step]:
    sends = [rocketmq.send(f"topic-{opaque % 3}", opaque=opaque, body=b"x" * (opaque % 4)) for opaque in range(2, 20)]
    return [
        ("client", rocketmq.heartbeat(opaque=1)),
        ("broker", rocketmq.response(1)),
        ("client", b"".join(sends) + rocketmq.send_back(opaque=20)),
        ("broker", b"".join(rocketmq.response(opaque, body=b"y" * opaque) for opaque in range(2, 21))),
        ("client", rocketmq.send(opaque=21, body=rocketmq.batch_body(b"a", b"b"), batch=True) + rocketmq.send(opaque=22, binary=True)),
        ("broker", rocketmq.response(21) + rocketmq.response(22) + rocketmq.encode_request(40, {"consumerGroup": "g"}, opaque=1)),
    ]


def amqp_script() -> list[Step]:
    capabilities: dict[str, Any] = {"publisher_confirms": True, "basic.nack": True, "connection.blocked": True}

    def publishes(channel: int) -> bytes:
        return b"".join(amqp.publish(channel, f"topic-{number % 3}", b"x" * (number % 4), exchange="orders", cut=2) for number in range(9))

    return [
        ("client", amqp.PROTOCOL_HEADER),
        ("broker", amqp.method(0, commands.Connection.Start(server_properties={"capabilities": capabilities}))),
        ("client", amqp.method(0, commands.Connection.StartOk({"capabilities": capabilities}, "PLAIN", "\0guest\0guest", "en_US"))),
        ("broker", amqp.method(0, commands.Connection.Tune(2047, 131072, 60))),
        ("client", amqp.method(0, commands.Connection.TuneOk(2047, 131072, 60)) + amqp.method(0, commands.Connection.Open("/"))),
        ("broker", amqp.method(0, commands.Connection.OpenOk())),
        ("client", amqp.method(1, commands.Channel.Open()) + amqp.method(2, commands.Channel.Open())),
        ("broker", amqp.method(1, commands.Channel.OpenOk()) + amqp.method(2, commands.Channel.OpenOk())),
        ("client", amqp.method(1, commands.Confirm.Select())),
        ("broker", amqp.method(1, commands.Confirm.SelectOk())),
        ("client", publishes(1)),
        ("client", publishes(2) + amqp.HEARTBEAT),
        ("broker", amqp.HEARTBEAT),
    ]


def nameserver_script() -> list[Step]:
    return [
        ("client", rocketmq.encode_request(105, {"topic": "orders"}, opaque=1)),
        ("broker", rocketmq.response(1, 17, remark="No topic route info in name server for the topic: orders")),
        ("client", rocketmq.encode_request(106, None, opaque=2) + rocketmq.encode_request(206, None, opaque=3, binary=True)),
        ("broker", rocketmq.response(3, body=b'{"topicList":["orders"]}') + rocketmq.response(2, body=b'{"brokerAddrTable":{}}')),
        (
            "client",
            rocketmq.encode_request(318, None, b"key=value", opaque=4) + rocketmq.encode_request(999, {"a": 1}, b"y" * 70, opaque=5),
        ),
        ("broker", rocketmq.response(5, 3) + rocketmq.response(4) + rocketmq.encode_request(905, {"minBrokerId": "0"}, opaque=1)),
    ]


SCRIPTS: dict[str, list[Step]] = {
    "amqp": amqp_script(),
    "rocketmq": rocketmq_script(),
    "rocketmq-nameserver": nameserver_script(),
}
PUBLISHES = {"amqp": 18, "rocketmq": 22, "rocketmq-nameserver": 0}  # messages in each script; 0: nothing is limited there
if TOYS:
    SCRIPTS[TOY.name] = toy_protocol.SCRIPT
    PUBLISHES[TOY.name] = toy_protocol.PUBLISHES

CHUNKINGS: dict[str, Chunks] = {
    "whole": lambda data: [data],
    "byte by byte": bytewise,
    **{f"random {seed}": (lambda data, seed=seed: randomly(data, seed)) for seed in range(3)},  # type: ignore[misc]
}

each_protocol = pytest.mark.parametrize("protocol", [*PROTOCOLS, *TOYS])
each_limited = pytest.mark.parametrize("protocol", [protocol for protocol in (*PROTOCOLS, *TOYS) if PUBLISHES[protocol]])
each_action = pytest.mark.parametrize("action", list(ACTIONS))
of_the_toy = pytest.mark.skipif(not TOYS, reason="interpreted classes cannot inherit from compiled ones")


@pytest.fixture(autouse=True, scope="module")
def toy() -> Iterator[None]:
    """The toy is a protocol of the gateway while this module runs: one line registers it."""
    with pytest.MonkeyPatch.context() as patch:
        if TOYS:
            patch.setitem(PROTOCOLS, TOY.name, TOY)
        yield


def play(talk: Talk, script: list[Step], chunk: Chunks) -> Talk:
    for who, data in script:
        (talk.client if who == "client" else talk.broker)(b"", chunk(data))
    return talk


def said(script: list[Step], who: str) -> bytes:
    return b"".join(data for speaker, data in script if speaker == who)


def messages(talk: Talk) -> int:
    return sum(count for _, _, count, _ in talk.requests)


# ---- the promises ------------------------------------------------------------------------------------------------------


def test_every_protocol_has_a_script_and_is_a_conversation() -> None:
    assert set(SCRIPTS) == set(PUBLISHES) == set(PROTOCOLS)
    assert all(
        isinstance(protocol.conversation, type) and issubclass(protocol.conversation, Conversation) for protocol in PROTOCOLS.values()
    )


@each_protocol
@pytest.mark.parametrize("chunking", list(CHUNKINGS))
def test_without_limits_both_directions_pass_byte_for_byte_however_cut(protocol: str, chunking: str) -> None:
    script = SCRIPTS[protocol]
    talk = play(Talk(protocol), script, CHUNKINGS[chunking])
    assert talk.to_broker == said(script, "client")
    assert talk.to_client == said(script, "broker")
    assert talk.rest == b""
    assert messages(talk) == PUBLISHES[protocol]
    assert talk.holds_nothing()


@each_protocol
def test_what_it_knows_of_a_connection_are_fields_of_the_view(protocol: str) -> None:
    """An unknown one would end the answer of `GET /v1/connections`."""
    described = play(Talk(protocol), SCRIPTS[protocol], CHUNKINGS["whole"]).conversation.describe()
    view = msgspec.convert({"id": 1, "listener": "here", "protocol": protocol, **described}, ConnectionView)
    assert {name: getattr(view, name) for name in described} == described


@each_protocol
@pytest.mark.parametrize("room", [1, 2, 7])
def test_however_little_room_there_is_the_outcome_is_the_same(protocol: str, room: int) -> None:
    script = SCRIPTS[protocol]
    talk = play(Talk(protocol, room=room), script, CHUNKINGS["whole"])
    assert (talk.to_broker, talk.to_client) == (said(script, "client"), said(script, "broker"))


@each_protocol
@each_action
@pytest.mark.parametrize("limit", [0, 2])
def test_under_a_limit_all_chunkings_have_the_same_outcome(protocol: str, action: str, limit: int) -> None:
    def outcome(chunk: Chunks) -> tuple[object, ...]:
        talk = play(Talk(protocol, rule(action, messages=limit)), SCRIPTS[protocol], chunk)
        # What is sent on a channel after it was closed is not decoded, so how much is depends on how much was read with the refused one.
        requests = [] if action == "close" else talk.requests
        return requests, talk.to_broker, talk.to_client, talk.conversation.budget.held_messages, talk.conversation.reports.close_reason

    whole = outcome(CHUNKINGS["whole"])
    for name, chunk in CHUNKINGS.items():
        assert outcome(chunk) == whole, name


@each_limited
@each_action
def test_what_is_too_large_is_refused_whatever_the_action_and_never_waits(protocol: str, action: str) -> None:
    small = replace(rule(action, messages=10**6), max_message_size=1)
    talk = play(Talk(protocol, small), SCRIPTS[protocol], CHUNKINGS["whole"])
    judged = [part for part in talk.parts if part.kind == REQUEST and part.size > 1]
    assert judged
    assert all(part.unfit or part.rule is None for part in judged)  # what comes behind a close is not judged
    assert any(part.unfit for part in judged)
    assert not any(part.passed for part in judged)
    assert talk.conversation.budget.held_messages == 0
    assert talk.forwarded < PUBLISHES[protocol]


@each_limited
@each_action
def test_held_messages_are_counted_and_abandon_returns_all_of_them(protocol: str, action: str) -> None:
    talk = play(Talk(protocol, rule(action, messages=1)), SCRIPTS[protocol], CHUNKINGS["whole"])
    conversation = talk.conversation
    held = conversation.budget.held_messages
    assert (held > 0) == (conversation.budget.next_due < NEVER) == conversation.lines.holds_close()
    assert held > 0 or action not in {"delay", "block"}
    assert (conversation.budget.blocking > 0) == (action == "block")
    given_up = sum(part.count * part.messages for part in conversation.reports.abandoned)
    conversation.reports.abandoned = []
    assert given_up == 0 or action == "close"
    parts = conversation.abandon()
    assert conversation.budget.blocking == 0
    assert sum(part.count * part.messages for part in parts if part.kind == REQUEST) == held
    assert talk.holds_nothing()
    assert conversation.abandon() == []


def test_the_rules_and_the_table_know_the_same_actions() -> None:
    assert set(ACTIONS) == set(limiter.rules.actions.ACTIONS)
    assert set(limiter.rules.actions.FALLBACKS) <= set(ACTIONS)


@each_limited
@each_action
@pytest.mark.parametrize("limit", [0, 1, 3])
def test_every_message_has_exactly_one_fate(protocol: str, action: str, limit: int) -> None:
    """received = forwarded + refused + dropped + abandoned + waiting (docs/design/contract.md 7), whatever the action."""
    talk = play(Talk(protocol, rule(action, messages=limit)), SCRIPTS[protocol], CHUNKINGS["random 1"])
    conversation = talk.conversation
    given_up = [*conversation.reports.abandoned, *conversation.abandon()]
    abandoned = sum(part.count * part.messages for part in given_up if part.kind == REQUEST)
    keys = {part.key.text: part.key for part in talk.parts if part.key is not None}.values()
    settled = sum(key.tally.refused + key.tally.dropped for key in keys)
    assert settled + abandoned > 0
    assert messages(talk) == talk.forwarded + settled + abandoned


@each_limited
@pytest.mark.parametrize("action", ["delay", "block"])
def test_held_messages_go_on_in_time_and_nothing_is_lost(protocol: str, action: str) -> None:
    talk = play(Talk(protocol, rule(action, messages=20, burst=1, max_delay_ns=5 * SECOND // 2)), SCRIPTS[protocol], CHUNKINGS["whole"])
    assert talk.conversation.budget.held_messages > 0
    talk.wait(5 * SECOND)
    assert talk.holds_nothing()
    script = SCRIPTS[protocol]
    assert sorted(talk.to_broker) == sorted(said(script, "client"))
    if action == "delay":  # a client that is blocked may be told so
        assert talk.to_client == said(script, "broker")


@each_limited
def test_take_due_empties_what_is_held_however_little_room(protocol: str) -> None:
    talk = play(Talk(protocol, rule("delay", messages=0)), SCRIPTS[protocol], CHUNKINGS["whole"])
    talk.judge.replace(Talk(protocol).judge.rules)
    conversation = talk.conversation
    for _ in range(1000):
        if conversation.budget.next_due == NEVER:
            break
        talk.now = max(talk.now, conversation.budget.next_due)
        talk.settle(conversation.lines.take_due(talk.now, 1))
    assert talk.holds_nothing()
    assert sorted(talk.to_broker) == sorted(said(SCRIPTS[protocol], "client"))


@each_protocol
@given(garbage=st.binary(min_size=1, max_size=100), keep=st.integers(0, 5000), who=st.sampled_from(["client", "broker"]))
@settings(max_examples=60, deadline=None)
def test_garbage_raises_protocol_errors_and_nothing_else(protocol: str, garbage: bytes, keep: int, who: str) -> None:
    """After any part of the script, from either side."""
    talk = Talk(protocol, rule(messages=1))
    fault = who
    try:
        for speaker, data in SCRIPTS[protocol]:
            keep -= len(data)
            (talk.client if speaker == "client" else talk.broker)(data[:keep] if keep < 0 else data)
            if keep < 0:
                break
        (talk.client if who == "client" else talk.broker)(garbage)
    except ProtocolError as error:
        fault = error.whose
        assert "\n" not in str(error)  # noqa: PT017  -- whether it is raised depends on the bytes
    assert fault in {"client", "broker"}


@each_protocol
@given(flips=st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_a_script_with_flipped_bytes_raises_protocol_errors_and_nothing_else(protocol: str, flips: list[tuple[int, int]]) -> None:
    script = [(who, bytearray(data)) for who, data in SCRIPTS[protocol]]
    for place, octet in flips:
        data = script[place % len(script)][1]
        data[place % len(data)] = octet
    raised = None
    talk = Talk(protocol, rule(messages=1))
    try:
        play(talk, [(who, bytes(data)) for who, data in script], CHUNKINGS["whole"])
    except ProtocolError as error:
        raised = error
    assert raised is None or raised.whose in {"client", "broker"}


@each_limited
def test_the_origin_is_taken_and_given_back(protocol: str) -> None:
    talk = play(Talk(protocol), SCRIPTS[protocol], CHUNKINGS["whole"])
    keys = [part.key for part in talk.parts if part.key is not None]
    assert keys
    origin = keys[0].origin
    assert (origin.protocol, origin.listener, origin.client, origin.sessions) == (protocol, "listener", "10.0.0.7", 1)
    talk.conversation.end()
    assert origin.sessions == 0


@each_protocol
def test_it_can_end_before_it_began(protocol: str) -> None:
    talk = Talk(protocol)
    assert talk.conversation.abandon() == []
    talk.conversation.end()
    assert talk.holds_nothing()


@each_protocol
def test_it_describes_itself_in_json_and_on_one_line(protocol: str) -> None:
    talk = play(Talk(protocol, rule("delay", messages=1)), SCRIPTS[protocol], CHUNKINGS["whole"])
    assert isinstance(json.loads(json.dumps(talk.conversation.describe())), dict)
    assert "\n" not in repr(talk.conversation)
    client, broker = say_close(talk.conversation, "maintenance")
    assert isinstance(client, bytes)
    assert isinstance(broker, bytes)


# ---- a protocol that the product does not have -------------------------------------------------------------------------


@of_the_toy
def test_a_session_speaks_what_its_record_names_and_nothing_else_of_the_gateway_knows_it() -> None:
    with Wires(rule(messages=2)) as wires:
        client, broker = wires.connect(TOY.name)
        client.sendall(b"PING\n" + b"".join(toy_protocol.publish(number, "orders", b"x") for number in range(4)))
        broker.sendall(b"PONG\n")
        wires.run()
        assert wires.received(broker) == b"PING\n" + toy_protocol.publish(0, "orders", b"x") + toy_protocol.publish(1, "orders", b"x")
        pong, *busy = wires.received(client).splitlines()
        assert (pong, [line.split()[:2] for line in busy]) == (b"PONG", [[b"BUSY", b"2"], [b"BUSY", b"3"]])
        assert wires.session().reads_broker()
        wires.enforce(Talk(TOY.name).judge.rules)
        client.sendall(toy_protocol.publish(4, "orders"))
        wires.run()
        assert wires.received(broker) == toy_protocol.publish(4, "orders")
    totals = wires.accounts.totals(TOY.name, "orders")
    wires.accounts.fold(wires.now())
    assert (totals.received, totals.forwarded, totals.refused) == (5, 3, 2)


@of_the_toy
def test_the_close_causes_of_a_protocol_are_shown_from_the_start() -> None:
    assert by_cause(TOY.name, {})["wrong_protocol"] == 0


@of_the_toy
async def test_another_protocol_is_recognised_by_its_opening() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.sendall(b"AMQP\0\0\x09\x01")
        with pytest.raises(ProtocolError, match="began with b'AMQP'"):
            await check_protocol(ours, TOY.name, 1 << 20, others=False)
