"""basic.get on a queue that a rule limits: judged before it goes to the broker, because what it has brought cannot wait long.

Its client stands still until it is answered. So it waits here for PATIENCE_NS at most, in its place on its channel, and is then answered
with get-empty, as if the queue were empty, or with `action: close` its channel is closed (506). Either is counted as a message refused, and
the message stays with the broker. One that passes has
reserved a message (`limiter.reservation`), which the broker's answer settles: a get-empty costs nothing.

Where its channel has something on disk it goes to the broker in its place, unjudged, and what it brings is judged on its way back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pipeline.parts import PLAIN, REQUEST, Part
from gateway.protocols.amqp.frames import BASIC_GET, BASIC_GET_EMPTY, method_frame
from limiter.limits import SECOND
from limiter.reservation import Reservation

if TYPE_CHECKING:
    from gateway.protocols.amqp.channel import AmqpChannel
    from gateway.protocols.amqp.deliveries.consumers import Consumers
    from gateway.protocols.amqp.deliveries.mover import SubscriptionMover
    from gateway.protocols.amqp.deliveries.pending_requests import PendingRequest
    from limiter.judge import Judge

PATIENCE_NS: Final = SECOND  # a worker that asks several queues in turn is not kept from the others for longer; a guess


class LimitedGets:
    """Those of one connection."""

    def __init__(self, judge: Judge, consumers: Consumers, windows: SubscriptionMover) -> None:
        self.judge = judge
        self.consumers = consumers
        self.windows = windows

    def ask(self, channel: AmqpChannel, arguments: bytes) -> Part | None:
        """The client's basic.get, which was overheard just now, as a request to the judge; None: nothing limits it."""
        consumers = self.consumers.channels.get(channel.number)
        request = consumers.gets.kept[-1] if consumers is not None and consumers.gets.kept and not consumers.gets.beyond else None
        if request is None or request.queue is None or request.queue.name is None:
            return None
        key = self.consumers.key_of(request.queue.name)
        if key is None or not self.judge.is_limited(key):
            return None
        frame = method_frame(channel.number, BASIC_GET, arguments)
        part = Part(REQUEST, channel.number, frame, 0, len(frame), key, 1, 0, 0)
        part.reservation = request.reservation = Reservation(1, 0)
        return part

    def goes_unjudged(self, part: Part) -> None:
        """`part` goes to the broker in its place; what it brings is judged."""
        part.kind = PLAIN
        request = self._request_of(part)
        if request is not None and request.reservation is not None and part.key is not None:
            self.windows.get_answered(part.key, request.reservation, 0, 0)
            request.reservation = None

    def empty(self, part: Part) -> bytes:
        """The client has waited long enough, which is counted: its answer, where its channel is not closed instead."""
        consumers = self.consumers.channels.get(part.ordering_key)
        request = self._request_of(part)
        if consumers is not None and request is not None:
            consumers.gets.kept.remove(request)
            self.consumers.kept -= 1
        key = part.key
        assert key is not None
        key.tally.received += 1
        key.tally.refused += 1
        if part.bucket is not None:
            part.bucket.refused += 1
        return method_frame(part.ordering_key, BASIC_GET_EMPTY, b"\x00")

    def _request_of(self, part: Part) -> PendingRequest | None:
        consumers = self.consumers.channels.get(part.ordering_key)
        reservation = part.reservation
        return None if consumers is None or reservation is None else consumers.gets.of(reservation)

    def __repr__(self) -> str:
        return "<LimitedGets>"
