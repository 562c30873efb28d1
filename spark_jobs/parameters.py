"""Parameters of the nightly job: whole numbers with their unit in the name, so that a snapshot can state them exactly; and a time zone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from spark_jobs.days import Day

TEXTS: Final = ("time_zone",)  # the others are whole numbers


def _parameter(default: Any, text: str, *, least: int = 0, most: int | None = None) -> Any:
    return field(default=default, metadata={"help": text, "least": least, "most": most})


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a run. docs/design/quotas.md explains them; where it says "guess" a default has not been measured."""

    target_refused_ppm: int = _parameter(
        1000, "so many of a million messages may be refused, over all topics and nights", least=1, most=500_000
    )
    remember_days: int = _parameter(60, "days that count, the computed one included", least=1, most=3660)
    half_life_days: int = _parameter(7, "in the forecast of the level a day this much older weighs half", least=1)
    min_active_days: int = _parameter(3, "a topic seen on fewer days gets no quota: the rule of the file stands", least=1)
    burst_seconds: int = _parameter(
        10, "a burst is so many seconds of the rate (at least 3 messages, or the largest one)", least=1, most=30
    )
    floor_per_minute: int = _parameter(1, "no quota is below so many messages a minute (bytes: so many of the largest messages)", least=1)
    ceiling_messages: int = _parameter(0, "no quota is above this rate, messages/s; 0: no ceiling")
    ceiling_bytes: int = _parameter(0, "no quota is above this rate, bytes/s; 0: no ceiling")
    capacity_messages: int = _parameter(0, "all quotas together are at most this rate, messages/s: shared by weighted max-min; 0: no bound")
    capacity_bytes: int = _parameter(0, "all quotas together are at most this rate, bytes/s; 0: no bound")
    step_up_percent: int = _parameter(200, "a quota grows in one night to at most this share of the live one", least=100)
    step_down_percent: int = _parameter(80, "a quota shrinks in one night to no less than this share of the live one", least=1, most=100)
    hysteresis_percent: int = _parameter(
        15, "a quota stays while it is less than so much below what is wanted, or twice so much above it", most=100
    )
    storm_share_ppm: int = _parameter(
        10_000, "of a day's seconds: refusals in fewer seconds than this are a storm when more is refused than passes; they teach nothing"
    )
    corrupt_ppm: int = _parameter(1000, "more corrupt lines than this share: nothing is computed")
    corrupt_least: int = _parameter(10, "this many corrupt lines are tolerated, whatever their share")
    row_share_percent: int = _parameter(50, "fewer lines than this share of a week ago: nothing is computed; 0: never mind")
    time_zone: str = _parameter("UTC", "whose days and weekdays count, as Europe/Berlin")

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name in TEXTS:
                continue
            if type(value) is not int:
                raise ValueError(f"{each.name}: {value!r} is not a whole number")
            if value < each.metadata["least"]:
                raise ValueError(f"{each.name}: {value} is below {each.metadata['least']}")
            if each.metadata["most"] is not None and value > each.metadata["most"]:
                raise ValueError(f"{each.name}: {value} is above {each.metadata['most']}")
        Day("2026-01-01", self.time_zone)

    @classmethod
    def of(cls, options: Mapping[str, object]) -> Parameters:
        """The parameters of options by name; None means the default, numbers may be text. Raises ValueError that names the parameter."""
        known = {each.name for each in fields(cls)}
        given: dict[str, Any] = {}
        for name, value in options.items():
            if name not in known:
                raise ValueError(f"{name}: no such parameter; known: {', '.join(sorted(known))}")
            if value is None:
                continue
            if name not in TEXTS and isinstance(value, str):
                try:
                    value = int(value)  # noqa: PLW2901 - the number the text stands for
                except ValueError:
                    raise ValueError(f"{name}: {value!r} is not a whole number") from None
            given[name] = value
        return cls(**given)

    @property
    def floor(self) -> float:
        """Messages per second."""
        return self.floor_per_minute / 60

    @property
    def target(self) -> float:
        """The share that may be refused."""
        return self.target_refused_ppm / 1e6

    def ceiling(self, dimension: str) -> int:
        """0: none."""
        return self.ceiling_messages if dimension == "messages" else self.ceiling_bytes

    def capacity(self, dimension: str) -> int:
        """0: none."""
        return self.capacity_messages if dimension == "messages" else self.capacity_bytes

    def as_dict(self) -> dict[str, int | str]:
        return asdict(self)

    def fingerprint(self) -> str:
        """A hash of the parameters that a day's rows are made with, for the day's manifest: people compare it where two days differ.

        Nothing is decided by it. Days of another time zone are left out by their manifest's `zone`; a day that was computed with another
        `storm_share_ppm` is remembered with the others until it is computed again.
        """
        used = ("storm_share_ppm", "time_zone")
        return hashlib.sha256(json.dumps({name: getattr(self, name) for name in used}, sort_keys=True).encode()).hexdigest()[:16]
