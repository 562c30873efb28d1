"""A million topics and 10,000 rules against ten of each: processor time per message, the same load otherwise.

Two gateways stand side by side and take turns within each round. The large one has seen all its topics before. Three ways in which
traffic may fall on them are told apart, because they cost differently: over ten of them (does it matter that the others are known?), over
10,000, and over all in turn (each message touches memory that has not been touched for a million messages).

Two kinds of load: streams of one-way sends, where a message costs least and so a look-up counts most, and requests with answers. With the
access log and without: it has a line for each topic and second, so traffic that meets another topic with each message has a line for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from scale.figures import Row, number, ratio, spread
from scale.rig import Load, listener, loaded, rules, sluice, stand_in
from support.gateways import Gateway
from support.processes import LOOPBACK

SMALL = 10  # topics, and rules
GOAL = 1.1  # issue 7
STAND_INS = {"oneway": ("sink", "rocketmq"), "request": ("respond",)}
WORDS = {"oneway": "one-way stream", "request": "request and answer"}


@dataclass(frozen=True)
class Plan:
    topics: int = 1_000_000
    rules: int = 10_000
    some: int = 10_000  # topics, of that many
    seconds: float = 2.0
    rounds: int = 5
    connections: int = 32  # of requests; the stream has one
    access_log: bool = True
    calm: bool = True  # what each run leaves behind is waited for, and counts

    def traffic(self) -> list[tuple[str, int]]:
        """Which gateway, and over how many topics the messages go."""
        return [("small", SMALL), ("large", SMALL), ("large", self.some), ("large", self.topics)]

    def load(self, kind: str, topics: int) -> Load:
        return Load(connections=1 if kind == "oneway" else self.connections, seconds=self.seconds, kind=kind, topics=topics)


@contextmanager
def gateways(scratch: Path, plan: Plan, settings: dict[str, object]) -> Iterator[dict[str, Gateway]]:
    """`small` and `large`, each with a listener for each kind of load."""
    with ExitStack() as held:
        ports = {kind: held.enter_context(stand_in(scratch, *words)) for kind, words in STAND_INS.items()}
        listeners = [listener(kind, "rocketmq", f"{LOOPBACK}:{port}") for kind, port in ports.items()]
        yield {
            name: held.enter_context(sluice(scratch / name, listeners, rules(count), **settings))
            for name, count in (("small", SMALL), ("large", plan.rules))
        }


def measure(scratch: Path, plan: Plan) -> dict[str, Any]:
    """Rounds of runs by kind of load and place in `Plan.traffic`; and what it cost to see every topic for the first time, and once more."""
    settings: dict[str, object] = {} if plan.access_log else {"access_log": "off"}
    with gateways(scratch, plan, settings) as started:
        large = started["large"]
        before = large.resident_bytes()
        passes = [loaded(large, "oneway", plan.load("oneway", plan.topics).every_topic(), calm=plan.calm) for _ in range(2)]
        kept = large.resident_bytes() - before
        runs: dict[str, list[list[dict[str, Any]]]] = {kind: [[] for _ in plan.traffic()] for kind in STAND_INS}
        for turn in range(plan.rounds):
            for kind, found in runs.items():
                order = list(enumerate(plan.traffic()))
                for place, (name, topics) in order[turn % len(order) :] + order[: turn % len(order)]:
                    found[place].append(loaded(started[name], kind, plan.load(kind, topics), calm=plan.calm))
        lost = sum(sample.value for sample in large.samples() if sample.name == "sluice_access_log_lines_lost_total")
    return {
        "plan": asdict(plan), "first_pass": passes[0], "second_pass": passes[1], "kept_bytes": kept, "runs": runs,
        "log_lines_lost": lost,
    }  # fmt: skip


def rows(found: dict[str, Any]) -> list[Row]:
    plan = Plan(**found["plan"])
    log = "with" if plan.access_log else "without"
    lines = []
    for kind, places in found["runs"].items():
        costs = [[run["cpu_us"] for run in runs] for runs in places]
        lines.append(Row(f"{WORDS[kind]}, {log} access log: {SMALL} topics, {SMALL} rules", spread(costs[0]).said("µs")))
        for (_, topics), ours in list(zip(plan.traffic(), costs, strict=True))[1:]:
            times = ratio(ours, costs[0])
            what = f"  {plan.topics:,} topics known, {plan.rules:,} rules, traffic over {topics:,}"
            lines.append(Row(what, f"{spread(ours).said('µs')} = {times.said('x')}", f"≤ {GOAL:g} x", times.median <= GOAL))
    new = f"{number(found['first_pass']['cpu_us'])} µs and {number(found['kept_bytes'] / plan.topics)} bytes"
    lines.append(Row(f"a message of a topic seen for the first time, {log} access log", new))
    lines.append(Row("lines of the access log lost, where a million topics were in use", f"{found['log_lines_lost']:,.0f}"))
    if not plan.calm:
        return lines
    idle = [median(run["idle"] for kind in found["runs"].values() for run in kind[place]) for place in (0, -1)]
    lines.append(
        Row(
            f"idle, after traffic over {SMALL} and over {plan.topics:,} topics",
            " and ".join(f"{100 * part:.1f}" for part in idle) + " % of a core",
        )
    )
    return lines
