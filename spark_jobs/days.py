"""A day of a time zone: where it begins and ends, which UTC partitions of the log it overlaps, and the local hour of a second."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from datetime import date as calendar_date
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Day:
    """One day of the calendar in `zone`. It has 24 hours, or 23 or 25 where clocks are changed.

    Raises ValueError for a text that is no date (`2026-11-20`) or no time zone.
    """

    date: str
    zone: str = "UTC"

    def __post_init__(self) -> None:
        try:
            found = calendar_date.fromisoformat(self.date)
        except ValueError:
            raise ValueError(f"--date: {self.date!r} is not a day like 2026-11-20") from None
        if found.isoformat() != self.date:
            raise ValueError(f"--date: {self.date!r} is not a day like 2026-11-20")
        try:
            ZoneInfo(self.zone)
        except (OSError, ValueError, KeyError):  # ZoneInfoNotFoundError is a KeyError
            raise ValueError(f"time_zone: {self.zone!r} is unknown; write a name like Europe/Berlin or UTC") from None

    @property
    def calendar(self) -> calendar_date:
        return calendar_date.fromisoformat(self.date)

    @property
    def start(self) -> int:
        """The first second, epoch s."""
        return self._midnight(self.calendar)

    @property
    def end(self) -> int:
        """The first second of the next day, epoch s."""
        return self._midnight(self.calendar + timedelta(days=1))

    def _midnight(self, day: calendar_date) -> int:
        return int(datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(self.zone)).timestamp())

    @property
    def seconds(self) -> int:
        return self.end - self.start

    @property
    def hour_count(self) -> int:
        """24; 23 or 25 on days when clocks are changed (an hour that is shared with the next day counts)."""
        return -(-self.seconds // 3600)

    @property
    def weekday(self) -> int:
        """0: Monday, 6: Sunday."""
        return self.calendar.weekday()

    @property
    def partitions(self) -> list[tuple[str, str]]:
        """The (dt, hr) partitions of the log, hours of UTC, that the day overlaps."""
        first = self.start - self.start % 3600
        moments = [datetime.fromtimestamp(at, UTC) for at in range(first, self.end, 3600)]
        return [(f"{at:%Y-%m-%d}", f"{at:%H}") for at in moments]

    def hour_of(self, second: NDArray[np.int64]) -> NDArray[np.int64]:
        """The hour of the day, from 0, in which each second (epoch s) lies: whole hours since the day began."""
        return (np.asarray(second, np.int64) - self.start) // 3600

    def before(self, days: int) -> Day:
        """The day so many days earlier."""
        return Day((self.calendar - timedelta(days=days)).isoformat(), self.zone)


def yesterday(zone: str = "UTC") -> Day:
    """The day before today in `zone`. Raises ValueError where that is no time zone."""
    Day("2026-01-01", zone)  # says which zone is unknown
    return Day(f"{datetime.now(ZoneInfo(zone)).date() - timedelta(days=1):%Y-%m-%d}", zone)
