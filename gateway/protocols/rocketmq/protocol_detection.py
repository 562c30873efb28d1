"""Protocol detection: which other protocol is spoken on the RocketMQ port, by its first four bytes.

The first bytes of each protocol listed here read as a length far above any frame size (`GET ` is 1,195,725,856), so the ordinary check of
the length finds them. This table only turns "frame too large" into a sentence that says what to mend. Kafka's clients announce a length,
too, and a small one: they are known by what follows.
"""

from __future__ import annotations

from typing import Final

from gateway.pipeline.errors import ProtocolError

HTTP: Final = "an HTTP request on the RocketMQ remoting port; the admin API listens elsewhere (`admin: bind:`)"
PROXY: Final = (
    "a PROXY protocol header, which this listener does not take; set `accept_proxy_protocol: true` and `trusted_proxies` if a load "
    "balancer sends it"
)

CLOSE_CAUSES: Final = {
    "bad_header": "The header of a frame could not be read, or could be read in two ways.",
    "bad_length": "The lengths at the beginning of a frame contradict each other.",
    "frame_too_large": "A frame or its header was larger than allowed (`max_frame`).",
    "wrong_protocol": "The client's first bytes are of another protocol; the log says which.",
}

OTHER_PROTOCOLS: Final[tuple[tuple[bytes, str], ...]] = (
    (b"\x16\x03", "TLS on a plain port; set `tls:` on the listener, or `tls.enable=false` in the client"),
    (b"PRI ", "an HTTP/2 preface: a gRPC client on the remoting port; use the address of a RocketMQ proxy, or a remoting client"),
    (b"PROX", PROXY),
    (b"\r\n\r\n", PROXY),
    (b"AMQP", "an AMQP client on the RocketMQ port; use the address of an `amqp` listener"),
    (b"SSH-", "an SSH client on the RocketMQ port"),
    (b"*", "a Redis client on the RocketMQ port"),  # an array of bulk strings: `*1\r\n$4\r\nPING`
    *((method, HTTP) for method in (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"CONN", b"PATC", b"TRAC")),
)


def check_opening(first: bytes, max_frame: int, others_pass: bool) -> None:  # noqa: FBT001  -- the signature of gateway.protocols.protocol.Opening
    """Look at the first 4 bytes of a connection, before anything is spent on it. Raises ProtocolError where they cannot be a frame's."""
    length = int.from_bytes(first, "big")
    if len(first) == 4 and length > max_frame - 4:
        raise too_large(first, length, max_frame)


def too_large(first: bytes, length: int, max_frame: int) -> ProtocolError:
    """The error for a frame that begins with the four bytes `first` and announces `length` bytes after them."""
    for prefix, what in OTHER_PROTOCOLS:
        if first.startswith(prefix):
            return ProtocolError(f"not a RocketMQ frame: this is {what}", cause="wrong_protocol")
    # CONNECT, a remaining length of one or two bytes, then a protocol name behind its length, which is below 256
    if first[0] == 0x10 and (first[2] == 0 if first[1] < 0x80 else first[2] < 0x80 and first[3] == 0):
        return ProtocolError("not a RocketMQ frame: this may be an MQTT client on the RocketMQ port", cause="wrong_protocol")
    return ProtocolError(
        f"a frame of {length + 4} bytes was announced; the listener's max_frame is {max_frame}, raise it if clients send larger ones",
        cause="frame_too_large",
    )


def looks_like_kafka(word: int) -> bool:
    """Whether the four bytes behind a length are those of a Kafka client's first request: its key and version.

    ApiVersions (18), SaslHandshake (17) or Metadata (3), in a version up to 15. Read as ours they announce a JSON header of over 196,608
    bytes, so this is asked only of frames that are shorter than their header.
    """
    return word >> 16 in {3, 17, 18} and word & 0xFFFF < 16
