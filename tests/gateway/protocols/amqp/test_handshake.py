"""The handshake: passed on untouched, overheard."""

from __future__ import annotations

import pytest
from pamqp import commands

from gateway.messages import NEVER, ProtocolError
from support import amqp
from support.conversations import Talk, bytewise

HEADER = amqp.PROTOCOL_HEADER


def start_ok(mechanism: str, response: str) -> bytes:
    return amqp.method(0, commands.Connection.StartOk({}, mechanism, response, "en_US"))


@pytest.mark.parametrize("chunked", [False, True])
def test_everything_is_overheard_and_nothing_is_changed(chunked: bool) -> None:
    talk = Talk("amqp")
    client = amqp.greeting(vhost="orders/eu", user="ann", frame_max=4096, channel_max=7, heartbeat=30, channels=(1, 2), confirms=(2,))
    broker = amqp.broker_start() + amqp.method(0, commands.Connection.Tune(2047, 131072, 60)) + amqp.method(0, commands.Connection.OpenOk())
    talk.broker(broker, bytewise(broker) if chunked else None)
    talk.client(client, bytewise(client) if chunked else None)
    assert (talk.to_broker, talk.to_client) == (client, broker)
    assert talk.conversation.user == "ann"
    assert talk.conversation.heartbeat_interval_ns() == 15_000_000_000
    assert talk.conversation.heartbeat() == amqp.HEARTBEAT
    assert talk.conversation.describe() == {
        "vhost": "orders/eu",
        "user": "ann",
        "client_properties": {"product": "test", "version": "1"},
        "channels": 2,
        "confirm_channels": 1,
        "held_channels": 0,
        "consumers": 0,
        "frame_max": 4096,
        "heartbeat": 30,
    }


@pytest.mark.parametrize(
    ("mechanism", "response", "user"),
    [
        ("PLAIN", "\0ann\0secret", "ann"),
        ("PLAIN", "other\0ann\0secret", "ann"),
        ("PLAIN", "nonsense", None),
        ("PLAIN", "", None),
        ("AMQPLAIN", "\x05LOGINS\x00\x00\x00\x03ann\x08PASSWORDS\x00\x00\x00\x06secret", "ann"),
        ("AMQPLAIN", "\x08PASSWORDS\x00\x00\x00\x06secret\x05LOGINS\x00\x00\x00\x03ann", "ann"),
        ("AMQPLAIN", "\x05LOGINS\x00\x00\x00\x7fann", None),
        ("AMQPLAIN", "\x05LOGINI\x00\x00\x00\x03", None),
        ("EXTERNAL", "", None),
    ],
)
def test_the_user_is_who_is_to_be_authenticated(mechanism: str, response: str, user: str | None) -> None:
    talk = Talk("amqp")
    talk.client(HEADER + start_ok(mechanism, response))
    assert talk.conversation.user == user


def test_the_password_is_not_kept() -> None:
    talk = Talk("amqp")
    talk.client(amqp.greeting(channels=(1,)))
    seen: set[int] = set()

    def look(thing: object) -> None:
        if id(thing) in seen or callable(thing):
            return
        seen.add(id(thing))
        if isinstance(thing, str | bytes):
            assert "secret" not in str(thing)
        elif isinstance(thing, dict):
            for key, value in thing.items():
                look(key)
                look(value)
        elif isinstance(thing, list | tuple | set):
            for value in thing:
                look(value)
        elif type(thing).__module__.startswith("gateway"):
            for name in dir(thing):
                if not name.startswith("__"):
                    look(getattr(thing, name, None))

    look(talk.conversation)
    assert len(seen) > 20


def test_a_limit_can_be_for_a_user_on_a_virtual_host() -> None:
    talk = Talk("amqp")
    talk.client(amqp.greeting(vhost="eu", user="ann", channels=(1,)) + amqp.publish(1, "orders"))
    [part] = [part for part in talk.parts if part.key is not None]
    assert part.key is not None
    origin = part.key.origin
    assert (origin.protocol, origin.listener, origin.client, origin.user, origin.vhost) == ("amqp", "listener", "10.0.0.7", "ann", b"eu")
    assert origin.sessions == 1
    talk.conversation.ended()
    talk.conversation.ended()
    assert origin.sessions == 0


def test_no_heartbeat_was_agreed_on() -> None:
    talk = Talk("amqp")
    talk.client(amqp.greeting(heartbeat=0))
    assert talk.conversation.heartbeat_interval_ns() == NEVER


def test_there_is_no_heartbeat_before_tuning() -> None:
    assert Talk("amqp").conversation.heartbeat() == b""


def test_a_publish_before_the_connection_is_open_is_an_error() -> None:
    talk = Talk("amqp")
    opening = amqp.greeting(channels=(1,))
    without_open = opening.replace(amqp.method(0, commands.Connection.Open("/")), b"")
    with pytest.raises(ProtocolError, match=r"before connection\.open"):
        talk.client(without_open + amqp.publish(1, "orders"))


def test_a_start_ok_shorter_than_it_says_is_an_error() -> None:
    whole = start_ok("PLAIN", "\0ann\0secret")
    arguments = whole[11:-1]
    for length in range(len(arguments) - 6):
        talk = Talk("amqp")
        with pytest.raises(ProtocolError, match="SYNTAX_ERROR"):
            talk.client(HEADER + amqp.raw_frame(1, 0, b"\x00\x0a\x00\x0b" + arguments[:length]))


def test_a_broker_that_answers_with_its_own_protocol_header_is_passed_on() -> None:
    talk = Talk("amqp")
    talk.client(HEADER)
    talk.broker(b"AMQP\x00\x00\x09\x01", bytewise(b"AMQP\x00\x00\x09\x01"))
    assert talk.to_client == b"AMQP\x00\x00\x09\x01"


def test_a_long_token_before_tuning_is_for_the_broker_to_judge() -> None:
    talk = Talk("amqp")
    data = HEADER + start_ok("PLAIN", "\0ann\0" + "t" * 20_000)
    talk.client(data)
    assert talk.to_broker == data
