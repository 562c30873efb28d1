"""The watchdog, on processes: one whose event loop hangs ends with its stacks, one that was stopped or idle does not."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.lifecycle.signals import REPORT_S
from gateway.lifecycle.watchdog import EXIT_STUCK, systemd_wants
from support.processes import HANG_S, Process

pytestmark = pytest.mark.slow  # processes that hang

PATIENCE_S = 1.5
PROGRAM = """\
import itertools, sys, time, trio
from common import log
from gateway.lifecycle.signals import Signals
from gateway.lifecycle.watchdog import Watchdog

def spin():
    while True:
        pass

def sleep():
    time.sleep(1000)

def keep_the_lock():
    sum(itertools.repeat(0))

async def live():
    for number in itertools.count():
        log.event(30, "alive", number=number)
        await trio.sleep(0.1)

async def main():
    log.event(30, "begun")
    await trio.sleep(0.5)
    if sys.argv[1] == "live":
        await live()
    globals()[sys.argv[1]]()

handler = log.start("info", "json")
with Signals(handler), Watchdog(int(float(sys.argv[2]) * 1e9), handler) as watchdog:
    trio.run(watchdog.run_watched, main)
"""


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **more}


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., Process]:
    def begin(how: str, **more: str) -> Process:
        return Process([sys.executable, "-c", PROGRAM, how, str(PATIENCE_S)], log=tmp_path / "log", env=environment(**more))

    return begin


def events(process: Process, name: str) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in process.output().splitlines() if line.startswith("{") and line.endswith("}")]
    return [line for line in lines if line["event"] == name]


@pytest.mark.parametrize("how", ["spin", "sleep"])
def test_a_loop_that_hangs_ends_the_process_with_the_stack_that_says_why(start: Callable[..., Process], how: str) -> None:
    with start(how) as process:
        assert process.popen.wait(HANG_S) == EXIT_STUCK
        (line,) = events(process, "event_loop_stuck")
        assert float(str(line["silent_s"])) >= PATIENCE_S
        stacks = str(line["stacks"])
        assert f"in {how}\n" in stacks, "the innermost function of the main thread"
        assert "thread MainThread" in stacks
        assert "Watchdog.beat" in stacks, "the tasks"


def test_code_that_keeps_the_interpreters_lock_is_found_out_by_its_processor_time(start: Callable[..., Process]) -> None:
    """As compiled code in a loop does: no thread of Python's can look, nor a handler of Python's run."""
    with start("keep_the_lock") as process:
        assert process.popen.wait(HANG_S) == -signal.SIGPROF
        assert "(most recent call first)" in process.output()
        assert "in keep_the_lock" in process.output()


def test_a_process_that_was_stopped_longer_than_its_patience_goes_on(start: Callable[..., Process]) -> None:
    """SIGSTOP and SIGCONT; so does a suspended machine."""
    with start("live") as process:
        for _ in range(2):
            process.wait_until(lambda: bool(events(process, "alive")), within=30, what="it lives")
            process.signal_tree(signal.SIGSTOP)
            seen = len(events(process, "alive"))
            time.sleep(2 * PATIENCE_S)
            process.signal_tree(signal.SIGCONT)
            enough = seen + round(2 * PATIENCE_S / 0.1)
            process.wait_until(lambda enough=enough: len(events(process, "alive")) > enough, within=60, what="it lives on")  # type: ignore[misc]
        assert events(process, "event_loop_stuck") == []


def test_a_log_that_nobody_reads_does_not_keep_it_alive() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb"), os.fdopen(writing, "wb", buffering=0) as full:
        size = fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
        full.write(b"x" * size)
        with subprocess.Popen([sys.executable, "-c", PROGRAM, "sleep", str(PATIENCE_S)], stderr=writing, env=environment()) as process:
            assert process.wait(60 + REPORT_S) == EXIT_STUCK


def test_the_loop_tells_systemd_that_it_turns_and_one_that_hangs_does_not(tmp_path: Path, start: Callable[..., Process]) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as service_manager:
        service_manager.bind(str(path))
        service_manager.settimeout(30)
        with start("live", NOTIFY_SOCKET=str(path), WATCHDOG_USEC="900000") as process:
            assert {service_manager.recv(100) for _ in range(4)} == {b"WATCHDOG=1"}
            assert process.alive()


def test_systemd_is_told_thrice_in_its_patience_and_only_by_the_process_that_it_means() -> None:
    assert systemd_wants({"WATCHDOG_USEC": "60000000"}) == 20
    assert systemd_wants({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid())}) == 20
    assert systemd_wants({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}) is None
    assert systemd_wants({"WATCHDOG_USEC": "0"}) is None
    assert systemd_wants({}) is None
