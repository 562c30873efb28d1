"""A channel over a real socket pair: what it sends, remembers and bounds."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.transport.channel import LONG_READS, MIN_SMALL_READS, READ_BYTES, SMALL_READ_BYTES, Channel
from gateway.transport.channel_states import FIN_SENT, READ_EOF, READ_OPEN, WRITE_OPEN

BUFFER = memoryview(bytearray(262_144))


@pytest.fixture
def pair() -> Iterator[tuple[Channel, socket.socket]]:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    yield channel, theirs
    channel.close()
    theirs.close()


def test_queued_slices_arrive_in_order_as_one_stream(pair: tuple[Channel, socket.socket]) -> None:
    channel, peer = pair
    channel.queue(b"__one__", 2, 5)
    channel.queue(b"two", 0, 3)
    channel.queue(b"three!", 0, 5)
    channel.flush(7)
    assert peer.recv(100) == b"onetwothree"
    assert channel.backlog == 0
    assert channel.sent_at == 7


def test_bytes_that_the_socket_does_not_take_stay_and_go_on_where_it_stopped(pair: tuple[Channel, socket.socket]) -> None:
    channel, peer = pair
    data = bytes(range(256)) * 8192
    channel.queue(data, 0, len(data))
    channel.queue(b"end", 0, 3)
    channel.flush(1)
    assert not channel.writable
    assert 0 < channel.backlog < len(data)
    got = bytearray()
    while len(got) < len(data) + 3:
        got += peer.recv(1 << 20)
        channel.writable = True  # what the loop does on EPOLLOUT
        channel.flush(2)
    assert bytes(got) == data + b"end"


def test_a_short_read_empties_the_socket_without_a_second_call(pair: tuple[Channel, socket.socket]) -> None:
    channel, peer = pair
    peer.sendall(b"hello")
    assert channel.read(100, BUFFER) == b"hello"
    assert not channel.readable
    assert channel.read_state == READ_OPEN


def test_a_full_read_is_followed_by_a_larger_one(pair: tuple[Channel, socket.socket]) -> None:
    channel, peer = pair
    peer.setblocking(False)
    assert peer.send(bytes(3 * READ_BYTES)) > 2 * READ_BYTES
    assert len(channel.read(len(BUFFER), BUFFER)) == READ_BYTES
    assert channel.readable
    assert len(channel.read(len(BUFFER), BUFFER)) > READ_BYTES


def test_gusts_longer_than_a_read_come_in_one_read_each_until_there_are_none_for_some_time(pair: tuple[Channel, socket.socket]) -> None:
    channel, peer = pair
    peer.setblocking(False)

    def reads_of(size: int) -> list[int]:
        assert peer.send(bytes(size)) == size
        channel.readable = True  # what the loop does on EPOLLIN
        found = []
        while channel.readable:
            found.append(len(channel.read(len(BUFFER), BUFFER)))
        return found

    assert reads_of(READ_BYTES + 5) == [READ_BYTES, 5]
    assert reads_of(READ_BYTES + 5) == [READ_BYTES + 5]
    for _ in range(LONG_READS):
        assert reads_of(700) == [700]
    assert reads_of(READ_BYTES + 5) == [READ_BYTES, 5]


def test_a_longer_message_after_many_short_ones_comes_whole_in_two_reads(pair: tuple[Channel, socket.socket]) -> None:
    channel, peer = pair
    for number in range(MIN_SMALL_READS + 2):
        peer.sendall(b"%03d" % number)
        assert channel.read(len(BUFFER), BUFFER) == b"%03d" % number
    message = bytes(range(256)) * 8
    peer.sendall(message)
    channel.readable = True  # what the loop does on EPOLLIN
    first = channel.read(len(BUFFER), BUFFER)
    assert len(first) == SMALL_READ_BYTES
    assert channel.readable
    assert first + channel.read(len(BUFFER), BUFFER) == message
    assert not channel.readable


@given(st.lists(st.tuples(st.sampled_from(["queue", "flush", "take"]), st.integers(0, 600_000)), max_size=40))
def test_queued_bytes_arrive_in_order_however_the_socket_takes_them(steps: list[tuple[str, int]]) -> None:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    channel = Channel(ours)
    said = bytearray()
    heard = bytearray()

    def take(most: int) -> None:
        with contextlib.suppress(BlockingIOError):
            heard.extend(theirs.recv(most))
            channel.writable = True  # what the loop does on EPOLLOUT

    for what, much in steps:
        if what == "queue":
            data = (len(said) % 251).to_bytes() * much
            channel.queue(data, much // 3, much)
            said += data[much // 3 :]
        elif what == "flush":
            channel.flush(1)
        else:
            take(max(much, 1))
        assert channel.backlog == len(said) - channel.sent
    while channel.backlog:
        channel.flush(2)
        take(1 << 20)
    take(1 << 20)
    while len(heard) < len(said):
        take(1 << 20)
    channel.close()
    theirs.close()
    assert bytes(heard) == bytes(said)


def test_reading_goes_on_after_a_short_read_when_the_peer_has_hung_up(pair: tuple[Channel, socket.socket]) -> None:
    channel, peer = pair
    peer.sendall(b"last words")
    peer.close()
    channel.hangup_pending = True
    assert channel.read(100, BUFFER) == b"last words"
    assert channel.readable
    assert channel.read(100, BUFFER) == b""
    assert channel.read_state == READ_EOF


def test_nothing_to_read_is_not_the_end(pair: tuple[Channel, socket.socket]) -> None:
    channel, _ = pair
    assert channel.read(100, BUFFER) == b""
    assert channel.read_state == READ_OPEN
    assert not channel.readable


def test_fin_waits_for_the_backlog(pair: tuple[Channel, socket.socket]) -> None:
    channel, peer = pair
    channel.queue(b"before the end", 0, 14)
    channel.shut_down()
    assert channel.write_state == WRITE_OPEN
    channel.flush(1)
    channel.shut_down()
    assert channel.write_state == FIN_SENT
    assert peer.recv(100) == b"before the end"
    assert peer.recv(100) == b""


def test_a_broken_socket_keeps_its_error_and_drops_what_cannot_be_sent(pair: tuple[Channel, socket.socket]) -> None:
    channel, peer = pair
    peer.close()
    for _ in range(3):
        channel.queue(b"x" * 100, 0, 100)
        channel.flush(1)
    assert isinstance(channel.write_error, OSError)
    assert channel.backlog == 0


def test_bytes_from_a_peer_before_it_broke_the_connection_can_still_be_read(pair: tuple[Channel, socket.socket]) -> None:
    channel, peer = pair
    peer.sendall(b"last words")
    peer.close()
    for _ in range(3):
        channel.queue(b"x" * 100, 0, 100)
        channel.flush(1)
    assert channel.write_error is not None
    assert channel.readable
    assert channel.read(100, BUFFER) == b"last words"
    assert channel.read(100, BUFFER) == b""
    assert not channel.readable


def test_the_time_a_backlog_waits_for_the_socket_is_counted(pair: tuple[Channel, socket.socket]) -> None:
    channel, peer = pair
    data = bytes(1 << 22)
    channel.queue(data, 0, len(data))
    channel.flush(1_000)
    assert channel.send_blocked_ns(1_500) == 500
    channel.flush(1_800)  # not writable: nothing has changed
    assert channel.send_blocked_ns(2_000) == 1_000
    while channel.backlog:
        peer.recv(1 << 20)
        channel.writable = True
        channel.flush(3_000)
    assert channel.send_blocked_ns(9_000) == 2_000
