"""Guard rails: how far a quota may move in one night. A quota beyond its rail is held there and listed.

It is measured against the live one and against that of the same day a week ago: a topic that halves each Saturday may, and is back on
Monday.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from spark_jobs.method.memory import Floats

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
    held: NDArray[np.int64]  # 1 held below what it should be, -1 held above, 0 not held
    unchanged: NDArray[np.bool_]  # the change was too small to make


def on_rails(
    wanted: Floats, live: Floats, week_ago: Floats, censored: NDArray[np.bool_], floor: Floats, ceiling: float, bounds: Bounds
) -> Railed:
    """Rates per topic; NaN in `wanted`: no quota; NaN in `live` or `week_ago`: none was in force. `ceiling` 0: none."""
    known = ~np.isnan(live) & (live > 0)
    live_ = np.where(known, live, 1.0)
    grown = np.where(known & censored, np.fmax(wanted, CENSORED_GROWTH * live_), wanted)
    most = np.fmax(live_, week_ago) * bounds.step_up_percent / 100
    least = np.fmin(live_, week_ago) * bounds.step_down_percent / 100
    found = np.where(known, np.clip(grown, least, most), grown)
    held = np.where(known & (grown > most * (1 + 1e-9)), 1, np.where(known & (grown < least * (1 - 1e-9)), -1, 0))
    small = known & (np.abs(found / live_ - 1) * 100 < bounds.hysteresis_percent)
    found = np.where(small, live_, found)
    found = np.maximum(found, floor)
    if ceiling:
        found = np.minimum(found, ceiling)
    return Railed(np.where(np.isnan(wanted), np.nan, found), np.where(np.isnan(wanted), 0, held), small)
