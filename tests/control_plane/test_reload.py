"""Reloads: traffic goes on while files are read, one is read at a time, what was decided meanwhile holds. A whole gateway, in process."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from admin.ports import ReloadFailedError
from admin.store.changes import Author
from admin.store.state import StoredOverride
from admin.store.store import Store
from common import quick_switches
from config import Settings
from control_plane import reload
from control_plane.standalone import Standalone
from support.idle_standalone import idle

CONFIGURATION = """
gateway: {state_directory: state}
access_log: off
limiter: {threads: 0}
listeners:
  - {name: one, protocol: rocketmq, bind: 127.0.0.1:0, upstream: 127.0.0.1:1}
rules:
  - {name: all, limit: {messages: RATE/s}}
"""


def write(directory: Path, rate: str) -> Path:
    file = directory / "sluice.yaml"
    file.write_text(CONFIGURATION.replace("RATE", rate))
    return file


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Standalone]:
    """Its rule allows 1/s; the file says 2/s by now. It is not running."""
    with idle(write(tmp_path, "1")) as made:
        write(tmp_path, "2")
        yield made


def limit(standalone: Standalone) -> str:
    rule = standalone.store.rules().file_rules[0]
    assert standalone.gateway.settings.rules == (rule,)
    assert rule.limit.messages is not None
    return str(rule.limit.messages)


class SlowDisk:
    """Takes the place of `reloads.read`: reads, and then is not done until it is told so."""

    def __init__(self) -> None:
        self.read = reload.read
        self.reading = 0
        self.most = 0
        self.done = threading.Semaphore(0)
        self.found: reload.NewConfiguration | None = None

    def __call__(self, settings: Settings, store: Store) -> reload.NewConfiguration:
        self.reading += 1
        self.most = max(self.most, self.reading)
        found = self.found = self.read(settings, store)
        assert self.done.acquire(timeout=60), "the loop had no turn"
        self.reading -= 1
        return found

    async def is_read(self) -> None:
        with trio.fail_after(30):
            while self.found is None:
                await trio.sleep(0.001)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    made = SlowDisk()
    monkeypatch.setattr(reload, "read", made)
    return made


async def test_the_loop_has_its_turns_while_files_are_read(standalone: Standalone, disk: SlowDisk) -> None:
    before, usual = limit(standalone), sys.getswitchinterval()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(standalone.reload)
        await disk.is_read()
        assert limit(standalone) == before, "in force only when all is read"
        assert sys.getswitchinterval() == pytest.approx(quick_switches.SWITCH_S)
        disk.done.release()
    assert limit(standalone) != before
    assert sys.getswitchinterval() == pytest.approx(usual)


async def test_one_reload_at_a_time_and_the_last_one_reads_what_the_file_says_then(
    standalone: Standalone, disk: SlowDisk, tmp_path: Path
) -> None:
    answers: list[object] = []

    async def reload() -> None:
        answers.append((await standalone.reload())["in_force"])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(reload)
        await disk.is_read()
        write(tmp_path, "3")
        nursery.start_soon(reload)
        await trio.testing.wait_all_tasks_blocked()
        disk.done.release(2)
    assert disk.most == 1
    assert answers == [["rule all: limit.messages: 1/s -> 2/s"], ["rule all: limit.messages: 2/s -> 3/s"]]


async def test_a_live_change_made_while_files_are_read_holds(standalone: Standalone, disk: SlowDisk) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(standalone.reload)
        await disk.is_read()
        await standalone.store.change(
            lambda: ([("limits/rocketmq/orders", StoredOverride(messages="7/s"))], None), Author("alice", "operator"), "test"
        )
        disk.done.release()
    assert standalone.store.rules().file_rules is standalone.gateway.settings.rules
    assert len(standalone.store.rules().overrides) == 1
    assert "2/s" in standalone.gateway.settings.describe()["rules"][0]["limit"]["messages"]  # type: ignore[index]


async def test_a_stop_during_a_reload_does_not_wait_and_puts_nothing_in_force(standalone: Standalone, disk: SlowDisk) -> None:
    before, usual = limit(standalone), sys.getswitchinterval()
    with trio.CancelScope() as stop:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(standalone.reload)
            await disk.is_read()
            stop.cancel()
    assert disk.reading == 1
    disk.done.release()
    while disk.reading:
        await trio.sleep(0.001)
    assert (limit(standalone), standalone.reloads.last.ok) == (before, True)
    assert sys.getswitchinterval() == pytest.approx(usual)
    assert not standalone.reloads.turn.locked()


async def test_a_dry_run_changes_nothing(standalone: Standalone) -> None:
    before = limit(standalone)
    assert await standalone.reload(dry_run=True) == {
        "in_force": ["rule all: limit.messages: 1/s -> 2/s"], "needs_restart": [], "dry_run": True,
    }  # fmt: skip
    assert limit(standalone) == before


async def test_an_unusable_file_is_reported_with_all_its_faults_and_the_next_is_read(standalone: Standalone, tmp_path: Path) -> None:
    before = limit(standalone)
    write(tmp_path, "many")
    with pytest.raises(ReloadFailedError) as failed:
        await standalone.reload()
    (fault,) = failed.value.errors
    assert "rules[0].limit.messages" in fault
    assert (limit(standalone), standalone.reloads.last.ok) == (before, False)
    write(tmp_path, "2")
    await standalone.reload()
    assert (limit(standalone) == before, standalone.reloads.last.ok) == (False, True)


async def test_a_setting_that_needs_a_restart_is_reported_until_the_file_agrees_again(standalone: Standalone, tmp_path: Path) -> None:
    def told() -> object:
        return standalone.status().needs_restart

    file = tmp_path / "sluice.yaml"
    moved = file.read_text().replace("127.0.0.1:0", "127.0.0.1:7")
    line = "listeners.one.bind: 127.0.0.1:0 -> 127.0.0.1:7"
    file.write_text(moved)
    await standalone.reload(dry_run=True)
    assert told() == [], "a dry run is asked for, not done"
    assert (await standalone.reload())["needs_restart"] == told() == [line]
    file.write_text(moved.replace("2/s", "3/s"))
    await standalone.reload()
    assert told() == [line], "rules are in force, that is not"
    file.write_text(moved.replace("2/s", "many"))
    with pytest.raises(ReloadFailedError):
        await standalone.reload()
    assert told() == [line]
    write(tmp_path, "2")
    await standalone.reload()
    assert told() == []


async def test_rules_that_have_not_changed_are_not_put_in_force_again(standalone: Standalone, tmp_path: Path) -> None:
    """All keys would match anew, for nothing."""
    await standalone.reload()
    rules = standalone.store.rules()
    await standalone.reload()
    assert standalone.store.rules() is rules
    (tmp_path / "sluice.yaml").write_text("# moved down\n" + CONFIGURATION.replace("RATE", "2"))
    assert (await standalone.reload())["in_force"] == []
    assert standalone.store.rules().file_rules[0].place.endswith(":9"), "where it stands now"


async def test_rules_are_compiled_where_they_are_read(standalone: Standalone, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop would wait 20 ms for each thousand of them."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(standalone.reload)
        await disk.is_read()
        found = disk.found
        assert found is not None
        assert found.compiled is not None
        disk.done.release()
    assert standalone.store.rules()._matchers is found.compiled._matchers


async def test_each_hangup_reloads_even_after_one_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr("gateway.systemd.notify", told.append)
    faults: list[Exception] = [ReloadFailedError(["bad"]), RuntimeError("boom")]
    reloaded = 0

    async def reread() -> None:
        nonlocal reloaded
        if faults:
            raise faults.pop()
        reloaded += 1

    async with trio.open_nursery() as nursery:
        serving = trio.Event()
        await nursery.start(reload.reload_on_hangup, reread, serving)
        signal.raise_signal(signal.SIGHUP)  # while it starts: systemd would take its READY=1 for the start
        await trio.testing.wait_all_tasks_blocked()
        assert told == []
        serving.set()
        for _ in range(2):
            await trio.testing.wait_all_tasks_blocked()
            signal.raise_signal(signal.SIGHUP)
        with trio.fail_after(30):
            while not reloaded:
                await trio.sleep(0.001)
        nursery.cancel_scope.cancel()
    assert reloaded == 1
    assert told == ["RELOADING=1", "READY=1"] * 3
