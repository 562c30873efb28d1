"""The demo is ended from outside: nothing of it is left."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from pathlib import Path

import pytest

from support.environments import ROOT
from support.gateways import command
from support.processes import Process, wait_until


def commands_about(folder: Path) -> list[str]:
    """The command lines of all processes that name `folder`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended meanwhile
            continue
        if str(folder) in words:
            found.append(words)
    return found


@pytest.mark.rabbitmq
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP])
def test_what_the_demo_has_started_ends_with_it(tmp_path: Path, ending: signal.Signals) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    env = os.environ | {"TMPDIR": str(scratch), "SLUICE_COMMAND": shlex.join(command())}
    demo = Process([sys.executable, ROOT / "deploy" / "demo" / "demo.py"], log=tmp_path / "said", env=env)
    try:
        demo.wait_until(lambda: any(" run -c " in words for words in commands_about(scratch)), within=600, what="the demo's gateway")
        assert any("rabbit" in words for words in commands_about(scratch))
        os.kill(demo.pid, ending)
        assert demo.popen.wait(600) == 128 + ending
    finally:
        demo.stop(grace=5)
    wait_until(lambda: commands_about(scratch) == [], within=600, what="all that it started to have ended")
    assert list(scratch.iterdir()) == [], "its folder"
