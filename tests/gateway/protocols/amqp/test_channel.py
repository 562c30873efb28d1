"""The state of one channel: when the gateway may speak, and when the channel may be forgotten."""

from __future__ import annotations

import pytest

from gateway.pipeline.parts import PLAIN, Part
from gateway.protocols.amqp.channel import AmqpChannel
from gateway.protocols.amqp.channel_states import CLOSE_SENT, CLOSE_WAITS, NO_CLOSE
from gateway.protocols.amqp.frames import CHANNEL_OPEN_OK, CONFIRM_SELECT_OK


@pytest.fixture
def channel() -> AmqpChannel:
    """One that is open, as both sides know."""
    found = AmqpChannel(1)
    found.open()
    found.unsettled_opens = 0
    found.begin()
    return found


def test_the_gateway_speaks_behind_the_answers_that_are_to_come(channel: AmqpChannel) -> None:
    assert channel.takes_replies()
    channel.expect_open_ok()
    channel.expect_open_ok()
    channel.expect_select_ok()
    for method, may in ((CHANNEL_OPEN_OK, False), (CONFIRM_SELECT_OK, False), (CHANNEL_OPEN_OK, False), (CONFIRM_SELECT_OK, True)):
        channel.answer(method)
        assert channel.takes_replies() == may
    channel.answer(CHANNEL_OPEN_OK)
    channel.expect_open_ok()
    assert not channel.takes_replies(), "an answer that nobody waited for stands for none"
    channel.answer(CHANNEL_OPEN_OK)
    channel.expect_select_ok()
    channel.expect_open_ok()
    channel.answer(CHANNEL_OPEN_OK)
    assert channel.takes_replies(), "the select was of the channel before"


@pytest.mark.parametrize("how", ["broker", "gateway"])
def test_no_answer_comes_on_a_channel_that_is_closed(channel: AmqpChannel, how: str) -> None:
    channel.expect_open_ok()
    channel.expect_select_ok()
    if how == "broker":
        assert channel.close_by_broker()
        assert not channel.close_by_broker(), "that is known"
    else:
        channel.close_by_gateway()
        channel.tell_close(b"close")
        assert (channel.gateway_close, channel.close_frames) == (CLOSE_WAITS, b"close")
        channel.close_told()
        assert (channel.gateway_close, channel.close_frames) == (CLOSE_SENT, b"")
        assert not channel.takes_replies()
        channel.finish_close()
        assert channel.gateway_close == NO_CLOSE
    assert channel.takes_replies()
    if how == "broker":
        channel.expect_open_ok()
        channel.expect_select_ok()
        assert channel.takes_replies(), "nothing goes on there"


def test_within_a_message_of_the_brokers_the_gateway_is_silent(channel: AmqpChannel) -> None:
    for left, within in ((-1, True), (5, True), (0, False)):
        channel.broker_left = left
        assert (channel.within_message(), channel.takes_replies()) == (within, not within)


def test_a_close_is_told_once(channel: AmqpChannel) -> None:
    channel.close_told()
    assert channel.gateway_close == NO_CLOSE, "there was none"


def test_a_channel_may_be_forgotten_when_both_have_closed_it_and_nothing_of_it_is_under_way(channel: AmqpChannel) -> None:
    assert not channel.over()
    channel.close_by_client()
    assert channel.over()
    part = Part(PLAIN, 1, b"", 0, 0)
    for attribute, value, none in (("unsettled_opens", 1, 0), ("gateway_close", CLOSE_SENT, NO_CLOSE)):
        setattr(channel, attribute, value)
        assert not channel.over(), attribute
        setattr(channel, attribute, none)
    channel.line.taken = 1
    assert not channel.over()
    channel.line.taken = 0
    channel.line.parts.append(part)
    assert not channel.over()
    assert channel.line.forget_held() == [part]
    channel.close_by_gateway()
    assert not channel.over(), "the client's close-ok is to come"
    channel.begin()
    assert channel.over()
