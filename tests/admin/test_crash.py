"""A change is there whole or not at all, whatever fails and whenever the process dies (docs/design/reliability.md F44, F46, I12)."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from admin.store.changes import Author, WriteFailedError
from admin.store.journal import BEGIN, chain_hash
from admin.store.snapshots import Publication, publication
from admin.store.state import QUOTAS, Edit, PublishedQuotas, State, StoredOverride, StoredRule
from admin.store.store import Store
from common.durable_files import FileSystem
from config.rule_texts import RuleTexts
from limiter.quota_snapshot import Snapshot
from limiter.rules.rule_set import RuleSet
from support.admin.admin_client import RULES, Clock
from support.admin.faulty_files import Crash, FaultyFiles, PowerCut
from support.processes import HANG_S

pytestmark = pytest.mark.slow  # processes that are killed

WHO = Author("tester")


def pair(rate: int) -> tuple[list[Edit], Publication | None]:
    """Two keys in one change: they must never differ."""
    stored = StoredOverride(messages=f"{rate}/s")
    return [("limits/rocketmq/a", stored), ("limits/rocketmq/b", stored)], None


def publish(rate: int) -> tuple[list[Edit], Publication | None]:
    published = publication(Snapshot("2026-11-21T01:00:00Z", str(rate)))
    return [*pair(rate)[0], (QUOTAS, PublishedQuotas(published.sha256, 0, "2026-11-21T01:00:00Z"))], published


def live_rule(rate: int) -> tuple[list[Edit], Publication | None]:
    """A live rule and a client, beside the two keys."""
    stored = StoredRule({"match": {"topic": "order*"}, "limit": {"messages": f"{rate}/s"}}, 1, expires="2090-01-01T00:00:00Z")
    return [*pair(rate)[0], ("live-rules/storm", stored), ("limits/client/10.0.0.7", StoredOverride(messages=f"{rate}/s"))], None


def open_store(folder: Path, files: FileSystem | None = None, rotate_at: int = 1 << 20) -> Store:
    return Store.open(folder, RULES, Clock(), files, rotate_at, RuleTexts())


async def change(store: Store, edits: tuple[list[Edit], Publication | None]) -> None:
    await store.change(lambda: edits, WHO, "test")


def contents(state: State) -> tuple[object, ...]:
    return (state.revision, dict(state.keys), state.quotas, dict(state.levels), dict(state.live_rules))


async def check_whole(folder: Path, expected: list[tuple[object, ...]]) -> tuple[object, ...]:
    """Open what is there: one of `expected`, nothing mixed, the history in step, the chain unbroken, and writable."""
    store = open_store(folder)
    try:
        found = contents(store.state)
        assert found in expected
        assert store.state.keys.get("limits/rocketmq/a") == store.state.keys.get("limits/rocketmq/b")
        assert max(store.revisions(), default=0) == store.revision
        await change(store, pair(99))
        assert store.revision == found[0] + 1  # type: ignore[operator]
        assert [entry.revision for entry in await store.entries([store.revision])] == [store.revision]
        check_chain(folder)
    finally:
        store.close()
    store = open_store(folder)
    assert store.revision == found[0] + 1  # type: ignore[operator]
    store.close()
    return found


def check_chain(folder: Path) -> None:
    """What anybody can do with the files alone."""
    before = None if (folder / "history.jsonl.1").exists() else BEGIN
    for line in (folder / "history.jsonl").read_bytes().splitlines():
        given, entry = line[9:73].decode(), line[len('{"hash":"') + 64 + len('","entry":') : -1]
        assert json.loads(line)["hash"] == given
        if before is not None:
            assert chain_hash(before, entry) == given
        before = given


CASES: dict[str, Callable[[int], tuple[list[Edit], Publication | None]]] = {"keys": pair, "quotas": publish, "live rules": live_rule}


async def prepared(folder: Path, files: FileSystem, *, first: bool, rotate_at: int) -> Store:
    store = open_store(folder, files, rotate_at)
    if not first:
        await change(store, publish(1))
        await change(store, pair(2))
    return store


async def count_steps(folder: Path, case: str, *, first: bool, rotate_at: int) -> list[str]:
    files = FaultyFiles()
    store = await prepared(folder, files, first=first, rotate_at=rotate_at)
    files.steps.clear()
    await change(store, CASES[case](7))
    store.close()
    return list(files.steps)


WAYS = [
    ("keys", True, 1 << 20),
    ("keys", False, 1 << 20),
    ("quotas", False, 1 << 20),
    ("quotas", True, 1 << 20),
    ("keys", False, 1),
    ("live rules", False, 1 << 20),
]
IDS = ["first change", "later change", "quotas", "first quotas", "with rotation", "live rules"]


@pytest.mark.parametrize(("case", "first", "rotate_at"), WAYS, ids=IDS)
async def test_killed_at_any_step_the_state_is_old_or_new(tmp_path: Path, case: str, first: bool, rotate_at: int) -> None:
    steps = await count_steps(tmp_path / "count", case, first=first, rotate_at=rotate_at)
    assert {"sync", "rename state.json"} <= set(steps)
    outcomes = []
    for step in range(len(steps)):
        folder = tmp_path / str(step)
        files = FaultyFiles()
        store = await prepared(folder, files, first=first, rotate_at=rotate_at)
        old = contents(store.state)
        new = contents(store.state.changed(CASES[case](7)[0]))
        files.arm(step, "crash")
        with pytest.raises(Crash):
            await change(store, CASES[case](7))
        store.close()
        outcomes.append(await check_whole(folder, [old, new]) == new)
    assert not outcomes[0]
    assert outcomes[-1]
    assert outcomes == sorted(outcomes)  # the change happens at one step


@pytest.mark.parametrize("names", [True, False], ids=["names lost", "bytes lost"])
@pytest.mark.parametrize(("case", "first", "rotate_at"), WAYS, ids=IDS)
async def test_power_cut_at_any_step_the_state_is_old_or_new(tmp_path: Path, case: str, first: bool, rotate_at: int, names: bool) -> None:
    steps = await count_steps(tmp_path / "count", case, first=first, rotate_at=rotate_at)
    for step in range(len(steps) + 1):
        folder = tmp_path / str(step)
        files = PowerCut(tmp_path / f"spare-{step}")
        store = await prepared(folder, files, first=first, rotate_at=rotate_at)
        old = contents(store.state)
        new = contents(store.state.changed(CASES[case](7)[0]))
        files.arm(step, "crash")
        acknowledged = step == len(steps)
        try:
            await change(store, CASES[case](7))
        except Crash:
            assert not acknowledged
        store.close()
        files.cut(names=names)
        await check_whole(folder, [new] if acknowledged else [old, new])


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
@pytest.mark.parametrize(("case", "first", "rotate_at"), WAYS, ids=IDS)
async def test_a_change_that_fails_is_not_applied_and_the_next_one_works(
    tmp_path: Path, case: str, first: bool, rotate_at: int, error: int
) -> None:
    steps = await count_steps(tmp_path / "count", case, first=first, rotate_at=rotate_at)
    written = len(steps) - 1 - steps[::-1].index("open state.json.draft")  # its line in the history is, then
    for step, name in enumerate(steps):
        folder = tmp_path / f"{error}-{step}"
        files = FaultyFiles()
        store = await prepared(folder, files, first=first, rotate_at=rotate_at)
        told: list[RuleSet] = []
        store.enforce = told.append
        old, rules = contents(store.state), store.rules()
        files.arm(step, "error", error)
        with pytest.raises(WriteFailedError) as failed:
            await change(store, CASES[case](7))
        assert failed.value.full == (error in (errno.ENOSPC, errno.EDQUOT)), name
        assert (contents(store.state), store.rules(), told, store.write_failures) == (old, rules, [], 1), name
        files.disarm()
        store.close()
        store = open_store(folder, files, rotate_at)
        assert contents(store.state) == old, name
        voids = [line.outcome for line in await store.lines(1 << 60, 100)].count("void")
        assert voids == (step >= written), f"{name}: what was not written is not taken back either"
        await change(store, CASES[case](8))
        assert store.revision == old[0] + 1  # type: ignore[operator]
        told_twice = Counter(entry.revision for entry in await store.changes(1 << 60, 100, lambda _: True)) - Counter(store.revisions())
        assert not told_twice, f"{name}: a change that was never in force has the number of the next one"
        store.close()
        await check_whole(folder, [contents(store.state)])


async def test_a_disk_that_stays_broken_applies_nothing_and_says_so(tmp_path: Path) -> None:
    """From any step on nothing can be written. Only when the very last step fails, after the rename, can nobody take the change back."""
    steps = await count_steps(tmp_path / "count", "keys", first=False, rotate_at=1 << 20)
    for step in range(len(steps)):
        folder = tmp_path / str(step)
        files = FaultyFiles()
        store = await prepared(folder, files, first=False, rotate_at=1 << 20)
        old, new = contents(store.state), contents(store.state.changed(pair(7)[0]))
        lines = await store.lines(1 << 60, 100)
        files.arm(step, "broken", errno.EROFS)
        for _ in range(3):
            with pytest.raises(WriteFailedError):
                await change(store, pair(7))
        assert not await store.note(WHO, "test", "refused")
        assert (contents(store.state), store.write_failures) == (old, 4)
        told = await store.lines(1 << 60, 100)
        assert told[-len(lines) :] == lines
        assert len(told) - len(lines) == (step > steps.index("sync")), "a line that is not safely on the disk is in no audit"
        files.disarm()
        await change(store, pair(8))  # the disk is back
        assert store.revision == old[0] + 1  # type: ignore[operator]
        store.close()
        last = step == len(steps) - 1
        await check_whole(folder, [contents(store.state)])
        assert (steps[step] == f"sync folder {(tmp_path / 'count').name}") == last or not last
        assert new != old


async def test_a_change_that_could_not_be_taken_back_is_not_taken_for_one_later(tmp_path: Path) -> None:
    """The rename worked, the folder's fsync did not, and the old state could be put back: the journal tells."""
    files = FaultyFiles()
    store = await prepared(tmp_path, files, first=False, rotate_at=1 << 20)
    steps = await count_steps(tmp_path / "count", "keys", first=False, rotate_at=1 << 20)
    files.arm(len(steps) - 1, "error")
    with pytest.raises(WriteFailedError):
        await change(store, pair(7))
    outcomes = [entry.outcome for entry in await store.lines(1 << 60, 2)]
    assert outcomes == ["void", "applied"]
    store.close()
    store = open_store(tmp_path)
    assert store.state.keys["limits/rocketmq/a"].messages == "2/s"
    store.close()


# ---- the real thing ----------------------------------------------------------------------------------------------------


def test_sigkill_at_random_moments_leaves_the_old_or_the_new_state(tmp_path: Path) -> None:
    script = Path(__file__).parent.parent / "support" / "admin" / "killed_store.py"
    paths = os.pathsep.join(str(path) for path in (script.parents[3], script.parents[2]))
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "state"), "20"],
        capture_output=True, text=True, timeout=HANG_S, check=False, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["rounds"] == 20
    assert report["acknowledged"] > 20
    assert report["slowest_open_s"] < 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    """A disk of 300 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(folder)], capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(
            f"NOT TESTED on a really full disk: this user cannot mount a tmpfs ({mounted.stderr.strip()}); injected ENOSPC is tested"
        )
    return folder


async def test_a_full_disk_refuses_changes_and_keeps_the_old_state(small_disk: Path) -> None:
    try:
        store = open_store(small_disk / "state")
        await change(store, pair(1))
        (small_disk / "ballast").write_bytes(b"x" * 200_000)
        applied = 1

        async def fill() -> None:
            nonlocal applied
            for rate in range(2, 1000):
                stored = StoredOverride(messages=f"{rate}/s", reason="x" * 500)
                await change(store, ([("limits/rocketmq/a", stored), ("limits/rocketmq/b", stored)], None))
                applied = rate

        with pytest.raises(WriteFailedError) as failed:
            await fill()
        assert failed.value.full
        assert store.state.keys["limits/rocketmq/b"].messages == f"{applied}/s"
        store.close()
        store = open_store(small_disk / "state")  # a full disk does not keep the gateway from starting
        assert store.state.keys["limits/rocketmq/b"].messages == f"{applied}/s"
        (small_disk / "ballast").unlink()
        await change(store, pair(5))
        store.close()
        check_chain(small_disk / "state")
    finally:
        subprocess.run(["umount", str(small_disk)], check=True)
