"""A TLS channel over a real socket pair: the same promises as a plain channel's, and those of its own."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.transport.channel_states import FIN_SENT, READ_EOF, READ_OPEN, WRITE_OPEN
from gateway.transport.tls_channel import FETCH_BYTES, RECORD_BYTES, WINDOW_BYTES, TlsChannel
from support.tls import Peer, secured

BUFFER = memoryview(bytearray(262_144))
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
Pair = tuple[TlsChannel, Peer]


def narrow(*socks: socket.socket) -> None:
    """The smallest buffers the kernel gives: a few KiB."""
    for sock in socks:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)


@pytest.fixture(params=VERSIONS, ids=["1.2", "1.3"])
def make(request: pytest.FixtureRequest) -> Iterator[Callable[..., Pair]]:
    opened: list[Pair] = []

    def make(*, small: bool = False, server_side: bool = True) -> Pair:
        ours, theirs = socket.socketpair()
        if small:
            narrow(ours, theirs)
        opened.append(secured(ours, theirs, version=request.param, server_side=server_side))
        return opened[-1]

    yield make
    for channel, peer in opened:
        channel.close()
        peer.sock.close()


@pytest.fixture(params=[True, False], ids=["server", "client"])
def pair(request: pytest.FixtureRequest, make: Callable[..., Pair]) -> Pair:
    return make(server_side=request.param)


def read_all(channel: TlsChannel, most: int = len(BUFFER)) -> bytes:
    """What a session gets out of the channel without another word from the kernel: reads as long as `readable` says so."""
    found = b""
    for _ in range(100_000):
        if not channel.readable:
            return found
        count = channel.receive(BUFFER[:most], 0)
        found += bytes(BUFFER[:count])
    raise AssertionError(f"readable for ever: {channel}")


# ---- reading ------------------------------------------------------------------------------------------------------------


def test_bytes_from_the_peer_are_received_at_the_offset_and_the_socket_is_known_to_be_empty(pair: Pair) -> None:
    channel, peer = pair
    peer.send(b"hello")
    assert channel.receive(BUFFER, 3) == 5
    assert bytes(BUFFER[3:8]) == b"hello"
    assert (channel.readable, channel.read_state == READ_EOF, channel.received) == (False, False, 5)


def test_nothing_to_read_is_not_the_end(pair: Pair) -> None:
    channel, _ = pair
    assert channel.receive(BUFFER, 0) == 0
    assert (channel.readable, channel.read_state == READ_EOF, channel.read_error) == (False, False, None)


def test_decrypted_bytes_that_found_no_room_keep_it_readable_though_the_socket_is_empty(pair: Pair) -> None:
    channel, peer = pair
    data = bytes(range(256)) * 39
    peer.send(data)
    assert channel.receive(BUFFER[:7], 0) == 7
    assert channel.readable  # no edge will ever announce them
    assert data[:7] + read_all(channel, 7) == data
    assert not channel.readable


def test_records_that_found_no_room_keep_it_readable_though_the_socket_is_empty(pair: Pair) -> None:
    channel, peer = pair
    for number in range(50):
        peer.send(bytes([number]) * 100)
    assert channel.receive(BUFFER[:100], 0) == 100
    assert channel.readable
    assert read_all(channel, 100) == b"".join(bytes([number]) * 100 for number in range(1, 50))


def test_a_read_that_fills_the_room_exactly_costs_one_more_look_and_no_hang(pair: Pair) -> None:
    channel, peer = pair
    peer.send(b"x" * 100)
    assert channel.receive(BUFFER[:100], 0) == 100
    assert channel.readable
    assert channel.receive(BUFFER[:100], 0) == 0
    assert not channel.readable


def test_a_record_that_comes_in_pieces_is_received_once_it_is_whole(pair: Pair) -> None:
    channel, peer = pair
    record = peer.seal(b"in one piece")
    for octet in record[:-1]:
        peer.sock.sendall(bytes([octet]))
        channel.readable = True
        assert channel.receive(BUFFER, 0) == 0
        assert not channel.readable
    peer.sock.sendall(record[-1:])
    channel.readable = True
    assert channel.receive(BUFFER, 0) == 12


def test_records_that_are_cut_anywhere_come_whole_and_openssl_is_not_asked_in_vain(pair: Pair) -> None:
    channel, peer = pair
    read_all(channel)
    asked = 0
    read = channel._read

    def count(*arguments: object) -> int:
        nonlocal asked
        asked += 1
        return read(*arguments)  # type: ignore[arg-type]

    channel._read = count
    said = [b"a", b"bcdef", b"g" * 90]
    first = b"".join(peer.seal(each) for each in said)
    peer.sock.sendall(first)
    channel.readable = True
    assert read_all(channel) == b"".join(said)
    size = len(first)
    pieces = [peer.seal(each) for each in said * (size + 1)]
    for cut in range(size + 1):
        sealed = b"".join(pieces[3 * cut : 3 * cut + 3])
        found = b""
        for piece in (sealed[:cut], sealed[cut:]):
            peer.sock.sendall(piece)
            channel.readable = True
            found += read_all(channel)
        assert found == b"".join(said), cut
    assert 0 <= asked - 3 * (size + 2) <= 2  # the server's tickets


def test_a_flood_of_tiny_records_is_received_in_bounded_bites(pair: Pair) -> None:
    channel, peer = pair
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    peer.sock.sendall(b"".join(peer.seal(b"x") for _ in range(1500)))
    first = channel.receive(BUFFER, 0)
    assert 0 < first < 1500
    assert channel.readable
    assert first + len(read_all(channel)) == 1500


def test_at_most_one_read_of_ciphertext_waits_inside_the_channel(make: Callable[..., Pair]) -> None:
    channel, peer = make()
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    sealed = peer.seal(bytes(150_000))
    peer.sock.sendall(sealed)
    while channel.received < 10:
        channel.receive(BUFFER[:1], 0)
    left = len(channel.sock.recv(1 << 20, socket.MSG_PEEK))
    assert len(sealed) - left <= FETCH_BYTES + RECORD_BYTES


# ---- the peer's end -----------------------------------------------------------------------------------------------------


def test_close_notify_is_the_end_and_comes_after_the_data_before_it(pair: Pair) -> None:
    channel, peer = pair
    peer.sock.sendall(peer.seal(b"last words") + peer.notice())
    assert channel.receive(BUFFER, 0) == 10
    assert (channel.read_state == READ_EOF, channel.readable) == (False, True)
    assert channel.receive(BUFFER, 0) == 0
    assert (channel.read_state == READ_EOF, channel.readable, channel.truncated, channel.read_error) == (True, False, False, None)


def test_a_fin_without_close_notify_is_the_end_too_and_remembered(pair: Pair) -> None:
    channel, peer = pair
    peer.send(b"last words")
    peer.sock.close()
    channel.hangup_pending = True
    assert read_all(channel) == b"last words"
    assert (channel.read_state == READ_EOF, channel.truncated, channel.read_error) == (True, True, None)


def test_a_fin_within_a_record_ends_the_stream_before_that_record(pair: Pair) -> None:
    channel, peer = pair
    peer.send(b"whole")
    peer.sock.sendall(peer.seal(b"torn")[:-1])
    peer.sock.close()
    channel.hangup_pending = True
    assert read_all(channel) == b"whole"
    assert (channel.read_state == READ_EOF, channel.truncated) == (True, True)


def test_an_announced_end_is_read_until_it_shows(pair: Pair) -> None:
    channel, peer = pair
    peer.send(b"last words")
    channel.hangup_pending = True
    assert channel.receive(BUFFER, 0) == 10
    peer.sock.close()
    channel.readable = True
    assert channel.receive(BUFFER, 0) == 0
    assert channel.read_state == READ_EOF


def test_a_damaged_record_is_an_error_with_words_after_the_good_data_before_it(pair: Pair) -> None:
    channel, peer = pair
    good, bad = peer.seal(b"good"), bytearray(peer.seal(b"to be damaged"))
    bad[-1] ^= 1
    peer.sock.sendall(good + bad)
    assert channel.receive(BUFFER, 0) == 4
    assert not channel.readable
    assert str(channel.read_error) == "TLS: a record was damaged on its way"
    peer.take()
    with pytest.raises(ssl.SSLError, match=r"(?i)alert"):
        peer.opened()


@pytest.mark.parametrize(
    "plain", [b"GET / HTTP/1.1\r\n\r\n", b"\x17\x03\x03\xff\xff", b"AMQP\x00\x00\x09\x01"], ids=["http", "too-long", "amqp"]
)
def test_plain_bytes_in_the_stream_are_an_error(pair: Pair, plain: bytes) -> None:
    channel, peer = pair
    peer.sock.sendall(plain)
    assert channel.receive(BUFFER, 0) == 0
    assert isinstance(channel.read_error, ssl.SSLError)
    assert "TLS: " in str(channel.read_error)


# ---- writing ------------------------------------------------------------------------------------------------------------


def test_queued_slices_arrive_in_order_as_one_record(pair: Pair) -> None:
    channel, peer = pair
    channel.flush(1)
    peer.received()
    channel.queue(b"__one__", 2, 5)
    channel.queue(b"two", 0, 3)
    channel.queue(b"three!", 0, 5)
    channel.flush(7)
    assert (channel.backlog, channel.sent, channel.sent_at) == (0, 11, 7)
    raw = peer.sock.recv(1000)
    assert raw[0] == 23
    assert len(raw) == 5 + int.from_bytes(raw[3:5], "big")
    peer.incoming.write(raw)
    assert peer.opened() == b"onetwothree"


def test_bytes_that_the_socket_has_not_taken_are_backlog_though_they_are_encrypted(make: Callable[..., Pair]) -> None:
    channel, peer = make(small=True)
    data = bytes(range(256)) * 4096
    channel.queue(data, 0, len(data))
    channel.queue(b"end", 0, 3)
    channel.flush(1)
    assert not channel.writable
    got = bytearray()
    while len(got) < len(data) + 3:
        peer.take(1000)
        got += peer.opened()
        assert channel.sent <= len(got) + (1 << 17), "more is called sent than the two sockets hold"
        assert len(got) <= channel.sent + RECORD_BYTES, "the peer has what is not called sent"
        channel.writable = True  # what the loop does on EPOLLOUT
        channel.flush(2)
    assert bytes(got) == data + b"end"
    assert (channel.backlog, channel.sent_at) == (0, 2)


def test_at_most_a_window_is_encrypted_ahead_of_the_socket(make: Callable[..., Pair]) -> None:
    channel, peer = make(small=True)
    data = bytes(1 << 20)
    channel.queue(data, 0, len(data))
    channel.flush(1)
    assert 0 < channel._under_way - channel.sent <= WINDOW_BYTES
    assert peer.take()


def test_a_broken_socket_is_cut_and_what_the_peer_said_before_can_still_be_read(make: Callable[..., Pair]) -> None:
    channel, peer = make()
    peer.send(b"last words")
    peer.sock.close()
    for _ in range(3):
        channel.queue(b"x" * 100, 0, 100)
        channel.flush(1)
    assert isinstance(channel.write_error, OSError)
    assert (channel.backlog, channel.read_error) == (0, None)
    assert read_all(channel) == b"last words"


def test_records_that_openssl_sends_of_its_own_accord_leave_with_the_next_flush() -> None:
    ours, theirs = socket.socketpair()
    channel, _ = secured(ours, theirs, version=ssl.TLSVersion.TLSv1_3, server_side=True)
    channel.flush(1)
    assert theirs.recv(1 << 16), "the session tickets of TLS 1.3"
    assert (channel.queued, channel.sent, channel.backlog) == (0, 0, 0)
    channel.close()
    theirs.close()


def test_a_peer_that_makes_openssl_talk_and_does_not_listen_is_given_up(pair: Pair) -> None:
    """Key updates ask for an answer each; answers to a peer that does not read would pile up for ever."""
    channel, _ = pair
    channel._outgoing.write(bytes(60_000))
    channel.receive(BUFFER, 0)
    assert channel.read_error is None
    channel._outgoing.write(bytes(6_000))
    channel.readable = True
    channel.receive(BUFFER, 0)
    assert "does not read the answers" in str(channel.read_error)


# ---- our end ------------------------------------------------------------------------------------------------------------


def test_shut_down_waits_for_the_backlog_then_says_close_notify_and_fin(make: Callable[..., Pair]) -> None:
    channel, peer = make()
    channel.queue(b"before the end", 0, 14)
    channel.shut_down()
    assert channel.write_state == WRITE_OPEN
    channel.flush(1)
    channel.shut_down()
    assert channel.write_state == FIN_SENT
    assert peer.take()
    assert peer.opened() == b"before the end"
    assert peer.closed_in
    assert not peer.take()


def test_after_our_end_the_peer_may_still_speak(pair: Pair) -> None:
    channel, peer = pair
    channel.shut_down()
    assert channel.write_state == FIN_SENT
    peer.take()
    assert (peer.opened(), peer.closed_in) == (b"", True)
    peer.sock.sendall(peer.seal(b"I had not finished") + peer.notice())
    channel.readable = True
    assert read_all(channel) == b"I had not finished"
    assert (channel.read_state == READ_EOF, channel.truncated, channel.read_error) == (True, False, None)


@pytest.mark.parametrize("before", [0, 3], ids=["unread", "half read"])
def test_our_end_loses_nothing_the_peer_has_said_by_then(pair: Pair, before: int) -> None:
    """OpenSSL throws away application data it meets while it says close_notify."""
    channel, peer = pair
    peer.send(b"first second")
    if before:
        assert channel.receive(BUFFER[:before], 0) == before
    peer.sock.sendall(peer.seal(b" third")[:10])
    channel.receive(BUFFER[:0], 0)
    channel.shut_down()
    assert channel.write_state == FIN_SENT
    peer.take()
    peer.opened()
    channel.readable = True
    got = read_all(channel, 5)
    assert got == b"first second"[before:]
    assert channel.read_error is None


def test_our_end_waits_for_a_socket_that_is_full(make: Callable[..., Pair]) -> None:
    channel, peer = make(small=True)
    channel.queue(bytes(1 << 20), 0, 1 << 20)
    channel.flush(1)
    channel.shut_down()
    assert channel.write_state == WRITE_OPEN
    got = 0
    while got < 1 << 20:
        peer.take()
        got += len(peer.opened())
        channel.writable = True
        channel.flush(2)
        channel.shut_down()
    assert channel.write_state == FIN_SENT
    while peer.take():
        peer.opened()
    assert peer.closed_in


def test_both_ends_at_once(pair: Pair) -> None:
    channel, peer = pair
    peer.sock.sendall(peer.notice())
    channel.shut_down()
    assert channel.write_state == FIN_SENT
    channel.readable = True
    assert read_all(channel) == b""
    assert channel.read_state == READ_EOF
    assert channel.read_error is None


def test_its_operators_see_version_and_cipher(pair: Pair) -> None:
    channel, _ = pair
    facts = channel.encryption()
    assert facts is not None
    assert facts.version in {"TLSv1.2", "TLSv1.3"}
    assert facts.cipher
    assert repr(channel).startswith("<TlsChannel open fd=")


# ---- anything -----------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    version=st.sampled_from(VERSIONS),
    server_side=st.booleans(),
    there=st.lists(st.binary(max_size=40_000), max_size=12),
    back=st.lists(st.binary(max_size=40_000), max_size=12),
    bites=st.lists(st.integers(1, 70_000), min_size=1, max_size=8),
    half_close_after=st.integers(0, 12),
)
def test_any_stream_passes_both_ways_through_narrow_sockets_and_a_half_close(
    version: ssl.TLSVersion, server_side: bool, there: list[bytes], back: list[bytes], bites: list[int], half_close_after: int
) -> None:
    """Bytes that the channel sends arrive whole and in order, as do those it receives, whatever is read, sent and closed when."""
    ours, theirs = socket.socketpair()
    narrow(ours, theirs)
    channel, peer = secured(ours, theirs, version=version, server_side=server_side)
    theirs.setblocking(False)
    sent = b"".join(there[:half_close_after])
    to_receive = b"".join(back)
    wire = memoryview(b"".join(peer.seal(piece) for piece in back if piece) + peer.notice())
    received, opened = bytearray(), bytearray()
    queue = list(there[:half_close_after])
    turn = 0
    try:
        while not (channel.read_state == READ_EOF and channel.write_state == FIN_SENT and peer.closed_in):
            bite = bites[turn % len(bites)]
            turn += 1
            assert turn < 20_000, f"no end: {channel}"
            if queue:
                piece = queue.pop(0)
                channel.queue(piece, 0, len(piece))
            channel.writable = True
            channel.flush(turn)
            if not queue:
                channel.shut_down()
            if wire:
                with suppress(BlockingIOError):
                    wire = wire[theirs.send(wire[:bite]) :]
            peer.take(bite)
            opened += peer.opened()
            channel.readable = channel.read_state == READ_OPEN
            count = channel.receive(BUFFER[:bite], 0)
            received += BUFFER[:count]
            assert channel.read_error is None
            assert channel.write_error is None
        assert bytes(received) == to_receive
        assert bytes(opened) == sent
        assert (channel.received, channel.sent, channel.backlog) == (len(to_receive), len(sent), 0)
    finally:
        channel.close()
        theirs.close()
