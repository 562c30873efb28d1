"""Figures of the pages: what stands between two comments of a page is written from a kept result (`kept.py`).

    PYTHONPATH=.:tests python bench/quoted.py        # part of `make docs`; tests/bench/test_quoted.py holds pages and files together

    <!-- figures: QUERY FILE WORDS -->what is written<!-- /figures -->

QUERY is a name of TABLES, which makes a table with the date and commit of its file below, or of VALUES, which makes one figure in a
line. FILE is a name in bench/results; a query that needs several has them one after the other.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path[0] = str(ROOT / "bench")

from kept import RESULTS  # noqa: E402  -- run as a script from anywhere
from records import BLIND, BUFFERS, LEVELS, NAMES, Bench, Work, loaded  # noqa: E402
from report import markdown_table, middle, number  # noqa: E402
from scale import capacity, figures, growth, run, workers  # noqa: E402

MARK: Final = re.compile(r"(?P<begin><!-- figures: (?P<query>[^>]*?) -->)(?P<text>.*?)(?P<end><!-- /figures -->)", re.DOTALL)
NOTHING: Final = "-"


class QueryError(ValueError):
    """A comment of a page that nothing can be written for."""


def raw(file: str) -> Any:
    return json.loads((RESULTS / file).read_text())


def at(file: str, path: str) -> Any:
    """The value at a path of what was found: `memory.rows.0.1` is the number of the first row of that table."""
    value = raw(file)["found"]
    for step in path.split("."):
        value = value[int(step)] if isinstance(value, list) else value[step]
    return value


# ---- tables ------------------------------------------------------------------------------------------------------------


def rows(file: str, path: str) -> str:
    """A table as the file has it: `columns`, and `rows` of a word and numbers."""
    table = at(file, path)
    cells = [[word, *(NOTHING if each is None else f"{each:,}" for each in numbers)] for word, *numbers in table["rows"]]
    return markdown_table(table["columns"], cells, 1)


def traffic(file: str) -> str:
    """Of works with traffic: processor time through sluice and its peers as multiples of HAProxy's, and sluice's of the cheaper one's."""
    bench = loaded(RESULTS / file)
    peers = ("sluice", LEVELS, "envoy", BUFFERS, "relay")
    lines = []
    for work in bench.works:
        base = [run.cpu_us for run in bench.runs(work.name, "haproxy") if run.cpu_us is not None]
        if not is_traffic(work) or not base:
            continue
        found = {peer: times(bench, work, peer, "haproxy") for peer in peers}
        envoy = found["envoy"]
        bar = "envoy" if envoy and median(envoy) < 1 else "haproxy"
        cells = [NOTHING if not each else middle(each) if peer == "sluice" else number(median(each)) for peer, each in found.items()]
        cheaper = number(median(times(bench, work, "sluice", bar)))
        lines.append([work.name.replace(", traffic", ""), number(median(base)), *cells, f"{cheaper} {NAMES[bar]}'s"])
    columns = ["µs a message, and times that", "HAProxy", *(NAMES[peer] for peer in peers), "sluice by the cheaper"]
    return markdown_table(columns, lines, 1)


def refused(file: str) -> str:
    """Works in which messages are refused: processor time of a message, as a multiple of the same work with all of them passed."""
    bench = loaded(RESULTS / file)
    lines = []
    for work in bench.works:
        passed = next((goal.work for goal in work.goals if goal.of == "sluice" and "refused" in work.name), "")
        if passed:
            pairs = zip(bench.runs(work.name, "sluice"), bench.runs(passed, "sluice"), strict=True)
            lines.append([work.name, middle([ours.cpu_us / theirs.cpu_us for ours, theirs in pairs if ours.cpu_us and theirs.cpu_us])])
    return markdown_table(["processor time of a message", "times that with all passed"], lines, 1)


def is_traffic(work: Work) -> bool:
    return "traffic" in work.name


def times(bench: Bench, work: Work, peer: str, of: str) -> list[float]:
    """Round by round, `peer`'s processor time as a multiple of another's; none where one of them was not measured."""
    pairs = zip(bench.runs(work.name, peer), bench.runs(work.name, of), strict=False)
    return [ours.cpu_us / theirs.cpu_us for ours, theirs in pairs if ours.cpu_us and theirs.cpu_us]


def costs(file: str) -> str:
    """The same of works with one message again and again, in processor microseconds through HAProxy, Envoy and sluice."""
    bench = loaded(RESULTS / file)
    lines = []
    for work in bench.works:
        found = {name: [run.cpu_us for run in bench.runs(work.name, name) if run.cpu_us is not None] for name in (*BLIND, "sluice")}
        if is_traffic(work) or not all(found.values()):
            continue
        bar = min(BLIND, key=lambda name: median(found[name]))
        times = middle([ours / theirs for ours, theirs in zip(found["sluice"], found[bar], strict=True)])
        lines.append([work.name, *(number(median(each)) for each in found.values()), f"{times} {NAMES[bar]}'s"])
    return markdown_table(["µs a message", "HAProxy", "Envoy", "sluice", "sluice by the cheaper"], lines, 1)


def latencies(file: str) -> str:
    """p50 and p99 in microseconds: directly, and through each."""
    bench = loaded(RESULTS / file)
    peers = ("direct", *BLIND, "sluice")
    lines = []
    for work in bench.works:
        found = [bench.runs(work.name, peer) for peer in peers]
        if all(run.p99_us is not None for runs in found for run in runs) and all(found):
            cells = [[median(getattr(run, name) for run in runs) for name in ("p50_us", "p99_us")] for runs in found]
            lines.append([work.name, *(f"{number(p50)}, {number(p99)}" for p50, p99 in cells)])
    return markdown_table(["p50, p99 in µs", *(NAMES[peer] for peer in peers)], lines, 1)


def grown(file: str) -> str:
    """Processor time per message as one number grows tenfold and a hundredfold."""
    lines = []
    for name, places in raw(file)["found"]["growth"].items():
        runs = [[run["cpu_us"] for run in place["runs"]] for place in places]
        points = [f"{place['point'][name]:,}: {number(median(each))} µs" for place, each in zip(places, runs, strict=True)]
        lines.append([growth.DIMENSIONS[name], *points, f"{figures.ratio(runs[-1], runs[0]).said('x')}"])
    return markdown_table(["what grows", "", "", "", "last by first"], lines, 1)


def two_workers(file: str) -> str:
    """Two workers by one: messages, and the processor time of all of them and of each."""
    lines = []
    for name, (one, two) in raw(file)["found"]["runs"].items():
        rates, costs = ([[key(run) for run in runs] for runs in (two, one)] for key in (rate_of, cost_of))
        busy = [[rate_of(run) * cost_of(run) for run in runs] for runs in (two, one)]
        lines.append([workers.NAMES[name], *(figures.ratio(*each).said("x") for each in (rates, busy, costs))])
    return markdown_table(["two workers by one", "messages/s", "processor time", "of each message"], lines, 1)


def rate_of(run: dict[str, float]) -> float:
    return run["messages"] / run["seconds"]


def cost_of(run: dict[str, float]) -> float:
    return run["cpu_us"]


def memory(idle: str, topics: str, file: str) -> str:
    """Resident memory, idle connections' heartbeats, what a million topics add, and the start."""
    sides = [at(idle, protocol) for protocol in ("amqp", "rocketmq")]
    held = (f"{(each['held_resident'] - each['base_resident']) / 1e6:.0f}" for each in sides)
    beats = (f"{100 * (each['processor'] - each['processor_empty']):.1f}" for each in sides)
    seen = raw(topics)["found"]
    lines = [
        ["resident without clients, MB", f"{sides[0]['base_resident'] / 1e6:.0f}"],
        [f"{sides[0]['connections']:,} idle connections of AMQP, of RocketMQ, MB more", ", ".join(held)],
        ["their heartbeats, % of a core", ", ".join(beats)],
        [f"{seen['plan']['topics']:,} topics seen, with {seen['plan']['rules']:,} rules, MB more", f"{seen['kept_bytes'] / 1e6:.0f}"],
        ["a message of a topic that is seen for the first time, µs", number(seen["first_pass"]["cpu_us"])],
        ["start, until it accepts, s", number(loaded(RESULTS / file).proxies["sluice"].start_s)],
    ]
    return markdown_table(["", "found"], lines, 1)


def holds(*files: str) -> str:
    """What a sidecar, a machine and a fleet hold."""
    return capacity.table(measured(*files))


def measured(*files: str) -> capacity.Measured:
    names = [file.removeprefix("scale-").removesuffix(".json") for file in files]
    if sorted(names) != ["growth", "idle", "topics", "workers"]:
        raise QueryError("capacity needs the files of growth, idle, topics and workers")
    return run.measured(RESULTS, quick=False)


def nights(*files: str) -> str:
    """A day of access log by the nightly job and by DuckDB."""
    lines = []
    for row in sorted((row for file in files for row in raw(file)["rows"]), key=lambda row: row["lines"]):
        duckdb, spark = row["duckdb"], row["spark"]
        lines.append(
            [f"{row['lines'] / 1e6:.3g} M", str(duckdb["cpu_s"]), str(spark["cpu_s"]), number(row["ratio"]), number(spark["us_per_line"]),
             f"{spark['peak_gb']} GB", f"{spark['wall_s']:.0f} s"]
        )  # fmt: skip
    return markdown_table(["lines", "DuckDB, CPU-s", "Spark, CPU-s", "ratio", "µs a line", "memory", "time"], lines, 1)


def small_nights(file: str) -> str:
    """Nights that need no Java, by the whole command."""
    lines = [
        [row["night"], f"{row['lines']:,}", f"{row['files']:,}", f"{row['bytes'] / 1e6:.0f} MB", str(row["cpu_s"]), f"{row['peak_gb']} GB",
         f"{row['wall_s']:.0f} s"]
        for row in raw(file)["small"]
    ]  # fmt: skip
    return markdown_table(["night", "lines", "files", "log", "CPU-s", "memory", "time"], lines, 1)


TABLES: Final[dict[str, Callable[..., str]]] = {
    "rows": rows, "traffic": traffic, "refused": refused, "costs": costs, "latencies": latencies, "growth": grown,
    "workers": two_workers, "capacity": holds, "nights": nights, "small-nights": small_nights, "memory": memory,
}  # fmt: skip


# ---- single figures ----------------------------------------------------------------------------------------------------


def value(file: str, path: str, form: str = "{:,}") -> str:
    """What is found at a path, by a format: `value review-479a331f.json latency.rows.0.1 "{:.2f}"`."""
    return form.format(at(file, path))


def megabytes(file: str, path: str) -> str:
    """What is found at a path in bytes."""
    return f"{at(file, path) / 1e6:.0f} MB"


def idle_connection(file: str) -> str:
    """Memory of one, of the protocol whose connections take more."""
    each = [(found["held_resident"] - found["base_resident"]) / found["connections"] for found in raw(file)["found"].values()]
    return f"{max(each) / 1000:.0f} kB"


def per_second(*words: str) -> str:
    """Messages a second that the capacity table plans for: files, kind (`request_us` or `stream_us`), workers."""
    *files, kind, count = words
    found = measured(*files)
    return capacity.two_digits(capacity.messages(getattr(found, kind), int(count), found.gain))


def decision(file: str, name: str) -> str:
    """Nanoseconds of one decision, sluice's or the JVM's."""
    result = raw(file)
    (found,) = (one for one in (*result["ours"], *result["jvm"]) if one["name"] == name)
    return f"{number(median(found['ns']))} ns"


def quotient(file: str, path: str, by: str, form: str) -> str:
    """One figure by another."""
    return form.format(at(file, path) / at(file, by))


def compared(file: str, name: str, peer: str, of: str) -> str:
    """Processor time of a work through one peer as a multiple of another's."""
    bench = loaded(RESULTS / file)
    (work,) = (work for work in bench.works if work.name == name)
    return number(median(times(bench, work, peer, of)))


def dated(file: str) -> str:
    """When and at which commit."""
    kept = raw(file)
    return f"{kept['at'][:10]} at {kept['commit']}"


VALUES: Final[dict[str, Callable[..., str]]] = {
    "value": value,
    "quotient": quotient,
    "compared": compared,
    "megabytes": megabytes,
    "idle_connection": idle_connection,
    "per_second": per_second,
    "decision": decision,
    "dated": dated,
}


# ---- pages -------------------------------------------------------------------------------------------------------------


def written(text: str, folder: Path) -> str:
    """A page's text with all figures as the files have them; `folder` is the page's, for links. Raises QueryError."""

    def one(mark: re.Match[str]) -> str:
        name, *words = shlex.split(mark["query"])
        try:
            if name in VALUES:
                return f"{mark['begin']}{VALUES[name](*words)}{mark['end']}"
            return f"{mark['begin']}\n\n{TABLES[name](*words)}\n\n{source(words, folder)}\n\n{mark['end']}"
        except (KeyError, IndexError, TypeError, OSError, QueryError) as error:
            raise QueryError(f"{mark['begin']}: {error!r}") from error

    return MARK.sub(one, text)


def source(words: list[str], folder: Path) -> str:
    """The lines below a table: file, date, commit, machine."""
    lines = []
    for file in files_of(words):
        machine = raw(file)["machine"]
        kind = f" ({machine['cpu']})" if "cpu" in machine else ""
        lines.append(f"*[{file}]({os.path.relpath(RESULTS / file, folder)}): {dated(file)}, {machine['processors']} processors{kind}.*")
    return "\n".join(lines)


def files_of(words: list[str]) -> list[str]:
    return [word for word in words if word.endswith(".json")]


def quoted(text: str) -> set[str]:
    """The files that a page quotes."""
    return {file for mark in MARK.finditer(text) for file in files_of(shlex.split(mark["query"]))}


def pages() -> Iterator[Path]:
    yield ROOT / "README.md"
    yield from sorted((ROOT / "docs").rglob("*.md"))


def main() -> None:
    for page in pages():
        before = page.read_text()
        after = written(before, page.parent)
        if after != before:
            page.write_text(after)
            print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
