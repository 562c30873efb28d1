"""What a gateway says of the readiness of its brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.processes import wait_until

if TYPE_CHECKING:
    from support.gateways import Gateway


def reasons(gateway: Gateway) -> list[str]:
    found: list[str] = gateway.request("GET", "/readyz").json.get("reasons", [])
    return found


def changes(gateway: Gateway, *, at_least: int) -> list[str]:
    """The changes of the broker's state that the log has, once they are so many: a line may come behind the answer of `/readyz`."""
    wait_until(lambda: len(_changes(gateway)) >= at_least, within=30, what="the log says it")
    return _changes(gateway)


def _changes(gateway: Gateway) -> list[str]:
    return [word for line in gateway.log().splitlines() for word in ("upstream_unreachable", "upstream_reachable") if f'"{word}"' in line]
