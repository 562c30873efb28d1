"""What an operator has said of messages that wait in the spool: topics that are paused, and messages that are to be given up.

A pause is of a topic, and of one process: nothing of the topic is let through, and what comes behind it on its channel waits. It is
looked at when the turn of a message comes, so it costs nothing per message. Messages that a rule would not spool are not held by it.

An order is of the messages of one topic that wait on one channel at one moment. Those in memory are marked (`Part.spool_order`), those in
a queue of the spool are known by their place in it (`SpoolQueue.orders`). When the turn of one comes it is given up, as what is too old
is. A drain copies them first (COPYING): until it is over they stay where they are, and what is not in the copy is not given up (`left`).
So does a discard of durable messages, which only looks where each of them stands: that is written down before it is said that they are
given up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

COPYING: Final = 0  # states of an order: its messages are being copied, and wait
GIVE_UP: Final = 1  # they are given up when their turn comes
CALLED_OFF: Final = 2  # it is as if it had never been
PREVIEW: Final = 3  # nothing is marked: it only counts

ENDLESS: Final = 1 << 62  # messages


SpooledTopic: TypeAlias = tuple[str, str]  # its protocol, and its text
OnLoop = Callable[[Callable[[], bool]], bool]  # does something on the event loop, for a thread


class Pause:
    """Nothing of a topic is let through before `until` (monotonic ns). Told of it: `ends` as text (UTC; "": when resumed), why, by whom."""

    __slots__ = ("by", "ends", "reason", "until")

    def __init__(self, until: int, ends: str, reason: str, by: str) -> None:
        self.until = until
        self.ends = ends
        self.reason = reason
        self.by = by

    def __repr__(self) -> str:
        return f"<Pause until {self.ends or 'resumed'} by {self.by}: {self.reason}>"


class SpoolControl:
    """What operators have said of the spool of one process."""

    def __init__(self) -> None:
        self.paused: dict[SpooledTopic, Pause] = {}
        self.stopping = False  # the gateway stops: nothing is paused any more
        self.given_up = 0  # messages that orders have given up, since the start
        self.accepted = 0  # messages that the gateway has answered for before the broker had them, since the start
        self.accepted_refused = 0  # of these, refused by the broker
        self.accepted_lost = 0  # of these, dropped, or given up or not answered by the broker when their connection ended
        self.accepted_given_up = 0  # of these, given up by orders
        self.expired = 0  # messages that were given up because they were too old, since the start

    def paused_until(self, topic: SpooledTopic, now: int) -> int:
        """Until when `topic` is paused (monotonic ns); 0: it is not. One that is over is forgotten."""
        pause = self.paused.get(topic)
        if pause is None:
            return 0
        if pause.until <= now:
            del self.paused[topic]
            return 0
        return pause.until

    def forget_over(self, now: int) -> None:
        """Forget those that are over."""
        for topic in list(self.paused):
            self.paused_until(topic, now)

    def __repr__(self) -> str:
        return f"<SpoolControl paused={list(self.paused)} given_up={self.given_up}>"


class SpoolOrder:
    """Messages of one topic that wait on one channel are to be given up, perhaps after they were copied."""

    __slots__ = ("begins", "bytes", "left", "messages", "place", "queued", "queued_bytes", "state", "topic")

    def __init__(self, topic: str, state: int) -> None:
        self.topic = topic  # its text
        self.state = state
        self.messages = 0  # that wait
        self.bytes = 0  # of their publishes
        self.left = ENDLESS  # messages that may still be given up
        self.begins = 0  # in the queue: what came before is another order's
        self.place = 0  # in the queue: messages of any topic that came later have nothing to do with it
        self.queued = 0  # of the messages: those that are still in the queue
        self.queued_bytes = 0

    def add(self, messages: int, size: int) -> None:
        self.messages += messages
        self.bytes += size

    def add_queued(self, messages: int, size: int) -> None:
        """The same of what is in the queue."""
        self.add(messages, size)
        self.queued += messages
        self.queued_bytes += size

    def called_off(self) -> bool:
        return self.state == CALLED_OFF

    def __repr__(self) -> str:
        state = ("copying", "give up", "called off", "preview")[self.state]
        return f"<SpoolOrder {self.topic} {state} messages={self.messages}>"


class SpoolCopy:
    """A copy of the messages that an order is for, of one channel."""

    def __init__(self, order: SpoolOrder) -> None:
        self.order = order
        self.messages = 0  # copied
        self.bytes = 0  # of their publishes

    def lines(self, on_loop: OnLoop) -> Iterator[bytes]:
        """One line for each message that has come whole; on a thread. Raises OSError, and where a file is damaged."""
        raise NotImplementedError

    def scan(self, on_loop: OnLoop) -> None:
        """Count what `lines` would give, and find where it stands; on a thread. Raises as `lines` does."""
        raise NotImplementedError

    def remove(self, most: int, on_synced: Callable[[], None]) -> bool:
        """On the loop, after `lines` or `scan`: about `most` parts of what was found are not replayed. `on_synced` is called when that
        outlives a crash. False: that was the last of it."""
        raise NotImplementedError

    def release(self) -> None:
        """On the loop, once: nothing is read any more."""
        raise NotImplementedError
