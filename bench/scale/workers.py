"""One worker against two: messages per second, processor time per message, and how evenly connections spread.

Whether two workers carry twice as much as one can only be seen where the load, the stand-in and both workers have a core each. On fewer,
what is full at the end is the machine. So three things are measured. `light`: what a message costs at a load far below what fills anything.
`full`: what gets through when the load waits for nothing but answers, and how many processors of the machine that kept busy. `held`, where
the kernel lets us (`quota.py`): as `full`, with every worker held to a small part of a core. Then the machine has room for all, each worker
is full, and the ratio shows what sharing costs: the parent, the leases of limits, connections spread unevenly. It does not show what
workers on cores of their own do to each other: caches, memory, the kernel's network stack.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scale.figures import Row, number, ratio, spread
from scale.quota import Quota
from scale.rig import Crowd, Load, listener, loaded, rules, sluice, stand_in
from support.gateways import Gateway
from support.processes import LOOPBACK, tree

GOAL = 1.8  # issue 7, where two cores are free
COUNTS = (1, 2)
RULES = 10
NAMES = {"light": "light load", "full": "full load", "held": "each worker held to a part of a core"}


@dataclass(frozen=True)
class Plan:
    connections: int = 256  # enough that a worker finds many ready at a time, whether it has all of them or half
    light: float = 4000.0  # messages per second
    share: float = 0.3  # of a core for each worker, where it is held to that
    counted: tuple[int, ...] = (10, 100, 400)  # connections whose workers are counted
    seconds: float = 2.5
    rounds: int = 5


def measure(scratch: Path, plan: Plan) -> dict[str, Any]:
    """Rounds of runs by kind of load and number of workers."""
    with ExitStack() as held:
        upstream = f"{LOOPBACK}:{held.enter_context(stand_in(scratch, 'respond'))}"
        started = []
        for count in COUNTS:
            settings = {"name": "bench", "state_directory": "state", "workers": count}
            place = scratch / f"workers-{count}"
            started.append(held.enter_context(sluice(place, [listener("load", "rocketmq", upstream)], rules(RULES), gateway=settings)))
        runs = {
            "light": rounds(started, plan, plan.light),
            "full": rounds(started, plan, 0.0),
        }
        counted = {count: connections_of(started[-1], count) for count in plan.counted}
        if Quota.possible():
            with ExitStack() as quotas:
                for pid in [pid for gateway in started for pid in working(gateway)]:
                    quotas.enter_context(Quota(pid, plan.share))
                runs["held"] = rounds(started, plan, 0.0)
    return {"plan": asdict(plan), "runs": runs, "connections_of_workers": counted, "processors": os.cpu_count()}


def rounds(started: list[Gateway], plan: Plan, rate: float) -> list[list[dict[str, Any]]]:
    """Runs by gateway, taking turns."""
    found: list[list[dict[str, Any]]] = [[] for _ in started]
    load = Load(connections=plan.connections, seconds=plan.seconds, rate=rate, topics=RULES)
    for turn in range(plan.rounds):
        for place in range(len(started)) if turn % 2 else reversed(range(len(started))):
            found[place].append(loaded(started[place], "load", load))
    return found


def working(gateway: Gateway) -> list[int]:
    """The processes that carry messages: the workers, or the one process where there are none."""
    first, *others = tree(gateway.process.pid)
    return others or [first]


def connections_of(gateway: Gateway, count: int) -> list[int]:
    """Connections of each worker, where there are `count`; a worker without any is left out."""
    with Crowd(gateway.port("load"), Load(connections=count, seconds=0.1, rate=1.0)):
        time.sleep(1.2)  # workers tell the parent once a second
        page = gateway.get("/v1/connections?limit=500")
    return sorted(Counter(item["worker"] for item in page["items"]).values())


def rows(found: dict[str, Any]) -> list[Row]:
    lines = []
    for name, places in found["runs"].items():
        rates = [[run["messages"] / run["seconds"] for run in runs] for runs in places]
        costs = [[run["cpu_us"] for run in runs] for runs in places]
        for count, rate, cost, runs in zip(COUNTS, rates, costs, places, strict=True):
            busy = spread([run["processors_busy"] for run in runs]).median
            carried = f"{spread(rate).said('messages/s')}, {spread(cost).said('µs')} each"
            what = f"{carried}; {number(busy)} of {found['processors']} processors busy"
            lines.append(Row(f"{NAMES[name]}: {count} worker{'s' * (count > 1)}", what))
        times = f"{ratio(rates[1], rates[0]).said('x messages/s')}, {ratio(costs[1], costs[0]).said('x processor time')}"
        gained = ratio(rates[1], rates[0]).median
        lines.append(
            Row("  two by one", times, f"≥ {GOAL:g} x messages/s", gained >= GOAL) if name == "held" else Row("  two by one", times)
        )
    if "held" not in found["runs"]:
        lines.append(Row(NAMES["held"], "not measured: this user can make no control groups here"))
    for count, spreads in found["connections_of_workers"].items():
        lines.append(Row(f"{count} connections on {COUNTS[-1]} workers", " and ".join(map(str, spreads))))
    return lines
