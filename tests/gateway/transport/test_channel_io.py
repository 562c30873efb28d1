"""A channel that a task of its own reads, from a peer that sends faster than it does."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
import trio

from gateway.transport.channel import Channel
from gateway.transport.channel_io import READ_BYTES, read_some


@pytest.fixture
def full() -> Iterator[Channel]:
    """Of which eight reads find something at once."""
    ours, theirs = socket.socketpair()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * READ_BYTES)
    theirs.sendall(bytes(8 * READ_BYTES))
    channel = Channel(ours)
    yield channel
    channel.close()
    theirs.close()


async def test_others_have_a_turn_at_each_read(full: Channel) -> None:
    turns = reads = read = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take_turns)
        while read < 8 * READ_BYTES:
            read += len(await read_some(full))
            reads += 1
        nursery.cancel_scope.cancel()
    assert turns >= reads - 2 >= 6  # one before the first, which it begins, and perhaps one at the end


async def test_a_deadline_holds_though_there_is_always_something_to_read(full: Channel) -> None:
    read = 0
    with trio.move_on_after(0) as scope:
        while read < 8 * READ_BYTES:
            read += len(await read_some(full))
    assert scope.cancelled_caught
    assert read == 0
