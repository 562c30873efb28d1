"""What the spool's segments do, done by stores that are ready made: SQLite (WAL), LMDB and RocksDB, on the same disk in one run.

make bench-spool, or: .venv/bin/python bench/spool_stores.py --mib 1024 --rounds 3

The work of a spool: a queue's batches are appended, and later read in order and deleted. Every store gets the same bytes, batches of
messages of 1 KiB with their checksum (`encode`), one batch as one value under a running number: what is best for it. Two ways: `unsynced`,
batches of 256 KiB; and `committed`, batches of 64 KiB, each on the disk (fsync) before the next. Draining is never synced: what a crash
brings back is marked as a repetition. A store has a process of its own. Medians of the rounds: MiB a second and microseconds of CPU a
message for filling and draining; MiB of memory of its own above the base (not of the page cache); MiB on disk when it is full, and when it
is empty.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).parents[1]))
from kept import RESULTS, before, keep

from gateway.pipeline.parts import REQUEST, Part
from gateway.waiting.disk.queue_files import SEGMENT_BYTES
from gateway.waiting.disk.records import decode, encode
from gateway.waiting.disk.waiting_disk import DELETE, READ, WRITE, DiskJob, WaitingDisk
from limiter.keys import Key, Origin
from limiter.rules.sender import Sender
from limiter.topics import rocketmq_topic

MIB = 1 << 20
MESSAGE = 1024  # bytes
BATCHES = {"unsynced": 256 * 1024, "committed": 64 * 1024}  # bytes of messages


class Store(Protocol):
    """One store. Numbers run from 0; batches are taken in order, and are gone then."""

    def put(self, number: int, parts: list[Part]) -> None: ...
    def begin_to_drain(self) -> None: ...
    def take(self, number: int) -> bytes: ...
    def close(self) -> None: ...


class Segments:
    """sluice's own (`gateway/waiting/disk/waiting_disk.py`), on the caller's thread."""

    def __init__(self, folder: Path, *, committed: bool) -> None:
        self.committed = committed
        self.disk = WaitingDisk(folder, 1 << 50, 1 << 25, threads=False)
        self.places: list[DiskJob] = []
        self.name, self.size = self.disk.new_name(), 0

    def put(self, number: int, parts: list[Part]) -> None:
        if self.size >= SEGMENT_BYTES:
            self.name, self.size = self.disk.new_name(), 0
        job = DiskJob(self, WRITE, self.name, self.size, 0, parts)
        self._do(job)
        assert not self.disk.trouble, self.disk.trouble
        if self.committed:
            (own,) = self.disk.directory.iterdir()
            descriptor = os.open(own / job.name, os.O_WRONLY)
            os.fsync(descriptor)
            os.close(descriptor)
        job.parts = []
        self.size += job.length
        self.places.append(job)

    def begin_to_drain(self) -> None:
        pass

    def take(self, number: int) -> bytes:
        place = self.places[number]
        job = DiskJob(self, READ, place.name, place.offset, place.length)
        self._do(job)
        if number + 1 == len(self.places) or self.places[number + 1].name != place.name:
            self._do(DiskJob(self, DELETE, place.name))
        return job.data

    def _do(self, job: DiskJob) -> None:
        self.disk.submit(job)
        assert self.disk.work(WRITE if job.kind == WRITE else READ)
        self.disk.collect()

    def close(self) -> None:
        self.disk.close(1)


class Sqlite:
    """The standard library's, in WAL mode, with incremental vacuum: it gives pages back only when told."""

    def __init__(self, folder: Path, *, committed: bool) -> None:
        self.base = sqlite3.connect(folder / "spool.db", isolation_level=None)
        for setting in ("page_size=16384", "auto_vacuum=INCREMENTAL", "journal_mode=WAL", f"synchronous={'FULL' if committed else 'OFF'}"):
            self.base.execute(f"PRAGMA {setting}")
        self.base.execute("CREATE TABLE batches (number INTEGER PRIMARY KEY, data BLOB)")

    def put(self, number: int, parts: list[Part]) -> None:
        self.base.execute("INSERT INTO batches VALUES (?, ?)", (number, encode(parts)))

    def begin_to_drain(self) -> None:
        self.base.execute("PRAGMA synchronous=OFF")

    def take(self, number: int) -> bytes:
        ((data,),) = self.base.execute("SELECT data FROM batches WHERE number = ?", (number,))
        self.base.execute("DELETE FROM batches WHERE number = ?", (number,))
        if number % 64 == 63:
            self.base.execute("PRAGMA incremental_vacuum").fetchall()
        return bytes(data)

    def close(self) -> None:
        self.base.execute("PRAGMA incremental_vacuum").fetchall()
        self.base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.base.close()


class Lmdb:
    """`lmdb`: a memory map. Its file never shrinks."""

    def __init__(self, folder: Path, *, committed: bool) -> None:
        self.folder = folder
        self._open(synced=committed)

    def _open(self, *, synced: bool) -> None:
        lmdb: Any = importlib.import_module("lmdb")
        self.base = lmdb.open(str(self.folder), map_size=1 << 36, sync=synced)

    def put(self, number: int, parts: list[Part]) -> None:
        with self.base.begin(write=True) as transaction:
            transaction.put(number.to_bytes(8), encode(parts), append=True)

    def begin_to_drain(self) -> None:
        self.base.close()
        self._open(synced=False)

    def take(self, number: int) -> bytes:
        with self.base.begin(write=True) as transaction:
            return bytes(transaction.pop(number.to_bytes(8)))

    def close(self) -> None:
        self.base.close()


class RocksDb:
    """`rocksdict`: a log-structured merge tree, without compression, as the segments are."""

    def __init__(self, folder: Path, *, committed: bool) -> None:
        rocksdict: Any = importlib.import_module("rocksdict")
        options = rocksdict.Options(raw_mode=True)
        options.set_compression_type(rocksdict.DBCompressionType.none())
        self.base = rocksdict.Rdict(str(folder), options)
        self._write_options = rocksdict.WriteOptions
        self._sync(yes=committed)

    def _sync(self, *, yes: bool) -> None:
        options = self._write_options()
        options.sync = yes
        self.base.set_write_options(options)

    def put(self, number: int, parts: list[Part]) -> None:
        self.base[number.to_bytes(8)] = encode(parts)

    def begin_to_drain(self) -> None:
        self._sync(yes=False)

    def take(self, number: int) -> bytes:
        key = number.to_bytes(8)
        data = self.base[key]
        del self.base[key]
        if number % 1024 == 1023:  # what is deleted stays until a compaction meets it
            self.base.delete_range((0).to_bytes(8), key)
        return bytes(data)

    def close(self) -> None:
        self.base.compact_range(None, None)
        self.base.close()


STORES: dict[str, type[Segments | Sqlite | Lmdb | RocksDb]] = {"segments": Segments, "SQLite": Sqlite, "LMDB": Lmdb, "RocksDB": RocksDb}


def own_memory() -> int:
    """Bytes of this process's own memory, without files that it maps."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no RssAnon")


def on_disk(folder: Path) -> int:
    return sum(each.stat().st_blocks * 512 for each in folder.rglob("*") if each.is_file())


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def play(name: str, way: str, mib: int, folder: Path) -> dict[str, float]:
    """Fill and drain one store. Its figures."""
    key = Key(Origin("rocketmq", Sender("bench", "127.0.0.1", None), b""), rocketmq_topic(b"bursts"), None, "produce")
    per_batch = BATCHES[way] // MESSAGE
    batches = mib * MIB // BATCHES[way]
    body = os.urandom(MESSAGE)
    base = own_memory()
    most = 0
    store: Store = STORES[name](folder, committed=way == "committed")
    began, before = time.monotonic(), cpu()
    for number in range(batches):
        head = number.to_bytes(8)
        store.put(number, [Part(REQUEST, 1, head + body[8:], 0, MESSAGE, key, 1, 1, MESSAGE) for _ in range(per_batch)])
        most = max(most, own_memory() if number % 16 == 0 else 0)
    filled, used = time.monotonic() - began, cpu() - before
    full = on_disk(folder)
    store.begin_to_drain()
    began, before = time.monotonic(), cpu()
    for number in range(batches):
        parts = decode(store.take(number), 1, lambda _: key)
        assert len(parts) == per_batch
        assert parts[0].data[:8] == number.to_bytes(8)
        most = max(most, own_memory() if number % 16 == 0 else 0)
    drained, used_again = time.monotonic() - began, cpu() - before
    store.close()
    messages = batches * per_batch
    return {
        "fill MiB/s": mib / filled, "fill us": used / messages * 1e6, "drain MiB/s": mib / drained, "drain us": used_again / messages * 1e6,
        "memory MiB": (most - base) / MIB, "full MiB": full / MIB, "empty MiB": on_disk(folder) / MIB,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=None, help="On the disk that is to be measured; default: the temporary one.")
    parser.add_argument("--one", nargs=3, metavar=("STORE", "WAY", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, way, folder = options.one
        print(json.dumps(play(name, way, options.mib, Path(folder))))
        return
    facts = before([sys.executable, "-m", "cli.main"])
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for _ in range(options.rounds):
        for way in BATCHES:
            for name in STORES:
                with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                    command = [sys.executable, __file__, "--mib", str(options.mib), "--one", name, way, folder]
                    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=900)
                    found.setdefault((way, name), []).append(json.loads(done.stdout))
                print(f"{way} {name} {done.stdout.strip()}", file=sys.stderr, flush=True)
    names = list(next(iter(found.values()))[0])
    print(f"{options.mib} MiB of messages of 1 KiB, medians of {options.rounds}\n")
    print("| way | store | " + " | ".join(names) + " |\n|---|---|" + "---:|" * len(names))
    for (way, name), rounds in found.items():
        print(f"| {way} | {name} | " + " | ".join(f"{statistics.median(each[figure] for each in rounds):,.1f}" for figure in names) + " |")
    stores = {f"{way} {name}": rounds for (way, name), rounds in found.items()}
    keep(RESULTS / "spool-stores.json", facts, {"mib": options.mib, "stores": stores})


if __name__ == "__main__":
    main()
