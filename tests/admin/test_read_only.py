"""A state directory that cannot be written: the gateway has what is there, refuses what it could not store, and leaves no trace."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from admin.store.changes import Author, WriteFailedError
from admin.store.state import StoredOverride, format_time
from admin.store.store import Store
from support.admin.admin_client import RULES, Clock

WHO = Author("tester", "admin", "127.0.0.1", "r1")
KEY = "limits/rocketmq/orders"


def open_store(folder: Path) -> Store:
    return Store.open(folder, RULES, Clock())


async def set_rate(store: Store, rate: int) -> None:
    await store.change(lambda: ([(KEY, StoredOverride(messages=f"{rate}/s"))], None), WHO, "test")


def rate_of(store: Store) -> str | None:
    stored = store.state.keys.get(KEY)
    return None if stored is None else stored.messages


@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[Path]:
    """A state directory with three changes, on a file system that is read-only."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder))
    yield folder / "state"
    subprocess.run(["umount", str(folder)], check=True)


def mount(*words: str) -> None:
    done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(f"this test mounts a tmpfs: run it as root ({done.stderr.strip()})")


def freeze(folder: Path) -> None:
    mount("-o", "remount,ro", str(folder.parent))


async def changed(folder: Path) -> None:
    store = open_store(folder)
    for rate in (1, 2, 3):
        await set_rate(store, rate)
    store.close()


async def test_what_is_there_holds_and_changes_are_refused_with_the_reason(frozen: Path) -> None:
    await changed(frozen)
    freeze(frozen)
    store = open_store(frozen)
    assert (rate_of(store), store.revision, store.revisions()) == ("3/s", 3, [1, 2, 3])
    assert store.read_only == "Read-only file system"
    (warning,) = store.warnings
    assert "live changes cannot be stored, and are refused; those of before hold" in warning
    with pytest.raises(WriteFailedError, match="read-only when the gateway started") as refused:
        await set_rate(store, 4)
    assert refused.value.read_only
    assert (rate_of(store), store.write_failures) == ("3/s", 1)
    assert await store.note(WHO, "test", "done") is False
    assert (await store.verify()).ok
    other = open_store(frozen)  # nobody writes, so nobody is in the way
    other.close()
    store.close()


async def test_what_expires_ceases_to_hold_and_is_not_missed_from_the_disk(frozen: Path) -> None:
    clock = Clock()
    store = Store.open(frozen, RULES, clock)
    end = format_time(clock.now + 10)
    await store.change(lambda: ([(KEY, StoredOverride(messages="1/s", expires=end))], None), WHO, "test")
    store.close()
    freeze(frozen)
    store = Store.open(frozen, RULES, clock)
    assert store.rules().overrides
    clock.now += 11
    assert await store.remove_expired() == ""
    assert not store.rules().overrides
    assert store.write_failures == 0
    store.close()


async def test_damage_that_cannot_be_mended_here_is_told_and_the_limits_hold(frozen: Path) -> None:
    """A torn and an altered history, a damaged state file: all of them are written to elsewhere."""
    await changed(frozen)
    history = frozen / "history.jsonl"
    lines = history.read_bytes().splitlines(keepends=True)
    history.write_bytes(lines[0] + lines[2])
    with (frozen / "refusals.jsonl").open("wb") as file:
        file.write(b'{"hash":')
    (frozen / "state.json").write_bytes((frozen / "state.json").read_bytes()[:-9])
    before = {path.name: path.read_bytes() for path in frozen.iterdir()}
    freeze(frozen)
    store = open_store(frozen)
    assert rate_of(store) == "2/s", "as the previous state file has it; the history has no more"
    told = "\n".join(store.warnings)
    assert "the history cannot be read, and cannot be set aside here" in told
    assert "state.json cannot be written" in told
    store.close()
    assert {path.name: path.read_bytes() for path in frozen.iterdir()} == before


def test_a_lock_that_is_somebody_elses_is_as_good_as_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that ran as root once has left its lock: without it two could write."""
    real = os.open

    def denied(path: object, flags: int, mode: int = 0o777, **more: int) -> int:
        if str(path).endswith("/lock"):
            raise PermissionError(13, "Permission denied")
        return real(path, flags, mode, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", denied)
    store = open_store(tmp_path / "state")
    assert store.read_only == "Permission denied"
    store.close()
