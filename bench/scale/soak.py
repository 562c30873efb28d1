"""Full load for a long time: does memory creep, does anything stay behind, does a message come to cost more.

Load comes in pieces of a few seconds, each on new connections: requests with answers, one-way streams and AMQP publishes, in turns. After
each piece the gateway is looked at. The slope of its memory is that of a straight line through what was seen after the warm-up, in MiB per
ten minutes, with its standard error: a slope of less than twice that is none.
"""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from scale.figures import Row, number, slope
from scale.rig import LIMIT, Load, built, listener, loaded, rules, sluice, stand_in
from scale.sampling import MIB, look
from support.gateways import Gateway
from support.processes import LOOPBACK

STAND_INS = {"request": ("respond",), "oneway": ("sink", "rocketmq"), "amqp": ("sink", "amqp")}
TOLERANCE = 1.0  # MiB per ten minutes (docs/design/reliability.md I6)
TEN_MINUTES = 600.0
COSTLIER = 1.1  # a message at the end by one at the beginning; more is a finding (a guess: rounds of the other benchmarks differ as much)


@dataclass(frozen=True)
class Plan:
    seconds: float = 600.0
    piece_s: float = 4.0
    connections: int = 64  # of requests
    topics: int = 1000
    warm_up: float = 0.25  # part of the time whose memory does not count
    calm_s: float = 12.0  # after load, before things are counted: trio's idle threads end after 10 s


def measure(scratch: Path, plan: Plan) -> dict[str, Any]:
    """Every piece with what the gateway was after it; and what it was before and after all of them."""
    with ExitStack() as held:
        ports = {kind: held.enter_context(stand_in(scratch, *words)) for kind, words in STAND_INS.items()}
        listeners = [listener(kind, "amqp" if kind == "amqp" else "rocketmq", f"{LOOPBACK}:{port}") for kind, port in ports.items()]
        amqp: dict[str, object] = {"name": "amqp", "match": {"protocol": "amqp"}, "per": "topic", "limit": LIMIT}
        gateway = held.enter_context(sluice(scratch / "soak", listeners, [*rules(10), amqp]))
        for kind in STAND_INS:
            piece(gateway, kind, plan)
        time.sleep(plan.calm_s)
        before = remains(gateway)
        pieces: list[dict[str, Any]] = []
        begun = time.monotonic()
        while time.monotonic() - begun < plan.seconds:
            for kind in STAND_INS:
                found = piece(gateway, kind, plan)
                pieces.append({"kind": kind, "at": time.monotonic() - begun, **found, "resident": gateway.resident_bytes()})
        time.sleep(plan.calm_s)
        after = remains(gateway)
    return {"plan": asdict(plan), "pieces": pieces, "before": before, "after": after}


def piece(gateway: Gateway, kind: str, plan: Plan) -> dict[str, float]:
    if kind == "amqp":
        found = streamed(gateway, plan.piece_s)
    else:
        connections = plan.connections if kind == "request" else 1
        found = loaded(gateway, kind, Load(connections=connections, seconds=plan.piece_s, kind=kind, topics=plan.topics))
    return {name: found[name] for name in ("messages", "seconds", "cpu_us", "processors_busy")}


def streamed(gateway: Gateway, seconds: float) -> dict[str, float]:
    """AMQP publishes of 200 bytes on one connection, for so long."""
    command = [str(built("stream")), str(gateway.port("amqp")), "amqp", f"{seconds:g}", "200"]
    before = look(gateway.process.pid)
    done = subprocess.run(command, input="\n", capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"stream: {done.stderr}")
    after = look(gateway.process.pid)
    found: dict[str, float] = json.loads(done.stdout[done.stdout.rindex("{") :])
    busy = (after.machine_s - before.machine_s) / (after.at - before.at)
    return found | {"cpu_us": (after.processor_s - before.processor_s) / found["messages"] * 1e6, "processors_busy": busy}


def remains(gateway: Gateway) -> dict[str, float]:
    """What a gateway without clients holds."""
    active = sum(sample.value for sample in gateway.samples() if sample.name == "sluice_connections_active")
    seen = look(gateway.process.pid)
    return {"resident": seen.resident, "descriptors": seen.descriptors, "threads": seen.threads, "connections": active}


def rows(found: dict[str, Any]) -> list[Row]:
    plan, pieces = Plan(**found["plan"]), found["pieces"]
    counted = [(each["at"] / TEN_MINUTES, each["resident"] / MIB) for each in pieces if each["at"] >= plan.warm_up * plan.seconds]
    lines = [Row("messages in all", f"{sum(each['messages'] for each in pieces):,}, on {len(pieces)} times new connections")]
    if len(counted) > 2:
        rising = slope(counted)
        shown = f"{number(rising.per_x)} ±{number(rising.error)} MiB per 10 min"
        lines.append(Row("resident memory, after the warm-up", shown, f"≤ {TOLERANCE:g}, or ≤ 2 errors", rising.is_flat(TOLERANCE)))
    for name in ("descriptors", "threads", "connections"):
        before, after = (found[when][name] for when in ("before", "after"))
        lines.append(Row(f"{name} before and after", f"{before:g} and {after:g}", "none more", after <= before))
    lines.append(
        Row("resident before and after", f"{number(found['before']['resident'] / MIB)} and {number(found['after']['resident'] / MIB)} MiB")
    )
    for kind in STAND_INS:
        costs = [each["cpu_us"] for each in pieces if each["kind"] == kind]
        edge = max(1, len(costs) // 5)
        begin, end = median(costs[:edge]), median(costs[-edge:])
        shown = f"{number(begin)} and {number(end)} µs = {end / begin:.2f} x"
        lines.append(Row(f"a message ({kind}) at the beginning and the end", shown, f"≤ {COSTLIER:g} x", end / begin <= COSTLIER))
    return lines
