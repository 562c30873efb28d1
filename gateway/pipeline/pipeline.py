"""The pipeline: handlers in a row, and the batch that travels through them.

    Decode ──► SpendCredit ──► RateLimit ──► Wait ──► Forward

A handler takes a batch and lets it go on (`carry` returns True), or keeps it (False) until `Pipeline.resume` is called. Only RateLimit
ever keeps one, while the judge looks at it on the limiter's executor. What runs there is a pure function over a batch, never a handler on
a thread of its own: Netty tried that and deprecated it. A pipeline has at most one batch under way, so nothing overtakes.

Handlers are synchronous, hold no socket and are tested without one.
"""

from __future__ import annotations

from gateway.pipeline.parts import Part


class Batch:
    """What one read held: bytes before Decode, parts after it. `now` is monotonic nanoseconds, taken once per sweep."""

    __slots__ = ("data", "mixed", "now", "owner", "parts", "requests")

    def __init__(self, owner: object, data: bytes, now: int) -> None:
        self.owner = owner  # the session, for the loop; handlers do not look at it
        self.data = data
        self.now = now
        self.parts: list[Part] = []
        self.mixed = False  # one of them has been of several keys (`Request.columns`)
        self.requests: list[Part] = self.parts  # those that need a verdict, as RateLimit has found; the same list where all do

    def __repr__(self) -> str:
        return f"<Batch {len(self.parts)} parts, {len(self.requests)} to judge, {len(self.data)} bytes>"


class Handler:
    """One station of the pipeline."""

    def carry(self, batch: Batch) -> bool:
        """Do this handler's work on `batch`; False keeps the batch here, with this handler's work done, until `Pipeline.resume`."""
        raise NotImplementedError


class Pipeline:
    """Handlers in order; remembers at which one a batch is kept."""

    def __init__(self, handlers: list[Handler]) -> None:
        self.handlers = handlers
        self.kept_at = -1  # index of the handler that keeps a batch; -1: none

    def carry(self, batch: Batch, first: int) -> bool:
        """Carry `batch` through the handlers from number `first` on; False when one keeps it. Raises ProtocolError."""
        for index in range(first, len(self.handlers)):
            if not self.handlers[index].carry(batch):
                self.kept_at = index
                return False
        return True

    def resume(self, batch: Batch) -> None:
        """The kept batch may go on: carry it through the rest of the handlers."""
        index = self.kept_at
        assert index >= 0, "no batch is kept"
        self.kept_at = -1
        self.carry(batch, index + 1)

    def __repr__(self) -> str:
        state = "idle" if self.kept_at < 0 else f"batch kept at {type(self.handlers[self.kept_at]).__name__}"
        return f"<Pipeline {state}: {' > '.join(type(handler).__name__ for handler in self.handlers)}>"
