"""Reading a changed configuration beside the event loop.

Reading and checking costs some 0.25 ms a rule (2 cores, 2026-11-30: 2.5 s for 10,000, not compiled), most of it in Python. On the
loop's thread all messages would wait for so long. So a thread reads, compares, compiles the rules and opens the files of TLS, from values
that nobody changes (settings are frozen). The caller puts the result in force on the loop's thread, in one piece.

Quick switches (`common/quick_switches.py`) keep the loop from waiting for the thread; the reading takes about as long as without them.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar, TypeVarTuple

import trio

from admin.authentication.auth import TokenError
from admin.ports import ReloadFailedError
from common import log
from common.quick_switches import quick_switches
from common.tls.certificates import TlsFileError
from config import diff, reload, reloading
from config.hung_files import READ_S, hung_file
from config.problems import ConfigError, ConfigProblem
from config.tls_files import find_ending_certificates
from gateway import systemd
from gateway.lifecycle.apply_settings import apply_log
from gateway.lifecycle.signals import send_kept_hangup
from gateway.listeners.factory import Protection, apply_tls, find_changed_tls, log_ending_certificates, read_tls, with_derived
from limiter.rules.rule_set import RuleSet

if TYPE_CHECKING:
    from admin.store.store import Store
    from config import Settings
    from gateway.listeners.broker_listeners import BrokerListeners
    from gateway.listeners.listener import Listener

MAX_THREADS: Final = 4  # readings that hang, for as long as their files do; further reloads fail without one; a guess

Words = TypeVarTuple("Words")
Found = TypeVar("Found")


class NewConfiguration(NamedTuple):
    """What the files say, and what that changes."""

    settings: Settings  # as they are
    merged: Settings  # those in force, with what a reload may change
    difference: dict[str, list[str]]  # lines for people: `in_force`, `needs_restart`
    protection: dict[str, Protection]  # by listener of the configuration
    compiled: RuleSet | None  # the new rules; None: they, and where they stand, are as before
    ending: list[ConfigProblem]  # certificates near their end


class LastReload:
    """How the last reload of the configuration went."""

    def __init__(self) -> None:
        self.ok = True
        self.at = time.time()
        self.needs_restart: list[str] = []  # what the files said at the last good reload and is not in force; lines for people


class Reloadable(Protocol):
    """What a reload changes: a gateway, or the parent of several workers."""

    settings: Settings
    listening: dict[str, Listener]
    brokers: dict[str, BrokerListeners]
    log_handler: log.QueueHandler

    def enforce(self, rules: RuleSet) -> None:
        """Put `rules` in force for the next batch."""

    def apply_reload(self) -> None:
        """`settings` are those of the reload, and what they change here is in force."""


class Reloads:
    """Reads the configuration anew, one reload at a time. A concurrent call waits its turn and then reads the files afresh."""

    def __init__(self, store: Store) -> None:
        # Each reads what the merged settings name, and returns what puts it in force. Raises TokenError, TlsFileError.
        self.members: list[Callable[[Settings], Callable[[], None]]] = []
        self.turn = trio.Lock()  # held from the reading until what was found is in force
        self.last = LastReload()
        self._store = store
        self._threads = trio.CapacityLimiter(MAX_THREADS)

    async def reload(self, target: Reloadable, *, dry_run: bool = False) -> dict[str, object]:
        """Read the configuration and the files of TLS again. What can be changed takes effect, the rest is named.

        `config/reloading.py` has both lists.

        A dry run says the same and changes nothing, the outcome of the last reload included. Traffic goes on while the files are read.
        Raises ReloadFailedError with all that is wrong.
        """
        async with self.turn:
            try:
                found = await self._on_a_thread(read, target.settings, self._store)
                commits = await self._on_a_thread(self._prepare, found.merged)
                protection = with_derived(found.protection, target.brokers)
            except ReloadFailedError as error:
                if not dry_run:
                    self.record_failure(error)
                raise
            if dry_run:
                in_force = found.difference["in_force"] + find_changed_tls(target.listening, protection)
                return {**found.difference, "in_force": in_force, "dry_run": True}
            self._put_in_force(found, protection, target)
            for commit in commits:
                commit()
            return {**found.difference}

    def _prepare(self, merged: Settings) -> list[Callable[[], None]]:
        """Raises ReloadFailedError."""
        try:
            return [prepare(merged) for prepare in self.members]
        except (TokenError, TlsFileError) as error:
            raise ReloadFailedError([str(error)]) from error

    async def _on_a_thread(self, work: Callable[[*Words], Found], *words: *Words) -> Found:
        """What `work` returns, and what it raises. Raises ReloadFailedError after READ_S: a file, or its mount, hangs.

        Cancelled, it ends at once; the thread ends by itself, and its result is dropped.
        """
        thread = 0

        def on_it() -> Found:
            nonlocal thread
            thread = threading.get_ident()
            return work(*words)

        try:
            with trio.fail_after(READ_S), quick_switches():
                return await trio.to_thread.run_sync(on_it, abandon_on_cancel=True, limiter=self._threads)
        except trio.TooSlowError:
            raise ReloadFailedError([f"{hung_file(thread, READ_S)}, then reload again"], passing=True) from None

    def _put_in_force(self, found: NewConfiguration, protection: dict[str, Protection], target: Reloadable) -> None:
        """In one piece. Live changes made since the reading began hold as well."""
        before, target.settings = target.settings, found.merged
        if found.compiled is not None:
            self._store.replace_file_rules(found.settings.rules, found.compiled)
            target.enforce(self._store.rules())
        found.difference["in_force"] += apply_tls(target.listening, protection)
        target.apply_reload()
        apply_log(target.log_handler, before.log, found.merged.log)
        self.last.at = time.time()
        self.last.ok = True
        self.last.needs_restart = found.difference["needs_restart"]
        log.event(logging.INFO, "reloaded", **found.difference)
        log_ending_certificates(found.ending)

    def record_failure(self, error: ReloadFailedError) -> ReloadFailedError:
        """Nothing of it is in force, or not in all processes; `error` again."""
        self.last.at = time.time()
        self.last.ok = False
        log.event(logging.ERROR, "reload_failed", err=str(error), remedy=error.holds)
        return error

    def __repr__(self) -> str:
        return f"<Reloads {'reading' if self.turn.locked() else 'idle'}>"


def read(current: Settings, store: Store) -> NewConfiguration:
    """Read the files on a thread: what they change of `current`, and of the file's rules that hold now. Changes nothing itself."""
    try:
        settings = reload(current)
    except ConfigError as error:
        raise ReloadFailedError([str(fault) for fault in error.errors]) from error
    merged = reloading.merge(current, settings)
    try:
        protection = read_tls(merged.listeners)  # not of the new settings as they are: what needs a restart is not in force
    except TlsFileError as error:
        raise ReloadFailedError([str(error)]) from error
    near_end: list[ConfigProblem] = []
    with suppress(TlsFileError):  # gone since it was read: the next reload says so
        near_end += find_ending_certificates(merged)
    compiled = None if settings.rules == store.file_rules else RuleSet(store.with_live_rules(settings.rules))
    difference = diff(current, settings)
    difference["in_force"] += [
        f"rule {name}: a live rule has this name and holds in its place; `sluice rules remove {name}` lets the file's hold"
        for name in store.live_rules_over(settings.rules)
    ]
    return NewConfiguration(settings, merged, difference, protection, compiled, near_end)


async def reload_on_hangup(
    reload: Callable[[], Awaitable[object]], serving: trio.Event, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Reload at each SIGHUP, one after the other, and tell systemd. A task of its own: SIGTERM must not wait for a reload.

    One that comes before `serving` waits for it: systemd would take READY=1 for the start, and begin units whom nobody serves yet.
    """
    with trio.open_signal_receiver(signal.SIGHUP) as hangups:
        send_kept_hangup()
        task_status.started()
        await serving.wait()
        async for _ in hangups:
            systemd.notify("RELOADING=1")
            await reload_or_go_on(reload)
            systemd.notify("READY=1")


async def reload_or_go_on(reload: Callable[[], Awaitable[object]]) -> bool:
    """Whether that has failed for a cause that may pass while the files stay as they are."""
    try:
        await reload()
    except ReloadFailedError as error:
        return error.passing  # logged where it happened; the last good configuration stays
    except Exception as error:  # a fault in reading a file must not end what serves
        log.failure("reload_failed", error)
        return True
    return False
