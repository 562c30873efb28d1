"""The guard: is another quota rule better for the whole fleet than the method? Judged on pooled next-day refusals at equal reserve, never
per topic and never on one day (docs/design/quotas.md 5)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from spark_jobs.method.families import QUOTA_RULES
from spark_jobs.method.memory import Floats, Memory
from spark_jobs.method.scale import compute_bursts
from spark_jobs.state.loss_surface import Surfaces

OWN: Final = "quota"  # the method
DAYS: Final = 28
MIN_DAYS: Final = 7
BETTER_BY: Final = 0.10  # share of the method's refusals; less is noise
DOUBT_DAYS: Final = 10  # n days of evidence count n / (n + 10)
MIN_EVIDENCE: Final = 100.0  # nights of a topic: on two topics of jobs two standard errors of a month were three jobs
ERRORS: Final = 2.0  # standard errors that the gain must be away from nothing: one bad day of the method is no reason


def scale_to_reserve(rates: Floats, like: Floats) -> Floats:
    """`rates`, all scaled by one factor so that they reserve as much as `like` does; topics without a rate get that of `like`."""
    both = ~np.isnan(rates) & ~np.isnan(like)
    whole = rates[both].sum()
    if whole <= 0:
        return like
    return np.where(np.isnan(like), np.nan, np.where(both, rates * (like[both].sum() / whole), like))


def judge_rules(earlier: Memory, published: Floats, surfaces: Surfaces, floor: Floats | float) -> dict[str, float]:
    """Refused by each rule at the reserve of the method's rates `published`, on the day of `surfaces` that followed `earlier`."""
    largest = earlier.largest[:, -7:].max(axis=1, initial=1.0, where=~np.isnan(earlier.largest[:, -7:]))
    found = {}
    for name, rates in [(OWN, published), *((name, rule(earlier)) for name, rule in QUOTA_RULES.items())]:
        scaled = np.maximum(scale_to_reserve(rates, published), floor)
        found[name] = float(np.nansum(surfaces.interpolate_loss(scaled, compute_bursts(scaled, largest))))
    return found


class Evidence(NamedTuple):
    """One day's evidence on the rules: messages that each refused, and how many topics of equal size the day's messages are worth."""

    refused: Mapping[str, float]
    topics: float


def sum_evidence(days: Sequence[Evidence]) -> float:
    """The evidence of the days that count: nights x topics."""
    return sum(day.topics for day in days[-DAYS:] if OWN in day.refused)


def choose_rule(days: Sequence[Evidence]) -> str:
    """The rule for the fleet after the judged `days` (newest last): the method, unless another one has earned its place."""
    if sum_evidence(days) < MIN_EVIDENCE:
        return OWN
    recent = [day.refused for day in days[-DAYS:] if OWN in day.refused]
    own = sum(day[OWN] for day in recent)
    best, most = OWN, BETTER_BY
    for name in QUOTA_RULES:
        judged = [day for day in recent if name in day]
        if len(judged) < MIN_DAYS or own <= 0:
            continue
        gains = [day[OWN] - day[name] for day in judged]
        if sum(gains) < ERRORS * math.hypot(*gains):
            continue
        gain = len(judged) / (len(judged) + DOUBT_DAYS) * sum(gains) / own
        if gain > most:
            best, most = name, gain
    return best
