"""Limits that are over, as a gateway describes them to its webhooks."""

from __future__ import annotations

from typing import Any

from common.views.limits import OverLimitView

SINCE = 1_795_612_864.0  # 2026-11-25T13:21:04Z
GATEWAY = "orders-sidecar"


def overrun(thing: str = "%2F/orders/order.created", **more: Any) -> OverLimitView:
    """One limit, with what `telemetry/limit_events.py` says of it."""
    found: dict[str, Any] = {
        "per": "topic", "thing": thing, "rule": "orders", "operation": "produce", "place": "limits.yaml:7", "origin": "default",
        "limit": "500/s", "since": SINCE, "rate": 700, "refused": 1200, "delayed": 0, "protocol": "amqp", "topic": thing,
        "listener": "rabbit", "client": "10.0.0.7", "user": "shop", "client_refused": 900, "clients": 3, "waiting": 0,
        "client_over": {"10.0.0.7": 900}, "over": 1000, **more,
    }  # fmt: skip
    return OverLimitView(**found)
