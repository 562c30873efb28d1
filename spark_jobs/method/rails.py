"""Guard rails: how far a quota may move in one night. A quota beyond its rail is held there and listed.

It is measured against the live one and against that of the same day a week ago: a topic that halves each Saturday may, and is back on
Monday.

**Bounds** keep nights quiet: a quota stays as it is while it is between two bounds around the method's rate, and goes there once it is
outside. Nobody wants to read two hundred changes of three percent to find the one that matters.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from spark_jobs.method.memory import Floats

UPWARD: Final = 2.0  # times the lower distance: a quota that is too high costs reserve, one that is too low refuses
CENSORED_GROWTH: Final = 1.25  # times the live quota, at least: for a topic that was limited so long that its demand is a lower bound


class Bounds(Protocol):
    """The parameters that rails need."""

    @property
    def step_up_percent(self) -> int: ...
    @property
    def step_down_percent(self) -> int: ...
    @property
    def hysteresis_percent(self) -> int: ...


class Railed(NamedTuple):
    rates: Floats
    held: NDArray[np.int64]  # 1 held below the wanted rate, -1 held above, 0 not held
    lower: Floats  # bounds: a quota between them stays as it is
    upper: Floats
    kept: NDArray[np.bool_]  # whether it is between them


def apply_rails(
    wanted: Floats,
    live: Floats,
    week_ago: Floats,
    censored: NDArray[np.bool_],
    floor: Floats,
    ceiling: float,
    bounds: Bounds,
) -> Railed:
    """Rates per topic; NaN in `wanted`: no quota; NaN in `live` or `week_ago`: none was in force. `ceiling` 0: none."""
    known = ~np.isnan(live) & (live > 0)
    grown = np.where(known & censored, np.fmax(wanted, CENSORED_GROWTH * live), wanted)
    most = np.fmax(live, week_ago) * bounds.step_up_percent / 100
    least = np.fmin(live, week_ago) * bounds.step_down_percent / 100
    found = np.where(known, np.clip(grown, least, most), grown)
    held = np.where(known & (grown > most * (1 + 1e-9)), 1, np.where(known & (grown < least * (1 - 1e-9)), -1, 0))
    near = bounds.hysteresis_percent / 100
    lower, upper = grown / (1 + near), grown * (1 + UPWARD * near)
    kept = known & ~censored & (live >= lower) & (live <= upper)
    found, held = np.where(kept, live, np.maximum(found, floor)), np.where(kept, 0, held)
    if ceiling:
        found = np.minimum(found, ceiling)
    unknown = np.isnan(wanted)
    return Railed(np.where(unknown, np.nan, found), np.where(unknown, 0, held), lower, upper, kept & ~unknown)
