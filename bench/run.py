"""The benchmark: the same work directly, through a bare relay, HAProxy, Envoy and sluice, side by side on this machine.

    PYTHONPATH=.:tests python bench/run.py [--quick] [--compare] [--rounds N] [--seconds S] [--only PROXY ...] [--work TEXT ...]
        [--chart FILE]

What counts is the processor time of the proxy's process tree per message: on a small machine it says more than throughput, because
sender, proxy and receiver share the processors. In front of the real brokers, which fill two processors by themselves, it is what gets
through, as a share of what HAProxy passes in the same round. HAProxy and Envoy copy bytes blindly, and the relay does no more than read
and write, which shows what the kernel takes; sluice decodes every frame and judges every message (limits in force but high, executor on,
access log on). All proxies stay up; first each does each piece of work for a moment, which does not count, then in every round each does
each piece once, one after the other, in an order that moves on by one each round, so that whatever else the machine does hits all alike.
`works.py` has the pieces and the goals, `report.py` makes tables of the numbers, `chart.py` a picture.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import msgspec
from chart import draw
from kept import commit
from losses import newest_kept, verdict
from machine import machine, processor_ticks, stolen_since, versions
from pages import open_pages
from proxies import HERE, Proxy, Target, running
from records import PEERS, Base, Bench, Run, Work, stored
from report import report
from works import chosen

SETTLE_S = 0.05  # what the proxy does after the last byte belongs to the work
QUICK = (3, 0.4, 0.15)  # rounds, seconds, seconds to warm up: 70 s in all


def load(work: Work, through: Target, seconds: float) -> Run:
    """Run one piece of work through one proxy. SystemExit where the load program finds anything wrong.

    The processor time counts from when all connections are open until a moment after the last message, while they still are.
    """
    program, *words = work.command.format(s=seconds).split()
    command = [*through.programs.get(program, [str(HERE / "bin" / program)]), str(through.ports[work.backend]), *words]
    pipe = subprocess.PIPE
    with (
        open_pages(through.admin, work.pages),
        subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        watchdog = threading.Timer(seconds * 10 + 60, process.kill)
        watchdog.start()
        try:
            said = lines_until("ready", process.stdout)
            before = through.processor_time()
            with contextlib.suppress(BrokenPipeError):  # it has ended, and said why
                process.stdin.write("\n")
                process.stdin.flush()
            said += lines_until("{", process.stdout)
            time.sleep(SETTLE_S)
            after = through.processor_time()
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            code = process.wait()
        finally:
            watchdog.cancel()
            process.kill()
    if code or not said[-1].startswith("{"):
        heard = "".join(line for line in said if line != "ready\n")
        raise SystemExit(f"{work.name} through {through.name}: {heard or 'the load said nothing'}")
    run = msgspec.json.decode(said[-1], type=Run)
    if before is not None and after is not None:
        run.cpu_s, run.user_s, run.system_s = (now - then for now, then in zip(after, before, strict=True))
    return run


def lines_until(beginning: str, stream: IO[str]) -> list[str]:
    """What a program says, up to a line that begins so, or to its end. Java's logging says a word before."""
    lines = [""]
    for line in stream:
        lines.append(line)
        if line.startswith(beginning):
            break
    return lines


def turned(peers: Sequence[str], turn: int) -> list[str]:
    """In the order of a round: each round begins with the next."""
    return [*peers[turn % len(peers) :], *peers[: turn % len(peers)]]


def measured(
    works: list[Work], started: dict[str, Target], rounds: int, seconds: float, warm_up_s: float
) -> dict[str, dict[str, list[Run]]]:
    results: dict[str, dict[str, list[Run]]] = {work.name: {name: [] for name in started if name in work.peers} for work in works}
    if warm_up_s:
        print(f"warming up, {warm_up_s:g} s of each", file=sys.stderr)
        for work in works:
            for name in results[work.name]:
                load(work, started[name], warm_up_s)
    for turn in range(rounds):
        print(f"round {turn + 1} of {rounds}", file=sys.stderr)
        for work in works:
            for name in turned(list(results[work.name]), turn):
                results[work.name][name].append(load(work, started[name], seconds))
    return results


def bench(peers: list[str], works: list[Work], rounds: int, seconds: float, warm_up_s: float) -> Bench:
    """Start what is needed, do all works, stop everything."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    found = machine()
    backends = {work.backend for work in works}
    of_programs = versions(peers, backends)
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as scratch, running(Path(scratch), peers, backends) as started:
        ticks = processor_ticks()
        results = measured(works, started, rounds, seconds, warm_up_s)
        found.stolen = stolen_since(ticks)
        bases = {name: Base(proxy.start_s, proxy.base_mib) for name, proxy in started.items() if isinstance(proxy, Proxy)}
    return Bench(at, found, of_programs, rounds, seconds, warm_up_s, bases, works, results, commit())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three short rounds, stand-ins only: does it run, roughly how fast")
    parser.add_argument("--compare", action="store_true", help="with the newest kept result; exit code 1 where more than 15 %% is lost")
    parser.add_argument("--rounds", type=int, default=7, help="default 7: short rounds in turn even out a machine whose speed wavers")
    parser.add_argument("--seconds", type=float, default=1.0, help="of load for each piece of work (default 1)")
    parser.add_argument("--warm-up", type=float, default=0.5, metavar="SECONDS", help="of each piece of work before the rounds; 0: none")
    parser.add_argument("--only", nargs="+", choices=PEERS, metavar="PROXY", help=f"of {', '.join(PEERS)}; --quick: all but relay")
    parser.add_argument("--group", choices=("all", "stand-ins", "brokers"), default="all", help="backends: C programs, or the real brokers")
    parser.add_argument("--work", nargs="+", default=[], metavar="TEXT", help="only works whose names contain one of these, e.g. RabbitMQ")
    parser.add_argument("--results", type=Path, default=HERE / "results", metavar="FOLDER", help="where the JSON goes")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="draw the SVG there, too")
    options = parser.parse_args()
    rounds, seconds, warm_up_s = QUICK if options.quick else (options.rounds, options.seconds, options.warm_up)
    works = chosen("stand-ins" if options.quick else options.group, options.work)
    only = options.only or [name for name in PEERS if name != "relay" or not options.quick]
    peers = [name for name in PEERS if name in only]
    works = [work for work in works if set(work.peers) & set(peers)]
    if not works:
        parser.error("no such work")
    peers = [name for name in peers if any(name in work.peers for work in works)]

    begin = time.monotonic()
    found = bench(peers, works, rounds, seconds, warm_up_s)
    options.results.mkdir(parents=True, exist_ok=True)
    path = options.results / f"{datetime.fromisoformat(found.at):%Y%m%dT%H%M%SZ}.json"
    stored(found, path)
    print(report(found))
    print(f"{time.monotonic() - begin:.0f} s; the raw numbers: {path}")
    if options.compare:
        good, words = verdict(found, newest_kept())
        print(words)
        if not good:
            raise SystemExit(1)
    if options.chart:
        options.chart.write_text(draw(found, path.name))
        print(f"the chart: {options.chart}")


if __name__ == "__main__":
    main()
