"""SIGUSR2: this process starts the next one by its own command, and that one takes over (`takeover.py`).

So an upgrade needs nobody who starts a process beside the running one, which a service manager would not know. The next process is in the
same control group; once it is ready, systemd is told that it is the service's main process from now on (MAINPID of sd_notify(3)), and the
end of this one is no longer the end of the service.

The next process must not be a child of this one: systemd waits for no main process that is not its own child. It would not notice its end,
and at `systemctl stop` it sends SIGKILL at once (systemd 252). So a shell starts it and ends, and it becomes the first process's child.
"""

from __future__ import annotations

import logging
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio

from gateway import log, systemd

FIRST_PROCESS: Final = 1
LOOK_S: Final = 0.25  # how often a process is looked for that is no child of this one; a guess
ORPHANED: Final = ("/bin/sh", "-c", '"$@" >&2 & echo "$!"', "sh")  # and a command: its process's number; a gateway writes nothing to stdout
OF_THIS_PROCESS: Final = (*systemd.VARIABLES, "WATCHDOG_PID")  # variables that systemd has set for the process that it has started
START_ANOTHER: Final = "start another; sockets that systemd holds do it with the next client, once this process has ended"
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
    return {name: value for name, value in environ.items() if name not in OF_THIS_PROCESS}


async def start_next_on_signal(stopping: Callable[[], bool]) -> None:
    """Start the next process at each SIGUSR2, one at a time. `stopping`: one has taken over already, or a stop was asked for."""
    with trio.open_signal_receiver(signal.SIGUSR2) as numbers:
        async for _ in numbers:
            if stopping():
                _refuse("this one is stopping already", "start the next one when it has ended")
            elif os.getpid() == FIRST_PROCESS:
                _refuse("this is the first process of its container, whose end would end the next one", "start another container")
            else:
                await _start(stopping)


async def _start(stopping: Callable[[], bool]) -> None:
    """Returns when it has ended; it is cancelled, and the next process lives on, when that has taken over and this one is done."""
    command = command_again()
    log.event(logging.INFO, "next_process_started", command=shlex.join(command))
    environment = environment_again(os.environ)
    try:
        shell = await trio.run_process([*ORPHANED, *command], env=environment, capture_stdout=True, check=False, stdin=subprocess.DEVNULL)
    except OSError as error:
        _refuse(f"{ORPHANED[0]}: {error.strerror}", BY_HAND)
        return
    if not shell.stdout.strip().isdigit():
        _refuse(f"{ORPHANED[0]} ended with exit code {shell.returncode}", BY_HAND)
        return
    await _end_of(int(shell.stdout))
    if stopping():
        log.event(logging.ERROR, "next_process_ended", err="it had taken over", remedy=START_ANOTHER)
    else:
        log.event(logging.WARNING, "takeover_failed", err="the next process ended before it had taken over", remedy=GOES_ON)


async def _end_of(process: int) -> None:
    """Wait for the end of a process of the same user that is no child of this one."""
    with suppress(ProcessLookupError):
        while True:
            os.kill(process, 0)
            await trio.sleep(LOOK_S)


def _refuse(why: str, remedy: str) -> None:
    log.event(logging.WARNING, "takeover_failed", err=f"no next process is started: {why}", remedy=remedy)
