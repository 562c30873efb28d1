"""Reading a changed configuration beside the event loop.

Reading and checking costs some 0.4 ms a rule (2 cores, 2026-11-22: 0.5 s for 1,000), most of it in Python. On the loop's thread all
messages would wait for so long. So a thread reads, compares, compiles the rules and opens the files of TLS, from values that nobody
changes (settings are frozen); what was found is put in force on the loop's thread, in one piece, by whoever asked.

A thread alone is not enough: each time the loop gives the interpreter up for a system call it gets it back only when the reading thread
lets go, by default after 5 ms, and a sweep makes hundreds of such calls. While something is read that time is SWITCH_S. The reading takes
about as long as before.
"""

from __future__ import annotations

import logging
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from admin.ports import ReloadFailedError
from gateway import log, systemd
from gateway.listeners.factory import Derived, Protection, read_tls, say_ending
from gateway.settings.problems import ConfigError
from gateway.transport.tls.certificates import TlsFileError
from limiter.rules.rule_set import RuleSet

if TYPE_CHECKING:
    from gateway.settings import Settings
    from limiter.rules.rule import Rule

SWITCH_S: Final = 0.0001  # 20 system calls beside a reading: 13 ms with the default of 5 ms, 1.7 with 0.5, 0.1 with this (2026-11-22)


class Found(NamedTuple):
    """What the files say, and what that changes."""

    settings: Settings  # as they are
    merged: Settings  # those in force, with what a reload may change
    difference: dict[str, list[str]]  # lines for people: `in_force`, `needs_restart`
    protection: dict[str, Protection]  # by listener of the configuration
    compiled: RuleSet | None  # the new rules; None: they, and where they stand, are as before

    def with_derived(self, derived: Mapping[str, Derived]) -> dict[str, Protection]:
        """Of listeners made after those of the configuration too. On the loop's thread: they come and go. Raises ReloadFailedError."""
        found = dict(self.protection)
        try:
            for entry in self.merged.listeners:
                if entry.name in derived:
                    found |= derived[entry.name].read_tls(entry)
        except TlsFileError as error:
            raise ReloadFailedError([str(error)]) from error
        return found


class Reloads:
    """Reads the configuration anew, once at a time: who comes meanwhile waits, then reads what the files say by then."""

    def __init__(self) -> None:
        self.turn = trio.Lock()  # held from the reading until what was found is in force
        self.last_ok = True
        self.last_at = time.time()
        self.needs_restart: list[str] = []  # what the files said at the last good reload and is not in force; lines for people

    async def read(self, current: Settings, rules: tuple[Rule, ...]) -> Found:
        """What changes `current` and the file's `rules` that hold now. Raises ReloadFailedError with all that is wrong.

        Cancelled, it ends at once; the thread ends by itself, and what it found is forgotten.
        """
        with quick_switches():
            return await trio.to_thread.run_sync(read, current, rules, abandon_on_cancel=True)

    def failed(self, error: ReloadFailedError) -> None:
        """Nothing of it is in force."""
        self.last_at = time.time()
        self.last_ok = False
        log.event(logging.ERROR, "reload_failed", err=str(error), remedy="the last good configuration stays in force")

    def done(self, found: Found) -> None:
        """What was found is in force."""
        self.last_at = time.time()
        self.last_ok = True
        self.needs_restart = found.difference["needs_restart"]
        log.event(logging.INFO, "reloaded", **found.difference)
        say_ending(found.merged)

    def __repr__(self) -> str:
        return f"<Reloads {'reading' if self.turn.locked() else 'idle'}>"


def read(current: Settings, rules: tuple[Rule, ...]) -> Found:
    """As `Reloads.read`, on the thread. Changes nothing."""
    try:
        settings = current.reload()
        merged = current.with_rules(settings).with_tls(settings)
        protection = read_tls(merged)  # not of the new settings as they are: an upstream of another name needs a restart
    except ConfigError as error:
        raise ReloadFailedError([str(fault) for fault in error.errors]) from error
    except TlsFileError as error:
        raise ReloadFailedError([str(error)]) from error
    compiled = None if settings.rules == rules else RuleSet(settings.rules)
    return Found(settings, merged, current.diff(settings), protection, compiled)


async def reload_on_hangup(
    reload: Callable[[], Awaitable[object]], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Reload at each SIGHUP, one after the other, and tell the supervisor. Beside who waits for SIGTERM: that has no time."""
    with trio.open_signal_receiver(signal.SIGHUP) as hangups:
        task_status.started()
        async for _ in hangups:
            systemd.tell("RELOADING=1")
            try:
                await reload()
            except ReloadFailedError:
                pass  # logged where it happened; the last good configuration stays
            except Exception as error:  # a fault in reading a file must not end what serves
                log.failure("reload_failed", error)
            systemd.tell("READY=1")


@contextmanager
def quick_switches() -> Iterator[None]:
    """Threads take turns more often meanwhile. Not nested: what was before comes back."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
