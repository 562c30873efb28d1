"""From rows to the snapshot of docs/design/contract.md 9, and from the previous snapshot to rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from limiter.quota_snapshot import JSON, Quota, Snapshot

if TYPE_CHECKING:
    from pyspark.sql import Row

Key = tuple[str, str]


def previous_rows(previous: Snapshot) -> list[tuple[str, str, str, int, int]]:
    """A snapshot as rows of `schemas.PREVIOUS`; fractions of a rate are rounded up, as all rates here are whole."""
    rows = []
    for quota in previous.quotas:
        for dimension, pair in (("messages", quota.messages), ("bytes", quota.bytes)):
            if pair is not None:
                rows.append((quota.protocol, quota.topic, dimension, math.ceil(pair[0]), pair[1]))
    return rows


def quotas_of(settled: Iterable[Row], evidence: Mapping[Key, Row], replayed: Iterable[Row]) -> list[Quota]:
    """Rows of settled quotas, `evidence.evidence` by topic, and the newest day replayed through the settled quotas.

    `would_refuse` is the larger of the shares of messages and of bytes that the newest day would have lost; null where the topic
    was silent that day.
    """
    share: dict[Key, float] = {}
    for row in replayed:
        key = (row.protocol, row.topic)
        share[key] = max(share.get(key, 0.0), row.refused / row.offered)
    pairs: dict[Key, dict[str, tuple[float, int]]] = {}
    reasons: dict[Key, dict[str, str]] = {}
    for row in settled:
        key = (row.protocol, row.topic)
        pairs.setdefault(key, {})[row.dimension] = (row.rate, row.burst)
        reasons.setdefault(key, {})[row.dimension] = f"{row.rule}: {row.reason}"
    quotas = []
    for key, by_dimension in pairs.items():
        facts: dict[str, Any] = {"reason": reasons[key].get("messages", reasons[key].get("bytes"))}
        if "bytes" in reasons[key] and "messages" in reasons[key]:
            facts["reason_bytes"] = reasons[key]["bytes"]
        if key in evidence:
            facts |= {name: evidence[key][name] for name in ("days", "p50", "p99", "max")}
        facts["would_refuse"] = round(share[key], 6) if key in share else None
        quotas.append(Quota(*key, by_dimension.get("messages"), by_dimension.get("bytes"), facts))
    return quotas


def unseen(previous: Snapshot, known: set[Key], remember_days: int) -> list[Quota]:
    """Quotas of topics that no remembered day has seen: kept as they are, marked; deleting one is an operator's choice."""
    note: JSON = f"kept: not seen for {remember_days} days; delete it by hand if the topic is gone"
    return [
        Quota(quota.protocol, quota.topic, quota.messages, quota.bytes, {**quota.evidence, "reason": note, "would_refuse": None})
        for quota in previous.quotas
        if (quota.protocol, quota.topic) not in known
    ]
