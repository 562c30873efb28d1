"""The benchmark of the nightly job's volume: one generated day, by the job's Spark and by DuckDB, side by side on this machine.

    python -m quotas.run [--lines N ...] [--topics N] [--heap SIZE] [--packed] [--keep FOLDER]

What counts is the processor time of all processes: Python's, Java's, and those that Spark starts. DuckDB is the yardstick because it is
the cheapest known way on one machine; the ratio is to stay at most BOUND. Sizes run one after the other in one go, so that 1, 4 and 16
times as many lines show whether cost is linear. Both must find the same lines, topics and messages. Before them come small nights by
the whole command, which needs no Java for them.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from kept import commit

from quotas.generate import write_files, write_log
from quotas.tree import Took, run

BOUND: Final = 6.0  # times DuckDB's processor time, at most, on the largest size
DATE: Final = "2026-11-20"
LINES: Final = (1_250_000, 5_000_000, 20_000_000)  # 1, 4 and 16 times
SMALL: Final[dict[str, tuple[Callable[[Path], int], float]]] = {  # what writes the log, and the goal in CPU-s
    "64 MB": (lambda log: write_log(log, DATE, 336_000), 10.0),
    "1.25 M lines": (lambda log: write_log(log, DATE, 1_250_000), 45.0),
    "20,160 files of two lines": (lambda log: write_files(log, DATE), 10.0),
}
ENGINES: Final = ("duckdb", "spark")
RESULTS: Final = Path(__file__).resolve().parents[1] / "results"


def measured(lines: int, topics: int, heap: str, folder: Path, *, packed: bool) -> dict[str, Any]:
    """One size: both engines, one after the other, on the same log."""
    log = folder / f"log-{lines}"
    written = write_log(log, DATE, lines, topics, packed=packed)
    size = sum(path.stat().st_size for path in log.rglob("*.jsonl*"))
    print(f"{written:,} lines, {topics:,} topics, {size / 1e9:.2f} GB of files", file=sys.stderr)
    row: dict[str, Any] = {"lines": written, "topics": topics, "bytes": size}
    said = {}
    for engine in ENGINES:
        output = folder / f"{engine}-{lines}"
        took = run([sys.executable, "-m", f"quotas.by_{engine}", str(log), str(output), DATE, heap])
        said[engine] = json.loads(took.output.splitlines()[-1])
        row[engine] = _figures(took, written)
        shutil.rmtree(output)
        print(f"  {engine:7} {took.cpu_s:8.1f} CPU-s  {took.wall_s:7.1f} s  {took.peak_bytes / 1e9:5.2f} GB", file=sys.stderr)
    shutil.rmtree(log)
    assert said["spark"] == said["duckdb"], f"they do not agree: {said}"
    row["ratio"] = round(row["spark"]["cpu_s"] / row["duckdb"]["cpu_s"], 2)
    return row


def small_night(name: str, folder: Path) -> dict[str, Any]:
    """A first night by the command itself, which gives every topic a quota."""
    log, state = folder / "small", folder / "state"
    written = SMALL[name][0](log)
    sizes = [path.stat().st_size for path in log.rglob("*.jsonl")]
    words = ["--log", str(log), "--date", DATE, "--state", str(state), "-o", str(folder / "quotas.json"), "--set", "min_active_days=1"]
    took = run([sys.executable, "-m", "cli.main", "quotas", "compute", *words], {"PATH": "", "JAVA_HOME": ""})  # no Java is found
    shutil.rmtree(log)
    shutil.rmtree(state)
    print(f"{name}, {written:,} lines: {took.cpu_s:.1f} CPU-s for the whole command, {took.wall_s:.1f} s", file=sys.stderr)
    return {"night": name, "lines": written, "bytes": sum(sizes), "files": len(sizes), **_figures(took, written)}


def _figures(took: Took, lines: int) -> dict[str, float]:
    return {
        "cpu_s": round(took.cpu_s, 1), "wall_s": round(took.wall_s, 1), "peak_gb": round(took.peak_bytes / 1e9, 2),
        "us_per_line": round(took.cpu_s / lines * 1e6, 2),
    }  # fmt: skip


def table(rows: Sequence[dict[str, Any]]) -> str:
    """As Markdown."""
    lines = [
        "| lines | topics | DuckDB, CPU-s | Spark, CPU-s | µs a line | of it beyond the size before | ratio | Spark's memory | wall |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    before: dict[str, Any] | None = None
    for row in rows:
        spark = row["spark"]
        beyond = ""
        if before is not None and row["lines"] > before["lines"]:
            beyond = f"{(spark['cpu_s'] - before['spark']['cpu_s']) / (row['lines'] - before['lines']) * 1e6:.1f}"
        lines.append(
            f"| {row['lines']:,} | {row['topics']:,} | {row['duckdb']['cpu_s']} | {spark['cpu_s']} | {spark['us_per_line']:.1f} | {beyond} "
            f"| {row['ratio']:.1f} | {spark['peak_gb']} GB | {spark['wall_s']:.0f} s |"
        )
        before = row
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Spark beside DuckDB over one day of access log.", allow_abbrev=False)
    parser.add_argument("--lines", type=int, nargs="+", default=list(LINES))
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--heap", default="4g", help="Java's heap, and DuckDB's memory limit; '' leaves both to themselves")
    parser.add_argument("--packed", action="store_true", help="write the log with gzip")
    parser.add_argument("--keep", type=Path, help="write the result into this file instead of bench/results")
    options = parser.parse_args(argv)
    at = datetime.now(UTC)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="sluice-bench-", dir=os.environ.get("TMPDIR", "/var/tmp")) as folder:
        small = [small_night(name, Path(folder)) for name in SMALL]
        rows = [measured(lines, options.topics, options.heap, Path(folder), packed=options.packed) for lines in options.lines]
    versions = {name: importlib.metadata.version(name) for name in ("pyspark", "duckdb", "pyarrow", "numpy")}
    facts = {"at": at.isoformat(timespec="seconds"), "commit": commit()}
    machine = {"processors": os.cpu_count(), "load_before": load, "python": platform.python_version(), **versions}
    kept = options.keep or RESULTS / f"quotas-{at:%Y%m%dT%H%M%SZ}.json"
    found = {**facts, "machine": machine, "heap": options.heap, "packed": options.packed, "small": small, "rows": rows}
    kept.write_text(json.dumps(found, indent=1) + "\n")
    print(table(rows))
    print(f"written: {kept}", file=sys.stderr)
    faults = missed(rows, small)
    for sentence in faults:
        print(sentence, file=sys.stderr)
    return 1 if faults else 0


def missed(rows: Sequence[dict[str, Any]], small: Sequence[dict[str, Any]]) -> list[str]:
    """What is worse than its bound or goal, as sentences."""
    found = []
    if rows[-1]["ratio"] > BOUND:
        found.append(f"Spark took {rows[-1]['ratio']} times DuckDB's processor time, more than {BOUND}")
    goals = [(each["night"], each["cpu_s"], SMALL[each["night"]][1]) for each in small]
    return found + [f"{night}: compute took {cpu_s} CPU-s; the goal is under {goal:g}" for night, cpu_s, goal in goals if cpu_s >= goal]


if __name__ == "__main__":
    began = time.monotonic()
    code = main()
    print(f"{time.monotonic() - began:.0f} s in all", file=sys.stderr)
    sys.exit(code)
