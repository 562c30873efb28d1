"""`gateway.reload_on_change`, with a gateway's process and real files: Kubernetes' way to replace them, an editor's, and faulty ones."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from admin.ports import ReloadFailedError
from common import log
from config import load
from config.hung_files import READ_S
from control_plane import file_watch
from support.gateways import Gateway
from support.processes import LOOPBACK, free_ports, wait_until

pytestmark = pytest.mark.slow  # a gateway for each

LIMITS = "rules:\n  - {name: all, match: {protocol: rocketmq}, per: topic, limit: {messages: RATE/s}}\n"
VIEWER = "a-viewers-token-which-is-long-enough-"


def config(workers: int, folder: Path, ports: list[int]) -> str:
    return f"""\
gateway: {{name: watched, state_directory: {folder}/state, reload_on_change: true, workers: {workers}}}
listeners: [{{name: one, protocol: rocketmq, bind: "{LOOPBACK}:{ports[0]}", upstream: "{LOOPBACK}:{ports[1]}"}}]
admin: {{bind: "{LOOPBACK}:{ports[2]}", tokens: [{{name: prometheus, role: viewer, file: viewer.token}}]}}
access_log: off
rules_file: limits.yaml
"""


class Mount:
    """A ConfigMap's volume as kubelet makes one: files are links into `..data`, a link to a folder, and only that one is swapped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._versions = 0
        folder.mkdir()

    def write(self, files: dict[str, str]) -> None:
        """All files at once; the folder of before goes."""
        old = self.folder / "..data"
        gone = old.resolve() if old.is_symlink() else None
        self._versions += 1
        made = self.folder / f"..2026_11_26_{self._versions}"
        made.mkdir()
        for name, text in files.items():
            (made / name).write_text(text)
        swap = self.folder / "..data_tmp"
        swap.symlink_to(made.name)
        swap.rename(old)
        for name in files:
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(f"..data/{name}")
        if gone is not None:
            for file in gone.iterdir():
                file.unlink()
            gone.rmdir()


def limit(gateway: Gateway) -> str:
    return str(gateway.get("/v1/rules")["items"][0]["limit"]["messages"])


def events(gateway: Gateway, name: str) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, gateway.log().splitlines()) if line["event"] == name]


@pytest.fixture
def mounted(tmp_path: Path) -> Callable[[int], tuple[Mount, Gateway, dict[str, str]]]:
    def make(workers: int) -> tuple[Mount, Gateway, dict[str, str]]:
        ports = free_ports(3)
        mount = Mount(tmp_path / "mount")
        files = {
            "sluice.yaml": config(workers, tmp_path, ports), "limits.yaml": LIMITS.replace("RATE", "10"), "viewer.token": f"{VIEWER}1\n",
        }  # fmt: skip
        mount.write(files)
        gateway = Gateway(tmp_path, [], [], until="/livez")
        gateway.config, gateway.admin_port = mount.folder / "sluice.yaml", ports[2]
        return mount, gateway, files

    return make


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_swapped_config_map_is_read_in_one_piece(mounted: Callable[[int], tuple[Mount, Gateway, dict[str, str]]], workers: int) -> None:
    mount, gateway, files = mounted(workers)
    with gateway:
        assert limit(gateway) == "10/s"
        mount.write(files | {"limits.yaml": LIMITS.replace("RATE", "20"), "viewer.token": f"{VIEWER}2\n"})
        gateway.process.wait_until(lambda: limit(gateway) == "20/s", within=30, what="the new limit")
        assert gateway.request("GET", "/v1/status", authorised=False, Authorization=f"Bearer {VIEWER}2").status == 200
        assert gateway.request("GET", "/v1/status", authorised=False, Authorization=f"Bearer {VIEWER}1").status == 401
        wait_until(lambda: bool(events(gateway, "files_changed")), within=30, what="the line about it")
        (told,) = events(gateway, "files_changed")
        assert told["files"] == [str(mount.folder / name) for name in sorted(files)], "each lies in another folder now"
        mount.write(files | {"limits.yaml": "rules: [{name: all, limit: {messages: 10O/s}}]\n"})
        wait_until(lambda: bool(events(gateway, "reload_failed")), within=30, what="the line about a faulty file")
        assert limit(gateway) == "20/s", "the last good one stays"
        mount.write(files)
        gateway.process.wait_until(lambda: limit(gateway) == "10/s", within=30, what="the first limit")
        assert len(events(gateway, "reload_failed")) == 1, "what is faulty is read once"


def test_names_of_files_are_those_of_the_configuration_and_no_folders(tmp_path: Path) -> None:
    (tmp_path / "sluice.yaml").write_text(config(1, tmp_path, [1, 2, 3]))
    (tmp_path / "limits.yaml").write_text(LIMITS.replace("RATE", "1"))
    (tmp_path / "viewer.token").write_text(VIEWER)
    (tmp_path / "state").mkdir()
    names = file_watch.list_watched(load(tmp_path / "sluice.yaml"))
    found = file_watch.look(names)
    assert {path.name for path, about in found.items() if about is not None} == {"sluice.yaml", "limits.yaml", "viewer.token"}
    assert found[tmp_path / "state"] is None


def test_a_file_that_is_still_written_is_left_until_it_is_done(tmp_path: Path) -> None:
    file, changes = tmp_path / "sluice.yaml", file_watch.Changes({})

    def seen(text: str) -> list[str]:
        file.write_text(text)
        return changes.find_changed(file_watch.look([file]))

    assert [seen("a"), seen("ab"), seen("abc")] == [[], [], []]
    assert changes.find_changed(file_watch.look([file])) == [str(file)]
    assert changes.find_changed(file_watch.look([file])) == []
    file.unlink()
    assert [changes.find_changed(file_watch.look([file])) for _ in range(3)] == [[], [str(file)], []]
    other = tmp_path / "limits.yaml"
    other.write_text("a name that the configuration has come to have")
    assert [changes.find_changed(file_watch.look([file, other])) for _ in range(3)] == [[], [], []]


@pytest.mark.parametrize("case", ["changed while the process was built", "read when it could not be", "faulty"])
async def test_what_has_changed_is_read_until_it_is_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock, case: str
) -> None:
    del autojump_clock
    file = tmp_path / "sluice.yaml"
    settings = cast(Any, SimpleNamespace(gateway=SimpleNamespace(reload_on_change=True)))
    monkeypatch.setattr(file_watch, "list_watched", lambda _: (file,))

    async def at(_: object, paths: tuple[Path, ...]) -> file_watch.Look:
        return file_watch.look(paths)  # on no thread, for which this clock would not wait

    monkeypatch.setattr(file_watch.Looks, "take_look", at)
    of_case: dict[str, list[Exception]] = {
        "changed while the process was built": [],
        "read when it could not be": [ReloadFailedError(["not read within 30 s"], passing=True), RuntimeError("can't start new thread")],
        "faulty": [ReloadFailedError(["an unknown setting"])],
    }
    faults = of_case[case]
    tries = len(faults) + 1
    read: list[str] = []

    async def reload() -> None:
        read.append(file.read_text())
        if faults:
            raise faults.pop(0)

    file.write_text("old")
    known = file_watch.look([file])
    file.write_text("new one")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(file_watch.reload_on_change, lambda: settings, reload, known)
        await trio.sleep(10 * file_watch.RETRY_S)
        nursery.cancel_scope.cancel()
    assert read == ["new one"] * (1 if case == "faulty" else tries)


async def test_a_mount_that_hangs_is_named_once_and_looked_at_again(
    mock_clock: trio.testing.MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(log, "event", lambda _level, event, **fields: said.append(f"{event}: {fields['err']}"))
    hangs, back = threading.Event(), threading.Event()

    def stat(path: Path) -> None:
        hangs.set()
        back.wait()
        raise FileNotFoundError(path)

    file, looks = tmp_path / "hung.pem", file_watch.Looks()
    found: list[file_watch.Look | None] = []

    async def look_three_times() -> None:
        found.extend([await looks.take_look((file,)) for _ in range(3)])

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", stat)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(look_three_times)
                await trio.to_thread.run_sync(hangs.wait)
                for _ in range(3):
                    await trio.testing.wait_all_tasks_blocked()
                    mock_clock.jump(READ_S + 1)
        finally:
            back.set()
    assert found == [None, None, None]
    assert [f"{file} was not read within 30 s" in line for line in said] == [True]
    assert await looks.take_look((file,)) == {file: None}
