"""Kinds of values with a unit: rates, sizes, durations. `limiter.units` reads and writes them; this module bounds them."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

from config.document import Scalar
from config.kinds import JSON, Invalid, Reading, ScalarKind
from config.problems import quote_text
from limiter.bypass import BypassBound
from limiter.limits import Rate
from limiter.units import (
    format_byte_rate,
    format_duration,
    format_rate,
    format_share,
    format_size,
    parse_byte_rate,
    parse_duration,
    parse_rate,
    parse_share,
    parse_size,
)

MAX_KNOWN: Final = 1024  # texts of a kind, the latest: of 10,000 rules many say the same; a guess

T = TypeVar("T")


class Quantity(ScalarKind[T]):
    """A quantity with its unit, read by `limiter.units`."""

    def __init__(self, wanted: str, example: str, parse: Callable[[str], T], form: Callable[[T], str], pattern: str) -> None:
        self.wanted = wanted
        self.example = example
        self._parse = lru_cache(maxsize=MAX_KNOWN)(parse)
        self._format = form
        self.pattern = pattern
        self.placeholder = parse(example)

    def parse(self, scalar: Scalar, path: str, reading: Reading) -> T:
        try:
            return self._parse(scalar.text)
        except ValueError as error:
            message, _, remedy = str(error).rpartition("; ")
            raise Invalid(message or str(error), remedy if message else f"write it like {self.example}") from None

    def show(self, value: T) -> JSON:
        return self._format(value)

    def schema(self) -> dict[str, JSON]:
        return {"type": "string", "pattern": self.pattern, "examples": [self.example]}


_NUMBER: Final = "[0-9]+(?:\\.[0-9]+)?"
_PER: Final = "\\s*/\\s*(?:0*[1-9][0-9]*)?\\s*(?:ns|us|ms|s|min|h|d)\\s*$"
_BYTES: Final = "(?:B|kB|KiB|MB|MiB|GB|GiB)"


def MessageRate() -> Quantity[Rate]:  # noqa: N802
    return Quantity("a rate of messages", "500/s", parse_rate, format_rate, f"^\\s*{_NUMBER}\\s*[kM]?{_PER}")


class Some(Quantity[Rate]):
    """A rate above zero."""

    def parse(self, scalar: Scalar, path: str, reading: Reading) -> Rate:
        rate = super().parse(scalar, path, reading)
        if not rate.amount:
            raise Invalid(f"{scalar.text} admits no connection", "leave it out for no cap")
        return rate


def ConnectionRate() -> Quantity[Rate]:  # noqa: N802
    return Some("a rate of new connections", "100/s", parse_rate, format_rate, f"^\\s*(?=[0-9.]*[1-9]){_NUMBER}\\s*[kM]?{_PER}")


def ByteRate() -> Quantity[Rate]:  # noqa: N802
    return Quantity("a rate of bytes", "10MiB/s", parse_byte_rate, format_byte_rate, f"^\\s*{_NUMBER}\\s*{_BYTES}?{_PER}")


class Ranged(Quantity[int]):
    """A quantity with a least and a most."""

    def __init__(self, base: Quantity[int], least: str, most: str) -> None:
        super().__init__(base.wanted, base.example, base._parse, base._format, base.pattern)
        self.least = base._parse(least)
        self.most = base._parse(most)
        self.range = (least, most)  # as people write them

    def parse(self, scalar: Scalar, path: str, reading: Reading) -> int:
        value = super().parse(scalar, path, reading)
        if value < self.least:
            raise Invalid(f"{scalar.text} is too little", f"the least is {self.range[0]}")
        if value > self.most:
            raise Invalid(f"{scalar.text} is too much", f"the most is {self.range[1]}")
        return value


def Size(example: str, least: str, most: str) -> Ranged:  # noqa: N802
    """Bytes, as `1MiB`."""
    pattern = f"^\\s*{_NUMBER}\\s*{_BYTES}\\s*$"
    return Ranged(Quantity("a size", example, parse_size, format_size, pattern), least, most)


def ShareOf(example: str) -> Quantity[BypassBound]:  # noqa: N802
    """A part of what came within a window, as `10%/10s`."""
    pattern = f"^\\s*{_NUMBER}\\s*%\\s*/\\s*{_NUMBER}\\s*(?:ns|us|ms|s|min|h|d)\\s*$"
    return Quantity("a share of a time", example, parse_share, format_share, pattern)


def Duration(example: str, least: str, most: str) -> Ranged:  # noqa: N802
    """Nanoseconds, as `2s`."""
    pattern = f"^\\s*{_NUMBER}\\s*(?:ns|us|ms|s|min|h|d)\\s*$"
    return Ranged(Quantity("a duration", example, parse_duration, format_duration, pattern), least, most)


class BurstTime(Ranged):
    """A burst as a time of the rate. A number alone is asked about: a burst of tokens is a mapping."""

    def __init__(self) -> None:
        base = Duration("2s", "1us", "24h")
        super().__init__(base, *base.range)

    def parse(self, scalar: Scalar, path: str, reading: Reading) -> int:
        if scalar.text.isdecimal():
            meant = (
                f"write burst: {{messages: {scalar.text}}} for as many messages, or burst: {scalar.text}s for what comes in in that time"
            )
            raise Invalid(f"{scalar.text} has no unit", meant)
        return super().parse(scalar, path, reading)


class Percent(ScalarKind[int]):
    """A part of a whole, as `20%`: thousandths, from `least` to `most` of them."""

    wanted = "a part of the whole"

    def __init__(self, example: str, least: int, most: int) -> None:
        self.example = example
        self.least = least
        self.most = most
        self.placeholder = most

    def parse(self, scalar: Scalar, path: str, reading: Reading) -> int:
        found = re.fullmatch(r"\s*([0-9]{1,3})(?:\.([0-9]))?\s*%\s*", scalar.text)
        if found is None:
            bare = re.fullmatch(r"[0-9.]+", scalar.text)
            remedy = f"did you mean {scalar.text}%?" if bare else f"write it like {self.example}"
            raise Invalid(f"expected {self.wanted}, got {quote_text(scalar.text)}", remedy)
        part = int(found[1]) * 10 + int(found[2] or 0)
        if part < self.least:
            raise Invalid(f"{scalar.text} is too little", f"the least is {self.show(self.least)}")
        if part > self.most:
            raise Invalid(f"{scalar.text} is too much", f"the most is {self.show(self.most)}")
        return part

    def show(self, value: int) -> str:
        return percent_text(value)

    def schema(self) -> dict[str, JSON]:
        return {"type": "string", "pattern": "^\\s*[0-9]{1,3}(?:\\.[0-9])?\\s*%\\s*$", "examples": [self.example]}


def percent_text(thousandths: int) -> str:
    return f"{thousandths // 10}%" if thousandths % 10 == 0 else f"{thousandths / 10:.1f}%"


class FreeSpace(NamedTuple):
    """How much of a disk is to stay free: `size` bytes or `share` thousandths of it, whichever is more."""

    size: int
    share: int = 0

    def __str__(self) -> str:
        """As in a configuration."""
        return percent_text(self.share) if self.share else format_size(self.size)


class SizeOrPercent(ScalarKind[FreeSpace]):
    """Free space as a size, or as a part of the disk, which is then `least` bytes at least."""

    def __init__(self, size: Ranged, percent: Percent, least: int) -> None:
        self.size = size
        self.percent = percent
        self.least = least
        self.wanted = "a size or a part of the disk"
        self.example = f"{percent.example}, or {size.example}"
        self.placeholder = FreeSpace(least, percent.placeholder)

    def parse(self, scalar: Scalar, path: str, reading: Reading) -> FreeSpace:
        if "%" in scalar.text:
            return FreeSpace(self.least, self.percent.parse(scalar, path, reading))
        return FreeSpace(self.size.parse(scalar, path, reading))

    def schema(self) -> dict[str, JSON]:
        return {"anyOf": [self.percent.schema(), self.size.schema()]}


class Weight(ScalarKind[float]):
    """How many times what others get: a number above 0 with at most three decimal places, written plainly."""

    placeholder = 1.0
    wanted = "a number"
    example = "3"

    def __init__(self, most: int) -> None:
        self.most = most

    def parse(self, scalar: Scalar, path: str, reading: Reading) -> float:
        if not scalar.plain or re.fullmatch(r"(?:0|[1-9][0-9]{0,5})(?:\.[0-9]{1,3})?", scalar.text) is None:
            raise Invalid(f"expected a number above 0, got {quote_text(scalar.text)}", "write it like 3, or 0.5")
        weight = float(scalar.text)
        if weight == 0:
            raise Invalid("0 would get nothing at all", "write 0.1 for a tenth of what others get, or give the rule a limit of 0/s")
        if weight > self.most:
            raise Invalid(f"{scalar.text} is too large", f"the most is {self.most}")
        return weight

    def show(self, value: float) -> JSON:
        return int(value) if value == int(value) else value

    def schema(self) -> dict[str, JSON]:
        return {"type": "number", "exclusiveMinimum": 0, "maximum": self.most}
