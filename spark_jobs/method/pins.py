"""Pins: quotas that a person has set. They win over computed ones, until their date.

pins:
  - {protocol: rocketmq, topic: orders, messages: 500/s, burst: 900, bytes: 5MiB/s, byte_burst: 20MiB, reason: contract, until: 2026-12-31}
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date as calendar_date
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from limiter.protocols import PROTOCOL_NAMES
from limiter.topics import parse_topic

if TYPE_CHECKING:
    from spark_jobs.parameters import Parameters

MAX_PINS_BYTES: Final = 16 * 2**20  # bytes; a file of pins; a hundred thousand of them have 15 MB
FIELDS: Final = ("protocol", "topic", "messages", "burst", "bytes", "byte_burst", "reason", "until")
_UNITS: Final = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_PER: Final = {"s": 1, "min": 60, "h": 3600}
_AMOUNT: Final = r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)"
BURST_S: Final = 10  # seconds of the rate, where a pin says nothing


class Pin(NamedTuple):
    """`messages` and `bytes`: (rate per second, burst), or None to leave the dimension as computed."""

    protocol: str
    topic: str  # name as the log writes it
    messages: tuple[float, int] | None
    bytes: tuple[float, int] | None
    reason: str
    until: str | None  # the last day on which it holds

    def holds_after(self, date: str) -> bool:
        """Whether it holds on the days after `date`."""
        return self.until is None or self.until > date


def list_pinned_rates(pins: Sequence[Pin], date: str, dimension: str) -> dict[tuple[str, str], float]:
    """The rates that pins set after `date`, by topic."""
    found = {}
    for pin in pins:
        pair = pin.messages if dimension == "messages" else pin.bytes
        if pair is not None and pin.holds_after(date):
            found[pin.protocol, pin.topic] = pair[0]
    return found


def describe_pin_conflicts(pins: Sequence[Pin], date: str, parameters: Parameters) -> list[str]:
    """Sentences about pins that hold although all together are above the capacity, or one is above the ceiling."""
    found = []
    for dimension in ("messages", "bytes"):
        rates = list_pinned_rates(pins, date, dimension)
        capacity, ceiling = parameters.capacity(dimension), parameters.ceiling(dimension)
        if capacity and sum(rates.values()) >= capacity:
            found.append(describe_over_capacity(dimension, sum(rates.values()), capacity))
        if ceiling:
            found += [
                f"{protocol} topic {topic} is pinned at {rate:g} {dimension}/s, above the ceiling of {ceiling}: the pin holds"
                for (protocol, topic), rate in sorted(rates.items())
                if rate > ceiling
            ]
    return found


def describe_over_capacity(dimension: str, pinned: float, capacity: float) -> str:
    """A sentence about pins that leave nothing of the capacity."""
    return (
        f"the pins alone are {pinned:g} {dimension}/s, and the capacity is {capacity:g}: they stay, and every other topic gets its least "
        "quota; lower the pins, or raise the capacity"
    )


def read_pins(data: bytes) -> list[Pin]:
    """The pins of a YAML file. Raises ValueError with the place and the way out."""
    import yaml

    if len(data) > MAX_PINS_BYTES:
        raise ValueError(f"--pins: {len(data)} bytes, more than the {MAX_PINS_BYTES} that a file of pins may have")
    try:
        document = yaml.safe_load(data)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(f"--pins: not YAML: {str(error).splitlines()[0]}") from None
    if document is None:
        return []
    entries = document.get("pins") if isinstance(document, dict) and set(document) <= {"pins"} else None
    if entries is None and document != {"pins": None}:
        raise ValueError("--pins: write a list under the one key pins:")
    if not isinstance(entries or [], list):
        raise ValueError("--pins: pins: must be a list")
    found = [_read_pin(entry, f"--pins: pins[{at}]") for at, entry in enumerate(entries or [])]
    seen = set()
    for each in found:
        if (each.protocol, each.topic) in seen:
            raise ValueError(f"--pins: {each.protocol} topic {each.topic!r} is pinned twice; keep one")
        seen.add((each.protocol, each.topic))
    return found


def _read_pin(entry: object, place: str) -> Pin:
    if not isinstance(entry, dict):
        raise ValueError(f"{place} must be a mapping, like {{protocol: rocketmq, topic: orders, messages: 500/s}}")
    for name in entry:
        if name not in FIELDS:
            raise ValueError(f"{place}.{name} is unknown; known: {', '.join(FIELDS)}")
    protocol, topic = entry.get("protocol"), entry.get("topic")
    if protocol not in PROTOCOL_NAMES:
        raise ValueError(f"{place}.protocol: {protocol!r} is unknown; known: {', '.join(PROTOCOL_NAMES)}")
    if not isinstance(topic, str) or not topic:
        raise ValueError(f"{place}.topic: {topic!r} must be a text that is not empty")
    try:
        topic = parse_topic(protocol, topic).text()  # however it was written: one topic, one quota
    except ValueError as error:
        raise ValueError(f"{place}.topic: {error}") from None
    messages = _read_limit(entry, "messages", "burst", place, least=3)
    octets = _read_limit(entry, "bytes", "byte_burst", place, least=1)
    if messages is None and octets is None:
        raise ValueError(f"{place} pins nothing; give messages or bytes")
    until = entry.get("until")
    if until is not None and not isinstance(until, calendar_date):
        raise ValueError(f"{place}.until: {until!r} is not a day like 2026-12-31")
    return Pin(protocol, topic, messages, octets, str(entry.get("reason") or "pinned"), until.isoformat()[:10] if until else None)


def _read_limit(entry: dict[str, Any], name: str, burst_name: str, place: str, *, least: int) -> tuple[float, int] | None:
    if entry.get(name) is None:
        if entry.get(burst_name) is not None:
            raise ValueError(f"{place}.{burst_name} is given without {name}")
        return None
    rate = _parse_amount(entry[name], f"{place}.{name}", per=True)
    given = entry.get(burst_name)
    burst = max(math.ceil(rate * BURST_S), least) if given is None else math.ceil(_parse_amount(given, f"{place}.{burst_name}", per=False))
    if rate > 0 and burst < 1:
        raise ValueError(f"{place}.{burst_name}: {given!r} is below 1")
    return rate, burst


def _parse_amount(value: object, place: str, *, per: bool) -> float:
    text = str(value)
    found = re.fullmatch(rf"{_AMOUNT}\s*/\s*(s|min|h)" if per else _AMOUNT, text.strip())
    if isinstance(value, bool) or found is None or found[2] not in _UNITS:
        shape = "a rate like 500/s, 3/min or 5MiB/s" if per else "a number like 900 or 20MiB"
        raise ValueError(f"{place}: {text!r} is not {shape}")
    return float(found[1]) * _UNITS[found[2]] / (_PER[found[3]] if per else 1)
