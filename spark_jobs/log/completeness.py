"""Completeness: which gateways were there in which seconds, and which ones are missing.

A gateway writes a line every second, a heartbeat at least. A second with no line of any gateway is missing, not idle: later steps count
time in observed seconds (ticks). A gateway that wrote until the end of the newest remembered day (of LOOK_BACK_DAYS: a refused day
is not remembered) and wrote today in less than MIN_SHARE of as many seconds is missing: without its part of the demand the quotas would
be too small. A day that is just over is refused while the last files of a gateway may still be shipped: `log ship` sends whole hours.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from spark_jobs.errors import EarlyEndError, InsufficientInputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spark_jobs.days import Day
    from spark_jobs.log.sequence import GatewayCount
    from spark_jobs.state.manifest import Manifest

LOOK_BACK_DAYS: Final = 7  # days searched for the newest remembered one; as many as `method.missing` makes shares of
MIN_SHARE: Final = 0.95  # share of a gateway's seconds of that day: a restart or an upgrade takes less than an hour (a guess)
MAX_SILENCE_S: Final = 300  # silence before midnight: a gateway that was silent for longer was stopped, and is not expected (a guess)
FULL_HOUR_S: Final = 60  # seconds before a full hour in which a log ends with its hour: a stalled gateway writes no last ones (a guess)
MAY_COME_S: Final = 6 * 3600  # seconds after the day: its last files may be on their way (a guess; `log ship` takes half an hour)
SHOWN: Final = 5  # missing gateways named in the error


def flag_observed_seconds(gateways: Mapping[str, GatewayCount], day: Day) -> NDArray[np.bool_]:
    """One flag per second of the day: some gateway wrote a line for it."""
    flags = np.zeros(day.seconds, dtype=np.bool_)
    for each in gateways.values():
        flags |= each.seconds
    return flags


def count_by_hour(flags: NDArray[np.bool_], day: Day) -> list[int]:
    """Observed seconds in each local hour of the day."""
    hours = day.hour_of(np.flatnonzero(flags) + day.start)
    return [int(each) for each in np.bincount(hours, minlength=day.hour_count)]


def describe_gateways(gateways: Mapping[str, GatewayCount], day: Day) -> dict[str, dict[str, Any]]:
    """The gateways for the manifest: name → seconds, first and last (epoch s), boots, lines."""
    found = {}
    for name, each in gateways.items():
        seconds = np.flatnonzero(each.seconds)
        found[name] = {
            "seconds": len(seconds), "first": int(seconds[0]) + day.start, "last": int(seconds[-1]) + day.start,
            "boots": each.boots, "lines": each.lines,
        }  # fmt: skip
    return found


def find_missing(today: Mapping[str, Mapping[str, Any]], day: Day, newest: Manifest | None) -> dict[str, tuple[int, int]]:
    """Name → seconds today and seconds expected, of the gateways that are absent or wrote in too few seconds."""
    if newest is None:
        return {}
    length = newest.end - newest.start or day.seconds
    found = {}
    for name, known in sorted(newest.gateways.items()):
        if known["last"] < newest.end - MAX_SILENCE_S:
            continue
        expected = known["seconds"] * day.seconds // length
        seconds = today.get(name, {}).get("seconds", 0)
        if seconds < expected * MIN_SHARE:
            found[name] = (seconds, expected)
    return found


def describe_ended(today: Mapping[str, Mapping[str, Any]], newest: Manifest | None) -> list[str]:
    """Sentences about gateways whose log ended before the end of the newest remembered day, and that are absent today: the job takes
    them for stopped, and without the sentence nobody would notice that only their log was lost."""
    found = []
    for name, known in sorted(newest.gateways.items()) if newest is not None else ():
        if newest is not None and known.get("last", newest.end) < newest.end - MAX_SILENCE_S and name not in today:
            moment = datetime.fromtimestamp(known["last"], UTC)
            found.append(
                f"the log of gateway {name} ended {moment:%Y-%m-%d %H:%M:%S} UTC, and it is not expected any more; "
                "where it ran on, ship its log and compute the days again"
            )
    return found


def find_still_missing(today: Mapping[str, Mapping[str, Any]], before: Sequence[Manifest]) -> set[str]:
    """Gateways that the newest of the days `before` lacked and that are absent today, though some day had them (--allow-partial)."""
    if not before:
        return set()
    return {name for name in before[-1].missing_gateways if name not in today and any(each.has_gateway(name) for each in before)}


def refuse_missing(gateways: Mapping[str, tuple[int, int]], date: str) -> None:
    """Raise InsufficientInputError that names each gateway of `find_missing`, if there is one."""
    if not gateways:
        return
    named = [
        f"{name} ({'absent' if not seconds else f'{seconds} seconds'}, {expected} expected)"
        for name, (seconds, expected) in list(gateways.items())[:SHOWN]
    ]
    more = f" and {len(gateways) - SHOWN} more" if len(gateways) > SHOWN else ""
    raise InsufficientInputError(
        f"{date}: missing in the log: {', '.join(named)}{more}. "
        "Ship their log and run again; where they were stopped for good: --allow-partial"
    )


def refuse_early_end(today: Mapping[str, Mapping[str, Any]], day: Day, newest: Manifest | None, now: float) -> None:
    """Raise EarlyEndError where no gateway wrote the end of a day that is just over, or the log of one that ran on ends with a full hour.

    A log ends there while its next hour is not shipped yet. A gateway that had stopped before midnight on the newest remembered day, too,
    may stop at a full hour every day.
    """
    if not day.end <= now < day.end + MAY_COME_S:
        return
    early = {name: int(each["last"]) for name, each in sorted(today.items()) if each["last"] < day.end - MAX_SILENCE_S}
    stopped: set[str] = set()
    if newest is not None:
        stopped = {name for name, known in newest.gateways.items() if known["last"] < newest.end - MAX_SILENCE_S}
    late = [name for name, last in early.items() if -(last + 1) % 3600 < FULL_HOUR_S and name not in stopped]
    if not early or (len(early) < len(today) and not late):
        return
    last = max(early[name] for name in late) if late else max(early.values())
    named = f" of gateway {', '.join(late[:SHOWN])}" if len(early) < len(today) else ""
    raise EarlyEndError(
        f"{day.date}: the log{named} ends at {datetime.fromtimestamp(last, UTC):%Y-%m-%d %H:%M:%S} UTC, and the last files may still be "
        "shipped. Run it again when they are there; where nothing ran after that: --allow-partial"
    )
