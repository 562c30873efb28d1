"""A connection cut at every byte: no half message ever reaches the other side whole, nothing stands in for what is missing (F06, F07).

Real sessions over loopback TCP, which knows RST. What reached the far side must be a beginning of what was said, the cut passed on
as an end; a client cut within a message leaves the broker with less than that message, which it discards.
"""

from __future__ import annotations

import socket
import struct

import pytest
from pamqp import commands

from gateway.assembly import assemble
from gateway.clock import now_ns
from gateway.session.listener_config import ListenerConfig
from gateway.transport.channel import Channel
from limiter.rules.rule import Rule
from support.amqp import frames as amqp
from support.wires.conversations import rule
from support.wires.wires import Wires

BODY = b"\x01\x00\x01\x00\x00\x00\x04\xce" * 3  # looks like frames: whoever loses its place in the stream takes it for some
FIRST = amqp.publish(1, "orders", b"first")
CUT = amqp.publish(1, "orders", BODY, mandatory=True, message_id="cut")
GREETING = amqp.greeting(channels=(1, 2), confirms=(1,), heartbeat=0)
DELIVERY = amqp.deliver(1, bytes(range(25)), cut=10)
DELIVERED = amqp.read(DELIVERY)
GONE = amqp.method(0, commands.Connection.Close(200, "the client is gone", 0, 0))


class Pair:
    """A session over loopback TCP after its handshake, both ends in hand."""

    def __init__(self, wires: Wires) -> None:
        self.wires = wires
        self.client, ours = wires.tcp_pair()
        self.broker, theirs = wires.tcp_pair()
        self.session = assemble(
            1, Channel(ours), ("10.0.0.7", 1), Channel(theirs), ListenerConfig("here", "amqp", 1 << 24, 10_000_000_000), wires.shared
        )
        wires.sweeper.add(self.session, now_ns())
        self.client.sendall(GREETING)
        self.broker.sendall(amqp.broker_opens())
        assert self.read(self.broker, len(GREETING)) == GREETING
        assert self.read(self.client, len(amqp.broker_opens())) == amqp.broker_opens()
        self.broker.sendall(amqp.opened(1, 2))
        assert self.read(self.client, len(amqp.opened(1, 2))) == amqp.opened(1, 2)

    def sweep(self) -> None:
        self.wires.sweeper.sweep(now_ns(), 0.001)

    def read(self, end: socket.socket, size: int) -> bytes:
        """Sweep until `size` bytes have come, or the end."""
        found = b""
        for _ in range(2_000):
            self.sweep()
            end.setblocking(False)
            try:
                data = end.recv(1 << 16)
            except BlockingIOError:
                continue
            except ConnectionResetError:
                return found
            found += data
            if not data or len(found) >= size:
                return found
        raise AssertionError(f"{len(found)} of {size} bytes came, and no end")

    def end(self) -> bytes:
        """What the broker gets up to the connection.close, which it answers; then it gets the FIN."""
        found = b""
        while not found.endswith(GONE):
            found += self.read(self.broker, 1)
        self.broker.sendall(amqp.method(0, commands.Connection.CloseOk()))
        assert self.read(self.broker, 1) == b""
        return found.removesuffix(GONE)

    def cut(self, end: socket.socket, how: str) -> None:
        if how == "rst":
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.close()
        else:
            end.shutdown(socket.SHUT_WR)

    def is_over(self) -> bool:
        for _ in range(2_000):
            if not self.wires.sweeper.sessions:
                return True
            self.sweep()
        return False


def within_body(offset: int) -> bool:
    """Whether the first `offset` bytes of `DELIVERY` end within a body frame, far enough in for the gateway to have let it flow."""
    at = 0
    for frame in DELIVERED:
        if at < offset < at + len(frame.raw):
            return frame.name == "ContentBody" and offset - at >= 7
        at += len(frame.raw)
    return False


def cut_client_at(offset: int, how: str, *rules: Rule) -> bytes:
    """What the broker gets of `FIRST` and `CUT` when the client is cut `offset` bytes into `CUT`."""
    with Wires(*rules) as wires:
        pair = Pair(wires)
        pair.client.sendall(FIRST + CUT[:offset])
        got = pair.read(pair.broker, len(FIRST))
        pair.broker.sendall(amqp.ack(1, 1))  # or the session would wait a while for it
        for _ in range(3):
            pair.sweep()
        pair.cut(pair.client, how)
        got += pair.end()
        pair.broker.close()
        assert pair.is_over(), pair.session
        return got


@pytest.mark.parametrize("how", ["rst", "fin"])
def test_a_client_cut_at_any_byte_of_a_publish_leaves_the_broker_a_beginning_of_it(how: str) -> None:
    for offset in range(len(CUT)):
        got = cut_client_at(offset, how)
        assert (FIRST + CUT).startswith(got), f"cut at {offset}: {got!r}"
        assert len(FIRST) <= len(got) <= len(FIRST) + offset
        assert amqp.read(got[: len(FIRST)]), "what was whole before is whole"


@pytest.mark.parametrize("how", ["rst", "fin"])
def test_a_client_cut_within_a_refused_publish_leaves_nothing_of_it(how: str) -> None:
    """The burst of one passes the first, the cut one is refused: not a byte of it may go on."""
    limit = rule("reject", messages=1, burst=1)
    for offset in range(0, len(CUT) + 1, 1 if how == "fin" else 7):
        got = cut_client_at(offset, how, limit)
        assert got == FIRST, f"cut at {offset}"


@pytest.mark.parametrize("how", ["rst", "fin"])
def test_a_client_cut_on_one_channel_within_anothers_message_leaves_both_streams_whole(how: str) -> None:
    """The method of one publish waits in the gateway for its header while another channel goes on: it must not turn up without it."""
    method, header, body = [frame.raw for frame in amqp.read(CUT)]
    other = amqp.publish(2, "bills", b"other")
    said = method + other + header + other + body
    whole = amqp.read(said)
    for offset in range(len(said)):
        with Wires() as wires:
            pair = Pair(wires)
            pair.client.sendall(said[:offset])
            for _ in range(3):
                pair.sweep()
            pair.cut(pair.client, how)
            got = pair.end()
            frames = amqp.read(got)  # whole frames only
            assert len(got) <= offset
            for channel in (1, 2):
                mine = [frame.raw for frame in frames if frame.channel == channel]
                assert mine == [frame.raw for frame in whole if frame.channel == channel][: len(mine)], (
                    f"cut at {offset}, channel {channel}"
                )
            assert [frame.name for frame in frames if frame.channel == 1] != ["Basic.Publish"], "a method without its header"


@pytest.mark.parametrize("how", ["rst", "fin"])
def test_a_broker_cut_at_any_byte_of_a_delivery_leaves_the_client_a_beginning_of_it(how: str) -> None:
    for offset in range(len(DELIVERY)):
        with Wires() as wires:
            pair = Pair(wires)
            pair.broker.sendall(DELIVERY[:offset])
            for _ in range(3):
                pair.sweep()
            pair.cut(pair.broker, how)
            got = pair.read(pair.client, 1 << 20)
            if within_body(offset):  # those bytes have gone to the client: nothing may be said
                assert got == DELIVERY[:offset]
            else:
                *before, last = amqp.read(got)
                assert last.name == "Connection.Close", f"cut at {offset}"
                assert [frame.raw for frame in before] == [
                    frame.raw for frame in DELIVERED if DELIVERY.index(frame.raw) + len(frame.raw) <= offset
                ]
            pair.client.close()
            assert pair.is_over(), pair.session


def test_confirms_for_what_came_before_the_clients_fin_still_reach_it() -> None:
    """F07: half closed is not gone."""
    with Wires() as wires:
        pair = Pair(wires)
        pair.client.sendall(FIRST + CUT)
        pair.client.shutdown(socket.SHUT_WR)
        assert pair.read(pair.broker, len(FIRST + CUT)) == FIRST + CUT
        said = amqp.ack(1, 2, multiple=True)
        pair.broker.sendall(said)
        assert pair.read(pair.client, len(said)) == said
        pair.broker.close()
        assert pair.is_over()
