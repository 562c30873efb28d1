"""Whether compressing the access log moves a gateway's latency: the same load with and without a keeper at work, in turns.

PYTHONPATH=.:tests python bench/keeping.py --rounds 5 --seconds 3

One gateway from the source tree between `request` (RocketMQ sends, one in flight on each of 8 connections) and `respond`. In every second
turn a keeper (`common/log_files/keeper.py`) compresses hours of a prepared log all the time, as the gateway's child would. Medians of the
turns.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

import access_log

from common.log_files.keeper import Order
from support.gateways import Gateway
from support.processes import free_ports

HERE = Path(__file__).resolve().parent
BIN = HERE / "bin"
PATIENCE_S = 60.0  # beyond the seconds of a load: until its connections are open and its last answers are here


def turn(port: int, seconds: int, connections: int) -> dict[str, float]:
    """One run of the load: messages a second, p50 and p99 in microseconds."""
    return run(["request", str(port), str(connections), str(seconds), "200"], seconds)


def run(words: list[str], seconds: float) -> dict[str, float]:
    """What a program of `bench/load` measures in so many seconds: messages a second, p50 and p99 in microseconds.

    SystemExit where the program is not built, ends without a result, or has none PATIENCE_S after it should.
    """
    program = BIN / words[0]
    if not program.exists():
        raise SystemExit(f"{program} is not there: run `make -C bench/load`")
    with subprocess.Popen([str(program), *words[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as load:
        assert load.stdin is not None
        assert load.stdout is not None
        watchdog = threading.Timer(seconds + PATIENCE_S, load.kill)
        watchdog.start()
        try:
            load.stdout.readline()  # ready
            with suppress(BrokenPipeError):  # it has ended, and said why on stderr
                os.write(load.stdin.fileno(), b"go\n")
            said = load.stdout.readline()
            load.stdin.close()
        finally:
            watchdog.cancel()
        if not said:
            raise SystemExit(f"`{' '.join(words)}` ended without a result, or had none after {seconds + PATIENCE_S:.0f} s")
        found = json.loads(said)
    return {"rate": found["messages"] / found["seconds"], "p50": found["p50_us"], "p99": found["p99_us"]}


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """`process` is ended with the block, however that ends."""
    try:
        yield
    finally:
        process.terminate()
        process.wait()


class Keeping:
    """A keeper that compresses the same hours again and again."""

    def __init__(self, log: Path, scratch: Path, codec: str) -> None:
        self.log, self.scratch, self.codec = log, scratch, codec
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> None:
        shutil.rmtree(self.scratch, ignore_errors=True)
        shutil.copytree(self.log, self.scratch, copy_function=os.link)  # a copy would be written to disk during the turn
        order = Order(str(self.scratch), self.codec, 10**10, 1 << 60, "age")
        words = [sys.executable, "-P", "-m", "common.log_files.keeper", json.dumps(asdict(order))]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self.process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL)

    def __exit__(self, *_: object) -> None:
        assert self.process is not None
        if self.process.poll() is not None:
            print("the keeper was done before the turn was: give more --lines", file=sys.stderr)
        self.process.kill()
        self.process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--lines", type=int, default=1_500_000)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--codec", choices=["gzip", "zstd"], default="gzip")
    options = parser.parse_args()
    backend, front = free_ports(2)
    listener = {"name": "bench", "protocol": "rocketmq", "bind": f"127.0.0.1:{front}", "upstream": f"127.0.0.1:{backend}"}
    turns: dict[str, list[dict[str, float]]] = {"without": [], "with": []}
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as scratch, ended(subprocess.Popen([str(BIN / "respond"), str(backend)])):
        log = Path(scratch) / "log"
        access_log.write(log, options.lines, 1000)
        with Gateway(Path(scratch) / "gateway", [listener], [{"name": "all", "limit": {"messages": "1000000/s"}}]):
            turn(front, 1, options.connections)
            for _ in range(options.rounds):
                turns["without"].append(turn(front, options.seconds, options.connections))
                with Keeping(log, Path(scratch) / "kept", options.codec):
                    turns["with"].append(turn(front, options.seconds, options.connections))
    for name, found in turns.items():
        medians = {what: statistics.median(each[what] for each in found) for what in ("rate", "p50", "p99")}
        spread = " ".join(f"{each['p99']:.0f}" for each in found)
        print(f"{name:8} {medians['rate']:8.0f}/s  p50 {medians['p50']:.0f} us  p99 {medians['p99']:.0f} us  (p99 of the turns: {spread})")


if __name__ == "__main__":
    main()
