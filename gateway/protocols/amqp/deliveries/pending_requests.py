"""Pending requests: what a client has asked for on one channel, in order, until the broker answers; and the consumers it has since then.

The theory is in `consumers.py`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from limiter.reservation import Overdraft

if TYPE_CHECKING:
    from limiter.keys import Key


class Declared:
    """A queue's name; None until the broker has made it."""

    __slots__ = ("name",)

    def __init__(self, name: bytes | None) -> None:
        self.name = name


class PendingRequest:
    """A basic.consume or basic.get without an answer yet; `queue` None: a mark left by the client's channel.close."""

    __slots__ = ("no_ack", "queue", "tag")

    def __init__(self, queue: Declared | None, tag: bytes, *, no_ack: bool) -> None:
        self.queue = queue
        self.tag = tag  # b"": the broker makes it, or it is a basic.get
        self.no_ack = no_ack


class Consumer:
    """Where the deliveries of one tag, or of one basic.get, come from. With `no_ack` the broker has forgotten them once they are sent."""

    __slots__ = ("key", "no_ack", "overdraft", "queue")

    def __init__(self, queue: bytes, key: Key, *, no_ack: bool) -> None:
        self.queue = queue
        self.key = key
        self.no_ack = no_ack
        self.overdraft: Overdraft | None = None  # the client has cancelled it and waits for cancel-ok: what is on its way passes by this

    def cancel(self) -> None:
        """The client has cancelled it, and waits for cancel-ok."""
        if self.overdraft is None:
            self.overdraft = Overdraft()


class PendingRequests:
    """Those of one kind on one channel, in order. Those beyond what may be kept are only counted: their answers are then unknown."""

    __slots__ = ("beyond", "kept")

    def __init__(self) -> None:
        self.kept: deque[PendingRequest] = deque()
        self.beyond = 0  # newer than all that are kept

    def put(self, request: PendingRequest) -> None:
        """One more, while there is room."""
        if self.beyond:
            self.beyond += 1
        else:
            self.kept.append(request)

    def answer(self) -> PendingRequest | None:
        """The one that is answered now."""
        if self.kept:
            return self.kept.popleft()
        self.beyond = max(self.beyond - 1, 0)
        return None

    def forget_closed(self) -> None:
        """Forget what was asked before the mark of the client's channel.close, and the mark."""
        while self.kept and self.kept.popleft().queue is not None:
            pass
        if not self.kept:
            self.beyond = 0


class ChannelConsumers:
    """What one channel consumes."""

    __slots__ = ("cancelled_tags", "consumes", "declared", "declares", "gets", "tags")

    def __init__(self) -> None:
        self.declared: Declared | None = None  # last, by the client
        self.declares: deque[Declared | None] = deque()  # not yet answered; None: the client closed the channel here
        self.consumes = PendingRequests()
        self.gets = PendingRequests()
        self.tags: dict[bytes, Consumer] = {}
        self.cancelled_tags: deque[bytes] = deque()

    def size(self) -> int:
        """How many entries are remembered."""
        return len(self.declares) + len(self.consumes.kept) + len(self.gets.kept) + len(self.tags)

    def queue(self, name: bytes) -> Declared:
        """The queue of that name; of an empty one, what was declared last."""
        if name:
            return Declared(name)
        return Declared(None) if self.declared is None else self.declared

    def mark_close(self) -> None:
        """The client closes the channel: what it asks for from now on is another channel's."""
        self.declared = None
        self.declares.append(None)
        self.consumes.kept.append(PendingRequest(None, b"", no_ack=False))
        self.gets.kept.append(PendingRequest(None, b"", no_ack=False))

    def forget_closed(self) -> None:
        """The client's channel.close is answered: forget what it asked for before that."""
        self.tags.clear()
        self.cancelled_tags.clear()
        self.consumes.forget_closed()
        self.gets.forget_closed()
        while self.declares and self.declares.popleft() is not None:
            pass

    def __repr__(self) -> str:
        return f"<ChannelConsumers {list(self.tags)} asked={len(self.consumes.kept)} gets={len(self.gets.kept)}>"
