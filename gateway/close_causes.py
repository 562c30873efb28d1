"""Why connections end: the values of the label `cause` of `sluice_connections_closed_total` (`docs/design/contract.md` 7).

A series that begins with its first event is one whose first event no `rate()` sees. So a scrape shows every known cause from the start,
at 0. Those of one protocol stand in its record (`Protocol.close_causes`). A test compares these lists with the code.
"""

from __future__ import annotations

from typing import Final

from gateway.protocols import PROTOCOLS

COMMON: Final = (
    "admin", "broker", "broker_closed_early", "broker_lost", "broker_protocol_error", "client", "client_stalled", "drain",
    "gateway_error", "handshake_timeout", "idle", "limit", "max_connection_rate", "max_connections", "max_connections_per_address",
    "overload", "protocol_error", "proxy_protocol", "shutdown", "tls", "tls_handshake_failed", "upstream_unreachable",
)  # fmt: skip


def by_cause(protocol: str, closed: dict[str, int]) -> dict[str, int]:
    """How many connections ended of each cause, those of which none did included."""
    return {**dict.fromkeys((*COMMON, *PROTOCOLS[protocol].close_causes), 0), **closed}
