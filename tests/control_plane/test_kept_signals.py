"""SIGUSR2 that comes before it is known what it does, or while the next process is under way, and SIGHUP that comes before the process
serves: kept, and never lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.slow  # a gateway for each

# What a process does at its start: signals are taken, SIGUSR2 comes, and then the settings say whether there is a takeover.
PROGRAM = """\
import os, signal, sys, time, trio
from common import log
from gateway.lifecycle import signals
from control_plane.next_process import NextProcess

class Next(NextProcess):
    started = []
    fails = int(sys.argv[2])

    async def _start(self):
        self.started.append(0)
        self._pid = 1 << 30  # nobody's
        return True

    async def _watch_one(self):
        if len(self.started) <= self.fails:
            os.kill(os.getpid(), signal.SIGUSR2)
            while not self._again:
                await trio.sleep(0.01)
        self._pid = 0
        print(len(self.started), flush=True)
        if len(self.started) > self.fails:
            done.set()

async def main():
    os.kill(os.getpid(), signal.SIGUSR2)
    while not taken._kept:
        await trio.sleep(0.01)
    if sys.argv[1] == "none":
        signals.ignore_takeover_signal()
        return
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Next(lambda: False, lambda: None, trio.lowlevel.checkpoint).run)
            await done.wait()
            nursery.cancel_scope.cancel()

os.environ["SLUICE_STARTED_TO_TAKE_OVER"] = "1"  # or a child of the first process starts none
done = trio.Event()
handler = log.start("info", "json")
with signals.Signals(handler, starting=True) as taken:
    trio.run(main)
handler.close()
"""


def done_by(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, "-c", program, *words], env=environment, capture_output=True, text=True, timeout=120, check=True)


def run(*words: str) -> tuple[list[str], list[dict[str, Any]]]:
    """The numbers of starts that it wrote, and its log."""
    done = done_by(PROGRAM, *words)
    return done.stdout.split(), [json.loads(line) for line in done.stderr.splitlines()]


def test_one_that_comes_before_the_gateway_serves_starts_the_next_process_then() -> None:
    started, lines = run("takeover", "0")
    assert started == ["1"]
    assert [line["event"] for line in lines] == []


def test_without_a_takeover_it_is_said_that_it_means_nothing() -> None:
    started, lines = run("none", "0")
    assert started == []
    assert [(line["event"], line["signal"]) for line in lines] == [("signal_ignored", "SIGUSR2")]


@pytest.mark.parametrize("fails", [1, 2])
def test_one_that_comes_while_the_next_process_starts_starts_another_when_that_has_failed(fails: int) -> None:
    started, lines = run("takeover", str(fails))
    assert started == [str(number + 1) for number in range(fails + 1)]
    assert [line["event"] for line in lines] == ["next_process_asked_again"] * fails


HANGUP = """\
import os, signal, trio, trio.testing
from common import log
from control_plane import reload
from gateway.lifecycle import signals

async def reread():
    print("reloaded", flush=True)
    scope.cancel()

async def main():
    with scope:
        serving = trio.Event()
        async with trio.open_nursery() as nursery:
            await nursery.start(reload.reload_on_hangup, reread, serving)
            await trio.testing.wait_all_tasks_blocked()
            print("serves", flush=True)
            serving.set()

scope = trio.CancelScope()
handler = log.start("info", "json")
with signals.Signals(handler, starting=True):
    os.kill(os.getpid(), signal.SIGHUP)
    trio.run(main)
handler.close()
"""


def test_a_hangup_while_the_process_starts_is_a_reload_once_it_serves() -> None:
    """It ended the process without a word until November 2026."""
    assert done_by(HANGUP).stdout == "serves\nreloaded\n"
