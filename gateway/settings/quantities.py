"""Kinds of values with a unit: rates, sizes, durations. How they are written is `limiter.units`' business, ranges are this module's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from gateway.settings.document import Scalar
from gateway.settings.kinds import JSON, Invalid, Reading, ScalarKind
from limiter.limits import Rate
from limiter.units import (
    format_byte_rate,
    format_duration,
    format_rate,
    format_size,
    parse_byte_rate,
    parse_duration,
    parse_rate,
    parse_size,
)

T = TypeVar("T")


class Quantity(ScalarKind[T]):
    """A quantity with its unit, read by `limiter.units`."""

    def __init__(self, wanted: str, example: str, parse: Callable[[str], T], form: Callable[[T], str], pattern: str) -> None:
        self.wanted = wanted
        self.example = example
        self._parse = parse
        self._format = form
        self.pattern = pattern
        self.placeholder = parse(example)

    def parse(self, scalar: Scalar, place: str, reading: Reading) -> T:
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
    """A rate that is more than nothing."""

    def parse(self, scalar: Scalar, place: str, reading: Reading) -> Rate:
        rate = super().parse(scalar, place, reading)
        if not rate.amount:
            raise Invalid(f"{scalar.text} lets nobody in", "leave it out for no cap")
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
        self._range = (least, most)

    def parse(self, scalar: Scalar, place: str, reading: Reading) -> int:
        value = super().parse(scalar, place, reading)
        if value < self.least:
            raise Invalid(f"{scalar.text} is too little", f"the least is {self._range[0]}")
        if value > self.most:
            raise Invalid(f"{scalar.text} is too much", f"the most is {self._range[1]}")
        return value


def Size(example: str, least: str, most: str) -> Ranged:  # noqa: N802
    """Bytes, as `1MiB`."""
    pattern = f"^\\s*{_NUMBER}\\s*{_BYTES}\\s*$"
    return Ranged(Quantity("a size", example, parse_size, format_size, pattern), least, most)


def Duration(example: str, least: str, most: str) -> Ranged:  # noqa: N802
    """Nanoseconds, as `2s`."""
    pattern = f"^\\s*{_NUMBER}\\s*(?:ns|us|ms|s|min|h|d)\\s*$"
    return Ranged(Quantity("a duration", example, parse_duration, format_duration, pattern), least, most)
