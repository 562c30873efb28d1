"""How what sluice costs grows with connections, topics, rules, messages, workers and time: measured on this machine.

    PYTHONPATH=.:tests python bench/scale/run.py idle|topics|topics-no-log|growth|workers|stalls|soak|all [--quick] [--set NAME=VALUE ...]
    PYTHONPATH=.:tests python bench/scale/run.py plots|capacity        # from the results that are there

Each prints a table with the goal beside each number and writes what it found to bench/results/scale-NAME.json; `--quick` is a short try
whose results go to another file (scale-NAME-quick.json), because they are not worth more. `growth` also draws docs/images/scale-growth.svg.
What each measures, and how, stands at the head of its file. Processor times are of the gateway's whole process tree, and what is compared
takes turns. `--set seconds=20` changes one number of a plan.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[0] = str(ROOT / "bench")

from kept import before, keep  # noqa: E402

from scale import capacity, growth, idle, plots, soak, stalls, topics, workers  # noqa: E402  -- run as a script, bench is not on the path before
from scale.figures import Row, ratio, table  # noqa: E402
from support.gateways import command  # noqa: E402

RESULTS = ROOT / "bench" / "results"
PICTURE = ROOT / "docs" / "images" / "scale-growth.svg"

FEW = growth.Plan(growth.Point(messages=100, topics=2, rules=2, connections=2), rate=500, seconds=0.3, rounds=1, factors=(1, 10))


@dataclass(frozen=True)
class Subject:
    """One thing to measure: a full plan and a quick one, how, and its table."""

    plan: Any
    quick: Any
    measure: Callable[[Path, Any], dict[str, Any]]
    rows: Callable[[dict[str, Any]], list[Row]]


def both(scratch: Path, plan: idle.Plan) -> dict[str, Any]:
    return {protocol: idle.measure(scratch, protocol, plan) for protocol in idle.DIALOGUES}


def rows_of_each(show: Callable[[dict[str, Any]], list[Row]]) -> Callable[[dict[str, Any]], list[Row]]:
    """The rows of several results of one kind, one after the other."""
    return lambda found: [row for each in found.values() for row in show(each)]


SUBJECTS = {
    "idle": Subject(idle.Plan(), idle.Plan(connections=20, seconds=1.0), both, rows_of_each(idle.rows)),
    "topics": Subject(topics.Plan(), topics.Plan(200, 100, 50, 0.2, 1, 4, calm=False), topics.measure, topics.rows),
    "topics-no-log": Subject(
        topics.Plan(access_log=False), topics.Plan(200, 100, 50, 0.2, 1, 4, False, False), topics.measure, topics.rows
    ),
    "growth": Subject(growth.Plan(), FEW, growth.measure, growth.rows),
    "workers": Subject(workers.Plan(), workers.Plan(8, 200.0, 0.2, (10,), 0.3, 1), workers.measure, workers.rows),
    "stalls": Subject(stalls.Plan(), stalls.Plan(20, 100.0, 10, 10, 100.0, 0.2, 0.3, 1.0), stalls.measure, stalls.rows),
    "soak": Subject(soak.Plan(), soak.Plan(seconds=1.0, piece_s=0.2, connections=4, calm_s=0.2), soak.measure, soak.rows),
}


def changed(plan: Any, settings: list[str]) -> Any:
    """The plan with NAME=VALUE in place of what it says. Raises SystemExit for a name it does not have."""
    known = {each.name: getattr(plan, each.name) for each in fields(plan)}
    for setting in settings:
        name, _, value = setting.partition("=")
        if type(known.get(name)) not in (int, float):
            raise SystemExit(f"--set {setting}: not one of {', '.join(name for name, kind in known.items() if type(kind) in (int, float))}")
        plan = replace(plan, **{name: type(known[name])(value)})
    return plan


def file_of(results: Path, name: str, *, quick: bool) -> Path:
    return results / f"scale-{name}{'-quick' if quick else ''}.json"


def run(name: str, plan: Any, path: Path) -> None:
    """Measure, tell, keep."""
    subject = SUBJECTS[name]
    facts = before(command())
    with tempfile.TemporaryDirectory(prefix="sluice-scale-") as scratch:
        found = subject.measure(Path(scratch), plan)
    print(f"{name} ({facts['sluice']}; {facts['machine']['processors']} processors shared by load, stand-in and gateway)\n")
    print(table(subject.rows(found)) + "\n")
    keep(path, facts, found)


def found_in(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise SystemExit(f"{path} is not there: measure first")
    found: dict[str, Any] = json.loads(path.read_text())["found"]
    return found


def measured(results: Path, *, quick: bool) -> capacity.Measured:
    """What capacity is calculated from, out of the results of `idle`, `topics`, `growth` and `workers`."""
    held, seen, grown, shared = (found_in(file_of(results, name, quick=quick)) for name in ("idle", "topics", "growth", "workers"))
    each = [(one["end_resident"] - one["base_resident"]) / one["connections"] for one in held.values()]
    rates = [[one["messages"] / one["seconds"] for one in runs] for runs in shared["runs"].get("held", shared["runs"]["full"])]
    return capacity.Measured(
        request_us=median(one["cpu_us"] for one in grown["growth"]["messages"][-1]["runs"]),
        stream_us=median(one["cpu_us"] for one in seen["runs"]["oneway"][0]),
        connection_bytes=max(each),
        base_bytes=max(one["base_resident"] for one in held.values()),
        gain=ratio(rates[1], rates[0]).median,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=[*SUBJECTS, "all", "plots", "capacity"])
    parser.add_argument("--quick", action="store_true", help="tiny and short: does it work")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a number of the plan, e.g. seconds=20")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where JSON goes and is looked for")
    options = parser.parse_args()
    quick: bool = options.quick
    for name in SUBJECTS if options.what == "all" else [options.what]:
        if name in SUBJECTS:
            subject = SUBJECTS[name]
            run(name, changed(subject.quick if quick else subject.plan, options.set), file_of(options.results, name, quick=quick))
    if options.what in ("all", "growth", "plots"):
        picture = options.results / "scale-growth-quick.svg" if quick else PICTURE
        picture.write_text(plots.growth(found_in(file_of(options.results, "growth", quick=quick))))
    if options.what in ("all", "capacity"):
        print(capacity.table(measured(options.results, quick=quick)))


if __name__ == "__main__":
    main()
