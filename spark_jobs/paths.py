"""Days, as options name them."""

from __future__ import annotations

from datetime import UTC, datetime


def day_start(date: str) -> int:
    """The first second (epoch) of a day of UTC. Raises ValueError."""
    try:
        day = datetime.strptime(date, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise ValueError(f"--date: {date!r} is not a day like 2026-11-20") from None
    if f"{day:%Y-%m-%d}" != date:
        raise ValueError(f"--date: {date!r} is not a day like 2026-11-20")
    return int(day.timestamp())
