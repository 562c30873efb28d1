"""What is fuzzed of the PROXY header."""

from __future__ import annotations

from gateway.transport import proxy_protocol


def proxy_header(data: bytes) -> None:
    """The PROXY header, versions 1 and 2: read as soon as it is whole, the same with more behind it, and as it would be written."""
    try:
        found = proxy_protocol.read(data)
    except proxy_protocol.MalformedHeaderError:
        return
    if isinstance(found, int):
        assert len(data) < found <= proxy_protocol.MAX_V2_BYTES
        return
    assert found.size <= len(data)
    assert proxy_protocol.read(data[: found.size]) == found
    assert proxy_protocol.read(data + b"\x00") == found
    for size in range(proxy_protocol.MIN_BYTES, found.size):
        assert not isinstance(proxy_protocol.read(data[:size]), proxy_protocol.ProxyHeader), "read before it was whole"
    if found.ends is not None:
        again = proxy_protocol.read(proxy_protocol.write(found.ends))
        assert isinstance(again, proxy_protocol.ProxyHeader)
        assert again.ends == found.ends
