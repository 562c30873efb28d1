"""Sessions over TLS on either hop or both: nothing but the wire is different."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from pamqp import commands

from common.views.connections import EncryptionView
from gateway.clock import now_ns
from gateway.session import description
from gateway.transport.channel import Channel
from limiter.limits import Limit, Rate
from limiter.rules.rule_set import Match, Rule
from support.amqp import frames as amqp
from support.processes import HANG_S
from support.rocketmq.frames import read_response, response, send, split_frames
from support.tls import Peer, secured
from support.wires.wires import Wires

HOPS = [pytest.param((True, False), id="client"), pytest.param((False, True), id="broker"), pytest.param((True, True), id="both")]


class End:
    """A test's end of a hop, secured or not."""

    def __init__(self, sock: socket.socket, peer: Peer | None) -> None:
        self.sock = sock
        self.peer = peer
        sock.settimeout(HANG_S)

    def say(self, data: bytes) -> None:
        self.sock.sendall(data if self.peer is None else self.peer.seal(data))

    def finish(self) -> None:
        """Our half is closed, in the hop's own way."""
        if self.peer is not None:
            self.sock.sendall(self.peer.notice())
        self.sock.shutdown(socket.SHUT_WR)

    def heard(self) -> bytes:
        """Everything that has arrived by now."""
        found = b""
        self.sock.setblocking(False)
        try:
            while data := self.sock.recv(1 << 20):
                if self.peer is None:
                    found += data
                else:
                    self.peer.incoming.write(data)
                    found += self.peer.opened()
        except BlockingIOError:
            pass
        self.sock.settimeout(HANG_S)
        return found


class Secure:
    """Wires whose hops speak TLS where it is said so."""

    def __init__(self, wires: Wires, stack: ExitStack) -> None:
        self.wires = wires
        self.stack = stack

    def connect(self, protocol: str, hops: tuple[bool, bool], *, user: str | None = None) -> tuple[End, End]:
        (client, ours), (broker, ours_up) = (self._hop(secure, server_side=side) for secure, side in zip(hops, (True, False), strict=True))
        ours.certificate_user = user
        self.wires.join(protocol, ours, ours_up)
        return client, broker

    def _hop(self, secure: bool, *, server_side: bool) -> tuple[End, Channel]:
        theirs, ours = socket.socketpair()
        self.stack.enter_context(theirs)
        if not secure:
            return End(theirs, None), Channel(ours)
        channel, peer = secured(ours, theirs, server_side=server_side)
        return End(theirs, peer), channel


@pytest.fixture
def secure() -> Iterator[Secure]:
    limited = Rule("limited", Match(protocol="rocketmq", topic="flood"), "topic", Limit(messages=Rate(1), messages_burst=10), open_for_ns=0)
    flood = Rule("flood", Match(protocol="amqp", routing_key="flood"), "topic", Limit(messages=Rate(1), messages_burst=5), open_for_ns=0)
    with ExitStack() as stack:
        yield Secure(stack.enter_context(Wires(limited, flood)), stack)


def open_amqp(secure: Secure, client: End, broker: End, start_ok: commands.Connection.StartOk | None = None) -> None:
    """The handshake and one channel with confirms."""
    start_ok = start_ok or commands.Connection.StartOk({}, "PLAIN", "\0shop\0secret", "en_US")
    steps = [
        (client, amqp.PROTOCOL_HEADER),
        (broker, amqp.broker_start()),
        (client, amqp.method(0, start_ok)),
        (broker, amqp.method(0, commands.Connection.Tune(2047, 131072, 60))),
        (client, amqp.method(0, commands.Connection.TuneOk(2047, 131072, 60)) + amqp.method(0, commands.Connection.Open("/"))),
        (broker, amqp.method(0, commands.Connection.OpenOk())),
        (client, amqp.method(1, commands.Channel.Open()) + amqp.method(1, commands.Confirm.Select())),
        (broker, amqp.method(1, commands.Channel.OpenOk()) + amqp.method(1, commands.Confirm.SelectOk())),
    ]
    for end, data in steps:
        end.say(data)
        secure.wires.run(0.003)
        assert (broker if end is client else client).heard() == data


@pytest.mark.parametrize("hops", HOPS)
def test_unlimited_traffic_passes_byte_for_byte_in_both_directions_through_tls(secure: Secure, hops: tuple[bool, bool]) -> None:
    upward = b"".join(send("orders", opaque=number) for number in range(200))
    downward = b"".join(response(number) for number in range(200))
    client, broker = secure.connect("rocketmq", hops)
    client.say(upward)
    broker.say(downward)
    secure.wires.run()
    assert broker.heard() == upward
    assert client.heard() == downward


@pytest.mark.parametrize("hops", HOPS)
def test_a_flood_is_refused_through_tls(secure: Secure, hops: tuple[bool, bool]) -> None:
    client, broker = secure.connect("rocketmq", hops)
    client.say(b"".join(send("flood", opaque=number) for number in range(50)))
    secure.wires.run()
    assert len(split_frames(broker.heard())) == 10
    assert [read_response(frame)["opaque"] for frame in split_frames(client.heard())] == list(range(10, 50))


@pytest.mark.parametrize("hops", HOPS)
def test_a_confirm_channel_is_nacked_through_tls_with_the_clients_own_tags(secure: Secure, hops: tuple[bool, bool]) -> None:
    client, broker = secure.connect("amqp", hops)
    open_amqp(secure, client, broker)
    client.say(b"".join(amqp.publish(1, "flood", exchange="orders") for _ in range(8)) + amqp.publish(1, "calm", exchange="orders"))
    secure.wires.run()
    assert amqp.names(broker.heard()).count("Basic.Publish") == 6
    broker.say(amqp.ack(1, 6, multiple=True))
    secure.wires.run()
    told = {tag: one.acked for one in amqp.confirms(client.heard()) for tag in ([one.tag] if not one.multiple else range(1, one.tag + 1))}
    assert [tag for tag, acked in sorted(told.items()) if not acked] == [6, 7, 8]


@pytest.mark.parametrize("hops", HOPS)
def test_a_large_message_passes_byte_for_byte_though_the_peer_does_not_read_for_a_while(secure: Secure, hops: tuple[bool, bool]) -> None:
    """5 MiB through backlogs of 256 KiB: both sides stop and go on, and nothing is left inside TLS without anybody knowing."""
    client, broker = secure.connect("amqp", hops)
    open_amqp(secure, client, broker)
    payload = bytes(range(256)) * (5 << 12)
    whole = amqp.publish(1, "calm", payload, exchange="orders")
    sealed = memoryview(whole if client.peer is None else client.peer.seal(whole))
    found = bytearray()
    for _ in range(10_000):
        if len(found) == len(whole):
            break
        client.sock.setblocking(False)
        with suppress(BlockingIOError):
            sealed = sealed[client.sock.send(sealed[:300_000]) :]
        secure.wires.run(0.0005)
        found += broker.heard()
    assert bytes(found) == whole


@pytest.mark.parametrize("hops", HOPS)
def test_each_sides_end_reaches_the_other_after_its_last_bytes(secure: Secure, hops: tuple[bool, bool]) -> None:
    client, broker = secure.connect("rocketmq", hops)
    client.say(send("orders", opaque=1))
    client.finish()
    secure.wires.run()
    assert broker.heard() == send("orders", opaque=1)
    assert broker.peer is None or broker.peer.closed_in
    assert broker.sock.recv(1) == b"", "and FIN"
    broker.say(response(1))
    broker.finish()
    secure.wires.run()
    assert client.heard() == response(1)
    assert client.peer is None or client.peer.closed_in
    ((session, error),) = secure.wires.ended
    assert (session.cause, error) == ("client", None)
    assert session.upstream.sent == len(send("orders", opaque=1))


def test_a_damaged_record_ends_this_connection_with_its_cause(secure: Secure) -> None:
    client, broker = secure.connect("rocketmq", (True, False))
    assert client.peer is not None
    record = bytearray(client.peer.seal(send("orders")))
    record[-1] ^= 1
    client.sock.sendall(record)
    secure.wires.run()
    broker.finish()
    secure.wires.run()
    ((session, error),) = secure.wires.ended
    assert (session.cause, session.detail, error) == ("tls", "TLS: a record was damaged on its way", None)
    assert broker.heard() == b""


@pytest.mark.parametrize(("mechanism", "user"), [("EXTERNAL", "application"), ("PLAIN", "shop")])
def test_external_means_the_user_of_the_certificate(secure: Secure, mechanism: str, user: str) -> None:
    client, broker = secure.connect("amqp", (True, True), user="application")
    response = "\0shop\0secret" if mechanism == "PLAIN" else ""
    open_amqp(secure, client, broker, commands.Connection.StartOk({}, mechanism, response, "en_US"))
    shown = description.describe(secure.wires.session(), now_ns())
    assert shown.user == user
    assert shown.tls == EncryptionView(version="TLSv1.3", cipher="TLS_AES_256_GCM_SHA384", certificate_user="application")
    assert shown.upstream_tls == EncryptionView(version="TLSv1.3", cipher="TLS_AES_256_GCM_SHA384", certificate_user=None)


def test_external_without_a_certificate_has_no_user(secure: Secure) -> None:
    client, broker = secure.connect("amqp", (True, False))
    open_amqp(secure, client, broker, commands.Connection.StartOk({}, "EXTERNAL", "", "en_US"))
    shown = description.describe(secure.wires.session(), now_ns())
    assert (shown.user, shown.upstream_tls) == (None, None)
