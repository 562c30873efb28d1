"""A backtest from its options to its result: which days, which contenders on each, exact or quick."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from spark_jobs.backtest.contender import Contender, contender
from spark_jobs.backtest.nights import ORACLE, PUBLISHED, YESTERDAY_MAX, published, quotas_from
from spark_jobs.backtest.quick import StateDay, quick_day
from spark_jobs.backtest.reserve import add_reserve
from spark_jobs.backtest.result import Backtest, Outcome, summed
from spark_jobs.days import Day
from spark_jobs.errors import InsufficientInputError
from spark_jobs.state.state import DayStates
from spark_jobs.storage.choice import storage_for

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from limiter.quota_snapshot import Quota, Snapshot
    from limiter.rules.rule import Rule
    from spark_jobs.storage.location import Location

LIMITS: Final = "limits"  # the rules of --limits without any quota
RAISED: Final = "+raise"  # behind the name of a contender whose quotas are raised within the day
QUICK: Final = "quick"
EXACT: Final = "exact"


@dataclass(frozen=True)
class Task:
    """What to try: the days from `first` to `last`, both included.

    `candidates` are snapshots by name. `rules` hold beneath all quotas, as in a gateway; None: quotas alone. Raises ValueError.
    """

    first: Day
    last: Day
    log: Location | None
    state: Location | None
    candidates: dict[str, Snapshot] = field(default_factory=dict)
    rules: tuple[Rule, ...] | None = None
    quick: bool = False
    raised: float = 0.0  # quotas compete once more, raised within the day to so many times their rates at most; 0: they do not

    def __post_init__(self) -> None:
        if self.last.start < self.first.start:
            raise ValueError(f"--to: {self.last.date} is before --from {self.first.date}")
        if self.quick and self.state is None:
            raise ValueError("--quick answers from the daily states; give --state")
        if self.quick and self.raised:
            raise ValueError("--quick knows one rate a day: leave it out, or --raised")
        if not self.quick and self.log is None:
            raise ValueError("the exact answer is replayed from the log; give --log, or --quick with --state")
        if self.state is None and self.rules is None and not self.candidates:
            raise ValueError("nothing to try: give --quotas or --limits, or --state for what was published")

    def days(self) -> list[Day]:
        found = [self.first]
        while found[-1].date != self.last.date:
            found.append(found[-1].before(-1))
        return found


class Runner:
    """One run: reads states and logs, plays the days one after the other."""

    def __init__(self, spark: SparkSession, task: Task) -> None:
        self.spark = spark
        self.task = task
        self.state = None if task.state is None else DayStates(task.state, storage_for(task.state, spark))
        self.lines = 0
        self._notes: dict[str, None] = {}  # in the order they were made
        self._tables: dict[str, list[Row]] = {}  # of two days at most

    def run(self) -> Backtest:
        """Raises InsufficientInputError where no day could be played."""
        task = self.task
        found = summed(QUICK if task.quick else EXACT, task.first.date, task.last.date, self._days())
        if not found.days:
            raise InsufficientInputError("; ".join(self._notes))
        played = Counter({name: total.days for name, total in found.totals.items()})
        for name, days in played.items():
            if days < len(found.days):
                self._note(f"{name}: {days} of {len(found.days)} days only; its total is no match for the others'")
        found.notes = list(self._notes)
        found.lines = self.lines
        return found

    def _note(self, text: str) -> None:
        self._notes[text] = None

    def _days(self) -> Iterator[tuple[str, list[Outcome]]]:
        for day in self.task.days():
            try:
                contenders = self._contenders(day)
                played = self._quick(day, contenders) if self.task.quick else self._exact(day, contenders)
            except InsufficientInputError as error:
                self._note(f"{day.date} is left out: {error}")
                continue
            yield day.date, played

    # ---- who competes ----------------------------------------------------------------------------------------------

    def _contenders(self, day: Day) -> list[Contender]:
        quotas = {} if self.state is None else self._past(self.state, day)
        if self.task.rules is not None:
            quotas[LIMITS] = ()
        quotas |= {name: snapshot.quotas for name, snapshot in self.task.candidates.items()}
        if not quotas:
            raise InsufficientInputError("there is nothing to try: no night before it, and no state")
        found: list[Contender] = []
        for name, each in quotas.items():
            made, notes = contender(name, self.task.rules or (), each)
            found.append(made)
            if self.task.raised and any(quota.hourly_messages or quota.hourly_bytes for quota in each):
                found.append(replace(made, name=f"{name}{RAISED}", most=self.task.raised))
            for text in notes:
                self._note(text)
        return found

    def _past(self, state: DayStates, day: Day) -> dict[str, Sequence[Quota]]:
        """What was published, and what the states say a person might have."""
        found: dict[str, Sequence[Quota]] = {}
        night = published(state, day.date)
        if night is not None:
            found[PUBLISHED] = night.quotas
        yesterday, today = day.before(1).date, day.date
        for name, date, column in ((YESTERDAY_MAX, yesterday, "max"), (ORACLE, today, "need")):
            rows = self._table(state, date)
            if rows is not None:
                found[name] = quotas_from([row.asDict() for row in rows], column)
        self._tables = {date: rows for date, rows in self._tables.items() if date == today}
        return found

    def _table(self, state: DayStates, date: str) -> list[Row] | None:
        """The table `topics` of a day; None where it is not remembered."""
        if date not in self._tables:
            manifest = state.manifest(date)
            if manifest is None:
                return None
            if manifest.zone != self.task.first.zone:
                raise InsufficientInputError(f"the state's days are of {manifest.zone}; add --time-zone {manifest.zone}")
            self._tables[date] = self.spark.read.parquet(state.data(manifest).child("topics").glob).collect()
        return self._tables[date]

    # ---- how a day is played ---------------------------------------------------------------------------------------

    def _quick(self, day: Day, contenders: list[Contender]) -> list[Outcome]:
        assert self.state is not None
        manifest = self.state.manifest(day.date)
        rows = self._table(self.state, day.date)
        if rows is None or manifest is None:
            raise InsufficientInputError(f"no state of {day.date} under {self.state.root.shown}; compute the day, or leave out --quick")
        table = StateDay([row.asDict() for row in rows])
        found: list[Outcome] = []
        for each in contenders:
            outcomes, notes = quick_day(table, each)
            found += add_reserve(each, outcomes, manifest.observed_seconds)
            for text in notes:
                self._note(text)
        return found

    def _exact(self, day: Day, contenders: list[Contender]) -> list[Outcome]:
        from spark_jobs.backtest.distribution import replay_day
        from spark_jobs.backtest.lines import lines_of

        assert self.task.log is not None
        began = time.monotonic()
        with lines_of(self.spark, self.task.log, storage_for(self.task.log, self.spark), day) as read:
            outcomes, lines, notes = replay_day(read.lines, contenders, read.observed_seconds)
        if not lines:
            raise InsufficientInputError("the log has no line of a published message")
        if read.corrupt:
            self._note(f"{day.date}: {read.corrupt} corrupt lines are left out")
        for text in notes:
            self._note(text)
        self.lines += lines
        took = time.monotonic() - began
        print(f"{day.date}: {lines} lines replayed for {len(contenders)} contenders in {took:.0f} s", file=sys.stderr)
        found: list[Outcome] = []
        for each in contenders:
            found += add_reserve(each, [one for one in outcomes if one.contender == each.name], read.observed_seconds)
        return found
