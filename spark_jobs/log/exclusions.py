"""Exclusions: incidents, times of topics that teach nothing (`--exclude FROM/TO:TOPIC`)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import functions as F  # noqa: N812

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

    from spark_jobs.days import Day

EXAMPLE: Final = "2026-11-20T10:00:00Z/2026-11-20T10:30:00Z:orders*"
_FORM: Final = re.compile(r"([^/]+)/(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)):(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Exclusion:
    """The seconds from `start` to `end` (epoch s, end exclusive) of the topics whose name `topic` matches, as a glob."""

    start: int
    end: int
    topic: str
    text: str  # the option's value, as given

    @staticmethod
    def of(text: str) -> Exclusion:
        """The exclusion of an option's value. Raises ValueError with the way out."""
        found = _FORM.fullmatch(text)
        if found is None:
            raise ValueError(f"--exclude: {text!r} is not FROM/TO:TOPIC; write for instance {EXAMPLE}")
        start, end = (_moment(text, moment) for moment in found.groups()[:2])
        if end <= start:
            raise ValueError(f"--exclude: {text!r}: it ends before it begins")
        return Exclusion(start, end, found[3], text)

    @property
    def pattern(self) -> str:
        """A regular expression, Python's and Java's, that fits the whole name."""
        return f"^(?s:{_glob_to_regex(self.topic)})$"

    def matches(self, topic: str) -> bool:
        return topic == self.topic or re.match(self.pattern, topic) is not None

    def rows(self) -> Column:
        """Which rows of `parse.ROW` it leaves out."""
        named = (F.col("topic") == self.topic) | F.col("topic").rlike(self.pattern)
        return F.col("ts").between(self.start, self.end - 1) & named


def _glob_to_regex(glob: str) -> str:
    """`*` and `?` are wild, all else is itself."""
    return "".join({"*": ".*", "?": "."}.get(letter, re.escape(letter)) for letter in glob)


def _moment(text: str, moment: str) -> int:
    try:
        found = datetime.fromisoformat(moment)
        if found.tzinfo is None:
            raise ValueError
    except ValueError:
        raise ValueError(f"--exclude: {text!r}: {moment!r} is no moment with a time zone; write for instance {EXAMPLE}") from None
    return int(found.timestamp())


def count_excluded_seconds(exclusions: Sequence[Exclusion], topic: str, observed: NDArray[np.bool_], day: Day) -> int:
    """How many observed seconds of `topic` are left out."""
    flags = np.zeros(day.seconds, dtype=np.bool_)
    for each in exclusions:
        if each.matches(topic):
            flags[max(each.start - day.start, 0) : max(each.end - day.start, 0)] = True
    return int((flags & observed).sum())
