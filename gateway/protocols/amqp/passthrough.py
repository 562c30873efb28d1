"""One read of the broker's, on its way through: which of its bytes go to the client, in as few pieces as may be."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from gateway.pipeline.empties import NO_ITEMS
from gateway.pipeline.errors import ProtocolError
from gateway.protocols.amqp.frames import broker_error


class Passthrough:
    """`data` on its way to `out`. Used again for every read of every connection; between two of them it holds nothing."""

    __slots__ = ("data", "done", "out")

    def __init__(self) -> None:
        self.data = b""
        self.out: list[bytes] = NO_ITEMS
        self.done: i64 = 0  # everything before it is in `out`, or was taken out

    def begin(self, data: bytes, out: list[bytes]) -> None:
        self.data = data
        self.out = out
        self.done = 0

    def end(self) -> None:
        """Let go of the read, which may be large."""
        self.data = b""
        self.out = NO_ITEMS

    def pass_up_to(self, pos: i64) -> None:
        """What was not taken out before `pos` goes to the client."""
        done: i64 = self.done
        if done < pos:
            self.done = pos
            self.out.append(self.data if done == 0 and pos == len(self.data) else self.data[done:pos])

    def take_out(self, pos: i64, stop: i64) -> None:
        """`data[pos:stop]` does not go to the client, or not now."""
        self.pass_up_to(pos)
        self.done = stop

    def insert(self, pos: i64, frames: bytes) -> None:
        """`frames` go to the client before `data[pos]`, a frame boundary."""
        self.pass_up_to(pos)
        self.out.append(frames)

    def make_broker_error(self, pos: i64, what: str) -> ProtocolError:
        """The broker's fault at `pos`. Its bytes before that go to the client."""
        self.pass_up_to(pos)
        return broker_error(what)

    def __repr__(self) -> str:
        return f"<Passthrough {self.done}/{len(self.data)}>"


PASSTHROUGH: Final = Passthrough()
