"""Numbers for people: three significant digits and a unit. JSON, YAML and CSV have the exact ones."""

from __future__ import annotations

from typing import Final

DIGITS: Final = 3
_THOUSANDS: Final = ("", "k", "M", "G", "T", "P")
_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_TIMES: Final = (
    (86400.0, "d", 3600.0, "h"),
    (3600.0, "h", 60.0, "min"),
    (60.0, "min", 1.0, "s"),
)  # in s; the lower unit


def rate(per_second: float) -> str:
    """Messages or requests a second: `1.5k/s`, `37/s`, `0.25/s`."""
    return f"{count(per_second)}/s"


def byte_rate(per_second: float) -> str:
    """Bytes a second: `230 KiB/s`."""
    return f"{size(per_second)}/s"


def count(number: float) -> str:
    """`982`, `12.3k`, `1.5M`."""
    number, unit = _scale_unit(number, 1000, _THOUSANDS)
    return f"{digits(number)}{unit}"


def size(octets: float) -> str:
    """Bytes, by powers of 1024: `230 KiB`, `512 B`, `1.5 MiB`."""
    number, unit = _scale_unit(octets, 1024, _BINARY)
    return f"{digits(number)} {unit}"


def percent(share: float) -> str:
    """A share of 1: `97 %`, `0.4 %`. Only all of it is `100 %`, and only nothing is `0 %`."""
    number = share * 100
    if 99 < number < 100:
        return f"{min(int(number * 10), 999) / 10:g} %"
    return f"{number:.0f} %" if number >= 1 or number == 0 else f"{max(number, 0.1):.1g} %"


def duration(seconds: float) -> str:
    """A time in its two largest units: `4d 3h`, `2h 5min`, `12min 8s`; below a minute three digits: `12.5s`, `250ms`, `80us`."""
    if seconds < 0:
        return f"-{duration(-seconds)}"
    for unit_s, unit, lower_s, lower in _TIMES:
        if round(seconds / lower_s) * lower_s >= unit_s:
            whole, rest = divmod(round(seconds / lower_s), round(unit_s / lower_s))
            return f"{whole}{unit} {rest}{lower}" if rest else f"{whole}{unit}"
    if seconds >= 1 or seconds == 0:
        return f"{digits(seconds)}s"
    return f"{digits(seconds * 1e3)}ms" if seconds >= 1e-3 else f"{digits(seconds * 1e6)}us"


def wait(milliseconds: float) -> str:
    """Until one message would pass; `never` where the limit lets none pass."""
    return "never" if milliseconds > 1e12 else duration(milliseconds / 1e3)


def digits(number: float) -> str:
    """A number in three significant digits, without an exponent and without zeros behind the point: `12.3`, `0.025`, `1230`."""
    if number == 0:
        return "0"
    whole = len(str(int(abs(float(f"{number:.{DIGITS}g}")))))
    places = max(DIGITS - whole, 0) if abs(number) >= 1 else 12
    text = f"{float(f'{number:.{DIGITS}g}'):.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _scale_unit(number: float, base: int, units: tuple[str, ...]) -> tuple[float, str]:
    """The number in the unit in which it is at least 1, as it will be rounded: 999.7 is 1k, not 1000."""
    step = 0
    while step < len(units) - 1 and abs(float(f"{number:.{DIGITS}g}")) >= min(base, 1000):
        number /= base
        step += 1
    return number, units[step]


def pluralise(number: int, thing: str) -> str:
    """`1 rule`, `2 rules`."""
    return f"{number} {thing}{'' if number == 1 else 's'}"
