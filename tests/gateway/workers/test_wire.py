"""Frames between a parent and its workers: every message as it was, however the bytes come in; garbage is named and nothing else."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from common.views.connections import ConnectionView, EncryptionView
from gateway.data_plane import Close, Drain, Message
from gateway.workers.wire import (
    FOR_PARENTS,
    FOR_WORKERS,
    HEAD,
    MAX_FRAME_BYTES,
    AnyMessage,
    Asks,
    Begin,
    BucketAnnounced,
    BucketsForgotten,
    ChangeDone,
    Describe,
    Described,
    FaultyFrameError,
    Grants,
    NewRules,
    Outbox,
    Reload,
    StateQuery,
    StateReport,
    WireFrames,
    WorkerReady,
    frame,
    listen,
)
from limiter.rules.sender import Sender

FROM_PARENTS: list[Message] = [
    Begin(1, 2, 0, "6f1c", "{}", {"rabbit": 7}, 42, b"rules"),
    NewRules(3, b"rules"),
    Reload(4, "{}"),
    Grants([(1, 20, 0), (2, 0, 4096)]),
    StateQuery(5, ["topics"]),
    Describe(6, [1_000_000_017]),
    Close(1_000_000_017, "because"),
    Drain(),
]
FROM_WORKERS: list[Message] = [
    WorkerReady(4711),
    BucketAnnounced(1, ("topic", "", "amqp", "t"), "amqp", b"/", b"", b"\xff", "t", Sender("rabbit", "10.0.0.7"), None, "produce", 0),
    Asks([(1, 20, 0), (1, -3, 0)]),
    BucketsForgotten([1, 2]),
    ChangeDone(4, "why not"),
    StateReport(5, {"topics": b"\x90"}, [(1, 2, 3, 4, 5, 6, 7, 8, 9, -1)]),
    Described(6, [ConnectionView(id=1_000_000_017, listener="here", protocol="amqp", tls=EncryptionView(version="TLSv1.3"))]),
]


@given(st.data())
def test_messages_come_out_as_they_went_in_however_they_are_cut(data: st.DataObject) -> None:
    whole = b"".join(frame(message) for message in FROM_WORKERS)
    frames = WireFrames()
    bodies = []
    while whole:
        size = data.draw(st.integers(1, len(whole)))
        bodies += frames.feed(whole[:size])
        whole = whole[size:]
    assert [FOR_PARENTS.decode(body) for body in bodies] == FROM_WORKERS


@pytest.mark.parametrize("message", FROM_PARENTS, ids=lambda message: type(message).__name__)
def test_each_message_of_a_parent_comes_out_as_it_went_in(message: Message) -> None:
    (body,) = WireFrames().feed(frame(message))
    assert FOR_WORKERS.decode(body) == message


def test_a_frame_above_the_greatest_length_is_an_error() -> None:
    with pytest.raises(FaultyFrameError, match="a frame of"):
        WireFrames().feed(HEAD.pack(MAX_FRAME_BYTES + 1))


async def test_a_frame_that_is_no_message_is_an_error() -> None:
    mine, theirs = trio.testing.memory_stream_pair()
    await theirs.send_all(HEAD.pack(1) + b"\x90")
    with pytest.raises(FaultyFrameError):
        await listen(mine, FOR_PARENTS, lambda _: None)


async def test_an_outbox_is_sent_in_order_and_the_end_of_the_other_ends_it() -> None:
    mine, theirs = trio.testing.memory_stream_pair()
    outbox = Outbox(1_000_000)
    found: list[AnyMessage] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.send_to, mine)
        for message in FROM_WORKERS:
            outbox.put(message)
        async with trio.open_nursery() as listening:
            listening.start_soon(listen, theirs, FOR_PARENTS, found.append)
            await trio.testing.wait_all_tasks_blocked()
            listening.cancel_scope.cancel()
        await theirs.aclose()
        outbox.put(WorkerReady(1))  # to nobody
    assert found == FROM_WORKERS


def test_an_outbox_that_is_not_read_is_bounded() -> None:
    outbox = Outbox(100)
    outbox.put(NewRules(1, bytes(90)))
    outbox.put(NewRules(2, bytes(90)))
    assert (outbox.overfull, repr(outbox)) == (True, f"<Outbox 1 frames, {len(frame(NewRules(1, bytes(90))))} bytes overfull>")
