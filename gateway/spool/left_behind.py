"""What is to be replayed: durable files of a process that is gone, or of connections of this one that are over.

A process that is gone has left its directory, whose lock is free then. Whoever gets the lock has what is in it: files that are not durable
are deleted, durable ones make streams, one for each queue. A stream is read batch by batch. Where bytes are not what was written they are
copied into a file beside (`set_aside.py`), and reading goes on where the next batch begins; what ends within a batch was never committed.
What was given up while it waited (`removals.py`) is left out.

Called on threads; nothing here knows the event loop.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Final

from gateway.pipeline.parts import BODY, REQUEST
from gateway.spool.disk import LOCK, OWN, empty, is_stray, mark
from gateway.spool.durable import CLOCK, is_durable, read_head, serial_of
from gateway.spool.records import BATCH, EXPIRES, MAGIC, RECORD, REPLAYS, DamagedError, batch_length, check
from gateway.spool.removals import Range, Removed, removed_name, removed_of

MAGIC_BYTES: Final = MAGIC.to_bytes(4, "big")
SEARCH_BYTES: Final = 1 << 20  # read at a time, to find where the next batch begins
MAX_BATCH_BYTES: Final = 1 << 28  # bytes; a batch that claims more is damaged: twice RabbitMQ's largest message (134 MB)


class Record:
    """A part as it was written. `at`: where its data begin in their file. `expires`: when its messages are too old (ns since 1970) or 0."""

    __slots__ = ("at", "data", "expires", "kind", "replays")

    def __init__(self, kind: int, data: bytes, at: int, *, replays: bool, expires: int = 0) -> None:
        self.expires = expires
        self.kind = kind
        self.data = data
        self.at = at
        self.replays = replays


class Damage:
    """Bytes that are not what was written. `torn`: they are the end of the last file, which was being written."""

    __slots__ = ("data", "file", "offset", "torn", "why")

    def __init__(self, file: str, offset: int, data: bytes, why: str, *, torn: bool) -> None:
        self.file = file
        self.offset = offset
        self.data = data
        self.why = why
        self.torn = torn


class LeftStream:
    """The durable files of one queue, read in order."""

    def __init__(self, directory: Path, origin: dict[str, str], names: list[str], position: int, size: int) -> None:
        self.directory = directory
        self.origin = origin
        self.names = names
        self.size = size  # bytes of the files that are left
        self.position = position  # in the first file: all before it is done with
        self.reading = 0  # index in `names`
        self.at = position  # where the next batch is read; it may begin before it, see `_skip`
        self._skip = position  # of the file that is read: what ends before it is done with
        self.removed: dict[str, Removed] = {}  # by the name of their file
        self.clocks: dict[str, int] = {}  # ns that the time of day is ahead of the clock in its records, by the name of the file
        self._leaves_out = False  # what is read next continues a message that is removed, or not to be replayed

    def rewind(self) -> None:
        """Read again from the first record that is not done with."""
        self.reading = 0
        self._leaves_out = False  # a position is between two messages
        if self.names:
            self.at, self._skip = self._begin(self.names[0])
            if self._skip < self.position:  # which the file may not have yet
                self.at, self._skip = self._begin(self.names[0], self.position)

    def read(self) -> tuple[list[Record], list[Damage]] | None:
        """What the next batch has; None at the end. Raises OSError."""
        while self.reading < len(self.names):
            found = self._read_file(self.names[self.reading])
            if found is not None:
                return found
            self.reading += 1
            if self.reading < len(self.names):
                self.at, self._skip = self._begin(self.names[self.reading])
        return None

    def _read_file(self, name: str) -> tuple[list[Record], list[Damage]] | None:
        """What the next batch of this file has; None at its end."""
        descriptor = os.open(self.directory / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            size = os.fstat(descriptor).st_size
            return self._read(descriptor, name, size) if self.at < size else None
        finally:
            os.close(descriptor)

    def _begin(self, name: str, least: int = 0) -> tuple[int, int]:
        """Where the batch begins that has a file's position, or `least` where that is more, and that position."""
        descriptor = os.open(self.directory / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            return begin_of(descriptor, least)
        finally:
            os.close(descriptor)

    def _read(self, descriptor: int, name: str, size: int) -> tuple[list[Record], list[Damage]]:
        begin = self.at
        why = ""
        try:
            whole = batch_length(os.pread(descriptor, BATCH.size, begin))
            if begin + whole > size or whole > MAX_BATCH_BYTES:
                why = f"a batch of {whole} bytes has {size - begin}"
            else:
                data = read_all(descriptor, begin, whole)
                check(data)
                self.at = begin + whole
                return self._records(data, begin), []
        except DamagedError as error:
            why = str(error)
        end = next_batch(descriptor, begin + 1, size)
        self.at = end
        torn = end == size and self.reading == len(self.names) - 1
        return [], [Damage(name, begin, read_all(descriptor, begin, end - begin), why, torn=torn)]

    def _records(self, batch: bytes, begin: int) -> list[Record]:
        records: list[Record] = []
        clock = self.clocks.get(self.names[self.reading], 0)
        at = BATCH.size
        while at < len(batch):
            kind, flags, _, _, _, deadline, _, length = RECORD.unpack_from(batch, at)
            expires = deadline + clock if clock and flags & EXPIRES else 0
            at += RECORD.size
            first = max(self._skip - begin - at, 0)  # a position may be within a record that has several messages
            replays = flags & REPLAYS != 0
            if first < length:
                for start, end in self._left_of(kind, begin + at + first, begin + at + length):
                    records.append(Record(kind, batch[start - begin : end - begin], start, replays=replays, expires=expires))
                if kind == REQUEST and not replays:  # given up before it was written, perhaps, and what continues it was not
                    self._leaves_out = True
            at += length
        return records

    def _left_of(self, kind: int, first: int, end: int) -> list[Range]:
        """What is not removed of a record's bytes."""
        if kind == BODY:
            return [] if self._leaves_out else [(first, end)]
        removed = self.removed.get(self.names[self.reading])
        rest = [(first, end)] if removed is None else removed.rest(first, end)
        if kind == REQUEST:
            self._leaves_out = not rest or rest[-1][1] < end
        return rest

    def done(self, name: str, position: int) -> int:
        """All before `position` of the file `name` is done with: marked, and earlier files deleted. Bytes of these. Raises OSError."""
        freed = 0
        while self.names and self.names[0] != name:
            freed += self._delete_first()
        if self.names:
            mark(self.directory / name, position)
            self.position = position
        return freed

    def delete(self) -> int:
        """Everything is done with. Bytes of the files. Raises OSError."""
        freed = 0
        while self.names:
            freed += self._delete_first()
        return freed

    def _delete_first(self) -> int:
        file = self.directory / self.names[0]
        size = 0
        with contextlib.suppress(FileNotFoundError):
            size = file.lstat().st_size
            file.unlink()
        (self.directory / removed_name(self.names[0])).unlink(missing_ok=True)
        self.names.pop(0)
        self.reading = max(self.reading - 1, 0)
        self.size -= size
        self.position = 0
        return size

    def __repr__(self) -> str:
        return f"<LeftStream {self.origin} {self.names} {self.size}>"


class LeftBehind:
    """What one process has left. Its directory is locked for as long as this is open."""

    def __init__(self, directory: Path, lock: int, streams: list[LeftStream]) -> None:
        self.directory = directory
        self.lock = lock
        self.streams = streams

    def close(self) -> None:
        """Nothing of it is left: the directory goes, and its lock."""
        with contextlib.suppress(OSError):
            empty(self.directory)
        os.close(self.lock)


class Found:
    """What a look has found: `files` of `size` bytes were deleted, and what is to be replayed."""

    def __init__(self) -> None:
        self.files = 0
        self.size = 0
        self.left: list[LeftBehind] = []
        self.faults: dict[Path, str] = {}  # directories that cannot be looked at, or not taken, and why


def take_left_behind(directory: Path) -> Found:
    """Take what processes that are gone have left in `directory`, and nothing else."""
    found = Found()
    try:
        left = sorted(each for each in directory.iterdir() if OWN.fullmatch(each.name))
    except FileNotFoundError:  # nothing was ever spooled
        return found
    except OSError as error:
        found.faults[directory] = str(error)
        return found
    for own in left:
        try:
            descriptor = os.open(own / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its process lives
                if os.fstat(descriptor).st_ino != (own / LOCK).stat().st_ino:  # deleted by another process, in between
                    raise FileNotFoundError
                streams = _take(own, found)
            except BaseException:
                os.close(descriptor)
                raise
            behind = LeftBehind(own, descriptor, streams)
            if streams:
                found.left.append(behind)
            else:
                behind.close()
        except (BlockingIOError, FileNotFoundError):  # another process has it, or has just deleted it
            pass
        except OSError as error:
            found.faults[own] = str(error)
    return found


def _take(own: Path, found: Found) -> list[LeftStream]:
    names = {file.name for file in own.iterdir()}
    for name in names:
        file = own / name
        if name.isdecimal():
            found.size += file.lstat().st_size
            found.files += 1
            file.unlink()
        elif is_stray(name, names):
            file.unlink()
    return streams_of(own, [name for name in names if is_durable(name)])


def streams_of(own: Path, names: list[str]) -> list[LeftStream]:
    """Streams of files in `own`, each from the position of its first file on. Raises OSError."""
    queues: dict[str, LeftStream] = {}
    for name in sorted(names, key=serial_of):
        file = own / name
        size = file.stat().st_size
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            origin = read_head(descriptor)[0]
        except DamagedError:  # nobody knows whose messages these are: they are set aside
            origin = {}
        finally:
            os.close(descriptor)
        stream = queues.get(origin.get("queue", name))
        if stream is None:
            stream = queues[origin.get("queue", name)] = LeftStream(own, origin, [], 0, 0)
        stream.origin = stream.origin or origin
        clock = origin.pop(CLOCK, "")
        if clock.isdigit():
            stream.clocks[name] = int(clock)
        stream.names.append(name)
        stream.removed[name] = removed_of(own, name)
        stream.size += size
    for stream in queues.values():
        stream.rewind()
    return list(queues.values())


def begin_of(descriptor: int, least: int) -> tuple[int, int]:
    """Where the batch begins that has a file's position, or `least` where that is more, and that position."""
    try:
        _, at, position = read_head(descriptor)
    except DamagedError:  # its batches can be found all the same
        return 0, 0
    position = max(position, least)
    while at < position:
        try:
            whole = batch_length(os.pread(descriptor, BATCH.size, at))
        except DamagedError:
            return position, position
        if at + whole > position:
            break
        at += whole
    return at, position


def next_batch(descriptor: int, at: int, size: int) -> int:
    """Where the next whole batch begins, from `at` on; `size` where there is none."""
    while at < size:
        data = os.pread(descriptor, SEARCH_BYTES, at)
        found = data.find(MAGIC_BYTES)
        if found < 0:
            at += max(len(data) - len(MAGIC_BYTES) + 1, 1)
            continue
        at += found
        with contextlib.suppress(DamagedError):
            whole = batch_length(os.pread(descriptor, BATCH.size, at))
            if at + whole <= size and whole <= MAX_BATCH_BYTES:
                check(read_all(descriptor, at, whole))
                return at
        at += 1
    return size


def read_all(descriptor: int, at: int, size: int) -> bytes:
    """`size` bytes from `at` on; fewer at the file's end."""
    pieces: list[bytes] = []
    while size > 0:
        piece = os.pread(descriptor, size, at)
        if not piece:
            break
        pieces.append(piece)
        at += len(piece)
        size -= len(piece)
    return b"".join(pieces)
