"""What the access log costs once it is written: processor per million lines to compress a closed hour, to ship and to compact it.

python bench/access_log.py --lines 1000000 --hours 1

The lines are like a real log's: topics by Zipf's law, clients, counts that vary, a heartbeat a second, files of five minutes. In one
process, without the rests that the keeper takes (`common/log_files/keeper.py`).
"""

from __future__ import annotations

import argparse
import random
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from common.log_files.compaction import compact
from common.log_files.compression import compress
from common.log_files.folder import Folder
from common.log_files.names import folder_of, look
from common.log_files.shipment import ship

HOUR: Final = 1_795_262_400
LATER: Final = 2e9  # when all hours are over
FILES: Final = 12  # of an hour, as `roll_every: 5min` makes them


def line(chance: random.Random, seq: int, ts: int, topics: int) -> str:
    """One line, as `gateway/counting/access_log_lines.py` writes them."""
    topic = int(topics ** chance.random())
    messages = chance.randint(1, 400)
    return (
        f'{{"v":1,"ts":{ts},"gateway":"orders-sidecar","boot":"6f1c2a90","seq":{seq},"protocol":"rocketmq","topic":"topic-{topic}",'
        f'"client":"10.0.{topic % 7}.{chance.randint(1, 60)}","user":null,"group":"producers-{topic % 50}","operation":"produce",'
        f'"messages":{messages},"bytes":{messages * chance.randint(100, 300)},"refused_messages":0,"refused_bytes":0,'
        '"delayed_messages":0,"dropped_messages":0,"bypassed_messages":0,"shadow_refused_messages":0,'
        f'"max_100ms_messages":{messages // 8 + 1},"revision":42}}\n'
    )


def write(directory: Path, lines: int, topics: int, hour: int = HOUR) -> int:
    """One hour of `lines` lines; the bytes they take."""
    chance = random.Random(17)
    folder = directory / folder_of(hour)
    folder.mkdir(parents=True)
    seq = size = 0
    for number in range(FILES):
        path = folder / f"orders-sidecar-6f1c2a90-{number:06d}.jsonl"
        with path.open("w") as file:
            for ts in range(hour + number * 300, hour + (number + 1) * 300):
                due = lines * (ts - hour + 1) // 3600
                while seq < due - 1:
                    file.write(line(chance, seq, ts, topics))
                    seq += 1
                file.write(f'{{"v":1,"ts":{ts},"gateway":"orders-sidecar","boot":"6f1c2a90","seq":{seq},"heartbeat":true,"revision":42}}\n')
                seq += 1
        size += path.stat().st_size
    return size


def cpu_s(work: Callable[[], object]) -> float:
    """Seconds of processor, user and system, of all threads."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    work()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def stored(directory: Path) -> int:
    return sum(file.size for file in look(directory).files)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--hours", type=int, default=1)
    parser.add_argument("--topics", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as scratch:
        written = Path(scratch) / "log"
        size = sum(write(written, options.lines, options.topics, HOUR + 3600 * hour) for hour in range(options.hours))
        print(f"{options.lines * options.hours} lines in {FILES * options.hours} files, {size / 1e6:.0f} MB")
        for codec in ("zstd", "gzip"):
            copy = Path(scratch) / codec
            shutil.copytree(written, copy)
            tell(f"compress by {codec}", options, lambda folder=copy, how=codec: compress_all(folder, how))  # type: ignore[misc]
            print(f"compress by {codec}: {size / stored(copy):.1f} times smaller")
            tell("ship to a folder", options, lambda folder=copy: ship_all(folder, Path(scratch) / "target"))  # type: ignore[misc]
            shutil.rmtree(copy)
            shutil.rmtree(Path(scratch) / "target")
        tell("compact", options, lambda: compact_all(written))
        print(f"compact: {size / stored(written):.1f} times smaller")
    print(f"most memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


def tell(what: str, options: argparse.Namespace, work: Callable[[], object]) -> None:
    began = time.monotonic()
    spent = cpu_s(work)
    lines = options.lines * options.hours
    print(f"{what}: {spent / lines * 1e6:.2f} CPU-s per million lines, {time.monotonic() - began:.1f} s")


def compress_all(folder: Path, codec: str) -> None:
    for file in look(folder).files:
        compress(file, codec, lambda: None)


def compact_all(folder: Path) -> None:
    assert all(not each.fault for each in compact(folder, LATER, 0))


def ship_all(folder: Path, target: Path) -> None:
    assert all(not each.fault for each in ship(folder, Folder(target), LATER, 0))


if __name__ == "__main__":
    main()
