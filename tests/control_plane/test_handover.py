"""The running process' part of a takeover with a real state directory: what it lends, takes back, and cannot have again.

What the two processes say to each other: test_takeover.py. With real gateways: tests/end_to_end/test_takeover.py.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from admin.store.changes import Author, WriteFailedError
from admin.store.state import StoredOverride
from admin.store.store import Store, StoreError
from control_plane import handover
from control_plane.handover import Handover
from control_plane.takeover import Takeover
from gateway import systemd
from limiter.rules.rule_set import RuleSet
from support.admin.admin_client import RULES, Clock
from support.processes import HANG_S


@pytest.fixture(autouse=True)
def quick_and_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systemd, "notify", lambda *_, **__: None)
    monkeypatch.setattr(systemd, "keep_silent", dict)
    monkeypatch.setattr(handover, "RETRY_S", 0.01)


class Process:
    """A running process, but for its clients."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = Store.open(folder, RULES, Clock())
        self.acts: list[str] = []
        self.listening = socket.create_server(("127.0.0.1", 0))
        admin: Any = SimpleNamespace(leave=lambda: None, come_back=lambda: None)
        levels: Any = SimpleNamespace(freeze=lambda: None, thaw=lambda: None)
        self.handover = Handover(self.store, admin, levels, self)
        place: Any = SimpleNamespace(takeover=folder / "takeover.sock", state_directory=folder, workers=1)
        point, _, *more = self.handover.tasks(place, lambda: [self.listening], lambda: False)
        self.tasks = [point, *more]  # without the one that waits for a signal

    def stand_still(self) -> None:
        self.acts.append("stands still")

    def go_on(self) -> None:
        self.acts.append("goes on")

    def hand_over(self) -> None:
        self.acts.append("drains")

    def enforce(self, rules: RuleSet) -> None:
        self.acts.append(f"enforces revision {rules.revision}")

    async def has_done(self, act: str) -> None:
        with trio.fail_after(HANG_S):
            while act not in self.acts:
                await trio.sleep(0.001)

    async def begun(self) -> Takeover:
        """A next process that has the sockets and is to be ready next."""
        path = self.folder / "takeover.sock"
        with trio.fail_after(HANG_S):
            while (one := await trio.to_thread.run_sync(partial(Takeover.begin, path, self.folder))) is None:
                await trio.sleep(0.001)
        one.inheritance.close_rest()
        return one


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Process]:
    process = Process(folder)
    with process.listening:
        async with trio.open_nursery() as nursery:
            for task in process.tasks:
                nursery.start_soon(cast("Any", task))
            yield process
            nursery.cancel_scope.cancel()
    process.store.close()


async def set_rate(store: Store, rate: int) -> None:
    edits = [("limits/rocketmq/orders", StoredOverride(messages=f"{rate}/s"))]
    await store.change(lambda: (edits, None), Author("tester", "admin", "127.0.0.1", "r1"), "test")


async def fail(process: Process, caplog: pytest.LogCaptureFixture) -> Store:
    """A next process gets the state and dies; something of it still has that."""
    one = await process.begun()
    await trio.to_thread.run_sync(one.commit)
    kept = Store.open(process.folder, RULES, Clock())
    await set_rate(kept, 8)
    one.close()
    with trio.fail_after(HANG_S):
        while "state_not_taken_back" not in caplog.messages:
            await trio.sleep(0.001)
    return kept


async def test_while_the_state_cannot_be_had_again_the_next_process_may_take_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody listened there meanwhile, so a process that was started then was told that the directory was in use."""
    async with running(tmp_path) as process:
        kept = await fail(process, caplog)
        with pytest.raises(WriteFailedError, match="has failed to and is not gone yet"):
            await set_rate(process.store, 9)
        following = await process.begun()
        kept.close()
        await trio.to_thread.run_sync(following.commit)
        with closing(Store.open(tmp_path, RULES, Clock())) as state:
            assert state.revision == 1
            await trio.to_thread.run_sync(following.confirm)
            await process.has_done("drains")
            for _ in range(5):  # the one before does not try any more
                await trio.sleep(2 * handover.RETRY_S)
            await set_rate(state, 9)
            with pytest.raises(WriteFailedError, match="another process has taken over"):
                await set_rate(process.store, 10)
        assert not process.handover.lent


async def test_it_has_the_state_again_once_that_is_free_also_after_another_process_that_failed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with running(tmp_path) as process:
        kept = await fail(process, caplog)
        another = await process.begun()
        await trio.to_thread.run_sync(another.commit)
        with pytest.raises(StoreError, match="in use by another gateway"):
            Store.open(tmp_path, RULES, Clock())
        another.close()
        with trio.fail_after(HANG_S):
            while process.acts.count("goes on") < 2:
                await trio.sleep(0.001)
        assert "enforces revision 1" not in process.acts
        kept.close()
        await process.has_done("enforces revision 1")
        await set_rate(process.store, 9)
        assert process.store.revision == 2
        assert [message for message in caplog.messages if "taken_back" in message] == [
            "taken_back", "state_not_taken_back", "taken_back", "state_taken_back",
        ]  # fmt: skip
        again = await process.begun()
        await trio.to_thread.run_sync(again.commit)
        with pytest.raises(WriteFailedError, match="another process is taking over"):
            await set_rate(process.store, 10)
        again.close()
