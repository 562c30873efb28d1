"""What a client has settled of one channel's deliveries, so that "everything outstanding" can be said by a number.

basic.ack and basic.nack of tag 0 with `multiple` mean everything outstanding at the broker. That includes deliveries that are parked: the
client would settle what it has not seen, and acknowledging one of those later costs its channel (406, unknown delivery tag). So where a
rule limits a consumer of the channel, tag 0 becomes the last tag that the client has got and has not settled. It must be one that is
outstanding: the broker answers a tag that is settled already with 406, even with `multiple`. Hence this account.

A channel's delivery tags count from 1, for basic.deliver and basic.get-ok alike. Where the account cannot be sure, tag 0 passes as it is:
after a tag 0 that passed so (it may have settled what was still on its way), after basic.recover, on channels that consume without
acknowledgement, and in transactions.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gateway.protocols.amqp.deliveries.subscription import Consumer

MAX_ABOVE: Final = 65_536  # tags settled out of order, 60 bytes or so each; the largest prefetch count (u16)

MAX_OF_STREAMS: Final = 1024  # runs of tags of streams among others; a guess


class Settlements:
    """The deliveries of one channel."""

    __slots__ = ("above", "by_client", "delivered", "given_back", "low", "of_streams", "unsure", "watched", "watched_tags")

    def __init__(self) -> None:
        self.delivered = 0  # tags given by the broker so far
        self.low = 0  # all tags up to this one are settled
        self.above: set[int] = set()  # and these
        self.unsure = False
        self.of_streams: deque[range] = deque()  # tags that cannot be given back; in order, and some that are settled
        self.by_client = False  # the client settles some of them itself
        self.watched: dict[int, Consumer] = {}  # those with the client that use a window up (`windows.py`), by tag
        self.watched_tags: deque[int] = deque()  # the same in order, and some that are settled
        self.given_back = False  # what the client had not settled was given back (`leaving.py`): what it still says comes too late

    def settle(self, tag: int, *, multiple: bool) -> None:
        """The client settles `tag`, which is not 0, or everything up to it."""
        if self.unsure:
            return
        above = self.above
        if multiple and tag > self.low:
            self.low = tag
            if above:
                self.above = above = {other for other in above if other > tag}
        elif tag == self.low + 1:
            self.low = tag
        elif tag > self.low:
            above.add(tag)
            if len(above) > MAX_ABOVE:
                self.lose_track()
            return
        while self.low + 1 in above:
            self.low += 1
            above.discard(self.low)

    def keep_of_stream(self, count: int) -> None:
        """The last `count` deliveries are of a stream."""
        known = self.of_streams
        while known and known[0].stop - 1 <= self.low:
            known.popleft()
        end = self.delivered + 1
        start = end - count
        if known and (known[-1].stop == start or len(known) == MAX_OF_STREAMS):  # then those between count, too
            start = known.pop().start
        known.append(range(start, end))

    def to_give_back(self) -> list[int]:
        """The tags that are not settled, and can be given back."""
        found: list[int] = []
        at = self.low + 1
        for tags in self.of_streams:
            found.extend(range(at, tags.start))
            at = max(at, tags.stop)
        found.extend(range(at, self.delivered + 1))
        return [tag for tag in found if tag not in self.above]

    def last_open(self, seen: int) -> int:
        """The last tag that is not settled, `seen` at most; 0: there is none."""
        while seen > self.low and seen in self.above:
            seen -= 1
        return seen if seen > self.low else 0

    # ---- what uses a window up ---------------------------------------------------------------------------------------

    def watch(self, first: int, count: int, consumer: Consumer) -> None:
        """`count` deliveries from tag `first` on go to the client, for `consumer`."""
        if len(self.watched_tags) + count > MAX_ABOVE:
            self.forget_watched()
        for tag in range(first, first + count):
            self.watched[tag] = consumer
            self.watched_tags.append(tag)
        count_open(consumer, count)

    def settle_watched(self, tag: int, *, all_before: bool) -> None:
        """The client settles `tag`; with `all_before` all up to it, and 0 is all."""
        if not all_before:
            consumer = self.watched.pop(tag, None)
            if consumer is not None:
                count_open(consumer, -1)
        tags = self.watched_tags
        while tags and (tags[0] not in self.watched or (all_before and (tag == 0 or tags[0] <= tag))):
            consumer = self.watched.pop(tags.popleft(), None)
            if consumer is not None:
                count_open(consumer, -1)

    def forget_watched(self) -> None:
        """They are settled, or too many."""
        for consumer in self.watched.values():
            count_open(consumer, -1)
        self.watched.clear()
        self.watched_tags.clear()

    def lose_track(self) -> None:
        """From now on tag 0 passes as it is."""
        self.unsure = True
        self.above = set()

    def __repr__(self) -> str:
        return f"<Settlements {self.low}+{len(self.above)}/{self.delivered}{' unsure' if self.unsure else ''}>"


def count_open(consumer: Consumer, more: int) -> None:
    """So many more deliveries for `consumer` are with the client."""
    consumer.open += more
    if consumer.subscription is not None:
        consumer.subscription.open += more
