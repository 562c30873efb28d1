"""A backtest from its options to its result: which days, which contenders on each, exact or quick."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from spark_jobs.backtest.contender import Contender, make_contender
from spark_jobs.backtest.nights import ORACLE, PUBLISHED, YESTERDAY_MAX, make_quotas, read_published
from spark_jobs.backtest.quick import StateDay, judge_quickly
from spark_jobs.backtest.reserve import add_reserve
from spark_jobs.backtest.result import Backtest, Outcome, sum_outcomes
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
RAISED: Final = "+raise"  # suffix of a contender whose quotas are raised within the day
QUICK: Final = "quick"
EXACT: Final = "exact"


@dataclass(frozen=True)
class Task:
    """The task: the days from `first` to `last`, both included.

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
        self._notes: dict[str, None] = {}  # notes, in the order they were made
        self._tables: dict[str, list[Row]] = {}  # rows of two days at most, by date

    def run(self) -> Backtest:
        """Play the days. Raises InsufficientInputError where none could be played."""
        task = self.task
        found = sum_outcomes(QUICK if task.quick else EXACT, task.first.date, task.last.date, self._play_days())
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

    def _play_days(self) -> Iterator[tuple[str, list[Outcome]]]:
        for day in self.task.days():
            try:
                contenders = self._make_contenders(day)
                played = self._judge_quickly(day, contenders) if self.task.quick else self._replay_log(day, contenders)
            except InsufficientInputError as error:
                self._note(f"{day.date} is left out: {error}")
                continue
            yield day.date, played

    # ---- contenders ------------------------------------------------------------------------------------------------

    def _make_contenders(self, day: Day) -> list[Contender]:
        quotas = {} if self.state is None else self._read_past_quotas(self.state, day)
        if self.task.rules is not None:
            quotas[LIMITS] = ()
        quotas |= {name: snapshot.quotas for name, snapshot in self.task.candidates.items()}
        if not quotas:
            raise InsufficientInputError("there is nothing to try: no night before it, and no state")
        found: list[Contender] = []
        for name, each in quotas.items():
            made, notes = make_contender(name, self.task.rules or (), each)
            found.append(made)
            if self.task.raised and any(quota.hourly_messages or quota.hourly_bytes for quota in each):
                found.append(replace(made, name=f"{name}{RAISED}", most=self.task.raised))
            for text in notes:
                self._note(text)
        return found

    def _read_past_quotas(self, state: DayStates, day: Day) -> dict[str, Sequence[Quota]]:
        """The published quotas, and those that a person might have taken from the states."""
        found: dict[str, Sequence[Quota]] = {}
        night = read_published(state, day.date)
        if night is not None:
            found[PUBLISHED] = night.quotas
        yesterday, today = day.before(1).date, day.date
        for name, date, column in ((YESTERDAY_MAX, yesterday, "max"), (ORACLE, today, "need")):
            rows = self._read_topics(state, date)
            if rows is not None:
                found[name] = make_quotas([row.asDict() for row in rows], column)
        self._tables = {date: rows for date, rows in self._tables.items() if date == today}
        return found

    def _read_topics(self, state: DayStates, date: str) -> list[Row] | None:
        """The table `topics` of a day; None where it is not remembered."""
        if date not in self._tables:
            manifest = state.read_manifest(date)
            if manifest is None:
                return None
            if manifest.zone != self.task.first.zone:
                raise InsufficientInputError(f"the state's days are of {manifest.zone}; add --time-zone {manifest.zone}")
            self._tables[date] = self.spark.read.parquet(state.data(manifest).child("topics").glob).collect()
        return self._tables[date]

    # ---- playing a day ---------------------------------------------------------------------------------------------

    def _judge_quickly(self, day: Day, contenders: list[Contender]) -> list[Outcome]:
        assert self.state is not None
        manifest = self.state.read_manifest(day.date)
        rows = self._read_topics(self.state, day.date)
        if rows is None or manifest is None:
            raise InsufficientInputError(f"no state of {day.date} under {self.state.root.shown}; compute the day, or leave out --quick")
        table = StateDay([row.asDict() for row in rows])
        found: list[Outcome] = []
        for each in contenders:
            outcomes, notes = judge_quickly(table, each)
            found += add_reserve(each, outcomes, manifest.observed_seconds)
            for text in notes:
                self._note(text)
        return found

    def _replay_log(self, day: Day, contenders: list[Contender]) -> list[Outcome]:
        from spark_jobs.backtest.distribution import replay_day
        from spark_jobs.backtest.lines import read_day_lines

        assert self.task.log is not None
        began = time.monotonic()
        with read_day_lines(self.spark, self.task.log, storage_for(self.task.log, self.spark), day) as read:
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
