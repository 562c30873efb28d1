"""TLS for tests: a CA of their own, and a peer whose every record is in the test's hands.

Handshakes of channels are made in memory, so that nothing depends on threads or timing; the sockets come after.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from datetime import datetime
from functools import cache
from pathlib import Path

import trustme

from common.tls import context as gateway_tls
from gateway.transport.tls_channel import TlsChannel

NAME = "broker.example"


class Authority:
    """A CA with its file, and certificates of it in files of their own: `directory/NAME.pem` and `NAME.key`."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.ca = trustme.CA(organization_name=f"tests: {name}")
        self.file = directory / f"{name}.pem"
        self.ca.cert_pem.write_to_path(self.file)

    def issue(
        self, name: str, *hosts: str, common_name: str | None = None, not_before: datetime | None = None, not_after: datetime | None = None
    ) -> tuple[Path, Path]:
        """A certificate for `hosts` (names or addresses): (certificate with its chain, key). Overwrites what `name` was before."""
        made = self.ca.issue_cert(*hosts, common_name=common_name, not_before=not_before, not_after=not_after)
        certificate, key = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        certificate.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        key.write_bytes(made.private_key_pem.bytes())
        key.chmod(0o600)
        return certificate, key


@cache
def authority() -> tuple[trustme.CA, trustme.LeafCert]:
    """One CA and server certificate for all channel tests: a key costs 50 ms."""
    ca = trustme.CA()
    return ca, ca.issue_cert(NAME, common_name="application")


@cache
def contexts(version: ssl.TLSVersion) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """(server's, client's) for connections of exactly this version."""
    ca, certificate = authority()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(server)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ca.configure_trust(client)
    for context in (server, client):
        gateway_tls._harden(context)
        context.minimum_version = context.maximum_version = version
    return server, client


class Peer:
    """The other side of a channel: a socket and TLS, moved by hand."""

    def __init__(self, sock: socket.socket, tls: ssl.SSLObject, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> None:
        self.sock = sock
        self.tls = tls
        self.incoming = incoming
        self.outgoing = outgoing
        self.closed_in = False  # close_notify was read

    def seal(self, data: bytes) -> bytes:
        """`data` as records, not sent."""
        if data:
            self.tls.write(data)
        return self.outgoing.read()

    def send(self, data: bytes) -> None:
        self.sock.sendall(self.seal(data))

    def notice(self) -> bytes:
        """close_notify, not sent."""
        with suppress(ssl.SSLWantReadError):
            self.tls.unwrap()
        return self.outgoing.read()

    def take(self, most: int = 1 << 20) -> bool:
        """Read the socket once, if it has something; False at its end."""
        try:
            data = self.sock.recv(most, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        self.incoming.write(data)
        return bool(data)

    def opened(self) -> bytes:
        """All plaintext that can be had from what was taken."""
        found = b""
        while not self.closed_in:
            try:
                data = self.tls.read(1 << 20)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                data = b""
            self.closed_in = data == b""
            found += data
        return found

    def received(self) -> bytes:
        self.take()
        return self.opened()


def secured(
    ours: socket.socket, theirs: socket.socket, *, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3, server_side: bool = True
) -> tuple[TlsChannel, Peer]:
    """A channel on `ours` and its peer on `theirs`, the handshake done. `server_side`: whether the channel is the server."""
    server, client = contexts(version)
    server_bios, client_bios = (ssl.MemoryBIO(), ssl.MemoryBIO()), (ssl.MemoryBIO(), ssl.MemoryBIO())
    sides = [
        (client.wrap_bio(*client_bios, server_hostname=NAME), client_bios, server_bios),
        (server.wrap_bio(*server_bios, server_side=True), server_bios, client_bios),
    ]
    waiting = list(sides)
    while waiting:
        for side in list(waiting):
            tls, (_, outgoing), (incoming, _) = side
            with suppress(ssl.SSLWantReadError):
                tls.do_handshake()
                waiting.remove(side)
            if waiting:  # what the last step leaves (session tickets) is for the sockets
                incoming.write(outgoing.read())
    if not server_side:
        sides.reverse()
    (their_tls, their_bios, _), (our_tls, our_bios, _) = sides
    return TlsChannel(ours, our_tls, *our_bios), Peer(theirs, their_tls, *their_bios)
