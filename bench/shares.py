"""Shares: where the gateway's processor time goes while it passes traffic, by perf.

    PYTHONPATH=.:tests python bench/shares.py [--seconds 3] [TEXT ...]

The gateway does a few of the benchmark's works (`works.py`), those whose names have TEXT, one after the other; perf (Debian's package
linux-perf) asks 4,000 times a second of its processor time which function runs. The functions are added up to the parts in PARTS. So what
the kernel copies stands beside what reads the messages, and what of a message's cost could be less at all.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

from kept import RESULTS, before, keep
from proxies import Proxy, running
from records import Work
from report import markdown_table
from run import load
from works import chosen

from support.gateways import command

RATE: Final = 4000  # samples for each second of processor time
WARM_UP_S: Final = 0.8  # of each work, before it counts
BEGIN_S: Final = 0.5  # until perf has attached
WORKS: Final = (
    "AMQP stream, traffic",
    "AMQP confirms, traffic, 32 connections",
    "RocketMQ stream, traffic",
    "RocketMQ request/reply, traffic, 64 connections",
    "AMQP stream, traffic, TLS on both hops",
)
PARTS: Final = (  # the first whose file and function fit has a sample
    ("the kernel: copies of bytes", r"\[kernel|\[guest", r"copy_(to|from)_iter|copy_user|rep_movs"),
    ("the kernel: the rest", r"\[kernel|\[guest", r""),
    ("OpenSSL", r"libcrypto|libssl|_ssl", r""),
    ("reading messages, in C", r"native__mypyc", r"scan_|measure_|match_layout|note_message|find_place|hash_octets"),
    ("judging", r"native__mypyc", r"CPyDef_(decisions|token_bucket|judge|batches|single|executor|limiter)|KeySum|scanned_columns"),
    ("sluice: the rest", r"native__mypyc|vecs", r""),
    ("Python's runtime and the C library", r"", r""),
)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("--seconds", type=float, default=3.0, help="of load for each work")
    words.add_argument("texts", nargs="*", metavar="TEXT", help="only works whose names have one of these")
    options = words.parse_args()
    if shutil.which("perf") is None:
        raise SystemExit("bench/shares.py: there is no perf on the PATH; on Debian: apt-get install linux-perf")
    works = [work for work in chosen("stand-ins", options.texts) if work.name in WORKS]
    backends = {work.backend for work in works}
    facts = before(command())
    with tempfile.TemporaryDirectory(prefix="sluice-shares-") as folder, running(Path(folder), ["sluice"], backends) as targets:
        gateway = targets["sluice"]
        assert isinstance(gateway, Proxy)
        found = {work.name: shares(gateway, work, options.seconds, Path(folder) / "perf.data") for work in works}
    columns = ["% of the processor time", *(name.replace(", traffic", "") for name in found)]
    rows = [[name, *(round(part[name]) for part in found.values())] for name, _, _ in PARTS]
    print(markdown_table(columns, [[str(cell) for cell in row] for row in rows], 1))
    keep(RESULTS / "shares.json", facts, {"shares": {"columns": columns, "rows": rows}})


def shares(gateway: Proxy, work: Work, seconds: float, file: Path) -> dict[str, float]:
    """Of each part in PARTS, its percentage of the gateway's samples during `work`."""
    load(work, gateway, WARM_UP_S)
    record = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(RATE), "-o", str(file), "-p", str(gateway.pid)]
    perf = subprocess.Popen(record, stderr=subprocess.PIPE, text=True)
    time.sleep(BEGIN_S)
    if perf.poll() is not None:
        assert perf.stderr is not None
        raise SystemExit(f"perf record ended with {perf.returncode}: {perf.stderr.read()[:500]}")
    load(work, gateway, seconds)
    perf.terminate()
    perf.wait()
    report = ["perf", "report", "-i", str(file), "--no-children", "--stdio", "-F", "overhead,dso,sym", "-t", "|"]
    return add_up(subprocess.run(report, capture_output=True, text=True, check=True).stdout)


def add_up(report: str) -> dict[str, float]:
    """The parts of a report whose lines are `overhead|file|function`."""
    found = dict.fromkeys((name for name, _, _ in PARTS), 0.0)
    for line in report.splitlines():
        cells = [cell.strip() for cell in line.split("|", 2)]
        if line.startswith("#") or len(cells) < 3 or not cells[0].endswith("%"):
            continue
        name = next(name for name, file, function in PARTS if re.search(file, cells[1]) and re.search(function, cells[2]))
        found[name] += float(cells[0].rstrip("%"))
    return found


if __name__ == "__main__":
    main()
