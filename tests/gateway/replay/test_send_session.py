"""The gateway's own RocketMQ client, which sends again: one after the other, until each is stored or refused for good."""

from __future__ import annotations

import socket

import pytest
import trio
from trio.testing import MockClock

from gateway.protocols.rocketmq.sends_again import SendAgain
from gateway.replay.frame_stream import ReplayError
from gateway.replay.sends import ANSWER_S, FEW_TRIES, PERHAPS_LATER, TRIES, Patience, SendSession
from support.rocketmq.frames import binary_header, frame, heartbeat, response, send, split_frames

WAIT = "[RateLimit] for orders need wait:2000microsecs"


async def sent(*said: bytes, patience: Patience | None = None) -> tuple[str, int]:
    """What comes of a send to a broker that answers so, and how often it was sent. b"" closes the connection."""
    patience = Patience() if patience is None else patience
    ours, theirs = socket.socketpair()
    stream, broker = (trio.SocketStream(trio.socket.from_stdlib_socket(each)) for each in (ours, theirs))
    count = 0
    found = ""

    async def answer() -> None:
        nonlocal count
        for each in said:
            data = await broker.receive_some(65_536)
            count += b'"opaque":%d,' % (count + 1) in data
            if not each:
                break
            await broker.send_all(each)
        await broker.aclose()

    async with stream, trio.open_nursery() as nursery:
        nursery.start_soon(answer)
        with trio.fail_after(60):
            found = await SendSession(stream, lambda: False, patience).send(SendAgain(send(one_way=True), "1.durable", 9))
    return found, count


async def test_what_is_stored_is_done_with() -> None:
    for code in (0, 10, 11, 12):
        assert await sent(response(1, code)) == ("", 1)
    assert await sent(frame(binary_header(0, None, opaque=1, flag=1), kind=1)) == ("", 1)
    assert await sent(heartbeat(opaque=1) + response(5, 17) + response(1)) == ("", 1), "only its own answer counts"


async def test_what_a_limit_refuses_is_sent_again_after_its_wait() -> None:
    assert await sent(response(1, 215, remark=WAIT), response(2, 215, remark=WAIT), response(3)) == ("", 3)


async def test_what_cannot_be_read_is_told_and_not_sent() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        async with trio.SocketStream(trio.socket.from_stdlib_socket(ours)) as stream:
            found = await SendSession(stream, lambda: True, Patience()).send(SendAgain(frame(b"no json"), "1.durable", 9))
    assert found.startswith("it cannot be read: ")


async def test_what_the_broker_does_not_take_is_told_with_its_words() -> None:
    assert await sent(response(1, 17, remark="topic[orders] not exist")) == ("17 topic[orders] not exist", 1)
    assert await sent(frame(binary_header(13, None, opaque=1, flag=1), kind=1)) == ("13 ", 1)


async def test_a_busy_broker_and_one_that_goes_away_are_tried_again_later() -> None:
    for said in (response(1, 2, remark="too many requests"), response(1, 14), response(1, 1500), b"", frame(b"no json")):
        patience = Patience()
        for _ in range(TRIES + 1):
            with pytest.RaisesGroup(ReplayError):
                await sent(said, patience=patience)


async def refused_until(patience: Patience, code: int) -> int:
    """How often a message is tried that is always refused so, until it is to be set aside."""
    for tries in range(1, 100):
        try:
            found = await sent(response(1, code, remark="not now"), patience=patience)
        except* ReplayError:
            found = ("", 0)
        if found[1]:
            assert found == (f"{code} not now", 1)
            return tries
    raise AssertionError("it is tried for ever")


@pytest.mark.parametrize("code", PERHAPS_LATER)
async def test_what_may_pass_is_tried_again_for_a_while_and_set_aside_if_it_stays(code: int) -> None:
    patience = Patience()
    assert await refused_until(patience, code) == TRIES
    assert await refused_until(patience, code) == 1, "it is about all of them"
    assert await sent(response(1), patience=patience) == ("", 1)
    assert await refused_until(patience, code) == FEW_TRIES, "it is about some of them"
    assert await refused_until(patience, 1 if code != 1 else 16) == TRIES, "another reason has tries of its own"


async def test_trouble_that_is_over_in_time_sets_nothing_aside_however_often_it_comes() -> None:
    patience = Patience()
    for _ in range(3):
        for _ in range(TRIES - 1):
            with pytest.RaisesGroup(ReplayError):
                await sent(response(1, 1, remark="not now"), patience=patience)
        assert await sent(response(1), patience=patience) == ("", 1)


async def test_a_broker_that_takes_connections_and_says_nothing_is_given_up_before_it_gets_a_message(autojump_clock: MockClock) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        async with trio.SocketStream(trio.socket.from_stdlib_socket(ours)) as stream:
            with pytest.raises(ReplayError, match="has not answered for 10 s"), trio.fail_after(60):
                await SendSession(stream, lambda: False, Patience()).begin()
            assert ANSWER_S <= trio.current_time() <= ANSWER_S + 2
        (said,) = split_frames(theirs.recv(65_536))
        assert b'"code":34' in said, "a heartbeat, and nothing that would be stored"


async def test_the_deadline_runs_while_the_broker_has_the_request_and_not_while_the_gateway_keeps_it(autojump_clock: MockClock) -> None:
    ours, theirs = socket.socketpair()
    stream, broker = (trio.SocketStream(trio.socket.from_stdlib_socket(each)) for each in (ours, theirs))
    goes_on = 100.0
    async with stream, broker, trio.open_nursery() as nursery:

        async def answer() -> None:
            await trio.sleep(goes_on + ANSWER_S - 1)
            await broker.send_all(response(1))

        nursery.start_soon(answer)
        session = SendSession(stream, lambda: trio.current_time() < goes_on, Patience())
        assert await session.send(SendAgain(send(), "1.durable", 9)) == ""
        goes_on = 1000.0
        with pytest.raises(ReplayError, match="has not answered"):
            await session.send(SendAgain(send(), "1.durable", 9))
        assert goes_on + ANSWER_S <= trio.current_time() <= goes_on + ANSWER_S + 2
