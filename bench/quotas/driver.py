"""How much memory the driver's part of a night takes: remembered days of many topics, read from a state on disk, and the snapshot written.

    python -m quotas.driver [--topics N] [--days N]

Topics are copies of TEMPLATES small ones: what they send is the same from template to template, only names differ. Nothing of Spark runs.
"""

from __future__ import annotations

import argparse
import hashlib
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from limiter.quota_snapshot import dump_pieces
from spark_jobs.compute import NightInputs, compute_from_states
from spark_jobs.days import Day
from spark_jobs.parameters import Parameters
from spark_jobs.schemas import OUTCOMES as OUTCOMES_SCHEMA
from spark_jobs.schemas import TOPICS as TOPICS_SCHEMA
from spark_jobs.state.manifest import Manifest
from spark_jobs.state.state import DayStates
from spark_jobs.state.tables import write_arrow
from spark_jobs.state.topic_day import TopicSeconds, make_topic_rows
from spark_jobs.storage.local import LocalStorage
from spark_jobs.storage.location import Location

TEMPLATES: Final = 64  # different topics; the others are copies
SECONDS: Final = 1200  # of a day in which a topic sends
LAST: Final = "2026-11-20"


def template_day(day: Day, seed: int) -> pa.Table:
    """Rows of `TOPICS` of TEMPLATES topics on one day."""
    random = np.random.default_rng(seed)
    found = []
    for at in range(TEMPLATES):
        level = 10 ** (at / TEMPLATES * 3 - 1)
        tick = np.sort(random.choice(86_400, SECONDS, replace=False)).astype(np.int64)
        sent = random.poisson(level * random.lognormal(0, 0.5, SECONDS)).astype(np.int64) + 1
        none = np.zeros(SECONDS, np.int64)
        gateways = tuple((f"gateway-{n}", int(sent.sum()) // 25, int(sent.sum()) * 8) for n in range(25))
        found.append(TopicSeconds(
            "rocketmq", f"template-{at:02}", day.start + tick, tick, sent, none, none, none, sent * 200, none, sent // 10 + 1,
            np.full(SECONDS, 200), gateways,
        ))  # fmt: skip
    return make_topic_rows(found, day, 86_400)


def copied(template: pa.Table, topics: int) -> pa.Table:
    """The rows as those of so many topics."""
    copies = -(-topics // TEMPLATES)
    names = [f"orders-{copy:05}-{row}" for copy in range(copies) for row in template["topic"].to_pylist()]
    found = pa.concat_tables([template] * copies)
    return found.set_column(found.schema.get_field_index("topic"), "topic", pa.array(names)).slice(0, 2 * topics)


def write_state(state: DayStates, topics: int, days: int, last: str) -> None:
    """States of `days` days up to `last`, without outcomes."""
    dates = [Day(last).before(ago) for ago in reversed(range(days))]
    kinds = [template_day(day, seed) for seed, day in enumerate(dates[:7])]
    for at, day in enumerate(dates):
        staged = state.stage(day.date)
        table = copied(kinds[at % 7], topics)
        table = table.set_column(0, "day", pa.repeat(day.date, len(table)))
        for name in (["losses"] if at < days - 1 else []) + (["gateways"] if at < days - 7 else []):  # nobody reads them
            table = table.set_column(table.schema.get_field_index(name), name, pa.nulls(len(table), table.schema.field(name).type))
        write_arrow(None, table, "topics", TOPICS_SCHEMA, staged)
        counts: dict[str, Any] = dict.fromkeys(("rows", "corrupt", "stray", "duplicates", "missing_lines"), 0)
        gateways = {f"gateway-{n}": {"seconds": 86_400, "first": day.start, "last": day.end - 1, "boots": 1, "lines": 1} for n in range(25)}
        manifest = Manifest(
            date=day.date, data=staged.name, code="bench", fingerprint="", observed_seconds=86_400, start=day.start, end=day.end,
            gateways=gateways, **counts,
        )  # fmt: skip
        state.publish(manifest)


def job_of(state: DayStates, date: str) -> NightInputs:
    return NightInputs(state.root, state.storage, state, date, Parameters(), None, "2026-11-21T01:00:00Z", "bench")


def with_outcomes(state: DayStates, topics: int) -> None:
    """Give each day but the last the outcomes that a night would have left there: those of the last day, by another date."""
    dates = state.list_dates()
    small = DayStates(state.root.child("small"), state.storage)
    write_state(small, TEMPLATES, 10, last=dates[-1])
    manifest = small.read_manifest(dates[-1])
    assert manifest is not None
    night = compute_from_states(None, job_of(small, dates[-1]), manifest, None)
    found = night.outcomes
    names = {name: at for at, name in enumerate(sorted(set(found["topic"].to_pylist())))}
    copies = -(-topics // TEMPLATES)
    topic = pa.array([f"orders-{copy:05}-template-{names[name]:02}" for copy in range(copies) for name in found["topic"].to_pylist()])
    whole = pa.concat_tables([found] * copies).set_column(found.schema.get_field_index("topic"), "topic", topic)
    for date in dates[-29:-1]:
        day = state.read_manifest(date)
        assert day is not None
        write_arrow(None, whole.set_column(0, "day", pa.repeat(date, len(whole))), "outcomes", OUTCOMES_SCHEMA, state.data(day))
        state.publish(replace(day, fleet=night.fleet))


def measured(state: DayStates) -> None:
    date = state.list_dates()[-1]
    manifest = state.read_manifest(date)
    assert manifest is not None
    began = time.process_time()
    result = compute_from_states(None, job_of(state, date), manifest, None)
    print(f"computed: {peak_mb():.0f} MB, {time.process_time() - began:.1f} CPU-s", file=sys.stderr)
    buffer, frame, quotas = BytesIO(), result.frame, result.quotas
    del result
    count = sum(1 for part in dump_pieces(frame, quotas) if buffer.write(part)) - 2  # without what stands before and after
    data = buffer.getvalue()
    took = f"{peak_mb():.0f} MB, {time.process_time() - began:.1f} CPU-s"
    print(f"written: {took}, {count} quotas in {len(data) / 1e6:.1f} MB", file=sys.stderr)
    print(hashlib.sha256(data).hexdigest())


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Memory of a night's driver, by topics.", allow_abbrev=False)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--days", type=int, default=60)
    parser.add_argument("--state", type=Path, help="a folder that keeps the states; one that is there already is read again")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="sluice-bench-", dir="/var/tmp") as folder:
        place = options.state or Path(folder)
        state = DayStates(Location.of("state", place), LocalStorage())
        if not state.list_dates():
            write_state(state, options.topics, options.days, LAST)
            with_outcomes(state, options.topics)
            if options.state:
                return 0
        measured(state)
    return 0


if __name__ == "__main__":
    sys.exit(main())
