"""Snapshots with all the evidence of a night, made up but of the real shape; pure arithmetic, so the same every time."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

from limiter.quota_snapshot import JSON, Quota, Snapshot

DAY = date(2026, 11, 20)
HOSTILE = '<script>alert("x")</script>|`*[a](http://evil.example)\u202e\x1b[31m'
EARLIER = {
    "forecast",
    "peakiness",
    "k",
    "family",
    "status",
    "nights7",
    "nights28",
    "series",
    "refused_hours",
    "gateways",
    "bytes",
}  # that older ones lack


def series(mean: float, quota: float, days: int = 28, launch: float = 1.0) -> list[list[Any]]:
    """Rows of `evidence.series`: weekdays, quiet week-ends, one busy day; the quota in force follows it."""
    rows: list[list[Any]] = []
    for ago in range(days - 1, -1, -1):
        day = DAY - timedelta(days=ago)
        level = (
            mean * (0.4 if day.weekday() >= 5 else 1) * (1 + 0.1 * math.sin(ago)) * (2.5 if ago == 9 else 1) * (launch if ago < 3 else 1)
        )
        refused = round(level * 86400 * 0.004) if ago in {2, 9} else 0
        in_force = quota if ago < 6 else quota * 0.9
        rows.append([day.isoformat(), round(level, 6), None if ago > 26 else round(in_force, 6), refused, round(level * (6 + ago % 4), 6)])
    return rows


def nights(count: int, offered: float, refused: float) -> dict[str, Any]:
    """`nights7` or `nights28`: what was refused is a share of what was offered."""

    def outcome(part: float, reserve: float) -> dict[str, float]:
        return {"refused": round(offered * part, 3), "reserved": round(offered * reserve)}

    return {
        "nights": count,
        "offered": round(offered),
        **outcome(refused, 3.1),
        "half": outcome(refused * 14 + 0.002, 1.55),
        "double": outcome(refused / 6, 6.2),
        "yesterday_max": outcome(refused * 4 + 0.0003, 7.4),
        "oracle": outcome(0.00001, 1.9),
    }


def facts(mean: float, rate: float, at: int) -> dict[str, Any]:
    """The members of `evidence` that messages and bytes have alike."""
    refused = (0.0, 0.0004, 0.0011, 0.00005, 0.006)[at % 5]
    return {
        "days": 28,
        "mean": round(mean * 0.98, 3),
        "p99": round(mean * 5, 3),
        "max": round(mean * 9, 3),
        "forecast": round(mean, 6),
        "peakiness": 2.0 + at % 7,
        "k": 1.8,
        "family": "quota",
        "status": "held" if at % 50 == 3 else "quota",
        "would_refuse": refused,
        "nights7": nights(7, mean * 86400 * 7, refused),
        "nights28": nights(28, mean * 86400 * 28, refused * 0.7),
        "series": series(mean, rate, launch=8.0 if at % 50 == 3 else 1.0),
        "refused_hours": [0] * 9 + [at % 5] * 3 + [0] * 12,
    }


def quota(at: int, name: str | None = None) -> Quota:
    """A topic with all its evidence; large and small ones in turn."""
    mean = (120.0, 3.5, 0.02, 900.0, 41.0)[at % 5] * (1 + at % 13)
    rate = round(mean * (2.0 + at % 7) * 1.8, 4)
    before = round(rate / (2.0 if at % 50 == 3 else 1.12 if at % 4 == 1 else 1.0), 4)
    reason = "held at x2 of the quota in force: wanted 4.1k/s" if at % 50 == 3 else "forecast x peakiness x k"
    bytes_facts = {**facts(mean * 700, rate * 900, at), "series": series(mean * 700, rate * 900)}
    return Quota(
        "rocketmq",
        name or f"{('orders', 'payments', 'audit', 'stock', 'mail')[at % 5]}-{at:05d}",
        messages=(rate, max(3, math.ceil(rate * 10))),
        bytes=(round(rate * 900), math.ceil(rate * 9000)),
        evidence={
            **facts(mean, before, at),
            "reason": reason,
            "reason_bytes": "forecast x peakiness x k",
            "gateways": {"gw-a": 0.62, "gw-b": 0.38},
            "bytes": bytes_facts,
        },
    )


def snapshot(count: int = 12, **night: JSON) -> Snapshot:
    """A night of `count` topics, the first with a hostile name."""
    quotas = tuple(quota(at, HOSTILE if at == 0 else None) for at in range(count))
    held = [each for each in quotas if each.evidence["status"] == "held"]
    return Snapshot(
        computed_at="2026-11-21T00:15:07Z",
        code="0.3.0",
        quotas=quotas,
        date=DAY.isoformat(),
        night={
            "time_zone": "Europe/Berlin",
            "target_refused_ppm": 1000,
            "realised_ppm": {"messages": 700, "bytes": 90},
            "k": {"messages": 1.8, "bytes": 2.1},
            "family": {"messages": "quota", "bytes": "quota"},
            "learning": [{"protocol": "rocketmq", "topic": "launch", "reason": "1 of 3 active days"}],
            "held": [{"protocol": each.protocol, "topic": each.topic, "reason": each.evidence["reason"]} for each in held],
            "pinned": [{"protocol": "rocketmq", "topic": "billing", "reason": "contract with the bank"}],
            "excluded": ["2026-11-12T08:00/2026-11-12T09:00:stock-00003"],
            "missing_gateways": [],
            "observed_seconds": 86400,
            "previous_sha256": "ab" * 32,
            **night,
        },
    )


def before(now: Snapshot) -> Snapshot:
    """The snapshot before `now`: a quarter of its rates lower, the last topic not there yet, and one that is gone since."""

    def earlier(found: Quota) -> Quota:
        assert found.messages is not None
        rate = found.evidence["series"][-1][2]  # type: ignore[index]
        assert isinstance(rate, int | float)
        forecast = found.evidence["forecast"]
        assert isinstance(forecast, int | float)
        evidence = {**found.evidence, "forecast": forecast / 1.5} if found.evidence["status"] == "held" else found.evidence
        return replace(found, messages=(rate, found.messages[1]), evidence=evidence)

    kept = tuple(earlier(found) for found in now.quotas[:-1])
    return replace(now, quotas=(*kept, Quota("rocketmq", "gone", messages=(5, 50))), night={}, date="2026-11-19")


def older(now: Snapshot) -> Snapshot:
    """`now` as sluice 0.2 wrote it: no night, and only the evidence of that time."""
    quotas = tuple(
        replace(found, evidence={name: value for name, value in found.evidence.items() if name not in EARLIER}) for found in now.quotas
    )
    return replace(now, quotas=quotas, night={}, date=None)
