"""The journals: every change and attempted change, with author, time and reason; one JSON line each, chained by hashes.

There are two. `history.jsonl` has changes and what else was done. `refusals.jsonl` has requests that were refused or failed, so that
clients without a good token, or with one that is good for little, push no change out of the history. They share their sequence numbers.

    {"hash":"<64 hex>","entry":{"sequence":17,"at":"2026-11-21T12:00:00.123Z","by":"admin",...}}

`hash` is SHA-256 over the line before's hash (as hexadecimal text) and the bytes of `entry`; so a line that was altered, removed or
inserted shows (`audit_chain.py` finds it), and ten lines of Python check the chain. It tells tampering from accidents. It does not keep
out an attacker who may write the file and computes the rest of the chain anew.

The line of a change is on the disk **before** the change itself (see `store.py`); a change that then could not be written is taken back by
a line with outcome `void` that names its sequence. Lines are only ever added. A crash can leave half a line at the end:
`open` cuts it off. Bound: two files of each, of at most ROTATE_AT bytes and a line; in memory two integers per change in them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

import msgspec

from common.durable_files import FileSystem, append

FILE: Final = "history.jsonl"
REFUSALS: Final = "refusals.jsonl"
OLDER: Final = ".1"
ROTATE_AT: Final = 8 * 1024 * 1024  # bytes; some 20,000 changes (a guess)
BLOCK: Final = 64 * 1024  # bytes; of a file that is read from its end
BEGIN: Final = "0" * 64  # the hash before the first line

_HEAD: Final = b'{"hash":"'
_MIDDLE: Final = b'","entry":'
Opened: TypeAlias = list[tuple[BinaryIO, int]]  # files, and the bytes of whole lines in them
ENTRY_AT: Final = len(_HEAD) + 64 + len(_MIDDLE)  # where the entry begins in its line


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """The change of one target (`limits/rocketmq/orders`, `rules/orders`, `quotas`): its stored form before and after; null is none."""

    target: str
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the journal. Outcomes: `applied` (then it has a revision), `refused`, `failed`, `done` (no change of the state), `void`."""

    sequence: int
    at: str
    by: str
    action: str
    outcome: str
    revision: int = 0
    role: str = ""
    address: str = ""
    request_id: str = ""
    reason: str = ""
    detail: str = ""
    changes: list[Change] = []
    voids: int = 0  # the sequence of the entry that was taken back


class JournalError(Exception):
    """The journal cannot be read on; says where. `path` is the damaged file."""

    def __init__(self, path: Path, at: int, fault: str) -> None:
        super().__init__(f"{path}: byte {at}: {fault}")
        self.path = path


class Journal:
    """An open journal. All methods block; the store calls them one at a time, off the loop's thread."""

    def __init__(self, folder: Path, files: FileSystem, rotate_at: int = ROTATE_AT, file: str = FILE) -> None:
        """Reads both files, cuts off half a line at the end; raises JournalError where a line was altered."""
        self._files = files
        self._path = folder / file
        self._older = folder / (file + OLDER)
        self._rotate_at = rotate_at
        self._size = 0  # bytes of whole lines in the current file; bytes after them are cut off before the next line
        self._torn = False
        self._exists = self._path.exists()
        self.hash = BEGIN
        self.sequence = 0
        self.last_at = ""  # when the last line was written
        self.repaired = 0  # bytes cut off at the start
        self._index: dict[int, tuple[int, int]] = {}  # revision -> (generation of its file, where its line begins)
        self._voided: set[int] = set()  # sequences
        self._revisions: dict[int, int] = {}  # sequence -> revision, of applied entries
        self._generation = 0
        self._read_all()

    def _read_all(self) -> None:
        if self._older.exists():
            self._scan(self._older.read_bytes(), self._older, first=True)
        self._generation = 1
        if self._exists:
            data = self._path.read_bytes()
            self._size = self._scan(data, self._path, first=not self._older.exists())
            if self._size < len(data):
                self.repaired = len(data) - self._size
                self._torn = True
                self._cut()

    def _scan(self, data: bytes, path: Path, *, first: bool) -> int:
        """Read the whole lines of `data`; the number of bytes they have."""
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            line = data[start:end]
            try:
                given, entry = parse(line)
            except (ValueError, msgspec.MsgspecError) as error:
                raise JournalError(path, start, str(error)) from error
            if not (first and start == 0) and given != chain_hash(self.hash, line[ENTRY_AT:-1]):
                raise JournalError(path, start, "the line does not follow from the one before it")
            self.hash, self.sequence, self.last_at = given, entry.sequence, entry.at
            self._remember(entry, start)
            start = end + 1
        return start

    def _remember(self, entry: Entry, start: int) -> None:
        if entry.outcome == "applied":
            self._index[entry.revision] = (self._generation, start)
            self._revisions[entry.sequence] = entry.revision
        elif entry.outcome == "void" and entry.voids < entry.sequence:  # no line takes back one that comes later
            self._voided.add(entry.voids)
            revision = self._revisions.pop(entry.voids, None)
            if revision is not None:
                self._index.pop(revision, None)

    def append(self, entry: Entry) -> None:
        """Add `entry` (its sequence must be above those here), durably. Raises OSError; then the journal is as before."""
        assert entry.sequence > self.sequence
        if self._torn:
            self._files.truncate(self._path, self._size)
            self._torn = False
        if self._size >= self._rotate_at:
            self._rotate()
        body = msgspec.json.encode(entry)
        digest = chain_hash(self.hash, body)
        line = _HEAD + digest.encode() + _MIDDLE + body + b"}\n"
        try:
            append(self._files, self._path, line)
            if not self._exists:
                self._files.sync_folder(self._path.parent)
                self._exists = True
        except OSError:
            self._torn = True
            self._cut()
            raise
        self._remember(entry, self._size)
        self._size += len(line)
        self.hash, self.sequence = digest, entry.sequence

    def _cut(self) -> None:
        """Take back a line that failed, now if the disk lets us, else before the next one is written."""
        try:
            if self._path.exists():
                self._files.truncate(self._path, self._size)
            self._torn = False
        except OSError:
            pass

    def _rotate(self) -> None:
        self._files.rename(self._path, self._older)
        self._index = {revision: (0, at) for revision, (generation, at) in self._index.items() if generation == 1}
        self._revisions = {sequence: revision for sequence, revision in self._revisions.items() if revision in self._index}
        self._size = 0
        self._exists = False
        self._files.sync_folder(self._path.parent)

    # ---- reading ----------------------------------------------------------------------------------------------------------

    def revisions(self) -> list[int]:
        """The revisions that the journal still has, in order."""
        return sorted(self._index)

    def entry(self, revision: int) -> Entry | None:
        """The entry that made `revision`, or None where it is not kept."""
        place = self._index.get(revision)
        if place is None:
            return None
        with (self._path if place[0] else self._older).open("rb") as file:
            file.seek(place[1])
            return parse(file.readline().rstrip(b"\n"))[1]

    def opened(self, files: ExitStack) -> Opened:
        """Its files as they are now, the later first: they can be read while lines are added, and renamed."""
        found: Opened = []
        for path in (self._path, self._older):
            with suppress(FileNotFoundError):
                file = files.enter_context(path.open("rb"))
                size = file.seek(0, os.SEEK_END)
                found.append((file, min(size, self._size) if path is self._path else size))
        return found

    def holds(self, entry: Entry) -> bool:
        """Whether the entry made a revision. One that was taken back did not, though a later one has its number."""
        return self._revisions.get(entry.sequence) == entry.revision

    def after(self, sequence: int) -> list[int]:
        """The sequences of changes above `sequence` that were not taken back."""
        return sorted(number for number in self._revisions if number > sequence)

    def voided(self, sequence: int) -> bool:
        return sequence in self._voided

    def __repr__(self) -> str:
        return f"<Journal sequence={self.sequence} {self._size} bytes, {len(self._index)} revisions kept>"


def latest(opened: Opened, count: int, wanted: Callable[[Entry], bool]) -> list[Entry]:
    """At most `count` entries that are `wanted`, the latest first. Reads no more of the files than it takes."""
    found: list[Entry] = []
    for line in chain.from_iterable(last_lines(file, size) for file, size in opened):
        if len(found) >= count:
            break
        try:
            entry = parse(line)[1]
        except (ValueError, msgspec.MsgspecError):
            continue  # of another process that is writing it
        if wanted(entry):
            found.append(entry)
    return found


def last_lines(file: BinaryIO, at: int) -> Iterator[bytes]:
    """The lines of a file before `at` without their ends, the last first, a block at a time."""
    rest = b""
    while at > 0:
        size = min(BLOCK, at)
        at -= size
        file.seek(at)
        first, *lines = (file.read(size) + rest).split(b"\n")
        yield from (line for line in reversed(lines) if line)
        rest = first
    if rest:
        yield rest


def chain_hash(before: str, entry: bytes) -> str:
    """The hash of a line whose entry's bytes are `entry`."""
    return hashlib.sha256(before.encode() + entry).hexdigest()


def parse(line: bytes) -> tuple[str, Entry]:
    """A line's hash and entry; raises ValueError or msgspec.MsgspecError."""
    if not (line.startswith(_HEAD) and line[ENTRY_AT - len(_MIDDLE) : ENTRY_AT] == _MIDDLE and line.endswith(b"}")):
        raise ValueError("this is no line of a history")
    return line[len(_HEAD) : len(_HEAD) + 64].decode("ascii"), msgspec.json.decode(line[ENTRY_AT:-1], type=Entry)
