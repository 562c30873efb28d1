"""The way in, with real listeners on loopback: who is let in, who is told what, and what a client that dawdles costs the broker."""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import trio
import trio.testing
from pamqp import commands

from common.descriptors import MAX_REJECTING
from common.tls.context import client_hop, upstream_hop
from gateway.admission import ConnectionLimits, ConnectionSlots
from gateway.listeners.connecting import CONNECT_TIMEOUT_S
from gateway.listeners.listener import Arrival, Listener
from gateway.listeners.rejecter import DEADLINE_S
from gateway.listeners.unreachable import UnreachableError
from gateway.listeners.upstream import Upstream
from gateway.listeners.upstreams import Upstreams
from gateway.protocols import PROTOCOLS
from gateway.protocols.protocol import Rejection
from gateway.session.listener_config import ListenerConfig
from gateway.transport import proxy_protocol
from gateway.transport.channel import Channel
from gateway.transport.proxy_protocol import Ends
from gateway.transport.trusted_proxies import TrustedProxies
from support.amqp import frames as amqp
from support.rocketmq.bad_bytes import OTHER_PROTOCOLS
from support.rocketmq.frames import heartbeat
from support.tls import Authority

LOOPBACK = "127.0.0.1"
GREETING = amqp.greeting()
ALL = GREETING + amqp.method(0, commands.Connection.CloseOk())  # pipelined: with the answer to the close it will get
S = 1_000_000_000


class Broker:
    """A listening socket: counts who dials it."""

    def __init__(self) -> None:
        self.sock = socket.create_server((LOOPBACK, 0), backlog=512)
        self.sock.setblocking(False)
        self._taken: list[socket.socket] = []

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.sock.getsockname()
        return host, port

    def dialled(self) -> list[socket.socket]:
        """The connections that have come since the last call."""
        found = []
        while True:
            try:
                found.append(self.sock.accept()[0])
            except BlockingIOError:
                self._taken += found
                return found

    def close(self) -> None:
        for one in [self.sock, *self._taken]:
            one.close()


@pytest.fixture
def broker() -> Iterator[Broker]:
    one = Broker()
    yield one
    one.close()


class RunningListener:
    """An open listener and those it has let in."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.arrived: list[Arrival] = []

    def split_into(self, _: Listener, arrival: Arrival) -> None:
        self.arrived.append(arrival)

    async def client(self, source: str = LOOPBACK) -> trio.SocketStream:
        return await trio.open_tcp_stream(*self.listener.address, local_address=source)

    async def until(self, condition: Callable[[], bool]) -> None:
        with trio.fail_after(30):
            while not condition():
                await trio.sleep(0.005)

    def balanced(self) -> bool:
        listener = self.listener
        return listener.opened == sum(listener.closed.values()) + listener.active + listener.arriving

    def leave(self, arrival: Arrival) -> None:
        """As a session that is over does."""
        assert arrival.permit is not None
        assert arrival.upstream is not None
        arrival.permit.release()
        arrival.client.close()
        arrival.upstream.close()


@asynccontextmanager
async def running(
    upstream: tuple[str, int],
    protocol: str = "amqp",
    handshake_s: float = 5.0,
    others_pass: bool = False,
    send_proxy: bool = False,
    **more: object,
) -> AsyncIterator[RunningListener]:
    config = ListenerConfig("rabbit", protocol, 1 << 20, int(handshake_s * S), 0, others_pass)
    if more.get("accept_proxy"):
        more.setdefault("trusted_proxies", TrustedProxies(["127.0.0.0/8"]))
    one = RunningListener(Listener(config, (LOOPBACK, 0), Upstreams.at("rabbit", [upstream], send_proxy=send_proxy), **more))  # type: ignore[arg-type]
    one.listener.open()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.listener.accept_forever, one.split_into)
            yield one
            nursery.cancel_scope.cancel()
    finally:
        one.listener.close()
        for arrival in one.arrived:
            one.leave(arrival)
        assert one.balanced()


async def said(stream: trio.SocketStream, data: bytes) -> bytes:
    """Send `data`; everything that comes until the listener closes."""
    found = b""
    with trio.fail_after(30):
        try:
            await stream.send_all(data)
            async for chunk in stream:
                found += chunk
        except trio.BrokenResourceError:
            pass
    return found


def reason(data: bytes) -> tuple[int | None, str]:
    """The connection.close at the end of a dismissal."""
    frames = amqp.read(data)
    assert [frame.name for frame in frames] == ["Connection.Start", "Connection.Tune", "Connection.Close"], frames
    close = frames[-1].value
    assert isinstance(close, commands.Connection.Close)
    return close.reply_code, close.reply_text


async def test_a_client_that_speaks_is_dialled_for_and_its_bytes_are_all_there(broker: Broker) -> None:
    async with running(broker.address) as one, await one.client() as client:
        await client.send_all(GREETING)
        await one.until(lambda: len(one.arrived) == 1)
        assert one.arrived[0].client.sock.recv(1 << 16) == GREETING
        assert len(broker.dialled()) == 1


@pytest.mark.parametrize(
    ("protocol", "data", "answer", "cause"),
    [
        ("amqp", b"GET / HTTP/1.1\r\n\r\n", amqp.PROTOCOL_HEADER, "wrong_protocol_http"),
        ("amqp", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", amqp.PROTOCOL_HEADER, "wrong_protocol_tls"),
        ("amqp", b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n", amqp.PROTOCOL_HEADER, "wrong_protocol_proxy"),
        ("amqp", b"\r\n\r\n\x00\r\nQUIT\n", amqp.PROTOCOL_HEADER, "wrong_protocol_proxy"),
        ("amqp", b"AMQP\x03\x01\x00\x00", amqp.PROTOCOL_HEADER, "wrong_protocol_amqp_1_0"),
        ("amqp", b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c", amqp.PROTOCOL_HEADER, "wrong_protocol_mqtt"),
        ("rocketmq", b"PRI * HTTP/2.0\r\n\r\n", b"", "wrong_protocol"),
        ("rocketmq", b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n", b"", "wrong_protocol"),
        ("rocketmq", b"\x7f\xff\xff\xff", b"", "frame_too_large"),
    ],
)
async def test_a_stranger_is_answered_and_closed_without_a_dial(
    broker: Broker, protocol: str, data: bytes, answer: bytes, cause: str
) -> None:
    async with running(broker.address, protocol) as one, await one.client() as client:
        assert await said(client, data) == answer
        assert one.listener.closed == {cause: 1}
    assert broker.dialled() == []


@pytest.mark.parametrize("protocol", ["rocketmq", "rocketmq-nameserver"])
@pytest.mark.parametrize(("data", "cause", "words"), OTHER_PROTOCOLS.values(), ids=OTHER_PROTOCOLS)
async def test_one_line_says_what_speaks_on_a_rocketmq_port_by_its_first_four_bytes(
    broker: Broker, protocol: str, data: bytes, cause: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "sluice")
    async with running(broker.address, protocol) as one, await one.client() as client:
        assert await said(client, data[:4]) == b""
        assert one.listener.closed == {cause: 1}
    assert broker.dialled() == []
    (record,) = caplog.records
    assert record.getMessage() == "connection_closed"
    assert words in record.fields["detail"]  # type: ignore[attr-defined]


async def test_other_versions_of_amqp_are_let_in_where_the_listener_says_so(broker: Broker) -> None:
    async with running(broker.address, others_pass=True) as one, await one.client() as client, await one.client() as stranger:
        await client.send_all(b"AMQP\x03\x01\x00\x00")
        await one.until(lambda: len(one.arrived) == 1)
        assert await said(stranger, b"GET / HTTP/1.1\r\n\r\n") == amqp.PROTOCOL_HEADER


@pytest.mark.slow
async def test_hundreds_of_slow_clients_cost_no_dial_keep_no_client_out_and_are_closed_at_their_deadline(broker: Broker) -> None:
    """docs/design/reliability.md F01."""
    async with running(broker.address, handshake_s=20) as one:  # all of them are there before a quarter of it is over
        slow = [await one.client() for _ in range(300)]
        for client in slow:
            await client.send_all(b"A")
        await one.until(lambda: one.listener.arriving == 300)
        async with await one.client() as good:
            await good.send_all(GREETING)
            await one.until(lambda: len(one.arrived) == 1)
        for client in slow:
            await client.send_all(b"M")
        await one.until(lambda: one.listener.closed.get("handshake_timeout") == 300)
        assert one.listener.admission.admitted == 1
        for client in slow:
            await client.aclose()
    assert len(broker.dialled()) == 1


async def test_a_client_that_leaves_without_a_byte_costs_no_dial_and_is_no_fault(broker: Broker) -> None:
    async with running(broker.address) as one:
        await (await one.client()).aclose()
        half = await one.client()
        await half.send_all(b"AMQ")
        await half.send_eof()
        await one.until(lambda: one.listener.closed == {"client": 2})
        await half.aclose()
    assert broker.dialled() == []


# ---- limits --------------------------------------------------------------------------------------------------------------


async def test_beyond_the_cap_a_client_is_told_and_existing_ones_stay(broker: Broker) -> None:
    async with running(broker.address, limits=ConnectionLimits(connections=1)) as one, await one.client() as first:
        await first.send_all(GREETING)
        await one.until(lambda: len(one.arrived) == 1)
        async with await one.client() as second:
            code, text = reason(await said(second, ALL))
        assert (code, text) == (
            320,
            "CONNECTION_FORCED - max_connections of listener rabbit (1) is reached; close some connections or raise it",
        )
        assert one.listener.closed == {"max_connections": 1}
        assert len(broker.dialled()) == 1
        one.leave(one.arrived[0])
        async with await one.client() as third:
            await third.send_all(GREETING)
            await one.until(lambda: len(one.arrived) == 2)


async def test_rocketmq_has_no_frame_for_a_rejection_and_is_closed_at_once(broker: Broker) -> None:
    async with running(broker.address, "rocketmq", limits=ConnectionLimits(connections=0)) as one, await one.client() as client:
        assert await said(client, heartbeat()) == b""
        assert one.listener.closed == {"max_connections": 1}
        assert one.listener.rejecter.rejected_silently == 1


async def test_a_permit_is_released_when_the_dial_fails_when_the_client_goes_and_when_the_gateway_stops() -> None:
    with socket.create_server((LOOPBACK, 0)) as gone:
        address = gone.getsockname()
    async with running(address) as one:
        for _ in range(3):
            async with await one.client() as client:
                assert reason(await said(client, ALL))[0] == 320
        async with await one.client():
            pass
        await one.until(lambda: one.listener.closed == {"upstream_unreachable": 3, "client": 1})
        assert one.listener.admission.admitted == 0
        waiting = await one.client()
        await one.until(lambda: one.listener.admission.admitted == 1)
    assert one.listener.closed["drain"] == 1
    assert one.listener.admission.admitted == 0
    await waiting.aclose()


async def test_a_fault_of_the_gateways_own_ends_that_client_only(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise ZeroDivisionError

    async with running(broker.address) as one:
        with monkeypatch.context() as broken:
            broken.setattr(one.listener.upstreams, "dial", fail)
            async with await one.client() as client:
                await said(client, ALL)
        assert one.listener.closed == {"gateway_error": 1}
        async with await one.client() as client:
            await client.send_all(GREETING)
            await one.until(lambda: len(one.arrived) == 1)


async def test_a_fault_in_a_rejection_leaves_the_listener_standing(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(broker.address, limits=ConnectionLimits(connections=1)) as one, await one.client() as first:
        await first.send_all(GREETING)
        await one.until(lambda: len(one.arrived) == 1)
        with monkeypatch.context() as broken:
            broken.setitem(PROTOCOLS, "amqp", replace(PROTOCOLS["amqp"], rejection=lambda _code, _text, _away: cast("Rejection", None)))
            async with await one.client() as client:
                assert await said(client, ALL) == b""
        async with await one.client() as client:
            assert reason(await said(client, ALL))[0] == 320
        await one.until(lambda: one.listener.rejecter.rejecting == 0)


async def test_only_so_many_are_told_at_a_time_and_none_for_long(broker: Broker) -> None:
    """docs/design/reliability.md F02: clients that say nothing do not keep the others from being told."""
    async with running(broker.address, limits=ConnectionLimits(connections=0)) as one:
        silent = [await one.client() for _ in range(MAX_REJECTING + 20)]
        await one.until(lambda: one.listener.rejecter.rejected_silently == 20)
        assert one.listener.rejecter.rejecting == MAX_REJECTING
        with trio.fail_after(DEADLINE_S + 2):
            while one.listener.rejecter.rejecting:
                await trio.sleep(0.05)
        async with await one.client() as client:
            assert reason(await said(client, ALL))[0] == 320
        for client in silent:
            await client.aclose()


async def test_descriptors_are_shared_and_clients_are_told_when_they_run_out(broker: Broker) -> None:
    slots = ConnectionSlots(1, 1024)
    async with (
        running(broker.address, slots=slots) as one,
        running(broker.address, slots=slots) as other,
        await one.client() as first,
        await other.client() as second,
    ):
        await first.send_all(GREETING)
        await one.until(lambda: len(one.arrived) == 1)
        code, text = reason(await said(second, ALL))
        assert code == 320
        assert "ulimit -n" in text
        assert other.listener.closed == {"overload": 1}


# ---- the PROXY protocol ------------------------------------------------------------------------------------------------

ORIGINAL = Ends(("192.0.2.7", 50112), ("198.51.100.1", 5672))


async def test_the_clients_own_address_is_the_headers_and_goes_on_to_the_broker(broker: Broker) -> None:
    async with running(broker.address, accept_proxy=True, send_proxy=True) as one, await one.client() as client:
        for byte in proxy_protocol.write(ORIGINAL):
            await client.send_all(bytes([byte]))
            await trio.sleep(0)
        await client.send_all(GREETING)
        await one.until(lambda: len(one.arrived) == 1)
        assert one.arrived[0].address == ORIGINAL.source
        assert one.listener.admission.by_address == {"192.0.2.7": 1}
        assert one.arrived[0].client.sock.recv(1 << 16) == GREETING
        (dialled,) = broker.dialled()
        assert dialled.recv(1 << 16) == proxy_protocol.write(ORIGINAL)


async def test_a_balancers_health_check_keeps_its_own_address(broker: Broker) -> None:
    async with running(broker.address, accept_proxy=True, send_proxy=True) as one, await one.client("127.0.0.9") as client:
        await client.send_all(proxy_protocol.write(None) + GREETING)
        await one.until(lambda: len(one.arrived) == 1)
        assert one.arrived[0].address == client.socket.getsockname()
        (dialled,) = broker.dialled()
        assert dialled.recv(1 << 16) == proxy_protocol.write(Ends(client.socket.getsockname(), one.listener.address))


async def test_the_cap_per_address_counts_the_original_addresses(broker: Broker) -> None:
    slots = ConnectionSlots.unbounded()
    refused = []
    slots.make_room = lambda listener, cause, address: refused.append((listener, cause, address))
    async with (
        running(broker.address, accept_proxy=True, limits=ConnectionLimits(per_address=1), slots=slots) as one,
        await one.client() as first,
        await one.client() as second,
    ):
        await first.send_all(proxy_protocol.write(ORIGINAL) + GREETING)
        await one.until(lambda: len(one.arrived) == 1)
        answer = await said(second, b"PROXY TCP4 192.0.2.7 198.51.100.1 50113 5672\r\n" + ALL)
        assert reason(answer)[1].startswith(
            "CONNECTION_FORCED - max_connections_per_address of listener rabbit (1) is reached by 192.0.2.7;"
        )
        assert one.listener.admission.by_address == {"192.0.2.7": 1}
        assert refused == [("rabbit", "max_connections_per_address", "192.0.2.7")], "those of its clients that are gone may make room"


@pytest.mark.parametrize("data", [GREETING, b"PROXY TCP4 192.0.2.7 198.51.100.1 50113 99999\r\n", b"\r\n\r\n\0\r\nQUIT\n\x51\x11\0\0"])
async def test_without_a_valid_proxy_header_no_client_gets_in(broker: Broker, data: bytes) -> None:
    async with running(broker.address, accept_proxy=True) as one, await one.client() as client:
        assert await said(client, data) == b""
        assert one.listener.closed == {"proxy_protocol": 1}
        assert one.listener.admission.admitted == 0
    assert broker.dialled() == []


async def test_a_header_from_a_peer_outside_the_trusted_proxies_is_refused_unread(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """An invented address would pass limits and caps that go by address. It takes no place either."""
    trusted = TrustedProxies(["127.0.0.2", "10.0.0.0/8"])
    async with (
        running(broker.address, accept_proxy=True, trusted_proxies=trusted, limits=ConnectionLimits(connections=1)) as one,
        await one.client("127.0.0.3") as stranger,
        await one.client("127.0.0.2") as balancer,
    ):
        assert await said(stranger, proxy_protocol.write(ORIGINAL) + ALL) == b""
        assert one.listener.closed == {"proxy_protocol": 1}
        await balancer.send_all(proxy_protocol.write(ORIGINAL) + GREETING)
        await one.until(lambda: len(one.arrived) == 1)
        one.listener.trusted_proxies = TrustedProxies(["127.0.0.3"])  # as a reload does
        async with await one.client("127.0.0.2") as refused:
            assert await said(refused, proxy_protocol.write(ORIGINAL) + ALL) == b""
        assert one.listener.closed == {"proxy_protocol": 2}
    (first, *_) = [vars(record)["fields"] for record in caplog.records if record.getMessage() == "connection_closed"]
    assert first["client"].startswith("127.0.0.3:")
    assert first["detail"].startswith("127.0.0.3 is not among trusted_proxies of listener rabbit (127.0.0.2, 10.0.0.0/8)")


async def test_a_stranger_is_refused_before_it_has_said_anything(broker: Broker) -> None:
    async with (
        running(broker.address, accept_proxy=True, trusted_proxies=TrustedProxies(["10.0.0.0/8"])) as one,
        await one.client() as client,
    ):
        assert await said(client, b"") == b""
        assert one.listener.closed == {"proxy_protocol": 1}


def has_ipv6() -> bool:
    """Whether this machine has ::1; containers often have not."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


async def test_ipv4_balancers_are_known_on_an_ipv6_socket_too(broker: Broker) -> None:
    config = ListenerConfig("rabbit", "amqp", 1 << 20, 5 * S, 0, others_pass=False)
    both = Listener(
        config, ("::", 0), Upstreams.at("rabbit", [broker.address]), accept_proxy=True, trusted_proxies=TrustedProxies(["127.0.0.1"])
    )
    both.open()
    one = RunningListener(both)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(both.accept_forever, one.split_into)
        async with await trio.open_tcp_stream(LOOPBACK, both.address[1]) as client:
            await client.send_all(proxy_protocol.write(ORIGINAL) + GREETING)
            await one.until(lambda: len(one.arrived) == 1)
        if has_ipv6():
            async with await trio.open_tcp_stream("::1", both.address[1]) as client:
                assert await said(client, proxy_protocol.write(ORIGINAL) + ALL) == b""
        nursery.cancel_scope.cancel()
    both.close()
    one.leave(one.arrived[0])
    assert both.closed == ({"proxy_protocol": 1} if has_ipv6() else {})


async def test_a_header_that_does_not_come_is_not_waited_for(broker: Broker) -> None:
    async with running(broker.address, accept_proxy=True, handshake_s=0.2) as one, await one.client() as client:
        assert await said(client, b"PROXY TCP4 ") == b""
        assert one.listener.closed == {"handshake_timeout": 1}


async def test_while_memory_is_scarce_handshakes_have_a_part_of_their_time(broker: Broker) -> None:
    slots = ConnectionSlots.unbounded()
    slots.patience_divisor = 1000
    async with running(broker.address, accept_proxy=True, handshake_s=200, slots=slots) as one, await one.client() as client:
        assert await said(client, b"PROXY TCP4 ") == b""
        assert one.listener.closed == {"handshake_timeout": 1}


async def test_refused_before_its_header_was_read_a_client_behind_a_balancer_is_told_all_the_same(broker: Broker) -> None:
    async with running(broker.address, accept_proxy=True, limits=ConnectionLimits(connections=0)) as one, await one.client() as client:
        assert reason(await said(client, proxy_protocol.write(ORIGINAL) + ALL))[0] == 320


def test_poll_tells_a_hang_up_behind_unread_bytes() -> None:
    """What `first_words` relies on: POLLRDHUP shows a FIN although bytes before it are unread."""
    with socket.create_server((LOOPBACK, 0)) as server, socket.create_connection(server.getsockname()) as client:
        ours, _ = server.accept()
        with ours:
            client.sendall(b"abc")
            client.shutdown(socket.SHUT_WR)
            poll = select.poll()
            poll.register(ours, select.POLLRDHUP)
            assert poll.poll(1000)


# ---- TLS ---------------------------------------------------------------------------------------------------------------


def client_context(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.file))


@pytest.mark.parametrize("behind_balancer", [False, True])
async def test_a_client_rejected_by_a_tls_listener_is_told_within_tls(broker: Broker, tmp_path: Path, behind_balancer: bool) -> None:
    authority = Authority(tmp_path)
    hop = client_hop(*authority.issue("server", "localhost"), None)
    async with (
        running(broker.address, tls=hop, accept_proxy=behind_balancer, limits=ConnectionLimits(connections=0)) as one,
        await one.client() as plain,
    ):
        if behind_balancer:
            await plain.send_all(proxy_protocol.write(ORIGINAL))
        client = trio.SSLStream(plain, client_context(authority), server_hostname="localhost", https_compatible=True)
        found = b""
        with trio.fail_after(30):
            await client.send_all(ALL)
            while chunk := await client.receive_some():
                found += chunk
        assert reason(found)[1].startswith("CONNECTION_FORCED - max_connections of listener rabbit (0) is reached;")


async def test_a_broker_whose_certificate_is_not_trusted_counts_as_down_and_the_client_is_told_why(broker: Broker, tmp_path: Path) -> None:
    right, wrong = Authority(tmp_path / "right"), Authority(tmp_path / "wrong")
    context = client_hop(*wrong.issue("broker", "127.0.0.1"), None).context

    def serve() -> None:
        ours, _ = server.accept()
        with ours, suppress(OSError), context.wrap_socket(ours, server_side=True):
            pass

    with socket.create_server((LOOPBACK, 0)) as server:
        upstream = Upstream("rabbit", server.getsockname(), tls=upstream_hop(right.file, None, None, "127.0.0.1", "full"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, serve)
            with pytest.raises(UnreachableError) as caught:
                await upstream.dial(None)
    assert "cannot be reached: TLS: the chain of the peer's certificate" in str(caught.value) or "is not among those trusted" in str(
        caught.value
    )
    assert upstream.ok is False
    assert "TLS" in upstream.why


async def test_a_permissive_listener_takes_clients_with_tls_and_without_on_one_port(broker: Broker, tmp_path: Path) -> None:
    """docs/design/rocketmq.md 1.5: the first byte tells them apart; a PROXY header comes before it."""
    authority = Authority(tmp_path)
    hop = client_hop(*authority.issue("server", "localhost"), None, permissive=True)
    async with (
        running(broker.address, "rocketmq", tls=hop, accept_proxy=True) as one,
        await one.client() as plain,
        await one.client() as beneath,
    ):
        await plain.send_all(proxy_protocol.write(ORIGINAL) + heartbeat())
        await one.until(lambda: len(one.arrived) == 1)
        assert one.arrived[0].client.encryption() is None
        assert one.arrived[0].address == ORIGINAL.source
        assert one.arrived[0].client.sock.recv(1 << 16) == heartbeat()
        await beneath.send_all(proxy_protocol.write(ORIGINAL))
        secured = trio.SSLStream(beneath, client_context(authority), server_hostname="localhost", https_compatible=True)
        with trio.fail_after(30):
            await secured.do_handshake()
        await one.until(lambda: len(one.arrived) == 2)
        assert one.arrived[1].client.encryption() is not None
    assert hop.failures == {}


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "wrong_protocol"),
        (b"\x15\x03\x01\x00\x02\x02\x28", "frame_too_large"),
        (b"\x16nonsense", "tls_handshake_failed"),
    ],
)
async def test_strangers_at_a_permissive_listener_cost_no_dial(broker: Broker, tmp_path: Path, data: bytes, cause: str) -> None:
    hop = client_hop(*Authority(tmp_path).issue("server", "localhost"), None, permissive=True)
    async with running(broker.address, "rocketmq", tls=hop) as one, await one.client() as client:
        await said(client, data)
        await one.until(lambda: one.listener.closed == {cause: 1})
    assert broker.dialled() == []


async def test_an_enforcing_listener_closes_a_client_without_tls_and_counts_it(broker: Broker, tmp_path: Path) -> None:
    hop = client_hop(*Authority(tmp_path).issue("server", "localhost"), None)
    async with running(broker.address, "rocketmq", tls=hop) as one, await one.client() as client:
        await said(client, heartbeat())
        await one.until(lambda: one.listener.closed == {"tls_handshake_failed": 1})
        assert hop.failures == {"not_tls": 1}
    assert broker.dialled() == []


async def test_a_listener_that_is_opened_with_the_last_descriptor_serves_all_the_same(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker's is opened while the gateway serves: what fails then must not end the gateway."""
    opened = os.open

    def open_(path: str, flags: int, *more: int) -> int:
        if path == os.devnull:
            raise OSError(errno.EMFILE, "Too many open files", path)
        return opened(path, flags, *more)

    monkeypatch.setattr(os, "open", open_)
    async with running(broker.address, "rocketmq") as one, await one.client() as client:
        await client.send_all(heartbeat())
        await one.until(lambda: len(one.arrived) == 1)


# ---- inherited sockets -------------------------------------------------------------------------------------------------


async def test_a_client_that_comes_after_the_end_waits_for_the_next_process_where_the_socket_is_inherited(broker: Broker) -> None:
    with socket.create_server((LOOPBACK, 0)) as held:
        listeners = [
            Listener(ListenerConfig("rocket", "rocketmq", 1 << 20, S, 0), held.getsockname(), Upstreams.at("rocket", [broker.address]))
            for _ in "ab"
        ]
        listeners[0].open(held.dup())
        assert (listeners[0].inherited, listeners[0].address) == (True, held.getsockname())
        listeners[0].close()
        waiting = await trio.open_tcp_stream(*held.getsockname())
        await waiting.send_all(heartbeat())
        following = held.dup()
        following.setblocking(False)
        listeners[1].open(following)
        async with waiting, trio.open_nursery() as nursery:
            one = RunningListener(listeners[1])
            nursery.start_soon(one.listener.accept_forever, one.split_into)
            await one.until(lambda: len(one.arrived) == 1)
            assert one.arrived[0].client.sock.recv(1 << 16) == heartbeat()
            nursery.cancel_scope.cancel()
        listeners[1].close()
        one.leave(one.arrived[0])


async def test_a_client_whose_broker_is_being_dialled_when_accepting_ends_still_gets_in(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that it has sent by then may be one-way: closing its connection would lose them."""
    dialling, reached = trio.Event(), trio.Event()

    async def dial(upstream: Upstream, *_: object) -> Channel:
        dialling.set()
        await reached.wait()
        return Channel(socket.create_connection(upstream.address))

    monkeypatch.setattr(Upstream, "dial", dial)
    listener = Listener(ListenerConfig("rocket", "rocketmq", 1 << 20, 5 * S, 0), (LOOPBACK, 0), Upstreams.at("rocket", [broker.address]))
    listener.open()
    one = RunningListener(listener)
    async with trio.open_nursery() as accepting, await one.client() as client, await one.client() as silent:
        accepting.start_soon(listener.accept_forever, one.split_into)
        await client.send_all(heartbeat())
        await dialling.wait()
        await one.until(lambda: listener.arriving == 2)
        accepting.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await one.until(lambda: listener.closed == {"drain": 1})
            assert await silent.receive_some() == b""
            reached.set()
            await one.until(lambda: len(one.arrived) == 1)
    listener.close()
    one.leave(one.arrived[0])
    assert one.balanced()


async def test_a_listener_that_was_told_twice_to_stand_still_accepts_again_when_told_once(broker: Broker) -> None:
    """A worker that begins while a takeover is asked for is: until November 2026 its part of the new clients was never accepted again."""
    async with running(broker.address) as one:
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(2):
            one.listener.stop_accepting()
            await trio.testing.wait_all_tasks_blocked()
        one.listener.accept_again()
        async with await one.client() as client:
            await client.send_all(GREETING)
            await one.until(lambda: len(one.arrived) == 1)


async def test_a_stop_does_not_wait_for_all_that_a_slow_broker_is_still_to_take(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    """The drain begins behind them: 1,000 clients, 128 dials at a time, of 5 s each, took longer than `drain.timeout`."""
    autojump_clock.autojump_threshold = 0.1
    dials: list[float] = []

    async def slow(*_: object, **__: object) -> None:
        dials.append(trio.current_time())
        await trio.sleep(CONNECT_TIMEOUT_S - 1)
        raise TimeoutError(errno.ETIMEDOUT, "no connection")

    monkeypatch.setattr("gateway.listeners.upstream.connect", slow)
    upstreams = Upstreams.at("rocket", [(LOOPBACK, 1)])
    upstreams.members[0]._dial_slots.total_tokens = 1
    upstreams.members[0].ok = True
    monkeypatch.setattr(upstreams.members[0], "_is_slow", lambda *_: True)
    listener = Listener(ListenerConfig("rocket", "rocketmq", 1 << 20, 5 * S, 0), (LOOPBACK, 0), upstreams)
    listener.open()
    one = RunningListener(listener)
    async with AsyncExitStack() as clients:
        async with trio.open_nursery() as accepting:
            accepting.start_soon(listener.accept_forever, one.split_into)
            for _ in range(10):
                client = await clients.enter_async_context(await one.client())
                await client.send_all(heartbeat())
            await one.until(lambda: upstreams.members[0]._dial_slots.statistics().tasks_waiting == 9)
            began = trio.current_time()
            accepting.cancel_scope.cancel()
        took = trio.current_time() - began
    listener.close()
    assert (took <= CONNECT_TIMEOUT_S, len(dials)) == (True, 2)
    assert sum(listener.closed.values()) == 10
    assert one.balanced()
