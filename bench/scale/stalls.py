"""The worst answer that a probing client sees, while thousands of connections are open, traffic flows, and operators do what they do.

Two probes at the same time, each one connection that asks PROBE times a second: through the gateway, and directly, with one stand-in for
both. What the direct one sees at worst is the machine's own. Meanwhile /metrics is read each second, and the configuration is reloaded
every few seconds, over the admin API and by SIGHUP in turns.

Each of the longest answers is told with what went on at that moment: a scrape, a reload, the end of a second (when the gateway does its
bookkeeping), the direct probe waiting as well (the machine), or nothing that is known from outside.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

from scale.figures import Row, at_most, number
from scale.rig import Crowd, Load, listener, rules, sluice, stand_in
from scale.sampling import look
from support.gateways import Gateway
from support.processes import LOOPBACK
from support.wires.idle_connections import allow_open_files

GOAL_MS = 20.0  # issue 7
SIGHUP_S = 0.3  # how long a reload by signal may last: its end cannot be seen from here (a guess)
EDGE_S = 0.05  # bookkeeping begins when a second of the wall clock has ended, so long after at the most (a guess)
MACHINE_PART = 0.5  # the direct probe waited at least that part of the time, too: it was the machine


@dataclass(frozen=True)
class Plan:
    connections: int = 4000
    traffic: float = 2000.0  # messages per second of all of them
    topics: int = 1000
    rules: int = 10
    probe: float = 500.0  # questions per second of each probe
    scrape_s: float = 1.0  # between scrapes
    reload_s: float = 3.0  # between reloads
    seconds: float = 60.0


@dataclass(frozen=True)
class Happening:
    """Something that went on, in monotonic seconds."""

    kind: str
    begin: float
    end: float

    def meets(self, begin: float, end: float) -> bool:
        return self.begin <= end and begin <= self.end


class Operator(threading.Thread):
    """Does something again and again until `stop`, but `least` times however slow the machine is.

    `stop` tells what was done and when; what went wrong ends it and is raised there.
    """

    def __init__(self, every_s: float, act: Callable[[], Happening], *, least: int = 1) -> None:
        super().__init__(daemon=True)
        self._every_s, self._act, self._least = every_s, act, least
        self._happened: list[Happening] = []
        self._failed: Exception | None = None
        self._over = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._over.wait(self._every_s) or len(self._happened) < self._least:
            try:
                self._happened.append(self._act())
            except Exception as error:  # raised by `stop`, on the thread that asks
                self._failed = error
                return

    def stop(self) -> list[Happening]:
        self._over.set()
        self.join()
        if self._failed is not None:
            raise self._failed
        return self._happened


def scraping(gateway: Gateway) -> Callable[[], Happening]:
    def act() -> Happening:
        begin = time.monotonic()
        assert gateway.request("GET", "/metrics").status == 200
        return Happening("scrape", begin, time.monotonic())

    return act


def reloading(gateway: Gateway) -> Callable[[], Happening]:
    turns = count()

    def act() -> Happening:
        begin = time.monotonic()
        if next(turns) % 2:
            gateway.process.popen.send_signal(signal.SIGHUP)
            return Happening("reload by SIGHUP", begin, begin + SIGHUP_S)
        answer = gateway.request("POST", "/v1/config:reload", {"reason": "bench"})
        assert answer.status == 200, answer
        return Happening("reload by the API", begin, time.monotonic())

    return act


def measure(scratch: Path, plan: Plan) -> dict[str, Any]:
    """What both probes and the traffic found, and the longest answers with their causes."""
    allow_open_files(2 * plan.connections + 300)
    probe = Load(connections=1, seconds=plan.seconds, rate=plan.probe, topics=1)
    traffic = Load(connections=plan.connections, seconds=plan.seconds, rate=plan.traffic, topics=plan.topics)
    with ExitStack() as held:
        direct, behind = (held.enter_context(stand_in(scratch, "respond")) for _ in range(2))
        listeners = [listener("probe", "rocketmq", f"{LOOPBACK}:{direct}"), listener("load", "rocketmq", f"{LOOPBACK}:{behind}")]
        gateway = held.enter_context(sluice(scratch / "stalls", listeners, rules(plan.rules)))
        crowds = {
            "direct": held.enter_context(Crowd(direct, probe)),
            "sluice": held.enter_context(Crowd(gateway.port("probe"), probe)),
            "traffic": held.enter_context(Crowd(gateway.port("load"), traffic)),
        }
        time.sleep(1.0)
        wall_clock = time.time() - time.monotonic()
        before = look(gateway.process.pid)
        for crowd in crowds.values():
            crowd.begin()
        operators = [Operator(plan.scrape_s, scraping(gateway)), Operator(plan.reload_s, reloading(gateway), least=2)]
        found = {name: crowd.result() for name, crowd in crowds.items()}
        happened = [happening for operator in operators for happening in operator.stop()]
        after = look(gateway.process.pid)
    worst = [
        {"at": at, "us": us, "causes": causes(at, us / 1e6, happened, found["direct"]["worst"], wall_clock)}
        for at, us in found["sluice"]["worst"]
    ]
    return {
        "plan": asdict(plan), "probes": found, "worst": worst, "happened": [asdict(happening) for happening in happened],
        "processor": (after.processor_s - before.processor_s) / (after.at - before.at),
        "processors_busy": (after.machine_s - before.machine_s) / (after.at - before.at),
    }  # fmt: skip


def causes(at: float, took: float, happened: list[Happening], direct: list[list[float]], wall_clock: float) -> list[str]:
    """What went on while an answer that was asked for at `at` (monotonic s) took so long; that plus `wall_clock` is the time of day."""
    found = sorted({happening.kind for happening in happened if happening.meets(at, at + took)})
    end = at + took + wall_clock
    if int(end) > int(at + wall_clock) or (at + wall_clock) % 1 < EDGE_S:
        found.append("end of a second")
    if any(other <= at + took and at <= other + us / 1e6 and us / 1e6 >= MACHINE_PART * took for other, us in direct):
        found.append("the machine")
    return found or ["unknown"]


def rows(found: dict[str, Any]) -> list[Row]:
    plan = Plan(**found["plan"])
    probes = found["probes"]
    ours, direct = (probes[name]["worst"][0][1] / 1e3 for name in ("sluice", "direct"))
    what = f"{plan.connections:,} connections, {plan.traffic:,.0f} messages/s, {plan.topics:,} topics, {plan.rules:,} rules"
    lines = [
        at_most(f"{what}: worst answer in {plan.seconds:.0f} s", ours, GOAL_MS, "ms"),
        Row("  directly, at the same time", f"{number(direct)} ms"),
    ]
    for name in ("sluice", "direct", "traffic"):
        quantiles = ", ".join(
            f"{title} {probes[name][key] / 1e3:.2f} ms" for title, key in (("p50", "p50_us"), ("p99", "p99_us"), ("p99.9", "p999_us"))
        )
        lines.append(Row(f"  {name}", quantiles))
    by_cause = Counter(" + ".join(each["causes"]) for each in found["worst"])
    longest = {cause: max(each["us"] for each in found["worst"] if " + ".join(each["causes"]) == cause) for cause in by_cause}
    for cause, times in by_cause.most_common():
        lines.append(Row(f"  of the {len(found['worst'])} longest, with {cause}", f"{times}, up to {number(longest[cause] / 1e3)} ms"))
    spent: dict[str, list[float]] = {}
    for each in found["happened"]:
        spent.setdefault(each["kind"], []).append(each["end"] - each["begin"])
    for kind, each_s in spent.items():
        if kind != "reload by SIGHUP":
            lines.append(Row(f"  a {kind}, of {len(each_s)}", f"at most {number(1e3 * max(each_s))} ms until it was answered"))
    busy = f"by sluice {found['processor']:.2f}, by all on this machine {found['processors_busy']:.2f}"
    lines.append(Row("  processors kept busy, on average", busy))
    return lines
