"""Numbers and names as a person reads them: three digits and a unit, a share in percent, no control character of a topic's name.

Topic names come from untrusted clients. `clean_text` leaves nothing in them that could lead a terminal or a reader's eye astray; the
writers of HTML and Markdown escape them besides.
"""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from common import figures
from common.unsafe_characters import UNSAFE

UNKNOWN: Final = "not known yet"
TIMES: Final = "\u00d7"  # the sign, not the letter x
MAX_NAME_CHARS: Final = 96  # characters of a topic's name that are shown; the JSON twin has all of it (a guess: two lines of a phone)

_SLOWER: Final = ((1, "s"), (60, "min"), (3600, "h"), (86400, "day"))  # seconds, unit


def clean_text(text: object, most: int | None = None) -> str:
    """`text` on one line without control characters; of more than `most` characters the middle is left out."""
    found = UNSAFE.sub("·", str(text))
    if most is None or len(found) <= most:
        return found
    tail = most // 3
    return f"{found[: most - tail - 1]}…{found[-tail:]}"


def number_text(number: float) -> str:
    """Three digits: `1.23k`, `45.6`, `0.0123`, `7`."""
    return figures.count(number) if math.isfinite(number) else "∞"


def amount_text(dimension: str, number: float | None) -> str:
    """Messages as `1.23M`, bytes as `1.23 GiB`."""
    if number is None:
        return UNKNOWN
    return figures.size(number) if dimension == "bytes" else number_text(number)


def rate_text(dimension: str, each_second: float | None) -> str:
    """A rate as `1.23k/s`, `2.5/min` or `1.2 MiB/s`; slow ones per minute, hour or day."""
    if each_second is None:
        return UNKNOWN
    if dimension == "bytes":
        return f"{amount_text(dimension, each_second)}/s"
    if each_second == 0:
        return "0/s"
    seconds, unit = next((found for found in _SLOWER if each_second * found[0] >= 0.1), _SLOWER[-1])
    return f"{number_text(each_second * seconds)}/{unit}"


def share_text(part: float | None) -> str:
    """A share of 1 in percent: `0.07 %`; a part that is not nothing never reads as nothing."""
    if part is None:
        return UNKNOWN
    if 0 < part < 1e-5:
        return "< 0.001 %"
    return f"{figures.digits(part * 100)} %"


def factor_text(factor: float | None) -> str:
    """A factor: `x 1.8`, with the sign for times."""
    return UNKNOWN if factor is None else f"{TIMES} {number_text(factor)}"


def day_after(text: str | None) -> str | None:
    """The day after 2026-11-20; None where that is no day."""
    try:
        return (date.fromisoformat(text or "") + timedelta(days=1)).isoformat()
    except (ValueError, OverflowError):
        return None


def named_day(text: str | None) -> str:
    """`Fri 20 Nov` of 2026-11-20; a text that is no day as it is."""
    try:
        return f"{WEEKDAYS[date.fromisoformat(text or '').weekday()]} {short_day(text or '')}"
    except ValueError:
        return clean_text(text, 12)


def is_weekend(text: str) -> bool:
    return date.fromisoformat(text).weekday() >= WEEKDAYS.index("Sat")


def short_day(text: str) -> str:
    """`20 Nov` of 2026-11-20; a text that is no day as it is."""
    try:
        found = date.fromisoformat(text)
    except ValueError:
        return clean_text(text, 12)
    return f"{found.day} {MONTHS[found.month - 1]}"


WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")  # no locale: equal input, equal bytes


def moment_text(text: str, zone: str | None) -> str:
    """A time of RFC 3339 as `2026-11-21 00:15:07 UTC`, and also in `zone` where that is another; anything else as it is."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return clean_text(text, MAX_NAME_CHARS)
    if found.tzinfo is None:
        return f"{found:%Y-%m-%d %H:%M:%S} (no zone given)"
    shown = f"{found.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    try:
        local = found.astimezone(ZoneInfo(zone or "UTC"))
    except (ValueError, KeyError, OSError):  # a name that is no zone, or no zone data on this machine
        return shown
    return shown if (zone or "UTC") == "UTC" else f"{shown} ({local:%Y-%m-%d %H:%M} {clean_text(zone, 40)})"


def pluralise(number: int, thing: str) -> str:
    """`1 topic`, `2 topics`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
