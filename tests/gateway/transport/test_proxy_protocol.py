"""PROXY headers against the specification's own words (HAProxy, doc/proxy-protocol.txt): examples, limits, garbage, round trips."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.transport.proxy_protocol import (
    MAX_V1_BYTES,
    MAX_V2_BYTES,
    SIGNATURE,
    Ends,
    MalformedHeaderError,
    ProxyHeader,
    normalise_address,
    read,
    write,
)
from support.cases import in_one_loop

V4 = Ends(("192.0.2.7", 50112), ("198.51.100.1", 5672))
V6 = Ends(("2001:db8::7", 50112), ("2001:db8::1", 5672))
V4_BYTES = SIGNATURE + b"\x21\x11\x00\x0c" + bytes([192, 0, 2, 7, 198, 51, 100, 1]) + b"\xc3\xc0\x16\x28"
V6_BYTES = SIGNATURE + b"\x21\x21\x00\x24" + IPv6Address("2001:db8::7").packed + IPv6Address("2001:db8::1").packed + b"\xc3\xc0\x16\x28"
TLV = b"\x04\x00\x03abc"  # 2.2.4, PP2_TYPE_NOOP
FULL = "ffff:f...f:ffff".replace("f...f", "ffff:ffff:ffff:ffff:ffff:ffff")


def v2(command: int, family: int, block: bytes) -> bytes:
    return SIGNATURE + bytes([command, family]) + len(block).to_bytes(2, "big") + block


@pytest.mark.parametrize(
    ("data", "ends"),
    [
        pytest.param(b"PROXY TCP4 192.0.2.7 198.51.100.1 50112 5672\r\n", V4, id="2.1 TCP4"),
        pytest.param(b"PROXY TCP6 2001:db8::7 2001:db8::1 50112 5672\r\n", V6, id="2.1 TCP6"),
        pytest.param(b"PROXY UNKNOWN\r\n", None, id="2.1 UNKNOWN, short form"),
        pytest.param(b"PROXY UNKNOWN " + f"{FULL} {FULL} 65535 65535".encode() + b"\r\n", None, id="2.1 UNKNOWN, worst case"),
        pytest.param(V4_BYTES, V4, id="2.2 INET"),
        pytest.param(V6_BYTES, V6, id="2.2 INET6"),
        pytest.param(v2(0x21, 0x11, V4_BYTES[16:] + TLV * 3), V4, id="2.2 TLVs are skipped"),
        pytest.param(v2(0x20, 0x00, b""), None, id="2.2 LOCAL"),
        pytest.param(v2(0x20, 0x11, V4_BYTES[16:]), None, id="2.2 LOCAL: addresses are to be discarded"),
        pytest.param(v2(0x21, 0x00, b""), None, id="2.2 UNSPEC"),
        pytest.param(v2(0x21, 0x31, bytes(216)), None, id="2.2 UNIX"),
        pytest.param(v2(0x21, 0x12, V4_BYTES[16:]), None, id="2.2 DGRAM: no addresses of a TCP connection"),
    ],
)
def test_a_header_is_read_whole_byte_by_byte_and_with_what_follows(data: bytes, ends: Ends | None) -> None:
    assert read(data) == ProxyHeader(len(data), ends)
    assert read(data + b"AMQP\x00\x00\x09\x01") == ProxyHeader(len(data), ends)
    for size in range(len(data)):
        need = read(data[:size])
        assert isinstance(need, int)
        assert size < need <= len(data)


def test_the_longest_line_of_version_1_is_taken_and_a_longer_one_is_not() -> None:
    longest = b"PROXY UNKNOWN ".ljust(MAX_V1_BYTES - 2, b"x") + b"\r\n"
    assert read(longest) == ProxyHeader(107, None)
    with pytest.raises(MalformedHeaderError, match="without an end within 107 bytes"):
        read(longest[:-2] + b"x\r\n")


@in_one_loop
@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"AMQP\x00\x00\x09\x01", "not with a PROXY header"),
        (b"GET / HTTP/1.1\r\n", "not with a PROXY header"),
        (b"proxy TCP4 1.2.3.4 1.2.3.4 1 1\r\n", "not with a PROXY header"),
        (SIGNATURE[:8] + b"\x00\x00\x00\x00", "not with a PROXY header"),
        (b"PROXY TCP4 192.0.2.7 198.51.100.1 50112\r\n", "not a PROXY line"),
        (b"PROXY TCP4 192.0.2.7  198.51.100.1 50112 5672\r\n", "not a PROXY line"),
        (b"PROXY TCP5 192.0.2.7 198.51.100.1 50112 5672\r\n", "not a PROXY line"),
        (b"PROXY TCP4 2001:db8::7 198.51.100.1 50112 5672\r\n", "not an IPv4 address"),
        (b"PROXY TCP4 192.0.2.07 198.51.100.1 50112 5672\r\n", "not an IPv4 address"),
        (b"PROXY TCP6 192.0.2.7 2001:db8::1 50112 5672\r\n", "not an IPv6 address"),
        (b"PROXY TCP6 fe80::1%eth0 2001:db8::1 50112 5672\r\n", "has a zone"),
        (b"PROXY TCP4 192.0.2.7 198.51.100.1 50112 65536\r\n", "not a port"),
        (b"PROXY TCP4 192.0.2.7 198.51.100.1 050112 5672\r\n", "not a port"),
        (b"PROXY TCP4 192.0.2.7 198.51.100.1 +50 5672\r\n", "not a port"),
        (b"PROXY \xff\xfe\r\n", "not ASCII"),
        (v2(0x11, 0x11, V4_BYTES[16:]), "unknown version or command 0x11"),
        (v2(0x22, 0x11, V4_BYTES[16:]), "unknown version or command 0x22"),
        (v2(0x21, 0x41, bytes(12)), "unknown family 0x41"),
        (v2(0x21, 0x13, bytes(12)), "unknown family 0x13"),
        (v2(0x21, 0x11, bytes(11)), "shorter than its addresses"),
        (v2(0x21, 0x21, bytes(35)), "shorter than its addresses"),
        (SIGNATURE + b"\x21\x11\xff\xff", f"65551 bytes; at most {MAX_V2_BYTES}"),
    ],
)
def test_bytes_that_are_no_header_are_refused_with_the_reason(data: bytes, said: str) -> None:
    with pytest.raises(MalformedHeaderError, match=said):
        read(data)


def test_headers_are_written_as_the_specification_draws_them() -> None:
    assert write(V4) == V4_BYTES
    assert write(V6) == V6_BYTES
    assert write(None) == SIGNATURE + b"\x20\x00\x00\x00"


def test_ends_of_two_families_are_written_as_ipv6() -> None:
    mixed = Ends(("192.0.2.7", 1), ("2001:db8::1", 2))
    assert write(mixed)[13] == 0x21
    assert read(write(mixed)) == ProxyHeader(52, mixed)


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8::7", "2001:db8::7"),
        ("fe80::1%lo", "fe80::1%lo"),
        ("::1", "::1"),
    ],
)
def test_addresses_are_shown_as_people_write_them(host: str, shown: str) -> None:
    assert normalise_address(host) == shown


ports = st.integers(0, 65535)
v4 = st.integers(0, 2**32 - 1).map(lambda number: str(IPv4Address(number)))
v6 = st.integers(0, 2**128 - 1).map(lambda number: str(IPv6Address(number)))


@given(
    st.one_of(st.builds(Ends, st.tuples(v4, ports), st.tuples(v4, ports)), st.builds(Ends, st.tuples(v6, ports), st.tuples(v6, ports))),
    st.binary(max_size=64),
)
def test_a_header_that_is_written_reads_back_in_both_versions(ends: Ends, after: bytes) -> None:
    written = write(ends)
    assert read(written + after) == ProxyHeader(len(written), ends)
    family = "TCP6" if ":" in ends.source[0] else "TCP4"
    line = f"PROXY {family} {ends.source[0]} {ends.destination[0]} {ends.source[1]} {ends.destination[1]}\r\n".encode()
    assert read(line + after) == ProxyHeader(len(line), ends)


beginnings = st.sampled_from(
    [b"", b"PROXY ", b"PROXY TCP4 ", b"PROXY TCP6 1::1 ", b"PROXY UNKNOWN", SIGNATURE, SIGNATURE + b"\x21\x11\x00", SIGNATURE + b"\x20"]
)


@given(st.builds(bytes.__add__, beginnings, st.binary(max_size=160)))
def test_garbage_is_a_header_or_needs_more_or_is_refused_and_nothing_else(data: bytes) -> None:
    try:
        found = read(data)
    except MalformedHeaderError:
        return
    if isinstance(found, int):
        assert len(data) < found <= MAX_V2_BYTES
    else:
        assert found.size <= len(data)


MAPPED = IPv6Address("::ffff:192.0.2.7").packed + IPv6Address("::ffff:198.51.100.1").packed + b"\xc3\xc0\x16\x28"


@pytest.mark.parametrize(
    "data",
    [b"PROXY TCP6 ::ffff:192.0.2.7 ::ffff:198.51.100.1 50112 5672\r\n", v2(0x21, 0x21, MAPPED)],
    ids=["version 1", "version 2"],
)
def test_an_ipv4_client_is_the_same_by_whichever_socket_it_came_to_the_balancer(data: bytes) -> None:
    assert read(data) == ProxyHeader(len(data), V4)
    assert read(write(V4)) == ProxyHeader(len(V4_BYTES), V4)


def test_a_missing_header_is_told_with_the_way_out() -> None:
    with pytest.raises(MalformedHeaderError, match=r"not with a PROXY header; .* `accept_proxy_protocol: false`"):
        read(b"AMQP\x00\x00\x09\x01")
