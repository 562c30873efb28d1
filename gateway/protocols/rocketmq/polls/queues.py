"""What is known of the queues that one client polls: what the next answer is likely to bring, and what the broker said last.

The guess is the size of the last answer, or half the guess before where that is more, so that one empty answer in a flood does not count
for much. A queue that was never answered is expected to bring what its topic's latest answer brought, and one of an unknown topic the most
it could bring: a consumer that begins with a backlog must not take it all at once. A poll that the broker keeps for QUIET_AFTER_NS has
found nothing: its queue is quiet, and nothing stays reserved for it.

No client's library asks a queue for messages again before its pull is answered. Whoever does is expected to get the most each time, or
any number of pulls for a quiet queue would pass for nothing. Pops are not counted: those of all of a Proxy's clients are of one queue. So
are the pulls of a broadcasting group's members behind a Proxy; each beside another reserves the most, for a second at most.
"""

from __future__ import annotations

from typing import Final

from gateway.pipeline.empties import NO_ENTRIES, put
from limiter.keys import Key

MAX_ANSWER_BYTES: Final = 262_144  # of messages in memory (the broker's maxTransferBytesOnMessageInMemory), unless one is larger
QUIET_AFTER_NS: Final = (
    1_000_000_000  # after which a poll found nothing: a broker answers within milliseconds, in a second if busy: a guess
)
MAX_QUEUES: Final = 4096  # of one client; beyond it what is known is forgotten, all at once: a guess


class PollQueue:
    """One queue of one topic as one group's client polls it."""

    __slots__ = ("broker", "maximum", "messages", "minimum", "since", "size", "unanswered", "waiting")

    def __init__(self, messages: int, size: int) -> None:
        self.messages = messages  # what the next answer is likely to bring; -1: no idea
        self.size = size  # bytes
        self.since = 0  # monotonic ns since when messages are waited for here; 0: nothing is
        self.waiting = 0  # the number (`order`) of the held poll that has this place; 0: none
        self.unanswered = 0  # pulls for it
        self.minimum = 0  # offsets, as the broker said last
        self.maximum = 0
        self.broker = -1  # from which broker to read, as it said last; -1: it has not

    def learn(self, messages: int, size: int) -> None:
        """An answer has brought that much."""
        self.messages = max(messages, self.messages // 2)
        self.size = max(size, self.size // 2)

    def mark_quiet(self) -> None:
        """The broker keeps the poll: there is nothing."""
        self.messages = 0
        self.size = 0

    def place(self) -> int:
        """Since when (monotonic ns) one that asks now has waited: as long as the one before it that was answered empty. 0: from now on."""
        return 0 if self.waiting else self.since

    def __repr__(self) -> str:
        return f"<PollQueue expects {self.messages} messages, {self.size} bytes; waits since {self.since}>"


class PollQueues:
    """The queues of one client."""

    __slots__ = ("broker", "queues", "topics")

    def __init__(self) -> None:
        self.queues: dict[tuple[Key, int], PollQueue] = NO_ENTRIES
        self.topics: dict[Key, PollQueue] = NO_ENTRIES  # what the topic's latest answer brought
        self.broker = 0  # from which broker to read, as said last for any queue; at first the one that is asked

    def of(self, key: Key, number: int) -> PollQueue:
        """The queue of that number; -1: any, of a pop."""
        queue = self.queues.get((key, number))
        if queue is None:
            if len(self.queues) >= MAX_QUEUES:
                self.queues.clear()
                self.topics.clear()
            queue = PollQueue(-1, -1)
            self.queues = put(self.queues, (key, number), queue)
        return queue

    def expects(self, key: Key, queue: PollQueue, most: int, others: int) -> tuple[int, int]:
        """Messages and bytes that the answer to a poll for at most `most` messages is likely to bring, beside `others` for the queue."""
        if others > 0:
            return most, MAX_ANSWER_BYTES
        if queue.messages >= 0:
            return min(queue.messages, most), queue.size
        topic = self.topics.get(key)
        if topic is None:
            return most, MAX_ANSWER_BYTES
        return min(topic.messages, most), topic.size

    def learn(self, key: Key, queue: PollQueue, messages: int, size: int) -> None:
        """An answer from `queue` of `key` has brought that much."""
        queue.learn(messages, size)
        self._topic(key).learn(messages, size)

    def mark_quiet(self, key: Key, queue: PollQueue) -> None:
        queue.mark_quiet()
        self._topic(key).mark_quiet()

    def _topic(self, key: Key) -> PollQueue:
        topic = self.topics.get(key)
        if topic is None:
            topic = PollQueue(0, 0)
            self.topics = put(self.topics, key, topic)
        return topic

    def __repr__(self) -> str:
        return f"<PollQueues {len(self.queues)} of {len(self.topics)} topics>"
