"""Why connections end: the values of the label `cause` of `sluice_connections_closed_total` (`docs/design/contract.md` 7).

A series that begins with its first event is one whose first event no `rate()` sees. So a scrape shows every known cause from the start,
at 0. Those of one protocol stand in its record (`Protocol.close_causes`). A test compares these tables with the code, and
`docs/reference/close-causes.md` is generated from them (`make docs`).
"""

from __future__ import annotations

from typing import Final

from gateway.protocols import PROTOCOLS

COMMON: Final[dict[str, str]] = {  # cause: what it means, and what to do where something is to be done
    "admin": "An operator closed it: `sluice connections close`.",
    "broker": "The broker closed it. A protocol without words for that (RocketMQ) tells its client nothing.",
    "broker_closed_early": "The broker closed it during the handshake: a wrong password, vhost or certificate, or no more room.",
    "broker_lost": "The broker's connection ended without a close; the client was told. Look at the broker and the network.",
    "broker_protocol_error": "The broker sent what its protocol does not allow. Check that `upstream` is the right port.",
    "client": "The client closed it, or its network did: the normal end.",
    "client_stalled": "The client read nothing for five minutes while something was to be sent to it.",
    "connect_limit": "Refused: over a rule with `operation: connect`.",
    "connection_limit": "Its client was gone; what waited of it was given up for a client that a limit on connections had refused.",
    "drain": "The gateway is stopping gracefully (SIGTERM, `sluice drain`); the client was told to connect again.",
    "gateway_error": "A fault in the gateway. The log has it as `session_failed`, with a traceback: please report it.",
    "handshake_timeout": "The client did not finish TLS or its protocol's handshake within `handshake_timeout`.",
    "idle": "Neither side sent anything for `idle_timeout`.",
    "limit": "A rule with `action: close` was exceeded.",
    "frame_timeout": "The client began a frame and did not go on with it for `frame_timeout`. Look at the client and the network.",
    "memory_full": "Closed or refused because the gateway is short of memory: `memory.high_watermark`, or `memory.limit`.",
    "max_connection_rate": "Refused: more connections a second than the listener's `max_connection_rate`.",
    "max_connections": "Refused: the listener had `max_connections` already.",
    "max_connections_per_address": "Refused: the client's address had `max_connections_per_address` already.",
    "overload": "Refused: the process has no file descriptors left. Raise its nofile limit (`ulimit -n`).",
    "protocol_error": "The client sent what its protocol does not allow; the log says what.",
    "proxy_protocol": "With `accept_proxy_protocol`: the PROXY header was missing or malformed, or the peer is not of `trusted_proxies`.",
    "shutdown": "The gateway stopped at once, or the time for a graceful stop was up.",
    "tls": "TLS failed after its handshake, towards the client or the broker.",
    "tls_handshake_failed": "The TLS handshake with the client failed; `sluice_tls_failures_total` has the reason.",
    "upstream_unreachable": "Refused: the broker took no connection, or did not answer. Look at `upstream` and the broker.",
}


def by_cause(protocol: str, closed: dict[str, int]) -> dict[str, int]:
    """How many connections ended of each cause, those of which none did included."""
    return {**dict.fromkeys((*COMMON, *PROTOCOLS[protocol].close_causes), 0), **closed}
