"""The watchdog: ends a process whose event loop does not turn, with the stacks that say why, so that whoever supervises it starts another.

The loop says at each tick that it turns (`beat`). A thread looks once a second; when it has counted `gateway.watchdog` without a beat, it
writes the stacks and ends the process with EXIT_STUCK. It counts time that it was awake itself: after SIGSTOP and SIGCONT, or in a virtual
machine that was suspended, the clock has gone on and the thread has not, so of each of its sleeps at most twice their length counts.

A thread needs the interpreter's lock to look. Code that never gives it back (compiled code in a loop, a regular expression gone wild) keeps
it from that, and burns processor time meanwhile. So each look also winds up a timer of the process's processor time (ITIMER_PROF): if it
runs down, the kernel sends SIGPROF, and faulthandler, in C, writes the stacks to stderr and lets the signal end the process. A process that
is stopped or suspended burns nothing. What neither finds is code that keeps the lock and sleeps; systemd's own watchdog, which is told
WATCHDOG=1 by the loop, sends SIGPROF then (`deploy/systemd`).
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import MutableMapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final

import trio

from common import log
from gateway import systemd
from gateway.lifecycle import stacks
from gateway.lifecycle.scheduling import wait_for_tick
from gateway.lifecycle.signals import finish

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

EXIT_STUCK: Final = 70  # exit code: EX_SOFTWARE of sysexits(3)
LOOK_S: Final = 1.0  # seconds; between two looks, and less with a short patience
COUNTED: Final = 2.0  # of one sleep at most so many times its length counts: a busy machine is late, one that was suspended is later
CPU_S: Final = 2.0  # seconds of processor time beyond the patience, for the thread to be first


class Watchdog:
    """Watches the event loop of this process while it is entered. `patience_ns` None: it only tells systemd."""

    def __init__(self, patience_ns: int | None, handler: log.QueueHandler) -> None:
        self.patience_s = None if patience_ns is None else patience_ns / 1e9
        self._handler = handler
        self._beats = 0
        self._root: trio.lowlevel.Task | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        if self.patience_s is not None:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(1.0)
        signal.setitimer(signal.ITIMER_PROF, 0)

    async def run_watched(self, run: Callable[[], Awaitable[None]]) -> None:
        """Do `run`, and say meanwhile that the loop turns."""
        trio.lowlevel.spawn_system_task(self.beat)  # not in a nursery: that would wrap what `run` raises
        await run()

    async def beat(self) -> None:
        """Say at each tick that the loop turns: to the thread, and to systemd if it asks for that."""
        every_s = systemd_wants()
        due = trio.current_time()
        self._root = trio.lowlevel.current_root_task()
        while True:
            self._beats += 1
            if every_s is not None and trio.current_time() >= due:
                systemd.notify("WATCHDOG=1")
                due = trio.current_time() + every_s
            await wait_for_tick()

    # ---- on the thread of its own ------------------------------------------------------------------------------------

    def _watch(self) -> None:
        assert self.patience_s is not None
        look_s = min(LOOK_S, self.patience_s / 10)
        silent_s = 0.0
        beats = self._beats
        last = time.monotonic()
        while not self._over.wait(look_s):
            signal.setitimer(signal.ITIMER_PROF, self.patience_s + CPU_S)
            now = time.monotonic()
            slept_s, last = now - last, now
            if beats != self._beats or not self._beats:  # or it has not begun
                beats = self._beats
                silent_s = 0.0
                continue
            silent_s += min(slept_s, COUNTED * look_s)
            if silent_s >= self.patience_s:
                finish(self._handler, partial(self._report, silent_s))
                os._exit(EXIT_STUCK)

    def _report(self, silent_s: float) -> None:
        log.event(
            logging.CRITICAL, "event_loop_stuck", silent_s=round(silent_s, 3), stacks=stacks.dump(self._root),
            remedy=f"the process ends with exit code {EXIT_STUCK}, so that its supervisor starts another; please report the stacks",
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<Watchdog {'off' if self.patience_s is None else f'{self.patience_s:g} s'} beats={self._beats}>"


def systemd_wants(environ: MutableMapping[str, str] | None = None) -> float | None:
    """How often systemd is to be told that the process lives (sd_watchdog_enabled(3)): thrice in its patience. None: not at all."""
    variables = os.environ if environ is None else environ
    text, pid = variables.get("WATCHDOG_USEC", ""), variables.get("WATCHDOG_PID", "")
    if not text.isdecimal() or not int(text) or (pid and pid != str(os.getpid())):
        return None
    return int(text) / 3e6
