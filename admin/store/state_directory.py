"""The state directory, open: its lock, its files as they were found, and what is made durable in it. All of it blocks.

Each method but `take_back` is called by one task at a time, on a thread where the gateway serves (`admin.store.store`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace as with_fields

from admin.store import recovery
from admin.store.changes import Author, StoreError
from admin.store.journal import FILE as HISTORY
from admin.store.journal import REFUSALS, Entry
from admin.store.snapshots import KEEP, Publication, Snapshots
from admin.store.state import State, StateError, encode_state, format_time, parse_time
from common.durable_files import UNWRITABLE, FileSystem, ReadOnlyFiles
from common.durable_files import replace as replace_file

if TYPE_CHECKING:
    from admin.store.journal import Journal
    from limiter.quota_snapshot import Quota
    from limiter.topics import TopicName

STATE: Final = "state.json"
LOCK: Final = "lock"
REFUSED: Final = ("refused", "failed")  # outcomes of requests, which are kept apart from changes
NO_FOLDER: Final = Path("/proc/self/no-state")  # is never there: it is read in place of a folder that this user may not look into
HANDED_OVER: Final = "another process has taken over"
LENT: Final = "another process is taking over, or has failed to and is not gone yet"
WAYS_OUT: Final = {
    HANDED_OVER: "ask that one",
    LENT: "wait for some seconds",
}  # else: what a folder needs that is read-only since the start
OBSERVING: Final = "another process still has it"
AHEAD_S: Final = 60.0  # by which the last line may be ahead of the clock; a guess
SYSTEM: Final = "sluice"  # the author of lines without a request: expiry, void


def new_entry(wall_clock: Callable[[], float], author: Author, action: str, outcome: str, reason: str, **rest: object) -> Entry:
    """A line of the journal, but for its sequence."""
    entry = Entry(0, format_time(wall_clock()), author.name, action, outcome, reason=reason)
    return with_fields(entry, role=author.role, address=author.address, request_id=author.request_id, **rest)


class StateDirectory:
    """The files of a state directory as one process has them. One process may write at a time (a lock file sees to that)."""

    def __init__(
        self,
        path: Path,
        wall_clock: Callable[[], float],
        files: FileSystem,
        rotate_at: int,
        lock: int,
        read_only: str,
        *,
        shut: bool = False,
    ) -> None:
        """Read the files, with the lock that one holds (-1: none). `shut`, none of them may be read. Raises StoreError, OSError."""
        self.path = path
        self.shut = shut
        self.read_only = read_only  # why nothing can be stored until the next start; "" where it can
        self.warnings: list[str] = []
        self._wall_clock = wall_clock
        self._rotate_at = rotate_at
        self._files = ReadOnlyFiles() if shut or read_only == OBSERVING else files
        self._lock = lock
        self._to_void: list[tuple[int, str]] = []  # sequences of lines to be taken back, and why
        content = NO_FOLDER if shut else path
        self._state_file = content / STATE
        self._snapshots = Snapshots(content, self._files)
        self._warn_of_read_only()
        try:
            self.journal = self._open_journal(content, HISTORY)
            self.refusals = self._open_journal(content, REFUSALS)
            self._warn_of_the_future()
            self.state = recovery.load_state(self._files, self._state_file, self.journal, self.warnings)
            self._void_uncommitted()
            if not shut and path.stat().st_mode & 0o077:
                self.warnings.append(f"others can read {path}; chmod 700 it")
        except StateError as error:
            self.close()
            raise StoreError(str(error)) from error
        except BaseException:
            self.close()
            raise

    @classmethod
    def open(
        cls, path: Path, wall_clock: Callable[[], float], files: FileSystem, rotate_at: int, *, observing: bool = False
    ) -> StateDirectory:
        """Make the folder (mode 0700) if need be, and read it. `observing`, another process may have it. Raises StoreError, OSError."""
        shut = _make(path)
        if shut or observing:
            return cls(path, wall_clock, files, rotate_at, -1, shut or OBSERVING, shut=bool(shut))
        return cls(path, wall_clock, files, rotate_at, *_hold_lock(path))

    def take(self, files: FileSystem | None = None) -> StateDirectory:
        """The same folder, read anew by the process that has it from now on; this one stays as it is. Raises as `open`."""
        return type(self)(self.path, self._wall_clock, files or FileSystem(), self._rotate_at, *_hold_lock(self.path))

    def close(self) -> None:
        """Let another process have the folder. Nothing is buffered, so nothing is written."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    @property
    def lent(self) -> str:
        """Why another process has the folder; "" while this one has it."""
        return self.read_only if self.read_only in WAYS_OUT else ""

    @property
    def way_out(self) -> str:
        return WAYS_OUT.get(self.read_only, "")

    # ---- writing -------------------------------------------------------------------------------------------------------

    def append(self, entry: Entry) -> int:
        """Give the line its sequence and make it durable; raises OSError."""
        self._check_writable()
        self.take_back()
        entry = with_fields(entry, sequence=self._next_sequence())
        (self.refusals if entry.outcome in REFUSED else self.journal).append(entry)
        return entry.sequence

    def commit(self, state: State, entry: Entry, published: Publication | None) -> State:
        """Make `state` durable, which is to be assigned then; raises OSError, and then the old one is."""
        self._check_writable()
        if published is not None:
            self._snapshots.keep(published)
        if not self._state_file.exists():  # so that a journal with changes and no state file always means that the file was removed
            replace_file(self._files, self._state_file, encode_state(self.state))
        sequence = self.append(entry)
        dropped = list(state.snapshots[KEEP:])
        tried = self.state.shadow
        if tried is not None and tried != state.shadow and tried.sha256 not in state.snapshots[:KEEP]:
            dropped.append(tried.sha256)
        if state.shadow is not None and state.shadow.sha256 in dropped:
            dropped.remove(state.shadow.sha256)
        state = replace(state, sequence=sequence, snapshots=state.snapshots[:KEEP])
        data = encode_state(state)
        try:
            replace_file(self._files, self._state_file, data, keep_previous=True)
        except OSError as error:
            self._to_void.append((sequence, error.strerror or str(error)))
            with contextlib.suppress(OSError):  # else taken back before the next line is written, or at the next start
                recovery.put_back(self._files, self._state_file, data)
                self.take_back()
            raise
        self._snapshots.drop(dropped)
        return state

    def take_back(self) -> None:
        """Write the void lines that are due; raises OSError."""
        while self._to_void:
            sequence, why = self._to_void[0]
            entry = new_entry(self._wall_clock, Author(SYSTEM), "void", "void", "", detail=why, voids=sequence)
            self.journal.append(with_fields(entry, sequence=self._next_sequence()))
            del self._to_void[0]

    def _next_sequence(self) -> int:
        return max(self.journal.sequence, self.refusals.sequence) + 1

    def _check_writable(self) -> None:
        """Raises OSError where the folder is read-only. It may have become writable, or another gateway's: the start finds that out."""
        if self.read_only:
            raise OSError(errno.EROFS, self.lent or f"it was read-only when the gateway started: {self.read_only}")

    # ---- reading -------------------------------------------------------------------------------------------------------

    def snapshot(self, sha256: str) -> Publication | None:
        """A kept quota snapshot, or None where it is not kept any more; raises StateError where it is damaged."""
        return self._snapshots.read(sha256)

    def read_quotas(self) -> tuple[Mapping[TopicName, Quota], Mapping[TopicName, Quota]]:
        """The published quotas that the state names: those in force, and those that are only tried. Raises StateError."""
        in_force: Mapping[TopicName, Quota] = {}
        tried: Mapping[TopicName, Quota] = {}
        if self.state.shadow is not None:
            found = self._snapshots.read(self.state.shadow.sha256)
            tried = {} if found is None else found.by_topic
            if found is None:
                self.warnings.append(f"{self._snapshots.path(self.state.shadow.sha256)} is gone: no quotas are tried; publish them again")
        if self.state.quotas is None:
            return in_force, tried
        published = self._snapshots.read(self.state.quotas.sha256)
        if published is not None:
            in_force = published.by_topic
        elif self._snapshots.folder.exists():
            path = self._snapshots.path(self.state.quotas.sha256)
            raise StateError(
                f"{path} is missing though its quotas are in force; put it back, or move {path.parent} aside to start without quotas"
            )
        else:
            self.warnings.append(f"{self._snapshots.folder} is gone: no quotas hold until some are published again")
        return in_force, tried

    # ---- opening -------------------------------------------------------------------------------------------------------

    def _open_journal(self, content: Path, file: str) -> Journal:
        return recovery.open_journal(self._files, content, self._rotate_at, self.warnings, file, read_only=bool(self.read_only))

    def _void_uncommitted(self) -> None:
        """Take back the journal's lines that the state does not have."""
        uncommitted = [] if self.read_only else self.journal.after(self.state.sequence)
        self._to_void += [(sequence, "the gateway stopped before the change was made") for sequence in uncommitted]
        self.journal.sequence = max(self.journal.sequence, self.state.sequence)
        try:
            self.take_back()
        except OSError as error:
            self.warnings.append(f"{self.path} cannot be written: {error.strerror}; limits hold, changes of them will fail")

    def _warn_of_read_only(self) -> None:
        if self.shut:
            self.warnings.append(
                f"{self.path} cannot be read or made ({self.read_only}): the configuration's limits hold, and no live change, quota or "
                "token of before; live changes are refused. Give the directory to the gateway's user and start it again"
            )
        elif self.read_only and self.read_only != OBSERVING:
            self.warnings.append(
                f"{self.path} is read-only ({self.read_only}): live changes cannot be stored, and are refused; those of before hold. "
                "Make it writable and start the gateway again"
            )

    def _warn_of_the_future(self) -> None:
        """What was written last was not written later than now, or the clock has been set back since."""
        last = max(self.journal.last_at, self.refusals.last_at)
        try:
            ahead = parse_time(last) - self._wall_clock() if last else 0.0
        except ValueError:
            return
        if ahead > AHEAD_S:
            self.warnings.append(
                f"the history's last line is of {last}, {ahead:.0f} s after now: the clock was ahead then, or is behind now. Live changes "
                "that ended meanwhile by that clock were removed; `sluice history list` has them (action: expiry)"
            )

    def __repr__(self) -> str:
        return f"<StateDirectory {self.path} {self.state!r}>"


def _make(path: Path) -> str:
    """Make the folder if need be. Why this user cannot have it at all; "" where it can be read. Raises OSError."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in (STATE, HISTORY, REFUSALS):
            if (path / name).is_file():  # raises where the folder may not be looked into
                (path / name).open("rb").close()
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        return error.strerror or str(error)
    return ""


def _hold_lock(path: Path) -> tuple[int, str]:
    """The lock's descriptor, -1 without one, and why nothing can be stored, or "". Raises OSError, StoreError."""
    try:
        handle = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        return -1, error.strerror or str(error)
    refused = "" if os.access(path, os.W_OK | os.X_OK) else os.strerror(errno.EACCES)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise StoreError(
            f"{path} is in use by another gateway. To start the next process of the same gateway beside it, both need "
            "gateway.takeover, the running one since its start; otherwise stop it first. Another gateway needs its own "
            "gateway.state_directory"
        ) from error
    return handle, refused
