"""Signals: what each does to a gateway's process.

| signal | effect |
| SIGTERM, SIGINT | the graceful stop; the second one ends the process at once |
| SIGHUP | a reload (`reload.py`), once the process serves |
| SIGQUIT | all stacks to the log, then the end, at once |
| SIGUSR1 | all stacks to the log; the gateway goes on |
| SIGUSR2 | with `gateway.takeover` the next process is started (`next_process.py`) |
| SIGUSR2 without it, SIGALRM | a line in the log: by default they would kill without a word |
| SIGPROF | the threads' stacks to stderr, then the end: the watchdog's last means (`watchdog.py`) |

The naive way lets the event loop handle them (`trio.open_signal_receiver`). A loop that hangs then hears nothing, when it matters most.
So Python's handler only writes the number to a pipe, and a thread of its own reads that. It can log and end the process whatever the
loop does.
Python runs the handler on the main thread between two of its instructions, so compiled code that never returns keeps even that from
happening; SIGPROF is handled in C (faulthandler), whatever runs.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Final, Protocol

import trio

from common import log
from gateway.lifecycle import stacks

STOPS: Final = (signal.SIGTERM, signal.SIGINT)
DUMPS: Final = (signal.SIGQUIT, signal.SIGUSR1)
IGNORED: Final = (signal.SIGUSR2, signal.SIGALRM)
SAME_S: Final = 0.1  # seconds; a second one within them is the first: `timeout`, and shells, send both to a process and to its group
REPORT_S: Final = 3.0  # seconds; for the last lines of the log, before the process ends without them
GROUP_S: Final = 1.5  # seconds; for workers to say their stacks before they are killed; a guess


class WorkerGroup(Protocol):
    """The workers of a parent."""

    draining: bool  # none is replaced

    def pids(self) -> Collection[int]: ...


class Signals:
    """Takes the process's signals while it is entered. Use it on the main thread, once at a time.

    `starting`: SIGUSR2 is kept until `start_next_by` says what it does.
    """

    def __init__(self, handler: log.QueueHandler, *, starting: bool = False) -> None:
        self.group: WorkerGroup | None = None
        self.root: trio.lowlevel.Task | None = None  # whose tasks are shown
        self._handler = handler
        self._asked_at: float | None = None  # when the first stop came; monotonic
        self._stop: Callable[[signal.Signals], None] | None = None  # begins a graceful stop; called on the signals' thread
        self._starting = starting  # whether SIGUSR2 has a meaning is not known yet: it is kept
        self._kept = False  # SIGUSR2 came while that was so
        self.hung_up = False  # SIGHUP came before anybody received it
        self._start_next: Callable[[], None] | None = None  # called on any thread
        self._knowing = threading.Lock()  # for the three above
        self._before: dict[signal.Signals, Any] = {}
        self._reading, self._writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._writing, False)
        self._thread = threading.Thread(target=self._read, name="signals", daemon=True)

    def __enter__(self) -> Signals:
        global _installed  # noqa: PLW0603  -- a process has one set of signal handlers
        self._thread.start()
        for number in (*STOPS, *DUMPS, *IGNORED):
            self._before[number] = signal.signal(number, self._received)
        self._before[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._hang_up)
        with suppress(RuntimeError, ValueError, OSError):  # no stderr with a descriptor: then it only ends the process
            faulthandler.enable()
            faulthandler.register(signal.SIGPROF, file=sys.stderr, all_threads=True, chain=True)
        _installed = self
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        global _installed  # noqa: PLW0603
        _installed = None
        faulthandler.unregister(signal.SIGPROF)
        for number, before in self._before.items():
            signal.signal(number, before)
        os.close(self._writing)
        self._thread.join(1.0)

    def _received(self, number: int, frame: FrameType | None) -> None:
        """On the main thread, amid anything: no lock may be taken here."""
        del frame
        with suppress(BlockingIOError):
            os.write(self._writing, bytes([number]))

    def _hang_up(self, number: int, frame: FrameType | None) -> None:
        """On the main thread, while the process starts: afterwards trio has the signal."""
        del number, frame
        self.hung_up = True

    # ---- on the thread of its own ------------------------------------------------------------------------------------

    def _read(self) -> None:
        while numbers := os.read(self._reading, 64):
            for number in numbers:
                try:
                    self._handle(signal.Signals(number))
                except Exception as error:  # the next one must still be heard
                    log.failure("signal_failed", error, signal=signal.Signals(number).name)
        os.close(self._reading)

    def _handle(self, number: signal.Signals) -> None:
        if number in STOPS:
            self._handle_stop(number)
        elif number == signal.SIGUSR1:
            self._pass_on(number)
            self._report(number)
        elif number == signal.SIGQUIT:
            self._pass_on(number, ends=True)
            self.end(number, lambda: self._report(number))
        elif number != signal.SIGUSR2 or not self._take_next():
            self._ignore(number)

    def _ignore(self, number: signal.Signals) -> None:
        remedy = "SIGTERM stops the gateway, SIGUSR1 shows its stacks, SIGUSR2 starts the next process where gateway.takeover is set"
        log.event(logging.WARNING, "signal_ignored", signal=number.name, remedy=remedy)

    def _take_next(self) -> bool:
        """Have SIGUSR2 start the next process, now or once that can be; False where it means nothing."""
        with self._knowing:
            self._kept = self._starting
            start = self._start_next
        if start is not None:
            start()
        return start is not None or self._kept

    def start_next_by(self, start: Callable[[], None] | None) -> None:
        """What SIGUSR2 does from now on, and for one that came before; None: nothing."""
        with self._knowing:
            self._starting, self._start_next = False, start
            kept, self._kept = self._kept, False
        if kept and start is not None:
            start()
        elif kept:
            self._ignore(signal.SIGUSR2)

    def _handle_stop(self, number: signal.Signals) -> None:
        if self._asked_at is not None and time.monotonic() - self._asked_at < SAME_S:
            return
        if self._asked_at is None and self._stop is not None:
            self._asked_at = time.monotonic()
            self._stop(number)
            return
        self._pass_on(signal.SIGKILL, ends=True)
        again = self._asked_at is not None
        self.end(number, lambda: log.event(logging.WARNING, "stopped_at_once", signal=number.name, again=again))

    def _report(self, number: signal.Signals) -> None:
        log.event(logging.WARNING, "stacks", signal=number.name, stacks=stacks.dump(self.root))

    def _pass_on(self, number: signal.Signals, *, ends: bool = False) -> None:
        """Send it to the workers as well."""
        if self.group is None:
            return
        self.group.draining = self.group.draining or ends
        for pid in self.group.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def end(self, number: signal.Signals, report: Callable[[], None]) -> None:
        """End this process at once, after `report` and what the log still has to write, if that does not take long."""
        begun = time.monotonic()
        finish(self._handler, report)
        while self.group is not None and self.group.pids() and time.monotonic() - begun < GROUP_S:
            time.sleep(0.01)
        self._pass_on(signal.SIGKILL)
        os._exit(128 + number)

    async def wait_for_stop(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> signal.Signals:
        """Wait for the first SIGTERM or SIGINT; the next one ends the process."""
        token = trio.lowlevel.current_trio_token()
        came = trio.Event()
        which: list[signal.Signals] = []

        def stop(number: signal.Signals) -> None:
            which.append(number)
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(came.set)

        self._stop = stop
        self.root = trio.lowlevel.current_root_task()
        task_status.started()
        await came.wait()
        return which[0]


_installed: Signals | None = None  # those of this process


def open_takeover_signals() -> trio.MemoryReceiveChannel[None]:
    """A channel with each SIGUSR2, also one that came while this process was starting; several at once are one.

    Within somebody else's process (tests) none comes.
    """
    token = trio.lowlevel.current_trio_token()
    sending, receiving = trio.open_memory_channel[None](1)

    def put() -> None:
        with suppress(trio.WouldBlock, trio.BrokenResourceError):
            sending.send_nowait(None)

    def start() -> None:
        with suppress(trio.RunFinishedError):
            token.run_sync_soon(put)

    if _installed is not None:
        _installed.start_next_by(start)
    return receiving


def ignore_takeover_signal() -> None:
    """SIGUSR2 means nothing: there is no `gateway.takeover`."""
    if _installed is not None:
        _installed.start_next_by(None)


def send_kept_hangup() -> None:
    """Send a SIGHUP that came while this process was starting again, to whoever receives it now."""
    if _installed is not None and _installed.hung_up:
        _installed.hung_up = False
        signal.raise_signal(signal.SIGHUP)


async def wait_for_stop(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> signal.Signals:
    """Wait for the first SIGTERM or SIGINT. Within somebody else's process (tests) by trio's own means."""
    if _installed is not None:
        return await _installed.wait_for_stop(task_status=task_status)
    with trio.open_signal_receiver(*STOPS) as numbers:
        task_status.started()
        async for number in numbers:
            return signal.Signals(number)
    raise AssertionError("trio's receiver has no end")


def finish(handler: log.QueueHandler, report: Callable[[], None]) -> None:
    """Do `report`, and write down what the log has, for REPORT_S at most: what hangs may hold a lock of the log, and its pipe be full."""

    def work() -> None:
        report()
        handler.close()

    thread = threading.Thread(target=work, name="last words", daemon=True)
    thread.start()
    thread.join(REPORT_S)
