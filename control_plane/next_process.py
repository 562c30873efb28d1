"""SIGUSR2: this process starts the next one by its own command, and that one takes over (`takeover.py`).

So an upgrade needs nobody who starts a process beside the running one, which a service manager would not know. The next process is in the
same control group; once it is ready, systemd is told that it is the service's main process from now on (MAINPID of sd_notify(3)), and the
end of this one is no longer the end of the service.

The next process must not be a child of this one: systemd waits for no main process that is not its own child. It would not notice its end,
and at `systemctl stop` it sends SIGKILL at once (systemd 252). So a shell starts it and ends, and it becomes the first process's child.
"""

from __future__ import annotations

import errno
import logging
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio

from common import log
from control_plane.takeover import STARTED_TO_TAKE_OVER
from gateway import systemd
from gateway.lifecycle import signals

FIRST_PROCESS: Final = 1
ORPHANED: Final = ("/bin/sh", "-c", '"$@" >&2 & echo "$!"', "sh")  # and a command: its process's number; a gateway writes nothing to stdout
OF_THIS_PROCESS: Final = (*systemd.VARIABLES, "WATCHDOG_PID")  # variables that systemd has set for the process that it has started
BY_HAND: Final = "start it by hand, with the same configuration"
GOES_ON: Final = "this gateway goes on; see the other one's lines"


def command_again(argv: Sequence[str] | None = None) -> list[str]:
    """What starts this program once more, as it is installed now. `argv`: the interpreter's own; default: this process's.

    A script's interpreter may be another one after an upgrade, so the script is started by its path, not by the interpreter of before.
    """
    words = list(sys.orig_argv if argv is None else argv)
    return words[1:] if len(words) > 1 and Path(words[1]).is_file() and os.access(words[1], os.X_OK) else words


def environment_again(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of the next process: without what systemd has said to this one alone."""
    kept = {name: value for name, value in environ.items() if name not in OF_THIS_PROCESS}
    return {**kept, STARTED_TO_TAKE_OVER: "1"}


class NextProcess:
    """Starts the next process at each SIGUSR2, one at a time. `run` is a task; a process that has taken over outlives this one.

    A signal that comes while one is under way is kept: the one after it is started when that has taken over, by it, or has ended.
    """

    def __init__(self, stopping: Callable[[], bool], successor: Callable[[], int | None], settled: Callable[[], Awaitable[None]]) -> None:
        self._stopping = stopping
        self._successor = successor  # the process that takes over: None while there is none, 0 where its number is not known here
        self._settled = settled  # waits while it is open whether a process takes over
        self._pid = 0  # of the one that is under way
        self._watching = False  # one is under way, or is started again because it failed
        self._again = False  # a signal came meanwhile

    async def run(self) -> None:
        async with signals.open_takeover_signals() as wanted, trio.open_nursery() as nursery:
            async for _ in wanted:
                if self._watching:
                    self._keep()
                elif await self._start_unless_refused():
                    self._watching = True
                    nursery.start_soon(self._watch)

    def _keep(self) -> None:
        """The next process is under way, or has taken over: it starts the one after it, or this one does where it ends first."""
        log.event(logging.INFO, "next_process_asked_again", pid=self._pid)
        self._again = True
        if self._handed_over():
            self.pass_on()

    def _handed_over(self) -> bool:
        return self._successor() is not None

    def pass_on(self) -> None:
        """This process has handed over: a signal that it has kept is the next one's, whoever has started that."""
        successor = self._successor()
        if self._again and successor:
            self._again = False
            with suppress(OSError):  # it has ended, or is root's
                os.kill(successor, signal.SIGUSR2)

    async def _start_unless_refused(self) -> bool:
        await self._settled()
        if self._handed_over():  # to one that somebody else has started
            self._keep()
            return False
        why, remedy = self._refusal()
        if why:
            log.event(logging.WARNING, "takeover_failed", err=f"no next process is started: {why}", remedy=remedy)
            return False
        return await self._start()

    def _refusal(self) -> tuple[str, str]:
        """Why none can be started, and the way out; empty where one can."""
        if self._stopping():
            return "this one is stopping already", "start the next one when it has ended"
        if os.getpid() == FIRST_PROCESS:
            return "this is the first process of its container, whose end is the end of the container", "start another container"
        if os.getppid() == FIRST_PROCESS and not os.environ.get("NOTIFY_SOCKET") and STARTED_TO_TAKE_OVER not in os.environ:
            why = "the first process has started this one, and would take its end for the end of the service"
            return why, f"systemd: Type=notify; a container: start another one; else {BY_HAND}"
        return "", ""

    async def _start(self) -> bool:
        command = command_again()
        log.event(logging.INFO, "next_process_started", command=shlex.join(command))
        environment = environment_again(os.environ)
        try:
            shell = await trio.run_process(
                [*ORPHANED, *command], env=environment, capture_stdout=True, check=False, stdin=subprocess.DEVNULL
            )
            self._pid = int(shell.stdout)
        except (OSError, ValueError) as error:
            log.event(logging.WARNING, "takeover_failed", err=f"{ORPHANED[0]}: {error}", remedy=BY_HAND)
            return False
        return True

    async def _watch(self) -> None:
        """Watch the one that was started, and those that are started because it failed while a signal was kept."""
        try:
            await self._watch_one()
            while self._again and not self._handed_over() and not self._stopping():
                self._again = False
                if not await self._start_unless_refused():
                    return
                await self._watch_one()
        finally:
            self._watching = False

    async def _watch_one(self) -> None:
        """Say it when the one that was started has ended; it is no child of this one, so nobody here is told its exit code."""
        try:
            descriptor = os.pidfd_open(self._pid)
        except OSError as error:
            if error.errno != errno.ESRCH:  # it cannot be watched; its own lines say what becomes of it
                self._pid = 0
                return
        else:
            try:
                await trio.lowlevel.wait_readable(descriptor)
            finally:
                os.close(descriptor)
        await self._settled()
        pid, self._pid = self._pid, 0
        if self._handed_over():
            remedy = "if nobody has stopped it, start another when this process has ended; systemd's sockets do that by themselves"
            log.event(logging.WARNING, "next_process_ended", pid=pid, remedy=remedy)
        elif not self._stopping():
            log.event(logging.WARNING, "takeover_failed", err=f"the next process ({pid}) has ended", remedy=GOES_ON)
