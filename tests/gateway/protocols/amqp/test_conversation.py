"""What an AMQP conversation says of itself and to both sides: heartbeats, the last words, and how far all is settled."""

from __future__ import annotations

import pytest
from pamqp import commands

from gateway.pipeline.errors import ProtocolError
from gateway.protocols.amqp.conversation import AmqpConversation
from limiter.rules.rule_set import Rule
from support.amqp import frames as amqp
from support.wires.conversations import SECOND, Talk, rule, say_close

CLOSE_OK = amqp.method(0, commands.Connection.CloseOk())
BROKER_CLOSES = amqp.method(0, commands.Connection.Close(320, "bye", 0, 0))


LARGE = amqp.publish(1, "orders", b"x" * (1 << 20), cut=1 << 20)  # in one frame, which flows through as it comes


def talking(*rules: Rule, confirms: tuple[int, ...] = (1,), channels: tuple[int, ...] = (1, 2)) -> Talk:
    talk = Talk("amqp", *rules)
    talk.client(amqp.greeting(channels=channels, confirms=confirms, frame_max=0))
    talk.broker(amqp.broker_opens())
    talk.broker(amqp.opened(*channels))
    talk.broker(b"".join(amqp.method(number, commands.Confirm.SelectOk()) for number in confirms))
    talk.to_broker = talk.to_client = b""
    return talk


def conversation(talk: Talk) -> AmqpConversation:
    assert isinstance(talk.conversation, AmqpConversation)
    return talk.conversation


def closes(data: bytes) -> list[tuple[int, str]]:
    """Code and text of each connection.close in `data`."""
    return [(frame.value.reply_code, frame.value.reply_text) for frame in amqp.read(data) if frame.name == "Connection.Close"]


def test_it_tells_operators_what_it_knows() -> None:
    talk = talking(rule("delay", messages=1, burst=1), confirms=(2,))
    talk.client(amqp.publish(1, "orders") * 2)
    found = conversation(talk).describe()
    expected = {"vhost": "/", "channels": 2, "confirm_channels": 1, "held_channels": 1, "consumers": 0, "messages_delivered": 0}
    assert {name: found[name] for name in expected} == expected
    held = conversation(talk).lines.first_waiting()
    assert held is not None
    assert held.rule is not None
    talk.client(amqp.method(2, commands.Channel.Close(200, "", 0, 0)))
    assert (conversation(talk).describe()["channels"], conversation(talk).describe()["confirm_channels"]) == (1, 0)
    talk.wait(2 * SECOND)
    assert conversation(talk).lines.first_waiting() is None


def test_heartbeats_go_between_frames_once_they_are_agreed_on_and_until_the_close() -> None:
    before = Talk("amqp")
    assert (before.conversation.heartbeat(), before.conversation.heartbeat_to_client()) == (b"", b"")
    talk = talking()
    one = conversation(talk)
    assert (one.heartbeat(), one.heartbeat_to_client()) == (amqp.HEARTBEAT, amqp.HEARTBEAT)
    talk.client(LARGE[:500_000])
    assert (one.heartbeat(), one.heartbeat_to_client()) == (b"", amqp.HEARTBEAT)
    talk.client(LARGE[500_000:])
    delivered = amqp.deliver(1, b"x" * 100_000)
    talk.broker(delivered[:50_000])
    assert (one.heartbeat(), one.heartbeat_to_client()) == (amqp.HEARTBEAT, b"")
    talk.broker(delivered[50_000:])
    assert one.heartbeat_to_client() == amqp.HEARTBEAT
    talk.broker(BROKER_CLOSES)
    assert one.heartbeat_to_client() == b""
    other = conversation(talking())
    other.last_words("bye")
    assert other.heartbeat() == b"", "nothing follows a close"
    drained = conversation(talking())
    say_close(drained, "bye")
    assert (drained.heartbeat(), drained.heartbeat_to_client()) == (b"", b"")


def test_the_broker_is_told_of_the_end_once_and_has_handled_all_when_it_answers() -> None:
    talk = talking()
    one = conversation(talk)
    assert not one.awaits_close_ok
    assert closes(one.last_words("the client has gone")) == [(200, "the client has gone")]
    assert (one.last_words("again"), one.close_said, one.awaits_close_ok) == (b"", True, True)
    one.draining = True  # as `session/ending.py` says
    out: list[bytes] = []
    one.relay(amqp.deliver(1, b"late"), out)
    assert one.awaits_close_ok
    one.relay(CLOSE_OK, out)
    assert not one.awaits_close_ok
    assert out == [], "nothing more goes to the client"
    noisy = conversation(talking())
    noisy.last_words("bye")
    noisy.draining = True
    noisy.relay(b"\xff" * 100, [])
    assert not noisy.awaits_close_ok, "nobody will find an answer in that"


def test_there_are_no_last_words_before_the_connection_is_open_or_within_a_frame() -> None:
    early = Talk("amqp")
    assert early.conversation.last_words("bye") == b""
    talk = talking()
    talk.client(LARGE[:500_000])
    assert conversation(talk).last_words("bye") == b""
    assert not conversation(talk).close_said
    assert conversation(talk).is_stuck()
    said = talking()
    said.client(amqp.method(0, commands.Connection.Close(200, "bye", 0, 0)))
    said.broker(CLOSE_OK)
    assert conversation(said).last_words("bye") == b"", "client and broker have said all"


def test_a_broker_that_answers_the_close_and_goes_on_with_garbage_has_answered() -> None:
    talk = talking()
    talk.client(amqp.method(0, commands.Connection.Close(200, "bye", 0, 0)))
    assert conversation(talk).awaits_close_ok
    with pytest.raises(ProtocolError):
        conversation(talk).relay(CLOSE_OK + b"\xff" * 100, [])
    assert not conversation(talk).awaits_close_ok


def test_a_client_whose_broker_is_lost_is_told_where_it_can_hear_it() -> None:
    talk = talking()
    assert closes(conversation(talk).tell_broker_lost("gone")) == [(320, "CONNECTION_FORCED - gone")]
    within = talking()
    within.broker(amqp.deliver(1, b"x" * 100_000)[:50_000])
    assert conversation(within).tell_broker_lost("gone") == b""
    closed = talking()
    closed.broker(BROKER_CLOSES)
    assert conversation(closed).tell_broker_lost("gone") == b"", "the broker has said it"
    closing = talking()
    closing.client(amqp.method(0, commands.Connection.Close(200, "bye", 0, 0)))
    assert conversation(closing).tell_broker_lost("gone") == b"", "the client has"
    half = Talk("amqp")
    half.client(amqp.PROTOCOL_HEADER)
    half.broker(amqp.broker_start())
    assert half.conversation.tell_broker_lost("gone") == b"", "a client takes that for wrong credentials"
    never = Talk("amqp")
    never.client(amqp.PROTOCOL_HEADER)
    assert amqp.names(never.conversation.tell_broker_lost("gone")) == ["Connection.Start"]
    assert "send_proxy_protocol (none)" in never.conversation.rejection_reason


def test_a_brokers_header_alone_is_its_answer_to_another_protocol_and_no_start() -> None:
    talk = Talk("amqp")
    talk.client(amqp.PROTOCOL_HEADER)
    talk.broker(amqp.PROTOCOL_HEADER)
    assert talk.to_client == b""
    assert amqp.names(talk.conversation.tell_broker_lost("gone")) == ["Connection.Start"]


def test_a_close_by_the_gateway_tells_both_and_then_nobody_is_heard() -> None:
    talk = talking()
    to_client, to_broker = say_close(conversation(talk), "drained")
    assert (closes(to_client), closes(to_broker)) == ([(320, "CONNECTION_FORCED - drained")], [(200, "drained")])
    talk.to_client = b""
    talk.broker(amqp.deliver(1, b"late"))
    assert (talk.to_client, conversation(talk).take_replies()) == (b"", b"")
    early = Talk("amqp")
    assert say_close(early.conversation, "drained") == (b"", b"")


def test_all_is_settled_when_each_publish_is_confirmed_and_nothing_is_held() -> None:
    talk = talking(rule("delay", messages=3, burst=3))
    one = conversation(talk)
    assert one.settled()
    assert one.knows_answers
    talk.client(amqp.publish(2, "orders"))
    assert one.settled(), "nobody waits for an answer on a channel without confirms"
    talk.client(amqp.publish(1, "orders") * 2)
    talk.broker(amqp.ack(1, 1))
    assert not one.settled()
    talk.broker(amqp.ack(1, 2))
    assert one.settled()
    talk.client(amqp.publish(1, "orders"))
    assert (one.settled(), one.lines.holds_close()) == (False, True)
    talk.wait(SECOND)
    assert (one.settled(), one.lines.holds_close()) == (False, False)
    talk.broker(amqp.ack(1, 3))
    assert one.settled()


def test_a_publish_that_is_half_in_cannot_be_confirmed_and_is_not_waited_for() -> None:
    talk = talking()
    large = amqp.publish(1, "orders", b"x" * 200_000)
    talk.client(large[:150_000])
    assert conversation(talk).settled()
    talk.client(amqp.publish(2, "orders"))
    talk.client(b"")
    assert conversation(talk).settled()
    other = talking()
    other.client(amqp.publish(1, "orders") + large[:150_000])
    assert not conversation(other).settled(), "the one before it can"
    other.broker(amqp.ack(1, 1))
    assert conversation(other).settled()


def test_a_client_that_is_not_read_for_want_of_memory_is_told_so() -> None:
    talk = Talk("amqp")
    talk.client(amqp.greeting(channels=(1,), capabilities={"connection.blocked": True}))
    talk.broker(amqp.broker_opens())
    talk.broker(amqp.opened(1))
    one = conversation(talk)
    assert not one.needs_ticks()
    one.memory_starved = True
    (blocked,) = [frame.value for frame in amqp.read(one.take_replies())]
    assert isinstance(blocked, commands.Connection.Blocked)
    assert "memory" in blocked.reason
    assert one.needs_ticks()
    one.memory_starved = False
    talk.now += 10 * SECOND
    for _ in range(100):
        one.tick(talk.now)
    assert [frame.name for frame in amqp.read(one.take_replies())] == ["Connection.Unblocked"]
    assert not one.needs_ticks()


def test_bad_bytes_of_the_broker_end_the_connection_behind_what_passed_before() -> None:
    talk = talking()
    with pytest.raises(ProtocolError) as raised:
        talk.broker(amqp.deliver(1, b"whole") + b"\xff" * 20)
    assert amqp.names(raised.value.last_frames)[:3] == ["Basic.Deliver", "ContentHeader", "ContentBody"]
    assert closes(raised.value.last_frames)


def test_a_client_that_hurries_and_is_refused_can_answer_the_close() -> None:
    talk = Talk("amqp")
    talk.client(amqp.greeting(channels=(1,)))
    talk.broker(amqp.broker_start() + amqp.method(0, commands.Connection.Tune(2047, 131072, 60)))
    assert conversation(talk).postpones_decoding, "channel.open waits for open-ok"
    talk.broker(amqp.method(0, commands.Connection.Close(530, "NOT_ALLOWED - vhost nope not found", 10, 40)))
    talk.to_broker = b""
    talk.client(CLOSE_OK)
    assert amqp.names(talk.to_broker) == ["Connection.CloseOk"]
