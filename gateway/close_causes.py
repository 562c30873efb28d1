"""Why connections end: the values of the label `cause` of `sluice_connections_closed_total` (`docs/design/contract.md` 7).

A series that begins with its first event is one whose first event no `rate()` sees. So a scrape shows every known cause from the start,
at 0; a test compares these lists with the code.
"""

from __future__ import annotations

from typing import Final

COMMON: Final = (
    "admin", "broker", "broker_closed_early", "broker_lost", "broker_protocol_error", "client", "client_stalled", "drain",
    "gateway_error", "handshake_timeout", "idle", "limit", "max_connection_rate", "max_connections", "max_connections_per_address",
    "overload", "protocol_error", "proxy_protocol", "shutdown", "tls", "tls_handshake_failed", "upstream_unreachable",
)  # fmt: skip
OWN: Final[dict[str, tuple[str, ...]]] = {
    "amqp": (
        "access_refused", "broker_heartbeat", "heartbeat", "max_connections_per_user", "wrong_protocol_amqp_1_0",
        "wrong_protocol_amqp_version", "wrong_protocol_http", "wrong_protocol_http2", "wrong_protocol_mqtt", "wrong_protocol_proxy",
        "wrong_protocol_stomp", "wrong_protocol_tls", "wrong_protocol_unknown",
    ),
    "rocketmq": ("bad_header", "bad_length", "frame_too_large", "wrong_protocol"),
    "rocketmq-nameserver": ("bad_header", "bad_length", "frame_too_large", "wrong_protocol"),
}  # fmt: skip


def by_cause(protocol: str, closed: dict[str, int]) -> dict[str, int]:
    """How many connections ended of each cause, those of which none did included."""
    return {**dict.fromkeys((*COMMON, *OWN.get(protocol, ())), 0), **closed}
