"""The handshake: passed on, overheard; of what the broker offers only a frame-max that the listener does not take is changed."""

from __future__ import annotations

import re
import tracemalloc
from typing import Any

import pytest
from pamqp import commands

from gateway.pipeline.errors import ProtocolError
from gateway.pipeline.parts import Part
from limiter.limits import NEVER
from support.amqp import frames as amqp
from support.wires.conversations import Talk, bytewise, randomly, rule

HEADER = amqp.PROTOCOL_HEADER


def start_ok(mechanism: str, response: str, properties: dict[str, Any] | None = None) -> bytes:
    return amqp.method(0, commands.Connection.StartOk(properties or {}, mechanism, response, "en_US"))


@pytest.mark.parametrize("chunked", [False, True])
def test_everything_is_overheard_and_nothing_is_changed(chunked: bool) -> None:
    talk = Talk("amqp")
    client = amqp.greeting(vhost="orders/eu", user="ann", frame_max=4096, channel_max=7, heartbeat=30, channels=(1, 2), confirms=(2,))
    broker = amqp.broker_start() + amqp.method(0, commands.Connection.Tune(2047, 131072, 60)) + amqp.method(0, commands.Connection.OpenOk())
    talk.broker(broker, bytewise(broker) if chunked else None)
    talk.client(client, bytewise(client) if chunked else None)
    assert (talk.to_broker, talk.to_client) == (client, broker)
    assert talk.conversation.user == "ann"
    assert talk.conversation.heartbeat_ns == 15_000_000_000
    assert talk.conversation.heartbeat() == amqp.HEARTBEAT
    assert talk.conversation.describe() == {
        "vhost": "orders/eu",
        "client_properties": {"product": "test", "version": "1"},
        "channels": 2,
        "confirm_channels": 1,
        "held_channels": 0,
        "consumers": 0,
        "messages_delivered": 0,
        "frame_max": 4096,
        "heartbeat": 30,
    }


@pytest.mark.parametrize(
    ("properties", "shown"),
    [
        ({"version": 7, "platform": "x" * 300, "product": "p", "hidden": "h"}, {"product": "p", "version": "7", "platform": "x" * 256}),
        ({"product": {"version": "of a table"}, "version": [1], "platform": None}, {}),
        ({"product": "p", "more": "x" * 4096}, {}),
    ],
    ids=["a number, one too long, one not shown", "neither text nor number", "a table too large to be looked at"],
)
def test_what_is_shown_of_a_client(properties: dict[str, Any], shown: dict[str, str]) -> None:
    talk = Talk("amqp")
    talk.client(HEADER + start_ok("PLAIN", "\0ann\0secret", properties))
    assert talk.conversation.user == "ann"
    assert talk.conversation.describe()["client_properties"] == shown


def test_properties_that_cannot_be_read_are_the_brokers_to_judge() -> None:
    talk = Talk("amqp")
    whole = start_ok("PLAIN", "\0ann\0secret", {"product": "p", "version": "1"})
    data = HEADER + whole.replace(b"versionS", b"version?")
    talk.client(data)
    assert (talk.to_broker, talk.conversation.user, talk.conversation.describe()["client_properties"]) == (data, "ann", {})


@pytest.mark.parametrize(
    ("mechanism", "response", "user"),
    [
        ("PLAIN", "\0ann\0secret", "ann"),
        ("PLAIN", "other\0ann\0secret", "ann"),
        ("AMQPLAIN", "\x05LOGINS\x00\x00\x00\x03ann\x08PASSWORDS\x00\x00\x00\x06secret", "ann"),
        ("AMQPLAIN", "\x08PASSWORDS\x00\x00\x00\x06secret\x05LOGINS\x00\x00\x00\x03ann", "ann"),
        ("EXTERNAL", "", None),
    ],
)
def test_the_user_is_the_one_to_be_authenticated(mechanism: str, response: str, user: str | None) -> None:
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
        elif type(thing).__module__.startswith(("gateway", "sluice.gateway")):
            for name in dir(thing):
                if not name.startswith("__"):
                    look(getattr(thing, name, None))

    look(talk.conversation)
    assert len(seen) > 20


def test_a_limit_can_be_for_a_user_on_a_virtual_host() -> None:
    talk = Talk("amqp")
    talk.client(amqp.greeting(vhost="eu", user="ann", channels=(1,)) + amqp.publish(1, "orders"))
    talk.broker(amqp.broker_opens())
    [part] = [part for part in talk.parts if part.key is not None]
    assert part.key is not None
    origin = part.key.origin
    assert (origin.protocol, origin.listener, origin.client, origin.user, origin.vhost) == ("amqp", "listener", "10.0.0.7", "ann", b"eu")
    assert origin.sessions == 1
    talk.conversation.end()
    talk.conversation.end()
    assert origin.sessions == 0


def test_no_heartbeat_was_agreed_on() -> None:
    talk = Talk("amqp")
    talk.client(amqp.greeting(heartbeat=0))
    assert talk.conversation.heartbeat_ns == NEVER


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


# ---- before the broker has let the client in -------------------------------------------------------------------------

PIPELINED = amqp.greeting(channels=(1, 2), confirms=(1,))  # all of it in one segment, before the broker has said a word
GREETING = amqp.greeting()  # of which this goes to the broker at once


@pytest.mark.parametrize("chunked", [False, True])
def test_what_comes_for_channels_before_open_ok_waits_for_it_and_is_then_judged_in_its_order(chunked: bool) -> None:
    talk = Talk("amqp", rule(messages=2, burst=2))
    said = amqp.publish(1, "orders") * 3 + amqp.ack(1, 7) + amqp.publish(2, "bills", b"x" * 9000, cut=4000) + amqp.publish(1, "bills")
    data = PIPELINED + said
    talk.client(data, randomly(data, 5) if chunked else None)
    assert talk.to_broker == GREETING
    assert (talk.requests, talk.parts[-1].key, talk.conversation.budget.blocking) == ([], None, 1)
    talk.broker(amqp.broker_opens())
    assert amqp.per_channel(talk.to_broker[len(PIPELINED) :]) == {
        1: amqp.publish(1, "orders") * 2 + amqp.ack(1, 7) + amqp.publish(1, "bills"),
        2: amqp.publish(2, "bills", b"x" * 9000, cut=4000),
    }
    assert talk.to_client == amqp.broker_opens(), "the refusal waits for the channel's own open-ok"
    talk.broker(amqp.opened(2, 1))
    assert talk.to_client == amqp.broker_opens() + amqp.opened(2, 1) + amqp.nack(1, 3)
    assert sorted(key for key, *_ in talk.requests) == ["%2F/amq.default/bills"] * 2 + ["%2F/amq.default/orders"] * 3
    assert talk.holds_nothing()


def test_a_client_that_is_not_let_in_has_spent_and_named_nothing() -> None:
    stranger = Talk("amqp", rule(messages=1, burst=1))
    stranger.client(PIPELINED + amqp.publish(1, "invented") * 100)
    stranger.broker(amqp.broker_start() + amqp.method(0, commands.Connection.Close(403, "ACCESS_REFUSED", 0, 0)))
    close_ok = amqp.method(0, commands.Connection.CloseOk())
    stranger.client(close_ok)
    assert stranger.to_broker == PIPELINED + amqp.publish(1, "invented") * 100 + close_ok, "which the broker throws away but for the last"
    assert stranger.requests == []
    assert stranger.conversation.abandon() == []
    assert stranger.conversation.describe()["channels"] == 0
    known = Talk("amqp", judge=stranger.judge)
    known.client(PIPELINED)
    known.broker(amqp.broker_opens())
    known.client(amqp.publish(1, "orders"))
    assert known.to_broker == PIPELINED + amqp.publish(1, "orders")


def test_frames_are_small_until_the_broker_lets_the_client_in_whatever_it_agrees_to() -> None:
    """Tuning needs no password: a client may send its part of it, and then announce a frame as large as the listener takes."""
    talk = Talk("amqp", max_frame=1 << 24)
    talk.client(amqp.greeting(frame_max=0))
    talk.broker(amqp.broker_start())
    with pytest.raises(ProtocolError, match="FRAME_ERROR"):
        talk.client(b"\x01\x00\x00" + (1 << 20).to_bytes(4, "big"))
    let_in = Talk("amqp", max_frame=1 << 24)
    let_in.client(amqp.greeting(frame_max=0, channels=(1,)) + amqp.publish(1, "orders", b"x" * (1 << 20), cut=1 << 20))
    let_in.broker(amqp.broker_opens())
    assert let_in.to_broker.endswith(amqp.publish(1, "orders", b"x" * (1 << 20), cut=1 << 20)), "sent too early, but by one who was let in"


def test_a_client_says_who_it_is_once() -> None:
    talk = Talk("amqp")
    talk.client(HEADER + start_ok("PLAIN", "\0ann\0secret"))
    with pytest.raises(ProtocolError, match=r"COMMAND_INVALID - connection\.start-ok a second time"):
        talk.client(start_ok("PLAIN", "\0ann\0secret"))


def test_a_channel_opened_before_the_connection_is_an_error() -> None:
    talk = Talk("amqp")
    with pytest.raises(ProtocolError, match=r"COMMAND_INVALID - channel\.open before connection\.open"):
        talk.client(HEADER + start_ok("PLAIN", "\0ann\0secret") + amqp.method(1, commands.Channel.Open()))


@pytest.mark.parametrize("channel_max", [0, 65535])
def test_a_client_opens_no_channels_before_it_is_let_in_and_then_as_many_as_were_agreed_on(channel_max: int) -> None:
    opens = b"".join(amqp.method(number, commands.Channel.Open()) for number in range(65535, 65535 - 2049, -1))
    talk = Talk("amqp")
    talk.client(amqp.greeting(channel_max=channel_max) + opens)
    assert talk.conversation.describe()["channels"] == 0
    talk.broker(amqp.broker_opens())
    assert talk.conversation.describe()["channels"] == 2049


def test_open_channels_cost_less_than_a_hundred_times_their_bytes() -> None:
    """Envoy's rule: a hundredfold is a security bug. All 2,047 that brokers offer, opened at once."""
    talk = Talk("amqp")
    talk.client(amqp.greeting())
    talk.broker(amqp.broker_opens())
    opens = b"".join(amqp.method(number, commands.Channel.Open()) for number in range(1, 2048))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    parts: list[Part] = []
    assert talk.conversation.decode(opens, 0, 512, parts) == len(opens)
    parts.clear()
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert talk.conversation.describe()["channels"] == 2047
    assert taken < 100 * len(opens), f"{taken / len(opens):.0f} times"


# ---- frame-max -----------------------------------------------------------------------------------------------------------


def tune(frame_max: int) -> bytes:
    return amqp.method(0, commands.Connection.Tune(2047, frame_max, 60))


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    ("max_frame", "offered", "seen"),
    [
        (1 << 24, 0, 1 << 24),
        (1 << 24, (1 << 24) + 1, 1 << 24),
        (1 << 24, 1 << 24, 1 << 24),
        (1 << 24, 131_072, 131_072),
        (1 << 24, 4096, 4096),
        (65_536, 131_072, 65_536),
        (4096, 131_072, 8192),  # RabbitMQ from 4.1 on refuses less
        (4096, 0, 8192),
        (4096, 6000, 6000),
        (4096, 4096, 4096),
    ],
)
def test_the_client_is_offered_no_larger_frames_than_the_listener_takes(max_frame: int, offered: int, seen: int, chunked: bool) -> None:
    talk = Talk("amqp", max_frame=max_frame)
    said = amqp.broker_start() + tune(offered) + amqp.HEARTBEAT
    talk.broker(said, bytewise(said) if chunked else None)
    assert talk.to_client == amqp.broker_start() + tune(seen) + amqp.HEARTBEAT
    talk.client(amqp.greeting(frame_max=seen, channels=(1,)))
    assert talk.to_broker == amqp.greeting(frame_max=seen)
    talk.broker(amqp.method(0, commands.Connection.OpenOk()))
    talk.broker(amqp.opened(1))
    delivery = amqp.deliver(1, b"x" * (3 * seen), cut=seen - 8)
    talk.to_client = b""
    talk.broker(delivery)
    assert talk.to_client == delivery


@pytest.mark.parametrize(("agreed", "bound"), [(0, 65_536), (131_072, 65_536), (8192, 8192)])
def test_a_frame_above_the_bound_is_refused_with_the_bound_that_it_breaks(agreed: int, bound: int) -> None:
    words = f"at most {bound} are taken (the frame_max agreed on, or the listener's max_frame)"
    talk = Talk("amqp", max_frame=65_536)
    talk.broker(amqp.broker_start() + tune(0))
    talk.client(amqp.greeting(frame_max=agreed, channels=(1,)))
    assert amqp.greeting(frame_max=agreed) == talk.to_broker, "the client's answer is its own"
    talk.broker(amqp.method(0, commands.Connection.OpenOk()))
    with pytest.raises(ProtocolError, match=re.escape(words)):
        talk.broker(amqp.deliver(1, b"x" * 200_000, cut=100_000))
    other = Talk("amqp", max_frame=65_536)
    other.client(amqp.greeting(frame_max=agreed, channels=(1,)))
    other.broker(amqp.broker_start() + tune(0) + amqp.method(0, commands.Connection.OpenOk()))
    with pytest.raises(ProtocolError, match=re.escape(words)):
        other.client(amqp.publish(1, "orders", b"x" * 200_000, cut=100_000))
