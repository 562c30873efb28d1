"""WaitingMessages: how many messages wait in one queue, by topic, and which of them an operator's orders are for.

Messages are counted as they come and as they leave, so each has a place: its number among those that ever came. An order is for the
messages of its topic up to a place; it is not for what comes later.

Everything here is called on the event loop.
"""

from __future__ import annotations

from gateway.pipeline.parts import PLAIN, REQUEST, Part
from gateway.pipeline.spool_orders import COPYING, PREVIEW, SpoolOrder
from gateway.spool.batches import KeyWaiting
from gateway.spool.disk import SpoolDisk


class WaitingMessages:
    """Of one queue."""

    def __init__(self, disk: SpoolDisk) -> None:
        self.disk = disk
        self.topics: dict[str, KeyWaiting] = {}  # what waits, by the text its key had when it came: rules change, and keys with them
        self.added = 0  # messages, ever
        self.gone = 0  # of these, taken out or given up
        self.last_place = -1  # of the request added last, among those added; -1: none was
        self.last_complete = True  # whether its message has come whole
        self.orders: list[SpoolOrder] = []  # of an operator, for messages before their `place` among those added

    def add(self, part: Part, batch: dict[str, KeyWaiting]) -> None:
        """`part` waits from now on; `batch` are the counts of the batch that it belongs to."""
        if part.kind == REQUEST:
            self.last_place = self.added
        if part.kind != PLAIN:
            self.last_complete = part.complete
        key = part.key
        if part.kind != REQUEST or key is None:
            return
        text = key.text
        messages: int = int(part.count) * int(part.messages)
        size: int = part.end - part.start
        if not part.complete:
            size += part.size  # of its body, which comes in parts of its own
        self.added += messages
        for counts in (self.topics, batch):
            counted = counts.get(text)
            if counted is None:
                counted = counts[text] = KeyWaiting(key)
            counted.messages += messages
            counted.bytes += size
        self.disk.count(key.origin.protocol, text, messages, size)

    def take_out(self, parts: list[Part], batch: dict[str, KeyWaiting]) -> None:
        """The batch of `parts` leaves, with the counts it came in with."""
        if self.orders:
            self._mark_ordered(parts)
        for text, gone in batch.items():
            waiting = self.topics[text]
            waiting.messages -= gone.messages
            waiting.bytes -= gone.bytes
            self.gone += gone.messages
            if waiting.messages == 0:
                del self.topics[text]
            self.disk.count(gone.key.origin.protocol, text, -gone.messages, -gone.bytes)

    def give_up(self, ordering_key: int) -> list[Part]:
        """All leave, and no order is for any of them: one part for each key, without bytes."""
        parts: list[Part] = []
        for text, waiting in self.topics.items():
            parts.append(Part(REQUEST, ordering_key, b"", 0, 0, waiting.key, waiting.messages, 1))
            self.disk.count(waiting.key.origin.protocol, text, -waiting.messages, -waiting.bytes)
        self.topics = {}
        self.gone = self.added
        self.orders = []
        return parts

    def give_order(self, order: SpoolOrder) -> None:
        """Count what waits of its topic; unless it is a preview, it holds for that."""
        waiting = self.topics.get(order.topic)
        if waiting is None:
            return
        messages = waiting.messages
        size = waiting.bytes
        for other in self.orders:
            if other.topic == order.topic and not other.called_off():
                messages -= other.queued
                size -= other.queued_bytes
                order.begins = max(order.begins, other.place)
        if messages <= 0:
            return
        order.add_queued(messages, size)
        if order.state != PREVIEW:
            order.place = self.added if self.last_complete or order.state != COPYING else self.last_place
            self.orders.append(order)

    def _mark_ordered(self, parts: list[Part]) -> None:
        """Mark those of `parts`, which leave, that an order is for."""
        at = self.gone
        for part in parts:
            key = part.key
            if part.kind != REQUEST or key is None:
                continue
            messages: int = int(part.count) * int(part.messages)
            for order in self.orders:
                if part.spool_order is None and order.begins <= at < order.place and order.topic == key.text and not order.called_off():
                    part.spool_order = order
                    order.queued -= messages
                    order.queued_bytes -= part.end - part.start + (0 if part.complete else part.size)
            at += messages
        self.orders = [order for order in self.orders if at < order.place]

    def __repr__(self) -> str:
        return f"<WaitingMessages messages={self.added - self.gone} topics={len(self.topics)} orders={len(self.orders)}>"
