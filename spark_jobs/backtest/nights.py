"""The limits that a backtest of a day compares besides the candidates: the published quotas, yesterday's maximum, the oracle."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from limiter.quota_snapshot import Quota, Snapshot, SnapshotError, load
from spark_jobs.errors import InsufficientInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spark_jobs.state.state import DayStates

PUBLISHED: Final = "published"  # the quotas of the last night before the day
YESTERDAY_MAX: Final = "yesterday_max"  # rate: the busiest second of the day before
ORACLE: Final = "oracle"  # the least rate that would have refused at most 0.1 % of the day itself, known only afterwards
BURST_S: Final = 10  # seconds of the rate; the burst that quotas get (`state.loss_surface.NEED_BURST_S`), so that rates alone differ


def read_published(state: DayStates, date: str) -> Snapshot | None:
    """The quotas in force on `date`: of the latest night before it that was published, in shadow mode or not; None where there is none.

    A night that `quotas nightly` has begun and not published does not count. Raises InsufficientInputError.
    """
    nights = state.root.child("nights")
    names = sorted(entry.name.removeprefix("dt=") for entry in state.storage.list(nights) if entry.name.startswith("dt="))
    for name in reversed([name for name in names if name < date]):
        files = {entry.name for entry in state.storage.list(state.night(name))}
        if "begun.json" in files and "applied.json" not in files:
            continue
        location = state.night(name).child("quotas.json")
        try:
            return load(state.storage.read(location))
        except FileNotFoundError:
            continue
        except SnapshotError as error:
            raise InsufficientInputError(f"{location.shown}: {error}; compute the night again, or remove its folder") from error
    return None


def make_quotas(rows: Iterable[Mapping[str, Any]], column: str) -> list[Quota]:
    """Quotas whose rates are `column` (`max` or `need`) of a day's table `topics`."""
    found: dict[tuple[str, str], dict[str, tuple[float, int]]] = {}
    for row in rows:
        rate = float(row[column])
        if rate > 0:
            burst = max(math.ceil(BURST_S * rate), int(row["largest"]), 1)
            found.setdefault((row["protocol"], row["topic"]), {})[row["dimension"]] = (rate, burst)
    return [Quota(protocol, topic, pairs.get("messages"), pairs.get("bytes")) for (protocol, topic), pairs in sorted(found.items())]
