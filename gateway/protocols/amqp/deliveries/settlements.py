"""What a client has settled of one channel's deliveries, so that "everything outstanding" can be said by a number.

basic.ack and basic.nack of tag 0 with `multiple` mean everything outstanding at the broker. That includes deliveries that are parked: the
client would settle what it has not seen, and acknowledging one of those later costs its channel (406, unknown delivery tag). It includes
those that come while such a word waits here behind a publish, and those whose requeue waits (`requeues.py`). So tag 0 becomes the last tag
that the client has got and has not settled. It must be one that is outstanding: the broker answers a tag that is settled already with 406,
even with `multiple`. Hence this account, which also knows whose delivery each tag is.

A channel's delivery tags count from 1, for basic.deliver and basic.get-ok alike. Where the account cannot be sure, tag 0 passes as it is:
after basic.recover, until recover-ok; on channels that consume without acknowledgement; and in transactions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gateway.protocols.amqp.deliveries.subscription import Consumer

MAX_ABOVE: Final = 65_536  # tags settled out of order, 60 bytes or so each; the largest prefetch count (u16)

MAX_OF_STREAMS: Final = 1024  # runs of tags of streams among others; a guess
MAX_SOURCES: Final = 16_384  # runs of tags of one consumer, 110 bytes each; of more, the oldest are of nobody; a guess
STALE_TAGS: Final = 64  # that may lie among the pending ones, beside as many as these are
MAX_SOURCES_UNSURE: Final = 512  # the same where it is not known what is settled; a guess


class Settlements:
    """The deliveries of one channel."""

    __slots__ = (
        "above", "by_client", "delivered", "given_back", "low", "of_streams", "pending", "pending_heap", "recovering", "redelivered",
        "source", "sources", "unsure", "watched", "watched_tags",
    )  # fmt: skip

    def __init__(self) -> None:
        self.delivered = 0  # tags given by the broker so far
        self.low = 0  # all tags up to this one are settled
        self.above: set[int] = set()  # and these
        self.unsure = False
        self.recovering = 0  # recover-oks to come, until which it is unsure; 0: none, or it stays so
        self.of_streams: deque[range] = deque()  # tags that cannot be given back; in order, and some that are settled
        self.by_client = False  # the client settles some of them itself
        self.watched: dict[int, Consumer] = {}  # those with the client that use a window up (`windows.py`), by tag
        self.watched_tags: deque[int] = deque()  # the same in order, and some that are settled
        self.given_back = False  # what the client had not settled was given back (`leaving.py`): what it still says comes too late
        self.source: Consumer | None = None  # of the last delivery
        self.redelivered = False  # the last delivery had been made before
        # The first tag of each run of deliveries for one consumer, which all had been made before, or none of them; in order.
        self.sources: list[tuple[int, Consumer | None, bool]] = []
        self.pending: set[int] = set()  # tags that the client has requeued and the broker does not know of yet (`requeues.py`)
        self.pending_heap: list[int] = []  # the same, and some that are not pending any more

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

    def is_open(self, tag: int) -> bool:
        """Whether `tag` is delivered and not settled."""
        return self.low < tag <= self.delivered and tag not in self.above

    def open_up_to(self, last: int) -> list[int]:
        """The tags that are not settled, `last` at most."""
        return [tag for tag in range(self.low + 1, last + 1) if tag not in self.above]

    def last_open(self, seen: int) -> int:
        """The last tag that is not settled, `seen` at most; 0: there is none."""
        while seen > self.low and seen in self.above:
            seen -= 1
        return seen if seen > self.low else 0

    # ---- whose deliveries they are -----------------------------------------------------------------------------------

    def begin_source(self, consumer: Consumer | None, redelivered: bool) -> None:  # noqa: FBT001
        """The next delivery is for `consumer` and had been made before, or not; the last one was not like that."""
        self.source = consumer
        self.redelivered = redelivered
        if consumer is not None and consumer.no_ack:
            consumer = None  # what is not acknowledged is not given back
        sources = self.sources
        if sources:
            _, before, flag = sources[-1]
            if before is None and consumer is None:
                return
            if before is not None and consumer is not None and before.queue == consumer.queue and flag == redelivered:
                return
        if len(sources) > 1 and sources[1][0] <= self.low + 1:  # else nothing is settled
            del sources[: bisect_right(sources, self.low + 1, key=first_of) - 1]
        elif len(sources) >= (MAX_SOURCES_UNSURE if self.unsure else MAX_SOURCES):
            del sources[: len(sources) // 2]
        sources.append((self.delivered + 1, consumer, redelivered))

    def source_of(self, tag: int) -> Consumer | None:
        """Whose delivery `tag` is; None: not known."""
        at = bisect_right(self.sources, tag, key=first_of)
        return self.sources[at - 1][1] if at > 0 and tag <= self.delivered else None

    def was_redelivered(self, tag: int) -> bool:
        """Whether the message of `tag` had been delivered before, as far as is known."""
        at = bisect_right(self.sources, tag, key=first_of)
        return at > 0 and self.sources[at - 1][2]

    # ---- what is requeued and not on its way -------------------------------------------------------------------------

    def pend(self, tag: int) -> None:
        if len(self.pending_heap) > 2 * len(self.pending) + STALE_TAGS:
            self.pending_heap = sorted(self.pending)  # which is a heap
        self.pending.add(tag)
        heappush(self.pending_heap, tag)

    def first_pending(self) -> int:
        """The lowest pending tag; 0: there is none."""
        heap = self.pending_heap
        while heap and heap[0] not in self.pending:
            heappop(heap)
        return heap[0] if heap else 0

    def is_pending_up_to(self, tag: int) -> bool:
        """Whether a tag up to `tag`, or any at all for 0, is pending."""
        first = self.first_pending()
        return first > 0 and (tag == 0 or first <= tag)

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
        self.recovering = 0
        self.above = set()

    def recover(self) -> None:
        """The client says basic.recover: until it is answered, nobody knows what it covers."""
        if self.recovering or not self.unsure:
            self.unsure = True
            self.recovering += 1

    def recovered(self) -> None:
        """The broker has answered: all that has come before is settled."""
        self.forget_watched()
        if self.recovering > 0:
            self.recovering -= 1
            if self.recovering == 0:
                self.unsure = False
                self.low = self.delivered
                self.above = set()

    def __repr__(self) -> str:
        return f"<Settlements {self.low}+{len(self.above)}/{self.delivered}{' unsure' if self.unsure else ''}>"


def first_of(run: tuple[int, Consumer | None, bool]) -> int:
    return run[0]


def count_open(consumer: Consumer, more: int) -> None:
    """So many more deliveries for `consumer` are with the client."""
    consumer.open += more
    if consumer.subscription is not None:
        consumer.subscription.open += more
