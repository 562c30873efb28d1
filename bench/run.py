"""The benchmark: the same work directly, through HAProxy, through Envoy and through sluice, side by side on this machine.

    PYTHONPATH=tests python bench/run.py [--quick] [--rounds N] [--seconds S] [--only PROXY ...] [--work TEXT]

What counts is the processor time of the proxy's process tree per message: on a small machine it says more than throughput, because
sender, proxy and receiver share the processors. In front of the real RabbitMQ, which fills two processors by itself, it is what gets
through, as a share of what HAProxy passes in the same round. HAProxy and Envoy copy bytes blindly; sluice decodes every frame and judges
every message (limits in force but high, executor on, access log on). All proxies stay up; in every round each does each piece of work
once, one after the other, in an order that moves on by one each round, so that whatever else the machine does hits all alike. The table
shows medians over the rounds.
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

from proxies import HERE, REFUSED, Proxy, Target, running

PROXIES = ("direct", "haproxy", "envoy", "sluice")
PLAIN = ("direct", "haproxy", "sluice")
PASSED = "RabbitMQ publish, windows of 64, passed"


@dataclass(frozen=True)
class Work:
    """One kind of load: which program, at which backend."""

    name: str
    backend: str
    command: str  # a program of bench/bin and its arguments after the port; {s} stands for the seconds
    target: float | None = None  # processor time as a multiple of HAProxy's that this version is to reach
    passes: float | None = None  # messages/s as a share of HAProxy's, to be reached
    beside: str = ""  # name of the work whose processor time per message this one must not exceed
    proxies: tuple[str, ...] = PROXIES


WORKS = [
    Work("RocketMQ request/reply, 1 connection", "requests", "request 1 {s} 200"),
    Work("RocketMQ request/reply, 32 connections", "requests", "request 32 {s} 200"),
    Work("RocketMQ request/reply, 256 connections", "requests", "request 256 {s} 200", target=1.3),
    Work("RocketMQ stream, 200 B", "rocketmq", "stream rocketmq {s} 200", target=3.0),
    Work("RocketMQ stream, 16 KiB", "rocketmq", "stream rocketmq {s} 16384", target=1.5),
    Work("AMQP stream, 200 B", "amqp", "stream amqp {s} 200", target=2.0),
    Work("AMQP stream, 16 KiB", "amqp", "stream amqp {s} 16384", target=1.5),
    # RabbitMQ itself, nothing bound: the less it does, the more a proxy is felt. With confirms: one in flight on each connection.
    Work("RabbitMQ publish, 16 in lock-step", "rabbitmq", "publish 16 {s} 200 1 bench.confirmed acked", passes=0.95, proxies=PLAIN),
    Work("RabbitMQ stream, 200 B, 1 connection", "rabbitmq", "stream rabbitmq {s} 200 1", passes=0.95, proxies=PLAIN),
    Work("RabbitMQ stream, 200 B, 2 connections", "rabbitmq", "stream rabbitmq {s} 200 2", passes=0.95, proxies=PLAIN),
    Work("RabbitMQ stream, 200 B, 4 connections", "rabbitmq", "stream rabbitmq {s} 200 4", passes=0.95, proxies=PLAIN),
    # RocketMQ itself with its own Java producer, on one connection. The broker and Java fill both processors.
    Work("RocketMQ broker, Java sync, 16 threads", "broker", "java sync 16 {s} 200", passes=0.95, proxies=PLAIN),
    Work("RocketMQ broker, Java async, 256 under way", "broker", "java async 256 {s} 200", passes=0.95, proxies=PLAIN),
    # What a refusal costs: the same publishes, up to 64 unconfirmed on each of 8 connections, all passed, then all refused (a limit of 0).
    Work(PASSED, "rabbitmq", "publish 8 {s} 200 64 bench.passed acked", proxies=("sluice",)),
    Work(
        "RabbitMQ publish, windows of 64, refused",
        "rabbitmq",
        f"publish 8 {{s}} 200 64 {REFUSED} nacked",
        beside=PASSED,
        proxies=("sluice",),
    ),
]


def load(work: Work, proxy: Target, seconds: float) -> dict[str, float]:
    """Run one piece of work through one proxy: messages, seconds, and the proxy's processor time per message."""
    program, *words = work.command.format(s=seconds).split()
    command = [*proxy.programs.get(program, [str(HERE / "bin" / program)]), str(proxy.ports[work.backend]), *words]
    before = proxy.processor_seconds()
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds * 10 + 60)
    if done.returncode:
        raise SystemExit(f"{work.name} through {proxy.name}: {done.stderr or done.stdout}")
    result: dict[str, float] = json.loads(done.stdout[done.stdout.rindex("{") :])  # Java's logging says a word before
    time.sleep(0.05)  # what the proxy does after the last byte belongs to the work
    after = proxy.processor_seconds()
    if before is not None and after is not None:
        result["cpu_s"] = after - before
        result["cpu_us_per_message"] = result["cpu_s"] / (result["messages"] + result.get("warmup", 0)) * 1e6
    return result


def spread(values: list[float]) -> float:
    """Half the distance between the extremes, relative to the median."""
    return (max(values) - min(values)) / 2 / statistics.median(values) if values else 0.0


def number(value: float) -> str:
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


Results = dict[str, dict[str, list[dict[str, float]]]]  # by work, by proxy, one for each round


def rate(run: dict[str, float]) -> float:
    return run["messages"] / run["seconds"]


def cost(runs: list[dict[str, float]]) -> float:
    """The median of processor microseconds per message."""
    return statistics.median(run["cpu_us_per_message"] for run in runs)


def shares(runs: list[dict[str, float]], of: list[dict[str, float]]) -> list[float]:
    """Messages per second as a share of another's in the same round."""
    return [rate(run) / rate(other) for run, other in zip(runs, of, strict=True)]


def cells(work: Work, proxy: str, results: Results) -> list[str]:
    """One line of the table: CPU and its ratio to HAProxy's (or to the work `beside`), throughput and its share of HAProxy's, latencies."""
    of_proxies = results[work.name]
    runs, base = of_proxies[proxy], of_proxies.get("haproxy")
    cpu = ratio = goal = share = least = ""
    if proxy != "direct":
        costs = [run["cpu_us_per_message"] for run in runs]
        cpu = f"{number(statistics.median(costs))} ±{spread(costs):3.0%}"
        compared = results.get(work.beside, {}).get("sluice") if work.beside else base
        if compared and cost(compared):
            ratio = f"{cost(runs) / cost(compared):.2f}"
    if proxy == "sluice":
        most = 1.0 if work.beside else work.target
        goal = f"≤{most:.1f}" if most else ""
        least = f"≥{work.passes:.2f}" if work.passes else ""
    if base and proxy != "haproxy":
        found = shares(runs, base)
        share = f"{statistics.median(found):.2f} ±{spread(found):3.0%}"
    p50, p99 = (number(statistics.median(run[name] for run in runs)) if name in runs[0] else "" for name in ("p50_us", "p99_us"))
    return [proxy, cpu, ratio, goal, f"{statistics.median(map(rate, runs)):,.0f}", share, least, p50, p99]


HEADINGS = ["proxy", "CPU us/message", "of HAProxy", "goal", "messages/s", "of HAProxy", "goal", "p50 us", "p99 us"]
WIDTHS = [-8, 16, 11, 6, 12, 12, 6, 8, 8]


def table(results: Results, proxies: list[str]) -> list[str]:
    """Medians over the rounds. A work measured beside another one shows its CPU as a multiple of that one's, under "of HAProxy"."""

    def line(label: str, words: list[str]) -> str:
        return f"{label:42}" + "".join(
            f" {word:<{-width}}" if width < 0 else f" {word:>{width}}" for word, width in zip(words, WIDTHS, strict=True)
        )

    lines = [line("", HEADINGS)]
    for work in WORKS:
        shown = [name for name in proxies if name in results.get(work.name, {})]
        lines += [line(work.name if name == shown[0] else "", cells(work, name, results)) for name in shown]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one short round: does it run, roughly how fast")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of load for each piece of work (default 2)")
    parser.add_argument("--only", nargs="+", choices=PROXIES, default=list(PROXIES))
    parser.add_argument("--work", default="", metavar="TEXT", help="only work whose name contains this, e.g. RabbitMQ")
    options = parser.parse_args()
    rounds, seconds = (1, 0.7) if options.quick else (options.rounds, options.seconds)

    proxies = [name for name in PROXIES if name in options.only]
    works = [work for work in WORKS if options.work in work.name]
    results: Results = {work.name: {name: [] for name in proxies if name in work.proxies} for work in works}
    backends = {work.backend for work in works}
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as scratch, running(Path(scratch), proxies, backends) as started:
        for turn in range(rounds):
            print(f"round {turn + 1} of {rounds}", file=sys.stderr)
            for work in works:
                for name in [*proxies[turn % len(proxies) :], *proxies[: turn % len(proxies)]]:
                    if name in work.proxies:
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
