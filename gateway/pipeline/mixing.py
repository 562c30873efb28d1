"""Mixing: when requests of several keys that follow one another go as one part (`Request.columns`), and that part."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from gateway.pipeline.parts import PLAIN, REQUEST, Part
from gateway.transport.channel import COPY_BELOW_BYTES
from limiter.columns import Columns
from limiter.request import Request

MIN_MIXED_AHEAD: Final = 3  # requests that are still to come, as large as the last: two or three are cheaper as parts (2026-11)
MIN_PAUSE: Final = 4  # runs that go as parts after one that had to be cut: to cut one costs some tenths of it; a guess
MAX_PAUSE: Final = 60  # the same where one after the other had to be cut; a guess


class Mixing:
    """Whether the runs of a connection are mixed: not for some after one that had to be cut, the more the more often that was so.

    After a run of few, as of a client whose threads have a channel each, the next one begins with parts: it may be as short.
    """

    def __init__(self, *, mixes: bool) -> None:
        self.mixes = mixes  # the connection, at all
        self.apart: i64 = 0  # parts that the next run begins with
        self._made = False  # a run was, since the last was cut
        self._pause: i64 = 0  # runs
        self._left: i64 = 0  # of the present pause

    def begin_run(self) -> bool:
        """Whether the next run is mixed."""
        if self._left > 0:
            self._left -= 1
            return False
        if self._made:
            self._pause = 0  # the last one passed
        self._made = True
        return True

    def note_cut(self) -> None:
        """The last run was cut. On the thread that judges it: then no other run begins."""
        self._made = False
        self._pause = min(2 * self._pause + MIN_PAUSE, MAX_PAUSE)
        self._left = self._pause


class MixedPart(Part):
    """Requests of several keys and sizes. All of them are whole, and of one message each."""

    def __init__(self, ordering_key: int, data: bytes, start: int, end: int, columns: Columns, count: int, mixing: Mixing) -> None:
        super().__init__(REQUEST, ordering_key, data, start, end, None, count, 1)
        self.columns = columns
        self.mixing = mixing

    def cut(self) -> list[Request]:
        self.mixing.note_cut()
        return super().cut()


class Stretches:
    """What goes on of the bytes of a part, others of which do not. Short stretches are joined: to send each by itself costs more."""

    def __init__(self, part: Part, outbox: list[Part]) -> None:
        self.data = part.data
        self.ordering_key = part.ordering_key
        self.outbox = outbox
        self.short: list[bytes] = []

    def add(self, start: i64, end: i64) -> None:
        """Bytes `start` to `end` are the next."""
        if end - start <= COPY_BELOW_BYTES:
            self.short.append(self.data[start:end])
        else:
            self.join()
            self.outbox.append(Part(PLAIN, self.ordering_key, self.data, start, end))

    def join(self) -> None:
        """No other short one follows for now."""
        if self.short:
            joined = b"".join(self.short)
            self.short = []
            self.outbox.append(Part(PLAIN, self.ordering_key, joined, 0, len(joined)))
