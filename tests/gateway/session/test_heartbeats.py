"""Heartbeats on both hops: who hears one, when, and who is dead. Time passes by the sessions' clock only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pamqp import commands

from limiter.limits import Limit, Rate
from limiter.rules.rule_set import Match, Rule, RuleSet
from support.amqp import frames as amqp
from support.amqp.link import Link
from support.wires.wires import Wires

BEAT = amqp.HEARTBEAT
AGREED = 4  # seconds; beats every 2


def never(action: str = "reject") -> Rule:
    """Nothing with the routing key `never` passes."""
    limit = Limit(messages=Rate(0))
    return Rule("never", Match(protocol="amqp", routing_key="never"), "topic", limit, action=action, open_for_ns=0)


@pytest.fixture
def wires() -> Iterator[Wires]:
    with Wires(never(), hold_bytes=20_000) as made:
        yield made


def beats(data: bytes) -> int:
    """How many beats `data` is made of; it must hold nothing else."""
    assert data == BEAT * (len(data) // len(BEAT))
    return len(data) // len(BEAT)


def throttle(link: Link) -> None:
    """Publish until the client is no longer read."""
    for _ in range(10):
        link.say(b"".join(amqp.publish(1, "never", b"x" * 100) for _ in range(60)))
        if link.session.withheld():
            break
    assert link.session.withheld()
    link.at_broker()


# ---- to the broker -----------------------------------------------------------------------------------------------------


def test_the_broker_hears_a_beat_every_half_of_what_was_agreed_while_the_client_is_not_read(wires: Wires) -> None:
    link = Link(wires, heartbeat=AGREED)
    throttle(link)
    silence = 0.0
    for _ in range(80):
        wires.elapse(0.25)
        link.answer(BEAT)
        silence = 0.0 if beats(link.at_broker()) else silence + 0.25
        assert silence <= 2.0, "RabbitMQ looks twice in what was agreed on"
    assert wires.sweeper.sessions


def test_a_client_whose_publishes_are_all_refused_is_alive_for_the_broker(wires: Wires) -> None:
    """Its library sends no heartbeats while it sends publishes; the broker sees none of them."""
    link = Link(wires, heartbeat=AGREED, confirms=(1,))
    heard = 0
    for _ in range(20):
        link.say(amqp.publish(1, "never"))
        wires.elapse(1)
        heard += beats(link.at_broker())
        link.answer(BEAT)
    assert 9 <= heard <= 11


def test_a_client_that_dribbles_a_frame_is_alive_for_the_broker(wires: Wires) -> None:
    link = Link(wires, heartbeat=AGREED)
    frame = amqp.method(2, commands.Queue.Declare(queue="q" * 40))
    heard = 0
    for octet in frame[:40]:
        link.say(bytes([octet]))
        wires.elapse(0.5)
        heard += beats(link.at_broker())
        link.answer(BEAT)
    assert heard >= 8
    link.say(frame[40:])
    assert link.at_broker() == frame


def test_the_gateway_sends_no_heartbeats_for_a_client_that_is_read_and_silent(wires: Wires) -> None:
    link = Link(wires, heartbeat=AGREED)
    wires.elapse(AGREED * 2)
    assert link.at_broker() == b""


def test_beats_stay_out_of_a_frame_that_flows_through(wires: Wires) -> None:
    link = Link(wires, heartbeat=AGREED, frame_max=0)
    body = b"B" * 600_000
    message = amqp.publish(2, "free", body, cut=len(body))
    link.say(message[:400_000])
    throttled = b"".join(amqp.publish(1, "never", b"x" * 100) for _ in range(200))
    got = link.at_broker()
    for _ in range(8):
        wires.elapse(1)
        link.answer(BEAT)
        got += link.at_broker()
    link.say(message[400_000:] + throttled)
    got += link.at_broker()
    assert got == message, "something was put into the frame, or is missing"
    wires.elapse(3)
    assert beats(link.at_broker()) == 1


def test_without_agreed_heartbeats_none_are_sent_and_no_peer_is_declared_dead(wires: Wires) -> None:
    link = Link(wires, heartbeat=0)
    throttle(link)
    wires.elapse(3600)
    assert (link.at_broker(), link.at_client()) == (b"", b"")
    assert wires.sweeper.sessions


# ---- to the client -----------------------------------------------------------------------------------------------------


def test_the_client_hears_beats_while_the_broker_is_silent(wires: Wires) -> None:
    link = Link(wires, heartbeat=AGREED)
    heard = 0
    for _ in range(7):
        link.say(BEAT)
        wires.elapse(1)
        heard += beats(link.at_client())
    assert heard == 3


def test_the_brokers_own_beats_pass_and_none_are_added(wires: Wires) -> None:
    link = Link(wires, heartbeat=AGREED)
    for _ in range(20):
        link.say(BEAT)
        wires.elapse(2)
        link.answer(BEAT)
        assert link.at_client() == BEAT
    assert wires.sweeper.sessions


def test_no_beat_goes_into_a_frame_of_the_brokers(wires: Wires) -> None:
    link = Link(wires, heartbeat=AGREED)
    delivery = amqp.deliver(1, b"d" * 1000)
    link.answer(delivery[:-500])
    assert link.at_client() == delivery[:-500]
    for _ in range(7):
        link.say(BEAT)
        wires.elapse(1)
    assert link.at_client() == b""
    link.answer(delivery[-500:])
    assert link.at_client() == delivery[-500:]


def test_beats_go_between_the_frames_of_a_delivery(wires: Wires) -> None:
    """Channel 0 may speak anywhere between two frames, also within another channel's message."""
    link = Link(wires, heartbeat=AGREED)
    delivery = amqp.deliver(1, b"d" * 1000, cut=400)
    last = 8 + 200
    link.answer(delivery[:-last])
    link.at_client()
    link.say(BEAT)
    wires.elapse(3)
    assert beats(link.at_client()) == 1


# ---- who is dead -------------------------------------------------------------------------------------------------------


def test_a_client_silent_for_twice_what_was_agreed_is_dead_and_the_broker_told_in_words(wires: Wires) -> None:
    link = Link(wires, heartbeat=AGREED)
    for _ in range(4):
        wires.elapse(2)
        link.answer(BEAT)
    assert link.at_broker() == b"", "the client may be silent for as long as was agreed on, twice"
    wires.elapse(1)
    close = link.close_of(link.at_broker())
    assert (close.reply_code, close.class_id) == (200, 0)
    told = link.close_of(link.at_client())
    assert told.reply_code == 320
    assert "the client has been silent for 8 s" in told.reply_text
    assert link.cause() == "heartbeat"
    link.answer(amqp.method(0, commands.Connection.CloseOk()))
    link.broker.close()
    wires.run()  # the client has vanished and closes nothing: it is not waited for
    assert [session.cause for session, _ in wires.ended] == ["heartbeat"]


def test_silence_of_a_client_that_is_not_read_is_not_held_against_it(wires: Wires) -> None:
    link = Link(wires, heartbeat=AGREED)
    throttle(link)
    for _ in range(30):
        wires.elapse(2)
        link.answer(BEAT)
    assert wires.sweeper.sessions
    assert link.cause() == ""
    wires.enforce(RuleSet(()))
    wires.elapse(0.5)
    assert not link.session.withheld()
    for _ in range(3):
        wires.elapse(2)
        link.answer(BEAT)
    assert link.cause() == "", "its silence counts from when it was read again"
    for _ in range(2):
        wires.elapse(2)
        link.answer(BEAT)
    assert link.cause() == "heartbeat"


def test_a_broker_silent_for_twice_what_was_agreed_is_dead_and_the_client_told(wires: Wires) -> None:
    link = Link(wires, heartbeat=AGREED)
    for _ in range(7):
        link.say(BEAT)
        wires.elapse(1)
    assert link.cause() == ""
    heard = link.at_client()
    for _ in range(2):
        link.say(BEAT)
        wires.elapse(1)
    heard += link.at_client()
    close = link.close_of(heard)
    assert close.reply_code == 320
    assert close.reply_text == "CONNECTION_FORCED - the broker behind this gateway has been silent for 8 s"
    assert beats(heard[: -len(amqp.read(heard)[-1].raw)]) >= 3, "beats until then, or the client would have given up by itself"
    assert link.cause() == "broker_heartbeat"


def test_after_a_dead_broker_the_session_is_over_as_soon_as_its_client_closes(wires: Wires) -> None:
    link = Link(wires, heartbeat=AGREED)
    for _ in range(10):
        link.say(BEAT)
        wires.elapse(1)
    assert link.close_of(link.at_client()).reply_code == 320
    assert link.client.recv(1) == b"", "nothing more will come"
    link.say(amqp.method(0, commands.Connection.CloseOk()))
    link.client.close()
    wires.run()
    assert [session.cause for session, _ in wires.ended] == ["broker_heartbeat"]


def test_silence_of_a_broker_that_is_not_read_is_not_held_against_it() -> None:
    with Wires(backlog_bytes=50_000) as wires:
        link = Link(wires, heartbeat=AGREED)
        link.flood(link.broker, amqp.deliver(1, b"d" * 10_000))
        assert not link.session.reads_broker()
        for _ in range(20):
            link.say(BEAT)
            wires.elapse(2)
        assert link.cause() == ""
        assert wires.sweeper.sessions


def test_while_deliveries_are_held_the_client_hears_beats_and_the_broker_is_not_dead() -> None:
    slow = Rule(
        "slow", Match(protocol="amqp", operation="consume"), "rule", Limit(messages=Rate(1, 60_000_000_000)), open_for_ns=0, action="delay"
    )
    with Wires(hold_bytes=4_000) as wires:
        link = Link(wires, heartbeat=AGREED)
        link.say(amqp.method(1, commands.Basic.Consume(queue="q", consumer_tag="c", no_ack=True)))
        link.answer(amqp.method(1, commands.Basic.ConsumeOk("c")))
        wires.judge.replace(RuleSet((slow,)))  # behind the consumer, whose deliveries the broker forgets
        link.flood(link.broker, amqp.deliver(1, b"d" * 10_000))
        assert not link.session.reads_broker()
        link.at_client()
        heard: list[str] = []
        for _ in range(20):
            link.say(BEAT)
            wires.elapse(1)
            heard += amqp.names(link.at_client())
        assert link.cause() == ""
        assert heard.count("Heartbeat") >= 8
        assert heard.count("Basic.Deliver") <= 1


def test_a_process_that_stood_still_declares_no_peer_dead(wires: Wires) -> None:
    link = Link(wires, heartbeat=AGREED)
    wires.elapse(1)
    wires.stand_still(60)
    wires.elapse(1)
    assert link.cause() == ""
    for _ in range(5):
        wires.elapse(2)
        link.answer(BEAT)
    assert link.cause() == "heartbeat", "but whoever stays silent from then on is"


# ---- what is no heartbeat ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("data", "said"), [(amqp.raw_frame(8, 1, b""), "channel 1"), (amqp.raw_frame(8, 0, b"x"), "payload")])
def test_a_broken_heartbeat_is_an_error_of_its_sender(wires: Wires, data: bytes, said: str) -> None:
    link = Link(wires, heartbeat=AGREED)
    link.say(data)
    close = link.close_of(link.at_client())
    assert close.reply_code in {501, 505}
    assert said in close.reply_text
    other = Link(wires, heartbeat=AGREED)
    other.answer(data)
    close = other.close_of(other.at_client())
    assert close.reply_code == 541
    assert said in close.reply_text
    assert other.cause() == "broker_protocol_error"
