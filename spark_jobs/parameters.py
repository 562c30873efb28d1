"""Parameters of the nightly job: whole numbers with their unit in the name, so that a snapshot can state them exactly."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

WEIGHTINGS: Final = ("load", "seconds")


def _parameter(default: Any, text: str, *, least: int = 0) -> Any:
    return field(default=default, metadata={"help": text, "least": least})


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a run. The defaults of 1 and 5 in docs/design/quotas.md; where that says "suggestion" they are guesses until tuned
    on your own days."""

    remember_days: int = _parameter(28, "days that count, the computed one included", least=1)
    half_life_days: int = _parameter(7, "a day this old weighs half", least=1)
    percentile_permille: int = _parameter(990, "which percentile of a class of hours the formula takes", least=1)
    weighting: str = _parameter(
        "load", "percentile of what: load (share of messages or bytes) or seconds (share of observed seconds, idle ones too)"
    )
    storm_percent: int = _parameter(
        100, "refused demand counts, in a second, for at most this share of the day's busiest second that passed"
    )
    margin_percent: int = _parameter(15, "added to the percentile")
    burst_permille: int = _parameter(900, "which quantile of the days' bursts", least=1)
    burst_seconds: int = _parameter(10, "a burst is at most so many seconds of the rate (or the largest message)", least=1)
    floor_messages: int = _parameter(10, "no quota is below this rate, messages/s", least=1)
    floor_bytes: int = _parameter(65536, "no quota is below this rate, bytes/s", least=1)
    ceiling_messages: int = _parameter(0, "no quota is above this rate, messages/s; 0: no ceiling")
    ceiling_bytes: int = _parameter(0, "no quota is above this rate, bytes/s; 0: no ceiling")
    step_up_percent: int = _parameter(200, "a quota grows in one night to at most this share of the previous one", least=100)
    step_down_percent: int = _parameter(80, "a quota shrinks in one night to no less than this share of the previous one", least=1)
    hysteresis_percent: int = _parameter(5, "a smaller change than this is not made")
    backtest_days: int = _parameter(1, "replayed days a rule needs before it may be chosen over the simple one", least=1)
    reserve_price_ppm: int = _parameter(1000, "backtest: refusals that reserving one million more messages (or bytes) is worth")
    corrupt_ppm: int = _parameter(1000, "more corrupt lines than this share: nothing is computed")
    corrupt_least: int = _parameter(10, "this many corrupt lines are tolerated, whatever their share")
    row_share_percent: int = _parameter(50, "fewer lines than this share of a week ago: nothing is computed; 0: never mind")

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "weighting":
                if value not in WEIGHTINGS:
                    raise ValueError(f"weighting: {value!r} is not one of {', '.join(WEIGHTINGS)}")
            elif type(value) is not int:
                raise ValueError(f"{each.name}: {value!r} is not a whole number")
            elif value < each.metadata["least"]:
                raise ValueError(f"{each.name}: {value} is below {each.metadata['least']}")
        for name in ("percentile_permille", "burst_permille"):
            if getattr(self, name) > 1000:
                raise ValueError(f"{name}: {getattr(self, name)} is above 1000")
        if self.step_down_percent > 100:
            raise ValueError(f"step_down_percent: {self.step_down_percent} is above 100")
        for dimension in ("messages", "bytes"):
            if 0 < self.ceiling(dimension) < self.floor(dimension):
                raise ValueError(f"ceiling_{dimension}: {self.ceiling(dimension)} is below floor_{dimension} ({self.floor(dimension)})")

    @classmethod
    def of(cls, options: Mapping[str, object]) -> Parameters:
        """From options by name; None means the default, numbers may be text. Raises ValueError that names the parameter."""
        known = {each.name for each in fields(cls)}
        given: dict[str, Any] = {}
        for name, value in options.items():
            if name not in known:
                raise ValueError(f"{name}: no such parameter; known: {', '.join(sorted(known))}")
            if value is None:
                continue
            if name != "weighting" and isinstance(value, str):
                try:
                    value = int(value)  # noqa: PLW2901 - the number the text stands for
                except ValueError:
                    raise ValueError(f"{name}: {value!r} is not a whole number") from None
            given[name] = value
        return cls(**given)

    def floor(self, dimension: str) -> int:
        return self.floor_messages if dimension == "messages" else self.floor_bytes

    def ceiling(self, dimension: str) -> int:
        """0: none."""
        return self.ceiling_messages if dimension == "messages" else self.ceiling_bytes

    def as_dict(self) -> dict[str, int | str]:
        return asdict(self)

    def fingerprint(self) -> str:
        """Names what the rules computed with: quotas tried under other parameters are no evidence for these."""
        used = (
            "remember_days",
            "half_life_days",
            "percentile_permille",
            "weighting",
            "storm_percent",
            "margin_percent",
            "burst_permille",
            "burst_seconds",
        )
        return hashlib.sha256(json.dumps({name: getattr(self, name) for name in used}, sort_keys=True).encode()).hexdigest()[:16]
