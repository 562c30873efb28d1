"""Processor time per message against messages per second, topics, rules and connections: each at 1x, 10x and 100x, all else as at 1x.

The load is the same everywhere, so a message costs what the gateway needs for it: requests with answers at RATE in all. Only the messages
per second of the first picture differ; there a message bears its part of what a gateway does each second, whether messages come or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from scale.figures import Row, ratio, spread
from scale.rig import Load, listener, loaded, rules, sluice, stand_in
from support.gateways import Gateway
from support.processes import LOOPBACK
from support.wires.idle_connections import allow_open_files

DIMENSIONS = {"messages": "messages per second", "topics": "topics", "rules": "rules", "connections": "connections"}


@dataclass(frozen=True)
class Point:
    """One place of the four pictures."""

    messages: int  # per second
    topics: int
    rules: int
    connections: int


@dataclass(frozen=True)
class Plan:
    least: Point = Point(messages=200, topics=100, rules=100, connections=40)
    rate: int = 2000  # messages per second where they are not what grows
    seconds: float = 2.5
    rounds: int = 5
    factors: tuple[int, ...] = (1, 10, 100)

    def points(self) -> dict[str, list[Point]]:
        """By what grows."""
        usual = replace(self.least, messages=self.rate)
        return {name: [replace(usual, **{name: getattr(self.least, name) * factor}) for factor in self.factors] for name in DIMENSIONS}


@contextmanager
def gateways(scratch: Path, plan: Plan) -> Iterator[dict[tuple[int, int], Gateway]]:
    """One for each number of topics and rules: what a gateway has seen stays with it."""
    wanted = sorted({(point.topics, point.rules) for points in plan.points().values() for point in points})
    with ExitStack() as held:
        upstream = f"{LOOPBACK}:{held.enter_context(stand_in(scratch, 'respond'))}"
        yield {
            (topics, count): held.enter_context(
                sluice(scratch / f"{topics}-{count}", [listener("load", "rocketmq", upstream)], rules(count))
            )
            for topics, count in wanted
        }


def measure(scratch: Path, plan: Plan) -> dict[str, Any]:
    """Rounds of runs by what grows and by factor. Points that are the same are measured once."""
    allow_open_files(2 * max(point.connections for points in plan.points().values() for point in points) + 300)
    distinct = list(dict.fromkeys(point for points in plan.points().values() for point in points))
    runs: dict[Point, list[dict[str, Any]]] = {point: [] for point in distinct}
    with gateways(scratch, plan) as started:
        for point in distinct:  # all topics are known
            load = Load(connections=32, topics=point.topics).every_topic()
            loaded(started[point.topics, point.rules], "load", load)
        for turn in range(plan.rounds):
            for point in distinct[turn % len(distinct) :] + distinct[: turn % len(distinct)]:
                load = Load(connections=point.connections, seconds=plan.seconds, rate=point.messages, topics=point.topics)
                runs[point].append(loaded(started[point.topics, point.rules], "load", load))
    return {
        "plan": asdict(plan),
        "growth": {name: [{"point": asdict(point), "runs": runs[point]} for point in points] for name, points in plan.points().items()},
    }


def rows(found: dict[str, Any]) -> list[Row]:
    lines = []
    for name, places in found["growth"].items():
        costs = [[run["cpu_us"] for run in place["runs"]] for place in places]
        for place, ours in zip(places, costs, strict=True):
            times = f" = {ratio(ours, costs[0]).said('x')}" if ours is not costs[0] else ""
            lines.append(Row(f"{place['point'][name]:,} {DIMENSIONS[name]}", f"{spread(ours).said('µs')}{times}"))
    return lines
