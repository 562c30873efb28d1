"""The handshake, before the first channel: passed on, and overheard.

    client: protocol header        broker: connection.start
    client: start-ok (SASL)        broker: (secure …) tune
    client: tune-ok, open          broker: open-ok

The gateway answers nothing here. One number is changed on its way to the client: a `frame_max` in the broker's tune that is unlimited or
above what the listener takes (`max_frame`). Else a client would agree to it, and a large delivery would end the connection, again and
again. The client's answer is its own, and passes untouched.

It notes the user and the virtual host, which limits may be for, how large frames may become, and how
often the broker wants a heartbeat. A password passes through a local variable and is never kept.
"""

from __future__ import annotations

from typing import Final

from gateway.pipeline.errors import ProtocolError
from gateway.protocols.amqp.field_table import FieldTableError, read_fields, text_of
from gateway.protocols.amqp.frames import ACCESS_REFUSED, PROTOCOL_HEADER, SYNTAX_ERROR, client_error, read_short_string
from gateway.protocols.amqp.sasl import user_of
from limiter.limits import NEVER

MAX_EARLY_FRAME_BYTES: Final = (
    65536  # payload before the client is let in; RabbitMQ takes 4096 (3.10) or 8192 (4.1) unless told otherwise, and decides
)
DEFAULT_FRAME_BYTES: Final = 131072  # RabbitMQ's offer; cuts bodies of our own where frame_max is unlimited
MAX_CHANNEL_NUMBER: Final = 65535  # a u16; channel_max 0 means no limit but this
MIN_FRAME_MAX_BYTES: Final = 4096  # the specification's frame-min-size
MIN_LOWERED_BYTES: Final = 8192  # RabbitMQ from 4.1 on refuses a client that answers less
TUNE_ARGUMENTS_BYTES: Final = 8  # channel-max u16, frame-max u32, heartbeat u16
ACCEPTED_HEADERS: Final = (PROTOCOL_HEADER, b"AMQP\x01\x01\x00\x09")  # RabbitMQ takes 0-9 for 0-9-1 (rabbit_reader.erl 3.10)
LIBRARY: Final = ("product", "version", "platform")  # what a client says of its library
SHOWN_PROPERTIES: Final = (*LIBRARY, "connection_name")  # of the client, to operators
CAPABILITIES: Final = b"capabilities"
MAX_TABLE_BYTES: Final = 4096  # of a client's properties: 64 KiB may be 20,000 of them, and strangers send them
MAX_SHOWN_CHARACTERS: Final = 256  # of each: clients choose them; a guess

OTHER_PROTOCOLS: Final = (
    (b"GET ", "http"),
    (b"POST", "http"),
    (b"PUT ", "http"),
    (b"HEAD", "http"),
    (b"OPTI", "http"),
    (b"CONN", "http"),
    (b"PRI ", "http2"),
    (b"\x16\x03", "tls"),
    (b"\x10", "mqtt"),
    (b"STOM", "stomp"),
    (b"PROX", "proxy"),
    (b"\r\n\r\n", "proxy"),
)
REMEDIES: Final = {
    "tls": "; set `tls:` on the listener, or let the client speak without TLS",
    "proxy": " (PROXY protocol); set `accept_proxy_protocol: true` and `trusted_proxies` on the listener if a load balancer sends it",
}


class Handshake:
    """What was overheard. Sizes in bytes; `limit` bounds a frame's payload."""

    def __init__(self, max_frame: int, certificate_user: str | None = None, *, lends_certificate: bool = False) -> None:
        self.max_frame = max_frame  # bound where none was negotiated
        self.certificate_user = certificate_user  # the user that SASL's EXTERNAL means
        self.lends_certificate = lends_certificate  # the broker has been shown a certificate, the gateway's
        self.user: str | None = None
        self.vhost: bytes | None = None
        self.properties: dict[str, str] = {}
        self.takes_blocked = False  # the client declared the capability connection.blocked
        self.started = False  # the client has seen connection.start
        self.answered = False  # the client has sent connection.start-ok
        self.authenticated = False  # the broker has sent connection.tune
        self.tuned = False
        self.opened = False  # the broker has sent connection.open-ok
        self.frame_max = 0
        self.channel_max = 0
        self.heartbeat = 0  # seconds; 0: none
        self.heartbeat_ns = NEVER  # between two heartbeats: half of what was agreed on, as RabbitMQ's own sender does
        self.limit = min(MAX_EARLY_FRAME_BYTES, max_frame)
        self.broker_limit = self.limit  # the same for what the broker sends,
        self.header_limit = self.limit  # and for its content headers

    def start_ok(self, arguments: bytes) -> None:
        """client-properties table, mechanism shortstr, response longstr, locale shortstr.

        Raises ProtocolError where they do not fit, and where it cannot be told who the client would be at the broker.
        """
        self.answered = True
        table_end = 4 + int.from_bytes(arguments[:4], "big")
        mechanism, at = _whole_short_string(arguments, table_end)
        response_end = at + 4 + int.from_bytes(arguments[at : at + 4], "big")
        if response_end >= len(arguments):
            raise client_error(SYNTAX_ERROR, "connection.start-ok is shorter than it says")
        if mechanism == b"EXTERNAL":
            self._take_certificate_user()
        else:
            self.user = user_of(mechanism, arguments[at + 4 : response_end])
        if table_end <= MAX_TABLE_BYTES:
            try:
                self._overhear(arguments[4:table_end])
            except FieldTableError:  # only shown: a table that cannot be read is the broker's to judge
                self.properties, self.takes_blocked = {}, False

    def _overhear(self, properties: bytes) -> None:
        """What the client's properties say of it."""
        found: dict[str, str] = {}
        for name, kind, value in read_fields(properties):
            if name == CAPABILITIES and kind == b"F":
                for capability, its_kind, is_true in read_fields(value):
                    if capability == b"connection.blocked" and its_kind == b"t":
                        self.takes_blocked = is_true != b"\0"
            text = text_of(kind, value)
            if text is not None:
                found[name.decode("utf-8", "backslashreplace")] = text
        self.properties = {name: found[name][:MAX_SHOWN_CHARACTERS] for name in SHOWN_PROPERTIES if name in found}

    def library(self) -> dict[str, object]:
        """What the client has said of its library."""
        return {name: self.properties[name] for name in LIBRARY if name in self.properties}

    def _take_certificate_user(self) -> None:
        """The user of the client's certificate. The broker has seen another one, the gateway's, or none.

        Raises ProtocolError where the gateway has one and the client has not: anybody would be let in as the gateway.
        """
        if self.certificate_user is None and self.lends_certificate:
            words = "Login was refused using authentication mechanism EXTERNAL: no client certificate with a name was shown to this gateway"
            raise client_error(ACCESS_REFUSED, f"{words}; log in with PLAIN, or show one (tls.client_ca of the listener)", "access_refused")
        self.user = self.certificate_user

    def tune(self, arguments: bytes) -> bytes:
        """The arguments of the broker's connection.tune as the client is to see them: with a frame-max that the listener takes."""
        self.authenticated = True
        self._agree_on_heartbeat()
        if len(arguments) != TUNE_ARGUMENTS_BYTES:
            return arguments
        offered = int.from_bytes(arguments[2:6], "big")
        lowered = max(self.max_frame, min(offered, MIN_LOWERED_BYTES) if offered else MIN_LOWERED_BYTES)
        self.max_frame = lowered
        if 0 < offered <= lowered:
            return arguments
        return arguments[:2] + lowered.to_bytes(4, "big") + arguments[6:]

    def tune_ok(self, arguments: bytes) -> None:
        """channel-max u16, frame-max u32, heartbeat u16: the client has the last say."""
        if len(arguments) < TUNE_ARGUMENTS_BYTES:
            raise client_error(SYNTAX_ERROR, "connection.tune-ok is too short")
        self.channel_max = int.from_bytes(arguments[:2], "big")
        self.frame_max = int.from_bytes(arguments[2:6], "big")
        self.heartbeat = int.from_bytes(arguments[6:8], "big")
        self._agree_on_heartbeat()
        self.tuned = True
        # One place for RabbitMQ's tolerance: it counts frame_max without the 8 bytes around the payload (frames.py).
        # The client alone decides, and no frame is larger than the listener allows.
        self.broker_limit = min(max(self.frame_max, MIN_FRAME_MAX_BYTES), self.max_frame) if self.frame_max else self.max_frame
        # Brokers do not keep to it in content headers: dead-lettering adds `x-death` to a header of any size, and clients read it.
        self.header_limit = self.max_frame
        if self.opened:  # by a broker that did not wait
            self.limit = self.broker_limit

    def let_in(self) -> None:
        """The broker has sent connection.open-ok. Only now are larger frames believed: strangers could fill the memory with them."""
        self.opened = True
        self.limit = self.broker_limit

    def open(self, arguments: bytes) -> None:
        """virtual-host shortstr."""
        self.vhost, _ = _whole_short_string(arguments, 0)

    def most_channels(self) -> int:
        """How many channels the client may open."""
        return self.channel_max or MAX_CHANNEL_NUMBER

    def _agree_on_heartbeat(self) -> None:
        self.heartbeat_ns = self.heartbeat * 500_000_000 if self.heartbeat and self.authenticated else NEVER

    def body_frame(self) -> int:
        """The largest body payload for frames of the gateway's own."""
        return (self.frame_max or DEFAULT_FRAME_BYTES) - 8

    def __repr__(self) -> str:
        return f"<Handshake {'tuned' if self.tuned else 'early'} user={self.user} vhost={self.vhost!r} frame_max={self.frame_max}>"


def check_opening(head: bytes, max_frame: int, others_pass: bool) -> None:  # noqa: FBT001  -- the signature of gateway.protocols.protocol.Opening
    """Look at the first 8 bytes of a connection, before anything is spent on it. Raises ProtocolError as `greeting` does."""
    if not (others_pass and other_version(head)):
        greeting(head)


def other_version(head: bytes) -> bool:
    """Whether the first 8 bytes are an AMQP protocol header, but of another version than 0-9-1."""
    return len(head) == 8 and head.startswith(b"AMQP") and head not in ACCEPTED_HEADERS


def greeting(data: bytes) -> bool:
    """Whether `data` (the client's first bytes, 8 at most are looked at) is the protocol header; False while too short to tell.

    Raises ProtocolError, named after what it is instead; the last frame is the header we understand, as the specification wants (4.2.2).
    """
    head = data[:8]
    if head in ACCEPTED_HEADERS:
        return True
    if any(accepted.startswith(head) for accepted in ACCEPTED_HEADERS):
        return False
    name = "unknown"
    hint = f"the connection began with {head!r}"
    if head[:4] == b"AMQP":
        if len(head) < 8:
            return False
        version = ".".join(str(octet) for octet in head[5:])
        name = "amqp_1_0" if head[5:] == b"\x01\x00\x00" else "amqp_version"
        hint = f"AMQP {version} (id {head[4]})"
    else:
        for start, protocol in OTHER_PROTOCOLS:
            if head.startswith(start):
                name = protocol
                hint = f"{protocol.upper()} spoken to a plain AMQP listener{REMEDIES.get(protocol, '')}"
                break
            if start.startswith(head) and len(head) < 4:
                return False
    raise ProtocolError(f"not AMQP 0-9-1: {hint}", cause=f"wrong_protocol_{name}", last_frames=PROTOCOL_HEADER)


def _whole_short_string(data: bytes, at: int) -> tuple[bytes, int]:
    """`read_short_string`, which raises ProtocolError where the string is not all there."""
    text, end = read_short_string(data, at)
    if end == at or end > len(data):
        raise client_error(SYNTAX_ERROR, "a short string is longer than its method")
    return text, end
