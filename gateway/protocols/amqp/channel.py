"""One AMQP channel, seen from both sides, and the line in front of it.

A channel is looked at in three places which are not at the same message: where the client's bytes are decoded, where decoded parts are
settled (a batch later, or much later when they are held), and where the broker's bytes are relayed. The attributes stand in those three
groups, and each group is written by its own side.

The line (`parked`). A refused publish on a channel without confirms can only wait, and all that comes behind it on that channel must
wait behind it, publishes, acks and `channel.close` alike, because order within a channel is promised. So at any time outside a batch:
either nothing is parked, or the first parked part is a request without a verdict, due at its time, or a channel.open that
waits for the broker's close-ok (due NEVER until then). A batch takes requests from the
front (`take`); while they are away, `taken` counts them, and the first of them that must wait again makes the others come back behind
it, in order (`returned`), those with a verdict as `paid`.

Deliveries that wait, on the way back, stand apart from that line: in `parking` (`deliveries.py`).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter

from gateway.pipeline.parts import NEVER, REQUEST, Part

if TYPE_CHECKING:
    from gateway.protocols.amqp.confirms import Confirms
    from gateway.protocols.amqp.deliveries.parked import Parking
    from gateway.protocols.amqp.deliveries.pending_requests import Consumer
    from gateway.protocols.amqp.refusal import Unanswered

AWAITS_METHOD: Final = 0
AWAITS_HEADER: Final = 1
AWAITS_BODY: Final = 2

PART_OVERHEAD: Final = 400  # bytes of memory a parked part takes beside its own bytes (sys.getsizeof of its objects, Python 3.11)


class HeldPart:
    """A part in the line. `due` is the time (monotonic ns) to judge it again; 0: it only waits for those before it."""

    __slots__ = ("due", "part")

    def __init__(self, part: Part, due: int) -> None:
        self.part = part
        self.due = due


def held_cost(part: Part) -> int:
    """What a parked part counts against the connection's budget: its bytes and its objects."""
    return part.end - part.start + PART_OVERHEAD


class AmqpChannel:
    """State of one channel of one connection."""

    __slots__ = (
        "awaits",
        "broker_closed",
        "closing",
        "confirms",
        "consumer",
        "cut",
        "dead",
        "discarding",
        "down_left",
        "ignored",
        "last_words",
        "left",
        "method",
        "number",
        "opened",
        "opening",
        "parked",
        "parking",
        "replies",
        "returned",
        "taken",
        "tx",
        "unanswered",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        # As decoded:
        self.opened = False  # the client's last word on it was channel.open
        self.opening = 0  # channel.opens decoded and not yet settled
        self.ignored = False  # the broker has closed it and ignores the client until close-ok: so do we
        self.awaits = AWAITS_METHOD
        self.left = 0  # body bytes still to come
        self.method = b""  # a publish's method frame that waits for its header
        # As settled:
        self.confirms: Confirms | None = None
        self.tx = False
        self.discarding = False  # the rest of the last request's content is thrown away
        self.unanswered: Unanswered | None = None  # the refusal to be said when that content is complete
        self.broker_closed = False
        self.cut = False  # the gateway has closed it, and the client's close-ok is to come (`channel_close.py`)
        self.dead = False  # cut, or broker_closed while parts were parked: nothing of it may go on before close-ok
        self.parked: deque[HeldPart] = deque()
        self.taken = 0
        self.returned: list[HeldPart] = []
        # As relayed:
        self.down_left = 0  # body bytes still to come from the broker; -1: a content header is to come
        self.replies: BytesWriter | None = None  # the gateway's own words for the client, that wait (`replies.py`)
        self.consumer: Consumer | None = None  # of the delivery whose header is to come, where it passes as it comes
        self.parking: Parking | None = None  # deliveries that wait, and what waits behind them
        self.closing = False  # the gateway has told the broker to close it, and its close-ok is to come
        self.last_words = b""  # the same close, for the client, until it is said; from then on nothing of the broker's goes to the client

    def open(self) -> None:
        """The client opens the channel, as decoded."""
        self.opened = True
        self.opening += 1
        self.ignored = False
        self.awaits = AWAITS_METHOD
        self.left = 0
        self.method = b""

    def begin(self) -> None:
        """The same, as settled."""
        self.release_all_slots()
        self.confirms = None
        self.tx = False
        self.discarding = False
        self.unanswered = None
        self.broker_closed = False
        self.cut = False
        self.dead = False

    def release_all_slots(self) -> None:
        """What is not confirmed will never be."""
        confirms = self.confirms
        if confirms is not None and confirms.slots is not None:
            confirms.slots.lose()

    def over(self) -> bool:
        """Whether the channel is closed and nothing of it is under way, so that it may be forgotten."""
        under_way = self.opening or self.parked or self.taken or self.cut or self.closing
        return not (self.opened or under_way)

    def muted(self) -> bool:
        """Whether the client has heard the gateway's close of the channel: what the broker still says there is not for it."""
        return self.closing and not self.last_words

    def waits(self) -> bool:
        """Whether what is settled now must go behind something else."""
        return len(self.returned) > 0 if self.taken else len(self.parked) > 0

    def due(self) -> int:
        """When the first parked part is to be judged again."""
        return self.parked[0].due if self.parked else NEVER

    def take(self, now: int, room: int, parts: list[Part]) -> int:
        """Take what stands at the front and whose time has come, about `room` requests; returns what is left of the room."""
        parked = self.parked
        while parked and room > 0:
            first = parked[0]
            part = first.part
            if first.due > now or (first.due == 0 and (part.kind != REQUEST or part.paid)):
                break
            parked.popleft()
            parts.append(part)
            self.taken += 1
            room -= part.count
        return room

    def forget_parked(self) -> list[Part]:
        """Empty the line: its parts. Requests that are away with the judge stay `taken`."""
        parts = [waiting.part for waiting in self.returned]
        parts.extend(waiting.part for waiting in self.parked)
        self.returned.clear()
        self.parked.clear()
        return parts

    def __repr__(self) -> str:
        state = "open" if self.opened else "closed"
        if self.cut or self.closing:
            state = "closed by the gateway"
        elif self.broker_closed:
            state = "dead" if self.dead else "closed by the broker"
        return f"<AmqpChannel {self.number} {state} {self.confirms} parked={len(self.parked)} taken={self.taken}>"
