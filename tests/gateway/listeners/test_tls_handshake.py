"""Handshakes over loopback TCP between the gateway's side and Python's own `ssl`: who is let in, who is not, and what both are told."""

from __future__ import annotations

import socket
import ssl
import struct
import warnings
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trio

from common.tls.context import Hop, client_hop, upstream_hop
from gateway.listeners.tls_handshake import TlsHandshakeError, protect
from gateway.transport.tls_channel import TlsChannel
from support.processes import HANG_S
from support.tls import NAME, Authority

BUFFER = memoryview(bytearray(65536))
Outcome = TlsChannel | TlsHandshakeError


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("tls"))
    made.issue("server", NAME, "127.0.0.1")
    made.issue("client", "client.example", common_name="application")
    return made


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("stranger"), "stranger")
    made.issue("client", "client.example", common_name="application")
    made.issue("server", NAME)
    return made


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname(), timeout=HANG_S)
        ours, _ = listener.accept()
    ours.setblocking(False)
    return ours, theirs


async def meet(hop: Hop, peer: Callable[[socket.socket], str], timeout_s: float = 10) -> tuple[Outcome, str]:
    """Our side and the peer's (on a thread; it returns what it has seen): both outcomes. Everything is closed after."""
    ours, theirs = tcp_pair()
    outcome: list[Outcome] = []
    seen: list[str] = []

    async def their_side() -> None:
        seen.append(await trio.to_thread.run_sync(peer, theirs))

    async def our_side() -> None:
        try:
            outcome.append(await protect(ours, hop, timeout_s))
        except TlsHandshakeError as error:
            outcome.append(error)
            ours.close()

    with closing(theirs), closing(ours):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(their_side)
            nursery.start_soon(our_side)
        return outcome[0], seen[0]


def client(
    ca: Authority, own: Path | None = None, *, name: str | None = None, newest: ssl.TLSVersion | None = None
) -> Callable[[socket.socket], str]:
    """A client that shakes hands, says something and waits for an answer or the end: returns that, or the error it got."""
    context = ssl.create_default_context(cafile=ca.file)
    if newest is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # that is why the gateway refuses it
            context.minimum_version = ssl.TLSVersion.TLSv1
            context.maximum_version = newest
        context.set_ciphers("ALL:@SECLEVEL=0")
    if own is not None:
        context.load_cert_chain(own, own.with_suffix(".key"))

    def run(sock: socket.socket) -> str:
        try:
            with context.wrap_socket(sock, server_hostname=name or NAME) as secured:
                secured.sendall(b"AMQP\x00\x00\x09\x01")
                return "said" if own is None or not secured.recv(1) else "answered"
        except OSError as error:
            return str(error)

    return run


def server(own: Path, client_ca: Path | None = None) -> Callable[[socket.socket], str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own, own.with_suffix(".key"))
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client_ca)

    def run(sock: socket.socket) -> str:
        try:
            with context.wrap_socket(sock, server_side=True) as secured:
                return f"{(secured.getpeercert() or {}).get('subject', 'nobody')}"
        except OSError as error:
            return str(error)

    return run


def towards_clients(ca: Authority, *, client_ca: Path | None = None) -> Hop:
    return client_hop(ca.directory / "server.pem", ca.directory / "server.key", client_ca)


def test_a_reload_names_a_client_ca_that_is_the_same_file_as_the_certificate(ca: Authority) -> None:
    """By the fingerprint: equal only where every file of the hop is there as before, and says the same."""
    hops = [towards_clients(ca, client_ca=each) for each in (None, ca.directory / "server.pem", ca.file)]
    assert len({hop.fingerprint for hop in hops}) == len(hops)
    assert towards_clients(ca, client_ca=ca.directory / "server.pem").fingerprint == hops[1].fingerprint


async def test_bytes_of_the_client_right_behind_its_handshake_are_not_lost(ca: Authority) -> None:
    hop = towards_clients(ca)
    ours, theirs = tcp_pair()
    with closing(theirs):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, client(ca), theirs)
            channel = await protect(ours, hop, 10)
        with closing(channel):
            assert channel.receive(BUFFER, 0) == 8
            assert (bytes(BUFFER[:8]), channel.certificate_user, hop.failures) == (b"AMQP\x00\x00\x09\x01", None, {})


async def test_bytes_that_came_with_the_handshakes_last_read_are_not_lost(ca: Authority) -> None:
    """A client may send its Finished and its first data in one segment: they are in OpenSSL's buffer and in no socket any more."""
    context = ssl.create_default_context(cafile=ca.file)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=NAME)
    ours, theirs = tcp_pair()

    def run() -> None:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                theirs.sendall(outgoing.read())
                incoming.write(theirs.recv(65536))
        tls.write(b"first words")
        theirs.sendall(outgoing.read())

    with closing(theirs):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, run)
            channel = await protect(ours, towards_clients(ca), 10)
        with closing(channel):
            assert channel.readable
            assert channel.receive(BUFFER, 0) == 11


@pytest.mark.parametrize("lends", [False, True])
async def test_a_channel_to_the_broker_knows_whether_a_certificate_of_ours_speaks_for_clients(ca: Authority, lends: bool) -> None:
    certificate, key = (ca.directory / "client.pem", ca.directory / "client.key") if lends else (None, None)
    outcome, _ = await meet(upstream_hop(ca.file, certificate, key, NAME, "full"), server(ca.directory / "server.pem"))
    assert isinstance(outcome, TlsChannel)
    assert outcome.lends_certificate == lends


async def test_a_clients_certificate_names_its_user(ca: Authority) -> None:
    ours, theirs = tcp_pair()
    with closing(theirs):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, client(ca, ca.directory / "client.pem"), theirs)
            channel = await protect(ours, towards_clients(ca, client_ca=ca.file), 10)
            assert channel.certificate_user == "application"
            channel.queue(b"x", 0, 1)
            channel.flush(1)
            channel.close()


async def test_a_client_without_a_certificate_is_refused_and_told_why(ca: Authority) -> None:
    hop = towards_clients(ca, client_ca=ca.file)

    def wants_an_answer(sock: socket.socket) -> str:
        with ssl.create_default_context(cafile=ca.file).wrap_socket(sock, server_hostname=NAME) as secured:
            secured.sendall(b"AMQP\x00\x00\x09\x01")  # in TLS 1.3 the client believes that all is well
            with pytest.raises(ssl.SSLError) as caught:
                secured.recv(1)
            return str(caught.value)

    outcome, seen = await meet(hop, wants_an_answer)
    assert isinstance(outcome, TlsHandshakeError)
    assert (outcome.label, outcome.strerror) == ("no_certificate", "TLS: the peer has shown no certificate, and one is required")
    assert "certificate required" in seen
    assert hop.failures == {"no_certificate": 1}


async def test_a_client_certificate_of_another_ca_is_refused_and_told_why(ca: Authority, stranger: Authority) -> None:
    own = stranger.directory / "client.pem"
    outcome, seen = await meet(towards_clients(ca, client_ca=ca.file), client(ca, own))
    assert isinstance(outcome, TlsHandshakeError)
    assert outcome.label == "unknown_ca"
    assert "unknown ca" in seen


async def test_a_client_that_does_not_trust_us_is_logged_as_that(ca: Authority, stranger: Authority) -> None:
    outcome, seen = await meet(towards_clients(ca), client(stranger))
    assert isinstance(outcome, TlsHandshakeError)
    assert (outcome.label, outcome.strerror) == ("refused", "TLS: the peer does not know the CA of the certificate it was shown")
    assert "certificate verify failed" in seen


async def test_tls_1_1_is_refused(ca: Authority) -> None:
    outcome, seen = await meet(towards_clients(ca), client(ca, newest=ssl.TLSVersion.TLSv1_1))
    assert isinstance(outcome, TlsHandshakeError)
    assert outcome.label == "version"
    assert "protocol version" in seen


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"AMQP\x00\x00\x09\x01", "TLS: the client speaks AMQP without TLS: use amqps:// in the client, or take `tls` off this listener"),
        (b"\x00\x00\x00\x50\x00\x00\x00\x4c{", "TLS: the client speaks RocketMQ without TLS: set tls.enable=true in the client"),
        (b"GET / HTTP/1.1\r\n\r\n", "TLS: the client speaks HTTP"),
        (b"PROXY TCP4 10.0.0.1 10.0.0.2 5 6\r\n", "TLS: the client was sent on with a PROXY header: set accept_proxy_protocol: true"),
        (b"\x16nonsense", "TLS: "),
    ],
)
async def test_a_client_without_tls_is_named(ca: Authority, said: bytes, words: str) -> None:
    def run(sock: socket.socket) -> str:
        sock.sendall(said)
        return ""

    outcome, _ = await meet(towards_clients(ca), run)
    assert isinstance(outcome, TlsHandshakeError)
    assert str(outcome.strerror).startswith(words)


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01"], ids=["nothing", "three bytes"])
async def test_a_client_that_says_nothing_is_given_up(ca: Authority, said: bytes) -> None:
    hop = towards_clients(ca)
    ours, theirs = tcp_pair()
    with closing(ours), closing(theirs):
        theirs.sendall(said)
        with pytest.raises(TlsHandshakeError) as caught:
            await protect(ours, hop, 0.05)
    assert (caught.value.strerror, hop.failures) == ("TLS: no handshake within 0.05 s", {"timeout": 1})


@pytest.mark.parametrize("rst", [False, True], ids=["FIN", "RST"])
async def test_a_client_that_leaves_is_named(ca: Authority, rst: bool) -> None:
    ours, theirs = tcp_pair()
    with closing(ours):
        theirs.sendall(b"\x16\x03\x01")
        if rst:
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
        with pytest.raises(TlsHandshakeError, match="the peer closed the connection within the handshake") as caught:
            await protect(ours, towards_clients(ca), 5)
    assert caught.value.label == "closed"


@pytest.mark.parametrize("rst", [False, True], ids=["FIN", "RST"])
async def test_a_client_that_leaves_without_a_word_has_not_failed_at_tls(ca: Authority, rst: bool) -> None:
    hop = towards_clients(ca)
    ours, theirs = tcp_pair()
    with closing(ours):
        if rst:
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
        with pytest.raises(ConnectionAbortedError, match="the client left without a word"):
            await protect(ours, hop, 5)
    assert hop.failures == {}


async def test_silent_clients_do_not_keep_others_waiting(ca: Authority) -> None:
    """Only steps of handshakes take turns, not handshakes."""
    hop = towards_clients(ca)
    silent = [tcp_pair() for _ in range(20)]
    async with trio.open_nursery() as nursery:
        for ours, theirs in silent:
            theirs.sendall(b"\x16\x03")
            nursery.start_soon(protect, ours, hop, 60)
        ours, theirs = tcp_pair()
        async with trio.open_nursery() as inner:
            inner.start_soon(trio.to_thread.run_sync, client(ca), theirs)
            with trio.fail_after(60):
                channel = await protect(ours, hop, 60)
        channel.close()
        theirs.close()
        nursery.cancel_scope.cancel()
    for pair in silent:
        for sock in pair:
            sock.close()


# ---- towards the broker -------------------------------------------------------------------------------------------------


def towards_broker(ca: Path | None, name: str = NAME, *, own: Path | None = None, verify: str = "full") -> Hop:
    return upstream_hop(ca, own, own and own.with_suffix(".key"), name, verify)


@pytest.mark.parametrize("name", [NAME, "127.0.0.1"], ids=["name", "address"])
async def test_a_broker_is_verified_by_name_or_address(ca: Authority, name: str) -> None:
    outcome, seen = await meet(towards_broker(ca.file, name), server(ca.directory / "server.pem"))
    assert isinstance(outcome, TlsChannel)
    assert (outcome.certificate_user, seen) == (None, "nobody")


async def test_our_certificate_is_shown_to_a_broker_that_wants_one(ca: Authority) -> None:
    hop = towards_broker(ca.file, own=ca.directory / "client.pem")
    outcome, seen = await meet(hop, server(ca.directory / "server.pem", ca.file))
    assert isinstance(outcome, TlsChannel)
    assert "application" in seen


@pytest.mark.parametrize(
    ("name", "label", "words"),
    [
        ("other.example", "wrong_host", "TLS: the peer's certificate is for another host"),
        ("10.0.0.1", "wrong_host", "TLS: the peer's certificate is for another"),
    ],
)
async def test_a_broker_by_another_name_is_refused(ca: Authority, name: str, label: str, words: str) -> None:
    outcome, seen = await meet(towards_broker(ca.file, name), server(ca.directory / "server.pem"))
    assert isinstance(outcome, TlsHandshakeError)
    assert (outcome.label, str(outcome.strerror).startswith(words), name in str(outcome.strerror)) == (label, True, True)
    assert "alert" in seen


async def test_a_broker_of_another_ca_is_refused(ca: Authority, stranger: Authority) -> None:
    outcome, seen = await meet(towards_broker(ca.file), server(stranger.directory / "server.pem"))
    assert isinstance(outcome, TlsHandshakeError)
    assert outcome.label == "unknown_ca"
    assert "unknown ca" in seen


async def test_a_broker_whose_certificate_has_expired_is_refused(ca: Authority) -> None:
    now = datetime.now(UTC).replace(tzinfo=None)
    old, _ = ca.issue("old", NAME, not_before=now - timedelta(days=9), not_after=now - timedelta(days=1))
    outcome, seen = await meet(towards_broker(ca.file), server(old))
    assert isinstance(outcome, TlsHandshakeError)
    assert (outcome.label, outcome.strerror) == ("expired", "TLS: the peer's certificate has expired")
    assert "certificate expired" in seen


@pytest.mark.parametrize("verify", ["ca", "none"])
async def test_less_is_verified_where_less_is_asked_for(ca: Authority, stranger: Authority, verify: str) -> None:
    hop = towards_broker(ca.file, "other.example", verify=verify)
    outcome, _ = await meet(hop, server(ca.directory / "server.pem"))
    assert isinstance(outcome, TlsChannel)
    outcome, _ = await meet(hop, server(stranger.directory / "server.pem"))
    assert isinstance(outcome, TlsChannel if verify == "none" else TlsHandshakeError)


async def test_a_broker_without_tls_is_named(ca: Authority) -> None:
    def run(sock: socket.socket) -> str:
        sock.recv(1)
        sock.sendall(b"AMQP\x00\x00\x09\x01")
        return ""

    outcome, _ = await meet(towards_broker(ca.file), run)
    assert isinstance(outcome, TlsHandshakeError)
    assert (outcome.label, outcome.strerror) == (
        "not_tls",
        "TLS: the broker does not speak TLS on this port (it began with b'AMQP\\x00\\x00\\t\\x01')",
    )
