"""WaitingMessages: how many messages wait in one queue, by topic.

Everything here is called on the event loop.
"""

from __future__ import annotations

from gateway.pipeline.parts import REQUEST, Part
from gateway.spool.batches import KeyWaiting
from gateway.spool.disk import SpoolDisk


class WaitingMessages:
    """Of one queue."""

    def __init__(self, disk: SpoolDisk) -> None:
        self.disk = disk
        self.topics: dict[str, KeyWaiting] = {}  # what waits, by the text its key had when it came: rules change, and keys with them

    def add(self, part: Part, batch: dict[str, KeyWaiting]) -> None:
        """`part` waits from now on; `batch` are the counts of the batch that it belongs to."""
        key = part.key
        if part.kind != REQUEST or key is None:
            return
        text = key.text
        messages: int = int(part.count) * int(part.messages)
        size: int = part.end - part.start
        if not part.complete:
            size += part.size  # of its body, which comes in parts of its own
        for counts in (self.topics, batch):
            counted = counts.get(text)
            if counted is None:
                counted = counts[text] = KeyWaiting(key)
            counted.messages += messages
            counted.bytes += size
        self.disk.count(key.origin.protocol, text, messages, size)

    def take_out(self, batch: dict[str, KeyWaiting]) -> None:
        """A batch leaves, with the counts it came in with."""
        for text, gone in batch.items():
            waiting = self.topics[text]
            waiting.messages -= gone.messages
            waiting.bytes -= gone.bytes
            if waiting.messages == 0:
                del self.topics[text]
            self.disk.count(gone.key.origin.protocol, text, -gone.messages, -gone.bytes)

    def give_up(self, ordering_key: int) -> list[Part]:
        """All leave: one part for each key, without bytes."""
        parts: list[Part] = []
        for text, waiting in self.topics.items():
            parts.append(Part(REQUEST, ordering_key, b"", 0, 0, waiting.key, waiting.messages, 1))
            self.disk.count(waiting.key.origin.protocol, text, -waiting.messages, -waiting.bytes)
        self.topics = {}
        return parts

    def __repr__(self) -> str:
        return f"<WaitingMessages {len(self.topics)} topics>"
