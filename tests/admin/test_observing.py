"""A process that will take over reads the state directory while another one has it, and changes nothing of it until then."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from admin.store import recovery, state_directory
from admin.store.changes import Author, WriteFailedError
from admin.store.journal import Entry, Journal
from admin.store.state import StoredOverride
from admin.store.store import Store, StoreError
from common.durable_files import FileSystem
from limiter.rules.hourly_raise import HourlyRaise
from support.admin.admin_client import RULES, Clock

WHO = Author("tester", "admin", "127.0.0.1", "r1")
KEY = "limits/rocketmq/orders"


async def set_rate(store: Store, rate: int, key: str = KEY) -> None:
    await store.change(lambda: ([(key, StoredOverride(messages=f"{rate}/s"))], None), WHO, "test")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("damage", ["", "state.json", "both", "a change under way"])
async def test_nothing_is_changed_not_even_half_a_line_that_is_being_written(tmp_path: Path, damage: str) -> None:
    running = Store.open(tmp_path, RULES, Clock())
    for rate in (6, 7):
        await set_rate(running, rate)
    if damage == "a change under way":
        Journal(tmp_path, FileSystem()).append(Entry(3, "2026-11-18T11:06:40Z", "ann", "PUT", "applied", revision=3))
    with (tmp_path / "history.jsonl").open("ab") as history:
        history.write(b'{"hash":"half a li')
    for name in {"state.json": ["state.json"], "both": ["state.json", "state.json.previous"]}.get(damage, []):
        (tmp_path / name).unlink()
    before = contents(tmp_path)
    observing = Store.open(tmp_path, RULES, Clock(), observing=True)
    assert contents(tmp_path) == before
    assert observing.revision == 2
    assert bool(observing.warnings) == (damage in ("state.json", "both")), "nothing was cut off, and nothing needed writing"
    with pytest.raises(WriteFailedError, match="another process still has it"):
        await set_rate(observing, 8)
    assert contents(tmp_path) == before
    running.close()


async def test_it_takes_what_was_changed_meanwhile_and_the_one_before_refuses(tmp_path: Path) -> None:
    running = Store.open(tmp_path, RULES, Clock())
    observing = Store.open(tmp_path, RULES, Clock(), observing=True)
    await set_rate(running, 7)
    assert observing.revision == 0
    await running.hand_over()
    observing.take()
    assert observing.revision == 1
    with pytest.raises(WriteFailedError, match="another process is taking over") as open_yet:
        await set_rate(running, 9)
    assert open_yet.value.way_out == "wait for some seconds"
    running.give()
    with pytest.raises(WriteFailedError, match="another process has taken over") as known:
        await set_rate(running, 9)
    assert known.value.way_out == "ask that one"
    await set_rate(observing, 8)
    observing.close()
    assert Store.open(tmp_path, RULES, Clock()).revision == 2


@pytest.mark.parametrize("damaged", [False, True])
async def test_what_was_handed_over_is_had_again_once_it_is_free_and_whole(tmp_path: Path, *, damaged: bool) -> None:
    """Until then what was in force holds, and changes are refused."""
    running = Store.open(tmp_path, RULES, Clock())
    await set_rate(running, 7)
    before = running.rules()
    await running.hand_over()
    other = Store.open(tmp_path, RULES, Clock())
    await set_rate(other, 8)
    kept = contents(tmp_path)
    if damaged:
        other.close()
        for name in ("state.json", "state.json.previous"):
            (tmp_path / name).write_bytes(b"{")
    for _ in range(2):
        with pytest.raises(StoreError):
            running.take()
        assert running.rules() is before
        with pytest.raises(WriteFailedError, match="or has failed to and is not gone yet"):
            await set_rate(running, 9)
    other.close()
    for name in ("state.json", "state.json.previous"):
        (tmp_path / name).write_bytes(kept[name])
    running.take()
    assert running.revision == 2
    await set_rate(running, 9)
    assert running.revision == 3
    running.close()


@pytest.mark.parametrize("steps", range(1, 8))
async def test_a_change_under_way_while_the_folder_is_had_again_keeps_what_the_other_one_acknowledged(tmp_path: Path, steps: int) -> None:
    """Its plan was made on the state of before. Without a turn it was stored over the other's, as the same revision."""
    running = Store.open(tmp_path, RULES, Clock())
    await set_rate(running, 7)
    await running.hand_over()
    other = Store.open(tmp_path, RULES, Clock())
    await set_rate(other, 8, "limits/rocketmq/acknowledged")
    other.close()

    async def change() -> None:
        with suppress(WriteFailedError):
            await set_rate(running, 9, "limits/rocketmq/under-way")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(change)
        for _ in range(steps):
            await trio.lowlevel.checkpoint()
        await running.take_again()
    running.close()
    again = Store.open(tmp_path, RULES, Clock())
    assert "limits/rocketmq/acknowledged" in again.state.keys
    assert (await again.verify()).faults == []


async def handed_over_and_left(folder: Path) -> Store:
    """A running process whose folder another one has had, and changed, and left."""
    running = Store.open(folder, RULES, Clock())
    await set_rate(running, 7)
    await running.hand_over()
    other = Store.open(folder, RULES, Clock())
    await set_rate(other, 8)
    other.close()
    return running


class Reading:
    """Stops whoever reads the state until `goes_on` is set; where that is the event loop's thread, nobody can."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = threading.Event()
        self.goes_on = threading.Event()
        self.waited = True  # for as long as it had to
        read = recovery.load_state

        def load_state(*arguments: Any) -> Any:
            self.begun.set()
            self.waited = self.goes_on.wait(5)
            return read(*arguments)

        monkeypatch.setattr(recovery, "load_state", load_state)

    async def until_begun(self) -> None:
        while not self.begun.is_set():
            await trio.sleep(0.001)


async def test_messages_go_on_and_the_limits_of_before_hold_while_the_folder_is_had_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of live changes take 0.1 s to read."""
    running = await handed_over_and_left(tmp_path)
    before, reading = running.rules(), Reading(monkeypatch)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(running.take_again)
        await reading.until_begun()
        assert running.rules() is before
        with pytest.raises(StoreError):  # it has the lock already
            Store.open(tmp_path, RULES, Clock())
        reading.goes_on.set()
    assert reading.waited
    assert running.revision == 2
    await set_rate(running, 9)
    assert running.revision == 3
    running.close()


async def test_rules_and_raises_that_came_meanwhile_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = await handed_over_and_left(tmp_path)
    reading, hourly = Reading(monkeypatch), HourlyRaise({}, 4.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(running.take_again)
        await reading.until_begun()
        running.replace_file_rules(RULES[:1])
        running.raise_quotas(hourly, 1)
        reading.goes_on.set()
    assert reading.waited
    assert [rule.name for rule in running.rules().file_rules] == [RULES[0].name]
    assert running.rules().hourly is hourly
    (override,) = running.rules().overrides.values()
    assert override.messages is not None
    assert override.messages.per_second == 8
    running.close()


async def test_a_change_that_comes_while_the_folder_is_read_is_made_on_what_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await handed_over_and_left(tmp_path)
    reading = Reading(monkeypatch)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(running.take_again)
        await reading.until_begun()
        nursery.start_soon(set_rate, running, 9, "limits/rocketmq/meanwhile")
        await trio.testing.wait_all_tasks_blocked()
        assert running.revision == 1
        reading.goes_on.set()
    assert running.revision == 3
    running.close()
    again = Store.open(tmp_path, RULES, Clock())
    assert [stored.messages for stored in again.state.keys.values()] == ["8/s", "9/s"]
    assert (await again.verify()).faults == []


async def test_nothing_is_stored_while_another_process_has_the_lock_and_no_disk_is_said_to_be_broken(tmp_path: Path) -> None:
    running = Store.open(tmp_path, RULES, Clock())
    await running.hand_over()
    other = Store.open(tmp_path, RULES, Clock())
    refused = 0

    async def change_again_and_again() -> None:
        nonlocal refused
        for rate in range(100):
            with pytest.raises(WriteFailedError):
                await set_rate(running, 1 + rate)
            refused += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(change_again_and_again)
        while refused < 100:
            with pytest.raises(StoreError):
                await running.take_again()
            await trio.lowlevel.checkpoint()
    assert (running.write_failures, other.revision) == (0, 0)
    other.close()
    await running.take_again()
    await set_rate(running, 5)


async def test_a_folder_that_cannot_be_read_has_its_reason_also_after_a_takeover_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_directory, "_make", lambda _: "Permission denied")  # root may look into all of them
    running = Store.open(tmp_path, RULES, Clock())
    await running.hand_over()
    await running.take_again()
    assert running.read_only == "Permission denied"
