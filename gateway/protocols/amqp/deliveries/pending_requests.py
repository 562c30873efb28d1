"""Pending requests: what a client has asked for on one channel, in order, until the broker answers; and the consumers it has since then.

The theory is in `consumers.py`.
"""

from __future__ import annotations

from collections import deque

from gateway.protocols.amqp.deliveries.subscription import Consumer, Declared, Subscription
from limiter.reservation import Reservation


class PendingRequest:
    """A basic.consume or basic.get without an answer yet; `queue` None: a mark left by the client's channel.close."""

    __slots__ = ("no_ack", "queue", "reservation", "subscription", "tag")

    def __init__(self, queue: Declared | None, tag: bytes, *, no_ack: bool, subscription: Subscription | None = None) -> None:
        self.queue = queue
        self.tag = tag  # b"": the broker makes it, or it is a basic.get
        self.no_ack = no_ack
        self.subscription = subscription  # of a basic.consume
        self.reservation: Reservation | None = None  # of a limited basic.get, by which it has passed the judge

    def arguments_kb(self) -> int:
        """Of a basic.consume, beyond the first kilobyte."""
        return 0 if self.subscription is None else len(self.subscription.rest) >> 10


class PendingRequests:
    """Those of one kind on one channel, in order. Those beyond what may be kept are only counted: their answers are then unknown."""

    __slots__ = ("arguments_kb", "beyond", "kept")

    def __init__(self) -> None:
        self.kept: deque[PendingRequest] = deque()
        self.arguments_kb = 0  # of all that are kept, beyond the first kilobyte of each
        self.beyond = 0  # newer than all that are kept

    def put(self, request: PendingRequest) -> None:
        """One more, while there is room."""
        if self.beyond:
            self.beyond += 1
        else:
            self.kept.append(request)
            self.arguments_kb += request.arguments_kb()

    def answer_tag(self, tag: bytes) -> PendingRequest | None:
        """The basic.consume that is answered now: RabbitMQ answers by way of the queue, so those of two queues come in either order."""
        first: PendingRequest | None = None  # of those whose tag the broker makes
        for request in self.kept:
            if request.queue is None:  # behind it are those of another channel
                break
            if request.tag == tag:
                self._remove(request)
                return request
            if not request.tag and first is None:
                first = request
        if first is not None:
            self._remove(first)
        elif not self.kept:
            self.beyond = max(self.beyond - 1, 0)
        return first

    def _remove(self, request: PendingRequest) -> None:
        self.kept.remove(request)
        self.arguments_kb -= request.arguments_kb()

    def of(self, reservation: Reservation) -> PendingRequest | None:
        """The basic.get that has this reservation."""
        for request in self.kept:
            if request.reservation is reservation:
                return request
        return None

    def closes(self) -> bool:
        """Whether the client has closed the channel behind those that are answered now."""
        return any(request.queue is None for request in self.kept)

    def answer(self) -> PendingRequest | None:
        """The one that is answered now."""
        if self.kept:
            request = self.kept.popleft()
            self.arguments_kb -= request.arguments_kb()
            return request
        self.beyond = max(self.beyond - 1, 0)
        return None

    def forget_closed(self) -> None:
        """Forget what was asked before the mark of the client's channel.close, and the mark."""
        while self.kept:
            request = self.kept.popleft()
            self.arguments_kb -= request.arguments_kb()
            if request.queue is None:
                break
        if not self.kept:
            self.beyond = 0


class ChannelConsumers:
    """What one channel consumes."""

    __slots__ = (
        "arguments_kb", "asked", "cancelled_tags", "closing", "consumes", "declared", "declares", "gets", "hidden_qos", "old_tags",
        "prefetch", "subscriptions", "tags",
    )  # fmt: skip

    def __init__(self) -> None:
        self.declared: Declared | None = None  # last, by the client
        self.declares: deque[Declared | None] = deque()  # not yet answered; None: the client closed the channel here
        self.asked: list[Consumer] = []  # those whose queue the gateway has asked for, by a passive declare that is not answered
        self.consumes = PendingRequests()
        self.gets = PendingRequests()
        self.tags: dict[bytes, Consumer] = {}  # as the broker has them
        self.subscriptions: dict[bytes, Subscription] = {}  # by the client's tags
        self.arguments_kb = 0  # of these, beyond the first kilobyte of each
        self.old_tags: dict[bytes, Consumer] = {}  # of the channel that the client has closed, until the broker has answered that
        self.cancelled_tags: deque[bytes] = deque()
        self.prefetch = 0  # the client's for consumers that begin now; 0: none
        self.hidden_qos = 0  # qos-oks to come that are not for the client
        self.closing = 0  # the same of the channel that the client has closed

    def size(self) -> int:
        """How many entries are remembered, of a kilobyte each; of a subscription, which may be away, and its consumer together one."""
        asked = len(self.asked) + len(self.declares) + len(self.consumes.kept) + len(self.gets.kept)
        arguments_kb = self.arguments_kb + self.consumes.arguments_kb
        return asked + max(len(self.tags), len(self.subscriptions)) + arguments_kb + len(self.old_tags)

    def takes(self) -> bool:
        """Whether it consumes, or has asked to, or for a message."""
        under_way = len(self.consumes.kept) + len(self.gets.kept) + len(self.asked)
        return under_way + len(self.tags) + len(self.old_tags) + len(self.subscriptions) > 0

    def keep(self, subscription: Subscription) -> None:
        """It has its tag."""
        self.drop(subscription.tag)
        self.subscriptions[subscription.tag] = subscription
        self.arguments_kb += len(subscription.rest) >> 10

    def drop(self, tag: bytes) -> Subscription | None:
        """The client's consumer of that tag ends."""
        subscription = self.subscriptions.pop(tag, None)
        if subscription is not None:
            self.arguments_kb -= len(subscription.rest) >> 10
        return subscription

    def consumer(self, tag: bytes) -> Consumer | None:
        """The consumer of that tag."""
        consumer = self.tags.get(tag)
        return self.old_tags.get(tag) if consumer is None and self.old_tags else consumer

    def take_asker(self, name: bytes) -> Consumer | None:
        """The consumer for which the gateway has asked for queue `name`, which is answered now; None: the client has asked.

        Where both have, either answer is as good as the other.
        """
        if self.declares and self.declares[0] is not None and self.declares[0].name == name:
            return None
        for consumer in self.asked:
            if consumer.queue == name:
                self.asked.remove(consumer)
                return consumer
        return None

    def queue(self, name: bytes) -> Declared:
        """The queue of that name; of an empty one, what was declared last."""
        if name:
            return Declared(name)
        return Declared(None) if self.declared is None else self.declared

    def mark_close(self) -> None:
        """The client closes the channel: what it asks for from now on is another channel's."""
        self.declared = None
        self.prefetch = 0
        self.subscriptions = {}
        self.arguments_kb = 0
        self.old_tags.update(self.tags)
        self.tags = {}
        self.cancelled_tags.clear()
        self.closing += self.hidden_qos
        self.hidden_qos = 0
        self.declares.append(None)
        self.consumes.kept.append(PendingRequest(None, b"", no_ack=False))
        self.gets.kept.append(PendingRequest(None, b"", no_ack=False))

    def forget_closed(self) -> None:
        """The client's channel.close is answered: forget what it asked for before that."""
        self.closing = 0
        self.asked.clear()
        self.old_tags.clear()
        self.consumes.forget_closed()
        self.gets.forget_closed()
        while self.declares and self.declares.popleft() is not None:
            pass

    def __repr__(self) -> str:
        return f"<ChannelConsumers {list(self.tags)} asked={len(self.consumes.kept)} gets={len(self.gets.kept)}>"
