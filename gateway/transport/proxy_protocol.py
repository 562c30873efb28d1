"""The PROXY protocol: a load balancer says, before the first byte, which client's connection it passes on.

Source: "The PROXY protocol, versions 1 & 2" (HAProxy, doc/proxy-protocol.txt); section numbers below are that document's.

    version 1 (2.1)   PROXY TCP4 192.0.2.7 192.0.2.1 50112 5672\\r\\n                 text, at most 107 bytes
    version 2 (2.2)   12 bytes signature │ version, command │ family │ u16 length │ addresses │ TLVs

Both are read, because HAProxy's `send-proxy` still means version 1; only version 2 is written. Sans-IO: bytes in, a header out. What the
header says beside the addresses (TLVs, 2.2.1 to 2.2.8) is skipped. They are believed, so they are taken from known peers only (section 5):
`gateway/transport/trusted_proxies.py`.
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final

from common.records import dataclass

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"  # 2.2
MIN_BYTES: Final = 8  # that a reader needs to begin: "PROXY " and 2 more, the first 8 of the signature
MAX_V1_BYTES: Final = 107  # with the CRLF (2.1)
FIXED_V2: Final = 16  # bytes before the addresses (2.2)
MAX_V2_BYTES: Final = FIXED_V2 + 4096  # the length field could say 65,535; TLVs in use take some hundred bytes (a guess)
LOCAL: Final = 0x20  # version 2, command LOCAL: the balancer's own connection, a health check
PROXY: Final = 0x21
TCP4: Final = 0x11  # AF_INET, STREAM
TCP6: Final = 0x21  # AF_INET6, STREAM
FAMILIES: Final = (0, 1, 2, 3)  # UNSPEC, INET, INET6, UNIX; anything else is to be dropped
TRANSPORTS: Final = (0, 1, 2)  # UNSPEC, STREAM, DGRAM
ADDRESS_SIZES: Final = {0: 0, 1: 12, 2: 36, 3: 216}  # bytes, by family
PORT: Final = re.compile(r"0|[1-9][0-9]{0,4}", re.ASCII)  # 2.1: no leading zeroes

HostPort = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Ends:
    """The connection's two ends as the client's side has them; IP addresses, as `normalise_address` writes them."""

    source: HostPort
    destination: HostPort


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """A header that was read: how many bytes it takes, and the ends it names; None: those of the socket (LOCAL, UNKNOWN, UNIX)."""

    size: int
    ends: Ends | None


class MalformedHeaderError(ValueError):
    """No PROXY header, or a broken one: the connection must be closed (2, 2.1, 2.2)."""


def read(data: bytes) -> ProxyHeader | int:
    """The header at the beginning of `data`, or how many bytes must be there before another look is worth it.

    Raises MalformedHeaderError as soon as it cannot become one.
    """
    if len(data) < MIN_BYTES:
        return MIN_BYTES
    if SIGNATURE.startswith(data[: len(SIGNATURE)]):
        return _read_v2(data)
    if data.startswith(b"PROXY "):
        return _read_v1(data)
    raise MalformedHeaderError(
        f"the connection begins with {data[:MIN_BYTES]!r}, not with a PROXY header; let the balancer send one, or set "
        "`accept_proxy_protocol: false` on the listener if clients connect directly"
    )


def _read_v1(data: bytes) -> ProxyHeader | int:
    """2.1."""
    end = data.find(b"\r\n", 0, MAX_V1_BYTES)
    if end < 0:
        if len(data) >= MAX_V1_BYTES:
            raise MalformedHeaderError(f"a PROXY line without an end within {MAX_V1_BYTES} bytes")
        return len(data) + 1
    try:
        fields = data[:end].decode("ascii").split(" ")
    except UnicodeDecodeError:
        raise MalformedHeaderError("a PROXY line that is not ASCII") from None
    if fields[1] == "UNKNOWN":  # whatever follows is to be ignored
        return ProxyHeader(end + 2, None)
    if len(fields) != 6 or fields[1] not in ("TCP4", "TCP6"):
        raise MalformedHeaderError(f"not a PROXY line: {data[:end]!r}")
    _, family, source, destination, source_port, destination_port = fields
    read_address = _ipv4 if family == "TCP4" else _ipv6
    return ProxyHeader(end + 2, _ends((read_address(source), _port(source_port)), (read_address(destination), _port(destination_port))))


def _read_v2(data: bytes) -> ProxyHeader | int:
    """2.2."""
    if len(data) < FIXED_V2:
        return FIXED_V2
    command, family = data[12], data[13]
    size = FIXED_V2 + int.from_bytes(data[14:16], "big")
    if command not in (LOCAL, PROXY):
        raise MalformedHeaderError(f"a PROXY header of unknown version or command 0x{command:02x}")
    if family >> 4 not in FAMILIES or family & 15 not in TRANSPORTS:
        raise MalformedHeaderError(f"a PROXY header of unknown family 0x{family:02x}")
    if size > MAX_V2_BYTES:
        raise MalformedHeaderError(f"a PROXY header of {size} bytes; at most {MAX_V2_BYTES} are taken")
    if command == PROXY and size - FIXED_V2 < ADDRESS_SIZES[family >> 4]:
        raise MalformedHeaderError("a PROXY header shorter than its addresses")
    if len(data) < size:
        return size
    if command == LOCAL or family not in (TCP4, TCP6):  # UNSPEC and UNIX say nothing that could be used; the real peer's address holds
        return ProxyHeader(size, None)
    width = 4 if family == TCP4 else 16
    at = FIXED_V2
    source, destination = data[at : at + width], data[at + width : at + 2 * width]
    ports = at + 2 * width
    source_port = int.from_bytes(data[ports : ports + 2], "big")
    destination_port = int.from_bytes(data[ports + 2 : ports + 4], "big")
    ip = IPv4Address if family == TCP4 else IPv6Address
    return ProxyHeader(size, _ends((str(ip(source)), source_port), (str(ip(destination)), destination_port)))


def _ends(source: HostPort, destination: HostPort) -> Ends:
    """As the rest of the gateway knows them: one client has one address, by whichever socket it came to the balancer."""
    return Ends((normalise_address(source[0]), source[1]), (normalise_address(destination[0]), destination[1]))


def write(ends: Ends | None) -> bytes:
    """A version 2 header: PROXY with the ends, or LOCAL where there are none to tell."""
    if ends is None:
        return SIGNATURE + bytes([LOCAL, 0, 0, 0])
    (source, source_port), (destination, destination_port) = ends.source, ends.destination
    if ":" in source or ":" in destination:
        family, addresses = TCP6, _packed_v6(source) + _packed_v6(destination)
    else:
        family, addresses = TCP4, IPv4Address(source).packed + IPv4Address(destination).packed
    block = addresses + source_port.to_bytes(2, "big") + destination_port.to_bytes(2, "big")
    return SIGNATURE + bytes([PROXY, family]) + len(block).to_bytes(2, "big") + block


def normalise_address(host: str) -> str:
    """An address as rules and people write it: IPv4 that came through an IPv6 socket (::ffff:192.0.2.7) as IPv4, no zone."""
    if ":" not in host:
        return host
    mapped = IPv6Address(host.partition("%")[0]).ipv4_mapped
    return host if mapped is None else str(mapped)


def _packed_v6(host: str) -> bytes:
    return IPv6Address(host.partition("%")[0] if ":" in host else f"::ffff:{host}").packed


def _ipv4(text: str) -> str:
    try:
        return str(IPv4Address(text))
    except AddressValueError:
        raise MalformedHeaderError(f"{text!r} in a PROXY line is not an IPv4 address") from None


def _ipv6(text: str) -> str:
    try:
        address = IPv6Address(text)
    except AddressValueError:
        raise MalformedHeaderError(f"{text!r} in a PROXY line is not an IPv6 address") from None
    if address.scope_id is not None:
        raise MalformedHeaderError(f"{text!r} in a PROXY line has a zone")
    return str(address)


def _port(text: str) -> int:
    if PORT.fullmatch(text) is None or int(text) > 65535:
        raise MalformedHeaderError(f"{text!r} in a PROXY line is not a port")
    return int(text)
