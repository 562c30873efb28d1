"""The benchmark: the same work directly, through HAProxy, through Envoy and through sluice, side by side on this machine.

    python bench/run.py [--quick] [--rounds N] [--seconds S] [--only WORD ...]

What counts is the processor time of the proxy's process tree per message: on a small machine it says more than throughput, because
sender, proxy and receiver share the processors. HAProxy and Envoy copy bytes blindly; sluice decodes every frame and judges every
message (limits in force but high, executor on, access log on). All proxies stay up; in every round each does each piece of work once,
one after the other, so that whatever else the machine does hits all alike. The table shows medians over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from proxies import HERE, Proxy, Target, running

PROXIES = ("direct", "haproxy", "envoy", "sluice")


@dataclass(frozen=True)
class Work:
    """One kind of load: which program, at which backend."""

    name: str
    backend: str
    program: str
    arguments: tuple[str, ...]  # {s} stands for the seconds
    target: float | None = None  # processor time as a multiple of HAProxy's that this version is to reach


WORKS = [
    Work("RocketMQ request/reply, 1 connection", "requests", "request", ("1", "{s}", "200")),
    Work("RocketMQ request/reply, 32 connections", "requests", "request", ("32", "{s}", "200")),
    Work("RocketMQ request/reply, 256 connections", "requests", "request", ("256", "{s}", "200"), 1.5),
    Work("RocketMQ stream, 200 B", "rocketmq", "stream", ("rocketmq", "{s}", "200"), 3.0),
    Work("RocketMQ stream, 16 KiB", "rocketmq", "stream", ("rocketmq", "{s}", "16384"), 1.5),
    Work("AMQP stream, 200 B", "amqp", "stream", ("amqp", "{s}", "200"), 2.0),
    Work("AMQP stream, 16 KiB", "amqp", "stream", ("amqp", "{s}", "16384"), 1.5),
]


def load(work: Work, proxy: Target, seconds: float) -> dict[str, float]:
    """Run one piece of work through one proxy: messages, seconds, and the proxy's processor time per message."""
    words = [word.replace("{s}", str(seconds)) for word in work.arguments]
    command = [str(HERE / "bin" / work.program), str(proxy.ports[work.backend]), *words]
    before = proxy.processor_seconds()
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds * 10 + 60)
    if done.returncode:
        raise SystemExit(f"{work.name} through {proxy.name}: {done.stderr or done.stdout}")
    result: dict[str, float] = json.loads(done.stdout)
    time.sleep(0.05)  # what the proxy does after the last byte belongs to the work
    after = proxy.processor_seconds()
    if before is not None and after is not None:
        result["cpu_s"] = after - before
        result["cpu_us_per_message"] = result["cpu_s"] / result["messages"] * 1e6
    return result


def spread(values: list[float]) -> float:
    """Half the distance between the extremes, relative to the median."""
    return (max(values) - min(values)) / 2 / statistics.median(values) if values else 0.0


def number(value: float) -> str:
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def table(results: dict[str, dict[str, list[dict[str, float]]]], proxies: list[str]) -> list[str]:
    """Medians over the rounds: processor microseconds per message with their spread, as a multiple of HAProxy's, and throughput."""
    lines = [f"{'':40} {'proxy':8} {'CPU us/message':>16} {'of HAProxy':>11} {'target':>7} {'messages/s':>12} {'p50 us':>8} {'p99 us':>8}"]
    targets = {work.name: work.target for work in WORKS}
    for work, of_proxies in results.items():
        for proxy in proxies:
            runs = of_proxies[proxy]
            rate = statistics.median(run["messages"] / run["seconds"] for run in runs)
            cpu = ratio = target = ""
            if proxy != "direct":
                costs = [run["cpu_us_per_message"] for run in runs]
                cpu = f"{number(statistics.median(costs))} ±{spread(costs):3.0%}"
                if "haproxy" in of_proxies:
                    base = statistics.median(run["cpu_us_per_message"] for run in of_proxies["haproxy"])
                    ratio = f"{statistics.median(costs) / base:.2f}" if base else "-"
            if proxy == "sluice" and targets[work] is not None:
                target = f"{targets[work]:.1f}"
            p50, p99 = (number(statistics.median(run[name] for run in runs)) if name in runs[0] else "" for name in ("p50_us", "p99_us"))
            label = work if proxy == proxies[0] else ""
            lines.append(f"{label:40} {proxy:8} {cpu:>16} {ratio:>11} {target:>7} {rate:>12,.0f} {p50:>8} {p99:>8}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one short round: does it run, roughly how fast")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of load for each piece of work (default 2)")
    parser.add_argument("--only", nargs="+", choices=PROXIES, default=list(PROXIES))
    options = parser.parse_args()
    rounds, seconds = (1, 0.7) if options.quick else (options.rounds, options.seconds)

    proxies = [name for name in PROXIES if name in options.only]
    results: dict[str, dict[str, list[dict[str, float]]]] = {work.name: {name: [] for name in proxies} for work in WORKS}
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as scratch, running(Path(scratch), proxies) as started:
        for turn in range(rounds):
            print(f"round {turn + 1} of {rounds}", file=sys.stderr)
            for work in WORKS:
                for name in proxies:
                    results[work.name][name].append(load(work, started[name], seconds))
        bases = {
            name: {"start_s": proxy.start_s, "base_mib": proxy.base_mib} for name, proxy in started.items() if isinstance(proxy, Proxy)
        }

    build = ""
    if "sluice" in proxies:
        command = [str(Path(sys.executable).with_name("sluice")), "version"]
        build = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    print("\n".join(table(results, proxies)))
    for name, base in bases.items():
        print(f"{name}: accepting after {base['start_s']:.2f} s, {base['base_mib']:.0f} MiB resident when idle")
    print(f"{os.cpu_count()} processors shared by load, proxy and backend; {rounds} rounds of {seconds} s; {build.strip()}")

    folder = HERE / "results"
    folder.mkdir(exist_ok=True)
    at = datetime.now(UTC)
    raw = {
        "at": at.isoformat(timespec="seconds"),
        "machine": {"processors": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()},
        "sluice": build.strip(),
        "rounds": rounds,
        "seconds": seconds,
        "proxies": bases,
        "results": results,
    }
    path = folder / f"{at:%Y%m%dT%H%M%SZ}.json"
    path.write_text(json.dumps(raw, indent=1) + "\n")
    print(f"raw results: bench/results/{path.name}")


if __name__ == "__main__":
    main()
