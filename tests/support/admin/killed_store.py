"""Kill a process that makes changes, again and again, and look at what it left: `python killed_store.py FOLDER ROUNDS`.

Each round forks a child that changes two keys together as fast as it can, telling every number it was acknowledged for; the parent kills
it at a random moment and opens the state: both keys must be the last acknowledged number, or the one after.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from functools import partial
from pathlib import Path

import trio

from admin.store.changes import Author
from admin.store.state import StoredOverride
from admin.store.store import Store

KEYS = ("limits/rocketmq/a", "limits/rocketmq/b")


def number_in(store: Store) -> int:
    numbers = {stored.messages for stored in (store.state.keys.get(key) for key in KEYS) if stored is not None}
    assert len(numbers) <= 1, f"mixed: {numbers}"
    return int((numbers.pop() or "0/s").removesuffix("/s")) if numbers else 0


def all_of(stored: StoredOverride) -> tuple[list[tuple[str, StoredOverride | None]], None]:
    return [(key, stored) for key in KEYS], None


def change_until_killed(folder: Path, told: int) -> None:
    async def forever() -> None:
        store = Store.open(folder, (), time.time, rotate_at=4096)
        number = number_in(store)
        while True:
            number += 1
            stored = StoredOverride(messages=f"{number}/s")
            await store.change(partial(all_of, stored), Author("child"), "test")
            os.write(told, f"{number}\n".encode())

    trio.run(forever)


def main() -> None:
    folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
    chance = random.Random(20261121)
    expected, acknowledged, slowest = 0, 0, 0.0
    for _ in range(rounds):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            change_until_killed(folder, writing)
        os.close(writing)
        with os.fdopen(reading) as told:
            first = told.readline()  # it is under way
            time.sleep(chance.uniform(0, 0.03))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            numbers = [first, *told.readlines()]
        last = int(numbers[-1])
        acknowledged += last - expected
        started = time.perf_counter()
        store = Store.open(folder, (), time.time, rotate_at=4096)
        slowest = max(slowest, time.perf_counter() - started)
        found = number_in(store)
        assert found in (last, last + 1), f"acknowledged {last}, found {found}"
        assert store.revision == found, f"revision {store.revision}, number {found}"
        assert max(store.revisions()) == found, f"history ends at {max(store.revisions())}, state at {found}"
        assert not store.warnings or all("half a line" in warning for warning in store.warnings), store.warnings
        store.close()
        expected = found
    print(json.dumps({"rounds": rounds, "acknowledged": acknowledged, "slowest_open_s": slowest}))


if __name__ == "__main__":
    main()
