"""What travels down the pipeline: a batch of parts.

A **batch** is what one read of one client's socket held, as far as it could be decoded. A **part** is a stretch of those bytes that has
one fate: requests alike, which are judged in one step; bytes that no rule limits; or the rest of a body that began in an earlier read.
Parts never copy bytes. Contiguous parts that pass leave as one slice of the bytes they came in.
"""

from __future__ import annotations

from typing import Final

from limiter.algorithms.slots import GIVEN_UP
from limiter.in_flight import Ending, end
from limiter.keys import Key
from limiter.limits import NEVER
from limiter.operations import PRODUCE, REQUEUE, WAITING
from limiter.request import Request

PLAIN: Final = 0  # not limited: passes, in its place among the parts of its ordering key
REQUEST: Final = 1  # `count` requests alike, judged
BODY: Final = 2  # continues the last request of its ordering key, and shares its fate


POSTPONED: Final = 1  # what `Part.unjudged` may be: what is before it in its line is paged, and it is judged when its turn comes
EXPIRED: Final = 2  # it is given up: it has waited for longer than its rule allows, or would overtake what does


class Held:
    """What a part has that waits for a limit, or behind one that does."""

    __slots__ = ("blocking", "counted", "due", "paged_at", "since")

    def __init__(self) -> None:
        self.due = 0  # monotonic ns at which it is judged again; 0: it only waits for those before it
        self.since = 0  # monotonic ns; when a limit began to hold it; 0: none does
        self.paged_at = 0  # monotonic ns; when it began to wait where a rule pages, or behind what does; 0: it does not
        self.counted = False  # it is counted among what waits so (`gateway/waiting/disk/waiting_messages.py`)
        self.blocking = False  # its client is not read meanwhile


class Part(Request):
    """`data[start:end]`, with one ordering key.

    Parts with the same ordering key stay in order: in AMQP it is the channel's number, in RocketMQ always 0. `complete` says that the
    last of the requests (or the body that is continued) ends with this part.
    """

    __slots__ = (
        "complete",
        "data",
        "deadline",
        "end",
        "held",
        "kind",
        "ordering_key",
        "paid",
        "start",
        "unjudged",
    )

    def __init__(
        self,
        kind: int,
        ordering_key: int,
        data: bytes,
        start: int,
        end: int,
        key: Key | None = None,
        count: int = 0,
        messages: int = 0,
        size: int = 0,
        complete: bool = True,  # noqa: FBT001, FBT002  -- positional for speed; one per part
    ) -> None:
        super().__init__(key, count, messages, size)
        self.kind = kind
        self.ordering_key = ordering_key
        self.data = data
        self.start = start
        self.end = end
        self.complete = complete
        self.paid = False  # judged and passed, but held behind others of its ordering key: not judged again
        self.unjudged = 0  # in a batch: POSTPONED, EXPIRED; 0: it is judged, unless it is paid
        self.deadline = 0  # monotonic ns after which a delayed request is refused instead; 0: not yet delayed
        self.held: Held | None = None  # None: it has never waited

    def only_waits(self) -> bool:
        """Whether it waits for its limit, whatever the action: it is no message, or what it is refused for is that it is given back."""
        key, rule = self.key, self.rule
        if key is None or key.operation in WAITING:
            return True
        return self.copies is not None and rule is not None and PRODUCE not in rule.match.operations()

    def gives_back(self) -> bool:
        """Whether a consumer gives it back to its queue or group."""
        key, copies = self.key, self.copies
        return (key is not None and key.operation == REQUEUE) or (copies is not None and copies[0].operation == REQUEUE)

    def copy_out(self) -> None:
        """Keep only the part's own bytes, so that holding it does not keep a whole read alive."""
        if self.start != 0 or self.end != len(self.data):
            self.data = self.data[self.start : self.end]
            self.end -= self.start
            self.start = 0

    def begin_hold(self) -> Held:
        """What it has as one that waits."""
        held = self.held
        if held is None:
            held = self.held = Held()
        return held

    def find_paged_at(self) -> int:
        """When it began to wait where a rule pages, or behind what does (monotonic ns); 0: it does not."""
        return 0 if self.held is None else self.held.paged_at

    def split_into(self, head: Part) -> None:
        """`head` is the first `head.count` requests of this part, which pass; this one keeps the rest, and the refusal."""
        head.passed = head.count
        head.copies = self.copies
        head.rule = self.rule
        head.bucket = self.bucket
        head.bypassed = self.bypassed
        head.deadline = self.deadline
        held = self.held
        if held is not None:
            copy = head.begin_hold()
            copy.since = held.since
            copy.paged_at = held.paged_at
            copy.counted = held.counted
        head.again = self.again
        head.prepaid = self.prepaid
        head.flight = self.flight
        self.flight = None
        self.start = head.end
        self.count -= head.count
        self.passed = 0

    def release_slots(self, ended: list[Ending]) -> None:
        """The part will not be answered, or not be forwarded: the slots that it holds, if any, are free again."""
        flight = self.flight
        if flight is not None:
            self.flight = None
            end(ended, flight, flight.left, GIVEN_UP)

    def requeue_without_slots(self, ended: list[Ending]) -> bool:
        """The part has passed the judge but must wait behind others. Slots that it holds go back, or the parts before it might wait for
        just these; then it is judged again when its turn comes, for slots alone. Whether that was so."""
        if self.flight is None:
            return False
        self.release_slots(ended)
        self.prepaid = True
        self.again = True
        return True

    def forget_verdict(self) -> None:
        """The part has passed by rules that are not in force any more, and still waits: it is judged when its turn comes."""
        if self.paid or self.prepaid:
            self.paid = self.prepaid = False
            self.passed = 0
            self.again = True
            if self.deadline == 0:  # it is held from now on, for as long as it takes
                self.deadline = NEVER

    def __repr__(self) -> str:
        kind = ("plain", "request", "body")[self.kind]
        passed = f"{self.passed}/{self.count} x {self.messages} {self.key}"
        return f"<Part {kind} ordering_key={self.ordering_key} [{self.start}:{self.end}] {passed}>"


def cut_all(parts: list[Part]) -> list[Part]:
    """`parts`, with its pieces in place of each that is of several keys (`Request.columns`); the same list where none is."""
    for part in parts:
        if part.columns is not None and part.pieces is None:
            part.cut()
    return pieces_of(parts)


def pieces_of(parts: list[Part]) -> list[Part]:
    """`parts`, with its pieces in place of each that was cut; the same list where none was."""
    for part in parts:
        if part.pieces is not None:
            break
    else:
        return parts
    found: list[Part] = []
    for part in parts:
        if part.pieces is None:
            found.append(part)
        else:
            for piece in part.pieces:
                assert isinstance(piece, Part)
                found.append(piece)
    return found
