"""A subscription: what a client consumes under one tag, and how the gateway has it at the broker. `windows.py` moves it::

    HERE ──cancelled by the gateway──► LEAVING ──the broker's cancel-ok──► AWAY ──consumed anew──► HERE
      ▲                                                                      ▲
      └── the client's basic.consume goes on ──┴── its limit lets nothing pass ┘

For each time that it is HERE there is one `Consumer`. The first has the client's tag at the broker, the others have tags of the gateway's
own: with the tag of one that was cancelled, while deliveries of that are not settled, RabbitMQ 3.10 ends the connection (541, quorum
queues).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from limiter.reservation import Overdraft, Reservation

if TYPE_CHECKING:
    from limiter.keys import Key
    from limiter.rules.rule_set import Identity

HERE: Final = 0  # the broker delivers to it
LEAVING: Final = 1  # the gateway has cancelled it there
AWAY: Final = 2  # the broker does not know it, or not any more

UNSEEN: Final = 0  # nothing has come
QUEUE: Final = 1
STREAM: Final = 2
ASKED: Final = 3  # its first message has a header that streams give and publishers copy: the broker is asked

NO_ACK: Final = 2  # basic.consume's bits
EXCLUSIVE: Final = 4
NO_WAIT: Final = 8
USUAL_BYTES: Final = 4096  # of a message, as long as none has come: a guess


class Declared:
    """A queue's name; None until the broker has made it."""

    __slots__ = ("name", "sought_for", "stays_while_consumed", "stream")

    def __init__(self, name: bytes | None) -> None:
        self.name = name
        self.stays_while_consumed = False  # it goes when the last of its consumers does, or some time later
        self.stream = False  # a consumer begun anew would begin elsewhere in it, and what goes back does not come again
        self.sought_for: Subscription | None = None  # the gateway looks whether it is there, in the place of this one's basic.consume


class Consumer:
    """Where the deliveries of one tag, or of one basic.get, come from. With `no_ack` the broker has forgotten them once they are sent."""

    __slots__ = (
        "capacity", "key", "leaves", "no_ack", "open", "overdraft", "queue", "reservation", "returns", "source", "subscription", "tag",
        "watched",
    )  # fmt: skip

    def __init__(self, queue: bytes, key: Key, *, no_ack: bool) -> None:
        self.queue = queue
        self.key = key
        self.no_ack = no_ack  # at the broker: of what is taken so it knows nothing any more
        self.subscription: Subscription | None = None  # None: it is a basic.get
        self.reservation: Reservation | None = None  # of a basic.get, by which it has passed the judge
        self.tag = b""  # at the broker, where that is not the client's
        self.capacity = 0  # so many of it that the client has not settled use its window up; 0: it has none
        self.open = 0  # of it, those
        self.source = UNSEEN  # a queue or a stream
        self.leaves = False  # the gateway has cancelled it: the broker's cancel-ok is not for the client
        self.watched = False  # the gateway has it at the broker otherwise than its client: its deliveries do not just pass
        self.returns = False  # what still comes for it goes back to the broker
        self.overdraft: Overdraft | None = None  # the client has cancelled it and waits for cancel-ok: what is on its way passes by this

    def acknowledged_here(self) -> bool:
        """Whether the gateway acknowledges what passes on of it, and its client does not."""
        return self.watched and not self.no_ack and self.subscription is not None and self.subscription.without_ack()

    def cancel(self) -> None:
        """The client has cancelled it, and waits for cancel-ok."""
        if self.overdraft is None:
            self.overdraft = Overdraft()


class Subscription:
    """One consumer of a client's."""

    __slots__ = (
        "again",
        "bits",
        "channel",
        "consumer",
        "ended",
        "open",
        "prefetch",
        "queue",
        "rest",
        "shares",
        "size",
        "slow",
        "state",
        "tag",
        "turns",
        "window",
    )

    def __init__(self, channel: int, tag: bytes, queue: Declared, bits: int, rest: bytes, prefetch: int) -> None:
        self.channel = channel
        self.tag = tag  # b"": the broker makes it
        self.queue = queue
        self.bits = bits  # of the client's basic.consume
        self.rest = rest  # its arguments
        self.prefetch = prefetch  # the client's for it; 0: none
        self.state = HERE
        self.window = 0  # how many messages the broker may have on their way for it; 0: as many as the client says
        self.again = False  # it was to move while nobody knew whether it reads a stream: look at its limit again when that is known
        self.slow = False  # its limit lets less than one message pass within FAR_NS: each time it is HERE for one alone
        self.open = 0  # delivered and not settled by the client; counted while there is a limit
        self.size = USUAL_BYTES  # of a message; of its last one
        self.consumer: Consumer | None = None  # of the last time that it was HERE
        self.ended = False  # the client has cancelled it, or its channel is closed
        self.shares: list[Identity] = []  # limits at which it is counted as one of those that share it
        self.turns: list[Identity] = []  # slow limits whose next message it fetches

    def without_ack(self) -> bool:
        """Whether the client does not acknowledge."""
        return (self.bits & NO_ACK) != 0

    def exclusive(self) -> bool:
        """Whether there can be no other consumer beside it."""
        return (self.bits & EXCLUSIVE) != 0

    def __repr__(self) -> str:
        state = ("here", "leaving", "away")[self.state]
        return f"<Subscription {self.tag!r} {state} window={self.window} open={self.open}>"
