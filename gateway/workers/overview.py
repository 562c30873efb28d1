"""What the parent of several workers tells of all of them: the state as a whole, and the metrics that are its own."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from gateway import metrics
from gateway.build import build
from gateway.workers import summing

if TYPE_CHECKING:
    from gateway.workers.parent import Parent


def status(parent: Parent) -> dict[str, object]:
    """`GET /v1/status`."""
    facts = build()
    views: list[dict[str, Any]] = parent.views("status")
    loops = [each["event_loop"] for each in views]
    return {
        "name": parent.settings.gateway.name,
        "version": facts.version,
        "build": facts.kind,
        "python": facts.python,
        "boot": parent.boot,
        "pid": os.getpid(),
        "uptime_seconds": round(time.monotonic() - parent.started, 3),
        "ready": not parent.ready(),
        "not_ready_because": parent.ready(),
        "draining": parent.draining,
        "connections": sum(each["connections"] for each in views),
        "revision": parent.store.revision,
        "config_last_reload_successful": parent.reloads.last_ok,
        "event_loop": {
            "sweeps": sum(each["sweeps"] for each in loops),
            "submissions": sum(each["submissions"] for each in loops),
            "lag_ms": max((each["lag_ms"] for each in loops), default=0.0),
        },
        "fleet": None,
        "memory_full": any(each["memory_full"] for each in views),
        "warnings": parent.warnings(),
        "access_log": None if parent.settings.access_log is None else summing.logs([each["access_log"] for each in views]),
        "limits": {
            **parent.judge.usage(),
            **{name: sum(each["limits"][name] for each in views) for name in ("keys", "origins")},
        },
        "workers": [parent.children[place].describe() for place in sorted(parent.children)],
        "workers_replaced": parent.replaced,
    }


def metric_lines(parent: Parent) -> Iterator[str]:
    """What the parent alone knows of `/metrics`."""
    family = metrics.family
    asks = [((("result", "full"),), parent.owner.granted), ((("result", "short"),), parent.owner.refused)]
    rates = [
        ((("rule", rule.name), ("dimension", dimension)), rate.per_second)
        for rule in parent.store.rules().rules
        for dimension, rate in (("messages", rule.limit.messages), ("bytes", rule.limit.bytes))
        if rate is not None
    ]
    parts = [
        family("sluice_workers", "gauge", "Worker processes that serve now.", [((), len(parent.serving()))]),
        family("sluice_workers_replaced_total", "counter", "Workers that ended and were replaced.", [((), parent.replaced)]),
        family("sluice_slices_total", "counter", "Slices workers asked for; short: there was less than they asked for.", asks),
        family("sluice_limit_rate", "gauge", "The rate of each rule, per second.", rates),
        family("sluice_config_last_reload_successful", "gauge", "1 if the last reload was.", [((), int(parent.reloads.last_ok))]),
        family("sluice_config_last_reload_timestamp_seconds", "gauge", "When.", [((), parent.reloads.last_at)]),
        family("sluice_config_version", "gauge", "Revision of the limits in force.", [((), parent.store.revision)]),
    ]
    return chain.from_iterable(parts)
