"""Requests that the gateway has to know one by one: parts of a batch, with what the conversation must remember of them."""

from __future__ import annotations

from gateway.pipeline.parts import PLAIN, REQUEST, Part
from gateway.protocols.rocketmq.polls.queues import PollQueue
from gateway.protocols.rocketmq.polls.terms import PollTerms
from limiter.keys import Key


class Sends(Part):
    """A run of like sends (or consumer send-backs, or one request of `costly_requests.py`): frames one behind the other, same key, same
    cost, all one-way or none."""

    __slots__ = ("one_way", "opaques", "send_backs", "streamed")

    def __init__(
        self,
        data: bytes,
        start: int,
        end: int,
        key: Key,
        messages: int,
        size: int,
        opaques: list[int],
        one_way: bool,  # noqa: FBT001  -- positional for speed; one per run
        streamed: bool,  # noqa: FBT001
        complete: bool,  # noqa: FBT001
    ) -> None:
        super().__init__(REQUEST, 0, data, start, end, key, len(opaques), messages, size, complete)
        self.opaques = opaques  # of the requests, in order: what a refusal is addressed to
        self.unanswered = one_way
        self.one_way = one_way  # no answer is expected
        self.streamed = streamed  # one frame too large to be kept whole: its body passes, or is thrown away, as it comes
        self.send_backs = False  # consumers' send-backs: not every client heeds their refusal (`refusals.py`)


def restore_sends(part: Part) -> Sends:
    """One-way sends, out of a part that was read back from the disk: nothing is ever said about them, so their opaques are not needed."""
    assert part.key is not None
    sends = Sends(part.data, part.start, part.end, part.key, part.messages, part.size, [0] * part.count, True, False, True)
    sends.passed = part.passed
    sends.paid = part.paid
    sends.prepaid = part.prepaid
    sends.again = part.again
    sends.deadline = part.deadline
    sends.held = part.held
    return sends


class Poll(Part):
    """A request for messages, which the broker may keep for long: pull, pop and their kin. Always complete.

    A REQUEST where it is limited. It is no message itself; the messages it brings are counted when they come (`polls.py`).
    """

    __slots__ = ("code", "due", "opaque", "order", "queue", "terms")

    def __init__(self, data: bytes, start: int, end: int, code: int, opaque: int, key: Key | None, *, limited: bool) -> None:
        super().__init__(REQUEST if limited else PLAIN, 0, data, start, end, key, 1 if limited else 0)
        self.code = code
        self.opaque = opaque
        self.terms: PollTerms | None = None  # where it is limited, as the next
        self.queue: PollQueue | None = None  # what is known of the queue it asks
        self.order = 0  # place among the held polls of its connection; 0: was never held
        self.due = 0  # while held: monotonic ns at which to judge it again

    def since(self) -> int:
        """Monotonic ns since when its queue has waited for messages."""
        return 0 if self.reservation is None else self.reservation.since


class GatewayRequest(Part):
    """A request the gateway answers itself (`Reports.gateway_requests`); it never reaches the broker. Always complete."""

    __slots__ = ("body_at", "code", "header_at", "one_way", "opaque")

    def __init__(self, data: bytes, start: int, end: int, header_at: int, body_at: int, code: int, opaque: int, one_way: bool) -> None:  # noqa: FBT001
        super().__init__(PLAIN, 0, data, start, end)
        self.header_at = header_at  # index in `data`
        self.body_at = body_at
        self.code = code
        self.opaque = opaque
        self.one_way = one_way


class RejectedRequest(Part):
    """A request that was thrown away because it cannot be taken (`long_headers.py`), and what its client is told: a frame, or b""."""

    __slots__ = ("reply",)

    def __init__(self, reply: bytes) -> None:
        super().__init__(PLAIN, 0, b"", 0, 0)
        self.reply = reply
