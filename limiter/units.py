"""Units: rates, sizes and durations as people write them (`docs/design/contract.md` 3), and back.

A bare number is refused: `500` of what? Reading is exact (fractions, not floats), and `parse(format(x)) == x` for every rate, size and
duration, so what the admin API shows can be sent back to it.

    rates      500/s  30k/min  0.5/s  1/10s     byte rates  10MiB/s  64kB/s  500/s
    sizes      1MiB  64kB  512B                 durations   2s  500ms  1.5min  1h  250us
    shares     10%/10s
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from limiter.bypass import PARTS, BypassBound
from limiter.limits import SECOND, Limit, Rate

DURATIONS: Final = {"ns": 1, "us": 10**3, "ms": 10**6, "s": SECOND, "min": 60 * SECOND, "h": 3600 * SECOND, "d": 86400 * SECOND}
COUNTS: Final = {"": 1, "k": 10**3, "M": 10**6}
SIZES: Final = {"B": 1, "kB": 10**3, "KiB": 2**10, "MB": 10**6, "MiB": 2**20, "GB": 10**9, "GiB": 2**30}
RATE_PERIODS: Final = ("s", "min", "h", "ms", "d")  # in the order in which a rate is tried for writing

# Other spellings, and the unit they mean.
SPELLINGS: Final = {
    "sec": "s", "secs": "s", "second": "s", "seconds": "s", "m": "min", "mins": "min", "minute": "min", "minutes": "min", "hr": "h",
    "hour": "h", "hours": "h", "day": "d", "days": "d", "µs": "us", "msec": "ms", "millis": "ms",
}  # fmt: skip
SIZE_SPELLINGS: Final = {
    "b": "B", "kb": "kB", "kib": "KiB", "k": "kB", "m": "MB", "mb": "MB", "mib": "MiB", "g": "GB", "gb": "GB",
    "gib": "GiB",
}  # fmt: skip

NUMBER: Final = r"(?P<number>\d+(?:\.\d+)?)"
RATE: Final = re.compile(rf"\s*{NUMBER}\s*(?P<unit>[A-Za-z]*)\s*/\s*(?P<many>\d*)\s*(?P<period>[A-Za-zµ]+)\s*", re.ASCII)
QUANTITY: Final = re.compile(rf"\s*{NUMBER}\s*(?P<unit>[A-Za-zµ]*)\s*")
SHARE: Final = re.compile(rf"\s*{NUMBER}\s*%\s*/\s*(?P<window>[0-9.]+\s*[A-Za-zµ]+)\s*", re.ASCII)
MIN_WINDOW_NS: Final = SECOND  # ns; the window of a share; less is not an average (guess)
MAX_WINDOW_NS: Final = 600 * SECOND  # ns; the window of a share; longer ago says nothing about now (guess)
MAX_RATE_DIGITS: Final = 24  # of a rate's number, with its point; with more, what is shown may be longer than what is read
MAX_TEXT_CHARS: Final = 64  # characters; a quantity; a number of a million digits takes Python seconds to read


def parse_rate(text: str) -> Rate:
    """A rate of messages: `500/s`, `30k/min`, `0.5/s`, `1/10s`. Raises ValueError with a hint."""
    return read_rate(text, COUNTS, "500/s")


def parse_byte_rate(text: str) -> Rate:
    """A rate of bytes: `10MiB/s`, `64kB/s`; plain `500/s` is 500 bytes. Raises ValueError with a hint."""
    return read_rate(text, {"": 1, **SIZES}, "10MiB/s")


def read_rate(text: str, units: dict[str, int], example: str) -> Rate:
    if not isinstance(text, str):
        raise ValueError(not_text(text, "rate", "/s", example))
    found = RATE.fullmatch(text) if len(text) <= MAX_TEXT_CHARS else None
    if found is None:
        number = QUANTITY.fullmatch(text) if len(text) <= MAX_TEXT_CHARS else None
        if number is not None and number["unit"] in units:
            raise ValueError(bare_number(text, f"{text.strip()}/s"))
        raise ValueError(f"{shorten(text)} is no rate{negative(text)}; write it like {example}")
    if found["unit"] not in units:
        meant = SIZE_SPELLINGS.get(found["unit"].lower(), "") if "B" in units else {"K": "k", "m": "M"}.get(found["unit"], "")
        raise ValueError(unknown(text, found["unit"], meant, units, example))
    if found["period"] not in DURATIONS:
        raise ValueError(unknown(text, found["period"], SPELLINGS.get(found["period"].lower(), ""), DURATIONS, example))
    if found["many"] and int(found["many"]) == 0:
        raise ValueError(f"{shorten(text)}: a rate needs a period longer than nothing; write it like {example}")
    if len(found["number"]) > MAX_RATE_DIGITS:
        raise ValueError(f"{shorten(text)}: a rate has {MAX_RATE_DIGITS} digits at most; write it like {example}")
    exact = Fraction(found["number"]) * units[found["unit"]]
    return Rate(exact.numerator, exact.denominator * int(found["many"] or "1") * DURATIONS[found["period"]])


def parse_size(text: str) -> int:
    """Bytes: `1MiB`, `64kB`, `512B`. Raises ValueError with a hint, also where it is not a whole number of bytes."""
    return read_quantity(text, SIZES, SIZE_SPELLINGS, "size", "1MiB")


def parse_duration(text: str) -> int:
    """Nanoseconds: `2s`, `500ms`, `1.5min`. Raises ValueError with a hint. `0` needs a unit too: `0s`."""
    return read_quantity(text, DURATIONS, SPELLINGS, "duration", "2s")


def parse_from_now(text: str) -> int:
    """Nanoseconds until something ends: a duration in which `m` means minutes too. Raises ValueError."""
    return parse_duration(re.sub(r"(?<=\d)\s*m$", "min", text))


def parse_share(text: str) -> BypassBound:
    """A share of the messages within a window: `10%/10s`, `0.5%/1min`. Raises ValueError with a hint."""
    found = SHARE.fullmatch(text) if len(text) <= MAX_TEXT_CHARS else None
    if found is None:
        raise ValueError(f"{shorten(text)} is no share of a time; write it like 10%/10s")
    parts = Fraction(found["number"]) * PARTS / 100
    window = parse_duration(found["window"])
    if parts > PARTS:
        raise ValueError(f"{shorten(text)}: more than all messages; the most is 100%")
    if parts.denominator != 1:
        raise ValueError(f"{shorten(text)} has more than four decimal places; write it like 10%/10s")
    if not MIN_WINDOW_NS <= window <= MAX_WINDOW_NS or window % (SECOND // 1000):
        raise ValueError(f"{shorten(text)}: a window is 1s to 10min long, in whole milliseconds; write it like 10%/10s")
    return BypassBound(parts.numerator, window)


def read_quantity(text: str, units: dict[str, int], spellings: dict[str, str], what: str, example: str) -> int:
    first_unit = example.lstrip("0123456789")
    if not isinstance(text, str):
        raise ValueError(not_text(text, what, first_unit, example))
    found = QUANTITY.fullmatch(text) if len(text) <= MAX_TEXT_CHARS else None
    if found is None:
        raise ValueError(f"{shorten(text)} is no {what}{negative(text)}; write it like {example}")
    if not found["unit"]:
        raise ValueError(bare_number(text, f"{text.strip()}{first_unit}"))
    if found["unit"] not in units:
        raise ValueError(unknown(text, found["unit"], spellings.get(found["unit"].lower(), ""), units, example))
    exact = Fraction(found["number"]) * units[found["unit"]]
    if exact.denominator != 1:
        raise ValueError(f"{shorten(text)} is not a whole number of {'bytes' if what == 'size' else 'nanoseconds'}")
    return exact.numerator


def not_text(value: object, what: str, unit: str, example: str) -> str:
    """The message for a value that YAML read as a number, because it has no unit."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return bare_number(value, f"{value}{unit}")
    return f"{value!r} is no {what}; write it like {example}"


def bare_number(text: object, meant: str) -> str:
    return f"{text} has no unit; did you mean {meant}?"


def negative(text: str) -> str:
    return " (it cannot be negative)" if text.strip().startswith("-") else ""


def unknown(text: str, unit: str, meant: str, units: dict[str, int], example: str) -> str:
    known = ", ".join(name for name in units if name)
    hint = f"did you mean {meant.join(text.strip().rsplit(unit, 1))}?" if meant else f"known: {known}; for example {example}"
    return f"{shorten(text)}: unknown unit {unit!r}; {hint}"


def shorten(text: str) -> str:
    return repr(text if len(text) <= MAX_TEXT_CHARS else text[:MAX_TEXT_CHARS] + "...")


def format_rate(rate: Rate) -> str:
    """The shortest exact way to write a rate of messages: `500/s`, `0.5/s`, `100/min`, `1/7s`."""
    return write_rate(rate, {"": 1})


def format_byte_rate(rate: Rate) -> str:
    """The shortest exact way to write a rate of bytes: `10MiB/s`, `1500B/s`."""
    return write_rate(rate, SIZES)


def format_limit(limit: Limit, joint: str = ", ") -> str:
    """A limit on one line: `500/s, 10MiB/s`; `64 in flight`; `unlimited`."""
    rates = [] if limit.messages is None else [format_rate(limit.messages)]
    if limit.bytes is not None:
        rates.append(format_byte_rate(limit.bytes))
    if not rates:
        return "unlimited" if limit.concurrent is None else f"{limit.concurrent} in flight"
    return joint.join(rates)


def format_share(share: BypassBound) -> str:
    """The shortest exact way to write a share: `10%/10s`."""
    percent = Fraction(share.parts * 100, PARTS)
    return f"{decimal_text(percent) or 0}%/{format_duration(share.window_ns)}"


def write_rate(rate: Rate, units: dict[str, int]) -> str:
    each_second = Fraction(rate.amount * SECOND, rate.per_ns)
    decimal = decimal_text(each_second)
    if decimal and each_second.denominator > 1:
        return f"{decimal}{smallest(units)}/s"
    for period in RATE_PERIODS:
        amount = each_second * Fraction(DURATIONS[period], SECOND)
        if amount.denominator == 1:
            return f"{format_whole(amount.numerator, units)}/{period}"
    period = next(name for name in ("d", "h", "min", "s", "ms", "us", "ns") if rate.per_ns % DURATIONS[name] == 0)
    return f"{format_whole(rate.amount, units)}/{rate.per_ns // DURATIONS[period]}{period}"


def format_size(size: int) -> str:
    """The shortest exact way to write a number of bytes: `1MiB`, `64kB`, `1500B`."""
    return format_whole(size, SIZES)


def format_duration(duration_ns: int) -> str:
    """The shortest exact way to write a duration: `2s`, `500ms`, `90s`."""
    if duration_ns == 0:
        return "0s"
    for name in ("d", "h", "min", "s", "ms", "us"):
        if duration_ns % DURATIONS[name] == 0:
            return f"{duration_ns // DURATIONS[name]}{name}"
    return f"{duration_ns}ns"


def format_whole(number: int, units: dict[str, int]) -> str:
    """`number` in the largest unit that divides it."""
    dividing = [(size, name) for name, size in units.items() if number % size == 0]
    size, name = max(dividing) if number else (1, smallest(units))
    return f"{number // size}{name}"


def smallest(units: dict[str, int]) -> str:
    return min(units, key=units.__getitem__)


def decimal_text(number: Fraction) -> str:
    """`number` as a decimal of at most six places, or "" where that would not be exact."""
    scaled = number * 10**6
    if scaled.denominator != 1:
        return ""
    places = f"{scaled.numerator:07d}"
    return f"{places[:-6]}.{places[-6:]}".rstrip("0").rstrip(".")
