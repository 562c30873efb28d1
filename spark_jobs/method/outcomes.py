"""Outcomes: how the quotas of the night before fared on a day that they did not know, and how others would have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from spark_jobs.method.families import QUOTA_RULES
from spark_jobs.method.memory import Floats, Memory
from spark_jobs.method.scale import compute_bursts, compute_rates
from spark_jobs.state.loss_surface import Surfaces

OUTCOMES: Final = pa.schema([
    *[(name, pa.string()) for name in ("day", "protocol", "topic", "dimension", "family")],
    ("rate", pa.float64()), ("burst", pa.int64()), ("offered", pa.int64()), ("refused", pa.float64()), ("reserved", pa.float64()),
])  # fmt: skip
PUBLISHED: Final = "published"  # quotas that were in force
ORACLE: Final = "oracle"  # the least rate that refuses a thousandth of the day: knows it beforehand


def make_contenders(
    earlier: Memory, base: Floats, k: float, floor: Floats, largest: Floats, live: tuple[Floats, Floats], need: Floats
) -> dict[str, tuple[Floats, Floats]]:
    """Family -> (rates, bursts) that might have been in force. All but `live` = (rates, bursts) have the method's burst; the simple rules
    are as a person would take them, not at equal reserve."""
    own = compute_rates(base, k, 0.0)
    rates = {"quota": own, "half": 0.5 * own, "double": 2 * own, ORACLE: need}
    rates |= {name: rule(earlier) for name, rule in QUOTA_RULES.items()}
    found = {PUBLISHED: live}
    for name, each in rates.items():
        raised = np.maximum(each, floor)
        found[name] = (raised, compute_bursts(raised, largest))
    return found


def make_outcomes(
    day: str, dimension: str, memory: Memory, found: Mapping[str, tuple[Floats, Floats]], surfaces: Surfaces, observed_seconds: int
) -> pa.Table:
    """Rows of OUTCOMES: one for each topic and family that had a rate. `surfaces` are the day's, one for each topic of `memory`."""
    parts = []
    names = [pa.array([key[at] for key in memory.keys], pa.string()) for at in range(2)]
    for family, (rates, bursts) in found.items():
        at = np.flatnonzero(~np.isnan(rates))
        refused = surfaces.interpolate_loss(rates, bursts)
        columns = {
            "day": pa.repeat(day, len(at)), "protocol": names[0].take(pa.array(at)), "topic": names[1].take(pa.array(at)),
            "dimension": pa.repeat(dimension, len(at)), "family": pa.repeat(family, len(at)), "rate": rates[at],
            "burst": np.minimum(bursts[at], 2**62).astype(np.int64), "offered": surfaces.total[at].astype(np.int64),
            "refused": refused[at], "reserved": rates[at] * observed_seconds,
        }  # fmt: skip
        parts.append(pa.table(columns, schema=OUTCOMES))
    return pa.concat_tables(parts)
