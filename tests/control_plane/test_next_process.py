"""By which command and in which environment the next process is started (`control_plane/next_process.py`)."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import trio

from control_plane.next_process import NextProcess, command_again, environment_again
from control_plane.takeover import STARTED_TO_TAKE_OVER


def test_a_script_is_started_by_its_path_since_an_upgrade_may_have_given_it_another_interpreter(tmp_path: Path) -> None:
    script = tmp_path / "sluice"
    script.write_text("#!/usr/bin/python3\n")
    script.chmod(0o755)
    assert command_again(["/opt/one/bin/python", str(script), "run", "-c", "sluice.yaml"]) == [str(script), "run", "-c", "sluice.yaml"]
    link = tmp_path / "link"
    link.symlink_to(script)  # as /usr/bin/sluice of the Debian package, whose end an upgrade changes
    assert command_again(["/opt/one/bin/python", str(link), "run"]) == [str(link), "run"]


def test_a_module_is_started_by_the_same_interpreter(tmp_path: Path) -> None:
    assert command_again(["python3", "-m", "sluice", "run"]) == ["python3", "-m", "sluice", "run"]
    plain = tmp_path / "main.py"  # no program of its own
    plain.write_text("")
    plain.chmod(0o644)
    assert command_again(["python3", str(plain), "run"]) == ["python3", str(plain), "run"]
    assert command_again(["python3"]) == ["python3"]


def test_what_systemd_has_said_to_this_process_is_not_said_to_the_next_one() -> None:
    told = {"LISTEN_PID": "7", "LISTEN_FDS": "2", "LISTEN_FDNAMES": "a:b", "WATCHDOG_PID": "7"}
    kept = {"NOTIFY_SOCKET": "/run/systemd/notify", "WATCHDOG_USEC": "60000000", "HOME": "/var/lib/sluice"}
    assert environment_again({**told, **kept}) == {**kept, STARTED_TO_TAKE_OVER: "1"}


def test_a_kept_signal_is_for_the_process_that_takes_over_whoever_has_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that this process has started may still be importing: SIGUSR2 would end it."""
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append((pid, number)))
    successors: list[int] = []
    next_process = NextProcess(lambda: False, lambda: successors[-1] if successors else None, trio.lowlevel.checkpoint)
    next_process._pid = 17
    next_process._keep()
    successors.append(23)
    next_process.pass_on()
    next_process.pass_on()
    assert killed == [(23, signal.SIGUSR2)]


async def test_a_signal_while_a_process_of_somebody_else_takes_over_goes_to_that_one(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append((pid, number)))
    successors: list[int] = []

    async def settled() -> None:
        await trio.lowlevel.checkpoint()
        successors.append(23)

    next_process = NextProcess(lambda: bool(successors), lambda: successors[-1] if successors else None, settled)
    assert not await next_process._start_unless_refused()
    assert killed == [(23, signal.SIGUSR2)]
