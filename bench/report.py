"""The benchmark's numbers as Markdown: goals first, then everything. Also by itself, from a kept file:

    python bench/report.py bench/results/STAMP.json

A ratio is taken within a round, between two pieces of work that were done shortly after one another; the table shows the median of the
rounds and, in brackets, the least and the most.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from records import BETTER, BLIND, LEVELS, NAMES, PEERS, Bench, Goal, Run, Work, loaded

NOTHING: Final = "-"
MEASURES: Final = {"cpu": "CPU per message", "added_p50": "added p50", "rate": "messages/s"}


def bar(goal: Goal, work: str, bench: Bench) -> str:
    """The peer that a goal is held against; HAProxy where neither of the two was measured."""
    if goal.of != BETTER:
        return goal.of
    means = {name: mean for name in BLIND if (mean := typical(bench.runs(work, name), goal.measure)) is not None}
    best = min if goal.at_most else max
    return best(means, key=means.__getitem__, default=BLIND[0])


def typical(runs: list[Run], measure: str) -> float | None:
    """The median of what a measure goes by; None where it was not measured."""
    name = {"cpu": "cpu_us", "added_p50": "p50_us", "rate": "rate"}[measure]
    values = [value for value in (getattr(run, name) for run in runs) if value is not None]
    return statistics.median(values) if values else None


def ratios(goal: Goal, work: Work, bench: Bench) -> list[float]:
    """What was found, round by round; none where one of the two was not measured, or where a latency is not above the direct one."""
    other = goal.work or work.name
    pairs = list(zip(bench.runs(work.name, goal.through), bench.runs(other, bar(goal, work.name, bench)), strict=False))
    if goal.measure == "rate":
        return [ours.rate / theirs.rate for ours, theirs in pairs]
    if goal.measure == "cpu":
        return [ours.cpu_us / theirs.cpu_us for ours, theirs in pairs if ours.cpu_us is not None and theirs.cpu_us]
    added = [
        (ours.p50_us - direct.p50_us, theirs.p50_us - direct.p50_us)
        for (ours, theirs), direct in zip(pairs, bench.runs(work.name, "direct"), strict=False)
        if ours.p50_us is not None and theirs.p50_us is not None and direct.p50_us is not None
    ]
    return [ours / theirs for ours, theirs in added if theirs > 0]


def number(value: float) -> str:
    """Three digits, as far as they say something."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def middle(values: list[float]) -> str:
    """The median, and the least and the most."""
    if not values:
        return NOTHING
    return f"{number(statistics.median(values))} ({number(min(values))}-{number(max(values))})"


def promise(goal: Goal, work: Work, bench: Bench) -> str:
    of = f"{NAMES[bar(goal, work.name, bench)]}'s"
    measure = MEASURES[goal.measure] + (" with four levels" if goal.through == LEVELS else "")
    if goal.work:
        of = "that without pages" if work.pages else "that of all passed"
    bound = f"{goal.bound:.2f}".removesuffix("0")
    return f"{measure} {'≤' if goal.at_most else '≥'} {bound} times {of}"


def goal_rows(bench: Bench) -> Iterator[list[str]]:
    for work in bench.works:
        for goal in work.goals:
            found = ratios(goal, work, bench)
            reached = ("yes" if goal.reached(statistics.median(found)) else "no") if found else "not measured"
            yield [work.name, promise(goal, work, bench), middle(found), reached]


def medians(runs: list[Run], name: str) -> str:
    values = [value for value in (getattr(run, name) for run in runs) if value is not None]
    return number(statistics.median(values)) if values else NOTHING


def split(runs: list[Run]) -> str:
    """User and system time per message."""
    parts = [[part / (run.messages + run.warmup) * 1e6 for part in (run.user_s, run.system_s) if part is not None] for run in runs]
    if not parts or not all(parts):
        return NOTHING
    return " + ".join(number(statistics.median(values)) for values in zip(*parts, strict=True))


def work_rows(bench: Bench) -> Iterator[list[str]]:
    for work in bench.works:
        first = True
        for peer in PEERS:
            runs, base = bench.runs(work.name, peer), bench.runs(work.name, "haproxy")
            if not runs:
                continue
            costs = [run.cpu_us for run in runs if run.cpu_us is not None]
            cost, share = NOTHING, NOTHING
            if peer != "haproxy":
                cost = middle([run.cpu_us / other.cpu_us for run, other in zip(runs, base, strict=False) if run.cpu_us and other.cpu_us])
                share = middle([run.rate / other.rate for run, other in zip(runs, base, strict=False)])
            latencies = [medians(runs, name) for name in ("p50_us", "p99_us", "p999_us")]
            name = work.name if first else ""
            yield [name, NAMES[peer], middle(costs), split(runs), cost, medians(runs, "rate"), share, *latencies]
            first = False


def markdown_table(headings: list[str], rows: list[list[str]], texts: int) -> str:
    """Cells padded, so that it reads well as plain text, too. The first `texts` columns are words, the others numbers."""
    widths = [max(len(row[at]) for row in [headings, *rows]) for at in range(len(headings))]

    def line(cells: list[str]) -> str:
        padded = [
            cell.ljust(width) if at < texts else cell.rjust(width) for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |"

    rule = "|".join("-" * (width + 2) if at < texts else "-" * (width + 1) + ":" for at, width in enumerate(widths))
    return "\n".join([line(headings), f"|{rule}|", *(line(row) for row in rows)])


def machine_words(bench: Bench) -> str:
    machine = bench.machine
    kind = "virtual processors" if machine.virtual else "processors"
    of_machine = (
        f"{machine.processors} {kind} ({machine.cpu}), {machine.memory_gib:.0f} GiB, Linux {machine.kernel}, Python {machine.python}"
    )
    if machine.congestion_control:
        of_machine += f", TCP's congestion control {machine.congestion_control}"
    versions = ", ".join(f"{name} {version}" for name, version in bench.versions.items())
    return f"{of_machine}; {versions}"


def report(bench: Bench) -> str:
    """The whole page."""
    machine = bench.machine
    headings = [
        "work",
        "through",
        "CPU µs/message",
        "user + system",
        "of HAProxy's",
        "messages/s",
        "of HAProxy's",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
    ]
    idle = [f"{NAMES[name]} {base.start_s:.2f} s, {base.base_mib:.0f} MiB" for name, base in bench.proxies.items()]
    goals = list(goal_rows(bench))
    return "\n".join(
        [
            f"# Benchmark of {bench.at}",
            "",
            f"{machine_words(bench)}.",
            "Load, proxy and backend share the processors. HAProxy and Envoy pass bytes blindly, on one thread; sluice decodes every frame",
            "and judges every message (limits in force but high, access log on), on one thread and its executor's.",
            *(["The bare relay reads and writes and does nothing else: what the kernel takes."] if "relay" in bench.proxies else []),
            "Processor time is that of the proxy's process tree from when all connections are open until the last message has passed.",
            f"Medians of {bench.rounds} rounds of {bench.seconds:g} s, in brackets least and most, after {bench.warm_up_s:g} s to warm up.",
            "Ratios are taken within a round.",
            f"Load average before: {machine.load_before:.2f}; stolen by the hypervisor during the run: {machine.stolen:.1%}.",
            f"Until it accepts, and resident memory without load: {'; '.join(idle) or NOTHING}.",
            *(["", "## Goals", "", markdown_table(["work", "goal", "found", "reached"], goals, 4)] if goals else []),
            "",
            "## All numbers",
            "",
            markdown_table(headings, list(work_rows(bench)), 2),
            "",
        ]
    )


if __name__ == "__main__":
    print(report(loaded(Path(sys.argv[1]))), end="")
