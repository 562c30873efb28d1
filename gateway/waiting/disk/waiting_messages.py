"""WaitingMessages: what waits because a rule pages, by topic, in memory and on disk. Of one process.

A part counts from when its rule holds it, or what is before it in its order, until it goes on or is given up; it says itself whether it
does (`Held.counted`). What is on disk only has no parts: a batch keeps the counts of those that it had.

Everything here is called on the event loop.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.clock import now_ns
from gateway.pipeline.parts import REQUEST, Part
from limiter.keys import Key


class Waiting:
    """What waits of one topic; bytes are those of its publishes."""

    __slots__ = ("bytes", "disk_bytes", "disk_messages", "messages", "since")

    def __init__(self, since: int) -> None:
        self.messages = 0
        self.bytes = 0
        self.disk_messages = 0  # of these, those on disk only
        self.disk_bytes = 0
        self.since = since  # monotonic ns; something has waited ever since


class KeyCount:
    """Messages of one key in a batch."""

    __slots__ = ("bytes", "key", "messages")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.messages = 0
        self.bytes = 0


class WaitingMessages:
    """`topics` by their protocol and text."""

    def __init__(self) -> None:
        self.topics: dict[tuple[str, str], Waiting] = {}
        self.messages = 0  # of all of them
        self.disk_messages = 0
        self.messages_by_protocol: dict[str, int] = {}

    def begin(self, part: Part) -> None:
        """`part`, in memory, waits from now on. One that does already counts once, a request for messages (`reservation`) not at all."""
        key = part.key
        if part.kind != REQUEST or key is None or part.reservation is not None:
            return
        held = part.begin_hold()
        if held.counted:
            return
        held.counted = True
        self.count(key.origin.protocol, key.text, messages_of(part), size_of(part))

    def end(self, part: Part) -> None:
        """`part`, in memory, goes on or is given up."""
        key = part.key
        held = part.held
        if held is not None and held.counted and key is not None:
            held.counted = False
            self.count(key.origin.protocol, key.text, -messages_of(part), -size_of(part))

    def leave_memory(self, counts: dict[str, KeyCount]) -> None:
        """Messages are on disk only from now on."""
        self._count_on_disk(counts, 1)

    def read(self, counts: dict[str, KeyCount], parts: Iterable[Part]) -> None:
        """Messages are in memory again. Rules change, and the texts of keys with them; so they may be another topic's than they were."""
        for part in parts:
            self.begin(part)
        self.forget(counts)

    def forget(self, counts: dict[str, KeyCount]) -> None:
        """Messages on disk are given up."""
        self._count_on_disk(counts, -1)
        for text, each in counts.items():
            self.count(each.key.origin.protocol, text, -each.messages, -each.bytes)

    def count(self, protocol: str, text: str, messages: int, size: int) -> None:
        """So many messages of a topic, of so many bytes, have come, or (below zero) gone."""
        waiting = self.topics.get((protocol, text))
        if waiting is None:
            waiting = self.topics[(protocol, text)] = Waiting(now_ns())
        waiting.messages += messages
        waiting.bytes += size
        self.messages += messages
        self.messages_by_protocol[protocol] = self.messages_by_protocol.get(protocol, 0) + messages
        if waiting.messages == 0:
            del self.topics[(protocol, text)]

    def _count_on_disk(self, counts: dict[str, KeyCount], sign: int) -> None:
        for text, each in counts.items():
            waiting = self.topics[(each.key.origin.protocol, text)]
            waiting.disk_messages += sign * each.messages
            waiting.disk_bytes += sign * each.bytes
            self.disk_messages += sign * each.messages

    def __repr__(self) -> str:
        return f"<WaitingMessages {self.messages} of {len(self.topics)} topics, {self.disk_messages} on disk>"


def counts_of(parts: Iterable[Part]) -> dict[str, KeyCount]:
    """The messages of `parts`, by the text of their keys."""
    counts: dict[str, KeyCount] = {}
    for part in parts:
        key = part.key
        if part.kind != REQUEST or key is None:
            continue
        counted = counts.get(key.text)
        if counted is None:
            counted = counts[key.text] = KeyCount(key)
        counted.messages += messages_of(part)
        counted.bytes += size_of(part)
    return counts


def messages_of(part: Part) -> int:
    messages: int = int(part.count) * int(part.messages)
    return messages


def size_of(part: Part) -> int:
    """Bytes of its publishes; of a body that comes in parts of its own, too."""
    size: int = part.end - part.start
    return size if part.complete else size + int(part.size)
