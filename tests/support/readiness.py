"""What a gateway says of the readiness of its brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from support.gateways import Gateway


def reasons(gateway: Gateway) -> list[str]:
    found: list[str] = gateway.request("GET", "/readyz").json.get("reasons", [])
    return found


def changes(gateway: Gateway) -> list[str]:
    """The changes of the broker's state that the log has."""
    return [word for line in gateway.log().splitlines() for word in ("upstream_unreachable", "upstream_reachable") if f'"{word}"' in line]
