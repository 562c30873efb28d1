"""What a client gives back: `basic.nack` and `basic.reject` with `requeue`, and `basic.recover`, where a rule limits it.

The naive way, holding such an answer in its place on its channel, would hold the acks behind it too, and with them consumers that do
nothing wrong. So a requeue that is over its limit waits in a line of its own, one for each channel and queue (`RequeueLine`), and what the
client says later goes past it. The broker does not know that the delivery is answered: it keeps its place in the consumer's prefetch, and
so the consumer that loops is the one that slows down. When the client, the channel or the broker goes, what waits is dropped: the broker
requeues it by itself.

Going past is a trap. While the nack of tag 5 waits, an ack of tag 7 with `multiple` would acknowledge 5, and the message would be lost. So
the tags that wait are `Settlements.pending`, from the moment they are decoded until they are on their way, and a `multiple` that reaches
over one of them is split::

    waits: 5        the client says: ack 7, multiple        the broker is told: ack 4, multiple · ack 6 · ack 7

Where it cannot be split, what waits goes first, unpaid (`AmqpChannel.rush`): where it is not known what is unsettled, where that would be
more than MAX_SPLIT frames, and where the client answers a pending tag a second time, which is the broker's to judge (406).

What requeues several deliveries and cannot be taken apart, or may not be overtaken, waits in its channel's line instead, with all that is
behind it (`CostlyMethod`): basic.recover, what is said in a transaction, and a `multiple` that is not split. It goes when it is paid.
Three pass unlimited, because they would come to mean more while they wait: where it is not known what is unsettled, tag 0 and
basic.recover-async; and a requeue of what the gateway does not know whose it is.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from common.octets import u64
from gateway.pipeline.empties import NO_ENTRIES, put
from gateway.pipeline.parts import PLAIN, REQUEST, Part
from gateway.protocols.amqp.broker_requests import REQUEUE
from gateway.protocols.amqp.costly_method import CostlyMethod
from gateway.protocols.amqp.deliveries.parked import delivery_tag
from gateway.protocols.amqp.frames import BASIC_NACK, BASIC_RECOVER_ASYNC, BASIC_REJECT, OVERHEAD, RECOVERS, method_frame
from gateway.waiting.line import Line
from limiter import operations
from limiter.topics import amqp_topic

if TYPE_CHECKING:
    from gateway.pipeline.reports import Reports
    from gateway.protocols.amqp.broker_requests import BrokerRequests
    from gateway.protocols.amqp.channel import AmqpChannel
    from gateway.protocols.amqp.deliveries.consumers import Consumers
    from gateway.protocols.amqp.deliveries.parking_lot import ParkingLot
    from gateway.protocols.amqp.deliveries.settlements import Settlements
    from limiter.judge import Judge
    from limiter.keys import Key

ANSWER_BYTES: Final = OVERHEAD + 13  # a basic.ack, nack or reject: method, tag, bits
MAX_SPLIT: Final = 65_536  # frames that `multiple` is split into, 1.4 MB; the largest prefetch count (u16)
MAX_LINES: Final = 1024  # of a connection; beyond that those that are empty are forgotten; a guess


class RequeueLine(Line):
    """The requeues of one channel from one queue that wait. `name` is its number, below 0, which is their ordering key."""

    __slots__ = ("channel", "key", "ordering_key", "over", "queue", "settlements", "unsent")

    def __init__(self, number: int, channel: AmqpChannel, settlements: Settlements, queue: bytes, key: Key) -> None:
        super().__init__(number)
        self.ordering_key = number  # of its parts
        self.channel = channel
        self.settlements = settlements  # of the channel's life that it is of
        self.queue = queue
        self.key = key
        self.unsent = 0  # tags decoded and not on their way to the broker yet
        self.over = False  # the channel is closed: what waits goes nowhere


class Requeues:
    """Those of one connection."""

    def __init__(self, judge: Judge, consumers: Consumers, lot: ParkingLot, requests: BrokerRequests, reports: Reports) -> None:
        self.judge = judge
        self.consumers = consumers
        self.lot = lot
        self.requests = requests
        self.reports = reports
        self.settle: Callable[[int, AmqpChannel, bytes], bytes | None] | None = None  # `Deliveries.settle`
        self.forget: Callable[[Line], list[Part]] | None = None  # `HeldParts.forget`
        self.max_split = MAX_SPLIT
        self.asked = 0  # requeues decoded for the judge, until `take_asked`
        self.lines: dict[int, RequeueLine] = NO_ENTRIES  # by number
        self._numbers: dict[tuple[int, bytes], int] = NO_ENTRIES  # by channel and queue
        self._last_number = 0

    # ---- as decoded ------------------------------------------------------------------------------------------------

    def answer(self, method: int, channel: AmqpChannel, data: bytes, pos: int, stop: int, parts: list[Part]) -> bool:
        """The client settles deliveries by the frame `data[pos:stop]`: True where `parts` now have what goes on in its place."""
        settlements = channel.settlements
        if settlements is None or settlements.given_back:
            return False
        if method in RECOVERS:
            return self._recover(method, channel, settlements, data[pos:stop], parts)
        if stop - pos != ANSWER_BYTES:
            return False  # the broker's to judge
        tag = u64(data, pos + 11)
        bits = data[pos + 19]
        requeues = (method == BASIC_REJECT and (bits & 1) != 0) or (method == BASIC_NACK and (bits & 2) != 0)
        if method != BASIC_REJECT and bits & 1:
            return self._multiple(method, channel, settlements, data[pos:stop], tag, parts, requeues=requeues)
        if tag in settlements.pending:
            channel.rush = True
            return False
        line = self._line_of(channel, settlements, tag) if requeues else None
        if line is None or not (settlements.unsure or settlements.is_open(tag)):
            return False
        self._account(method, channel, data[pos:stop])
        if channel.selects_tx:
            self.asked += 1
            parts.append(CostlyMethod(REQUEST, channel.number, data, pos, stop, line.key, 1, 1, 0))
            return True
        self._begin(settlements, line, tag)
        last = parts[-1] if parts else None
        if last is not None and last.ordering_key == line.ordering_key and last.data is data and last.end == pos:
            last.end = stop
            last.count += 1
        else:
            parts.append(Part(REQUEST, line.ordering_key, data, pos, stop, line.key, 1, 1, 0))
        return True

    def _multiple(
        self,
        method: int,
        channel: AmqpChannel,
        settlements: Settlements,
        frame: bytes,
        tag: int,
        parts: list[Part],
        *,
        requeues: bool,
    ) -> bool:
        over_pending = settlements.is_pending_up_to(tag)
        limited = requeues and self.any_limited(channel, settlements)
        if not over_pending and not limited:
            return False
        last = tag if tag != 0 or settlements.unsure else settlements.last_open(last_seen(channel, settlements))
        if last == 0 and not settlements.unsure:
            return True  # all that was outstanding is answered
        if not settlements.unsure and not settlements.is_open(last):
            channel.rush = channel.rush or over_pending
            return False  # the broker's to judge
        if settlements.unsure or channel.selects_tx or last - settlements.low > self.max_split:
            channel.rush = channel.rush or over_pending
            if not limited or last == 0:  # held, tag 0 would come to mean more than what the client has got
                return False
            counts = self._count(channel, settlements, last)
            if not counts:
                return False
            frame = frame[:11] + last.to_bytes(8, "big") + frame[19:]
            self._account(method, channel, frame)
            self._whole(channel, frame, counts, parts)
            return True
        tags = settlements.open_up_to(last)
        first_pending = settlements.first_pending()
        self._account(method, channel, frame[:11] + last.to_bytes(8, "big") + frame[19:])
        if requeues:
            self._split_requeue(channel, settlements, tags, parts)
            return True
        bits = frame[19]
        below = [each for each in tags if each < first_pending]
        frames = [answer(channel.number, method, below[-1], bits)] if below else []
        frames += [answer(channel.number, method, each, bits & ~1) for each in tags if each > first_pending]
        append_plain(parts, channel.number, b"".join(frames))
        return True

    def _split_requeue(self, channel: AmqpChannel, settlements: Settlements, tags: list[int], parts: list[Part]) -> None:
        """The client requeues `tags` in one word: what a rule limits is judged queue by queue."""
        by_line: dict[RequeueLine | None, list[bytes]] = {}
        for tag in tags:
            line = self._line_of(channel, settlements, tag)
            by_line.setdefault(line, []).append(answer(channel.number, BASIC_NACK, tag, REQUEUE[0]))
            if line is not None:
                self._begin(settlements, line, tag)
        for line, frames in by_line.items():
            data = b"".join(frames)
            if line is None:
                append_plain(parts, channel.number, data)
            else:
                parts.append(Part(REQUEST, line.ordering_key, data, 0, len(data), line.key, len(frames), 1, 0))

    def _recover(self, method: int, channel: AmqpChannel, settlements: Settlements, frame: bytes, parts: list[Part]) -> bool:
        if not frame[11] & 1 or not self.any_limited(channel, settlements):
            channel.rush = channel.rush or len(settlements.pending) > 0
            return False
        last = last_seen(channel, settlements)
        if method == BASIC_RECOVER_ASYNC and not settlements.unsure and last - settlements.low <= self.max_split:
            tags = settlements.open_up_to(last)
            if tags:
                self._account(BASIC_NACK, channel, answer(channel.number, BASIC_NACK, tags[-1], REQUEUE[0] | 1))
                self._split_requeue(channel, settlements, tags, parts)
            return True
        channel.rush = channel.rush or len(settlements.pending) > 0
        if method == BASIC_RECOVER_ASYNC:  # held, it would requeue what comes meanwhile, and the client would not know
            return False
        counts = self._count(channel, settlements, last)
        if counts:
            self._account(method, channel, frame)
            self._whole(channel, frame, counts, parts)
        return len(counts) > 0

    def _whole(self, channel: AmqpChannel, frame: bytes, counts: dict[Key, int], parts: list[Part]) -> None:
        """`frame` requeues so many deliveries of each key, and goes when all of them are paid."""
        left = len(counts)
        for key, count in counts.items():
            left -= 1
            self.asked += count
            parts.append(CostlyMethod(REQUEST, channel.number, frame, 0, 0 if left else len(frame), key, count, 1, 0))

    def _count(self, channel: AmqpChannel, settlements: Settlements, last: int) -> dict[Key, int]:
        """How many deliveries up to `last` are unsettled, by their limited keys. More than MAX_SPLIT count as if all were of the limited
        queue that has delivered last, and where they are not known they count as one of that."""
        counts: dict[Key, int] = {}
        if not settlements.unsure and last - settlements.low <= self.max_split:
            for tag in settlements.open_up_to(last):
                line = self._line_of(channel, settlements, tag)
                if line is not None:
                    counts[line.key] = counts.get(line.key, 0) + 1
            return counts
        for _, consumer, _ in reversed(settlements.sources):
            line = None if consumer is None else self._line(channel, settlements, consumer.queue)
            if line is not None:
                counts[line.key] = 1 if settlements.unsure else last - settlements.low - len(settlements.above)
                break
        return counts

    def _account(self, method: int, channel: AmqpChannel, frame: bytes) -> None:
        assert self.settle is not None
        self.settle(method, channel, frame)

    def _begin(self, settlements: Settlements, line: RequeueLine, tag: int) -> None:
        """The requeue of `tag` is on its way to the judge."""
        channel = line.channel
        if channel.rush and not settlements.pending and channel.line.idle():
            channel.rush = False
        settlements.pend(tag)
        line.unsent += 1
        self.asked += 1

    def take_asked(self) -> int:
        """How many requeues were decoded for the judge since the last time: they take room in the batch."""
        asked, self.asked = self.asked, 0
        return asked

    # ---- which line ------------------------------------------------------------------------------------------------

    def any_limited(self, channel: AmqpChannel, settlements: Settlements) -> bool:
        """Whether a rule limits what is requeued from one of the queues that the unsettled deliveries of `channel` are from."""
        seen: set[bytes] = set()
        for _, consumer, _ in settlements.sources:
            if consumer is not None and consumer.queue not in seen:
                seen.add(consumer.queue)
                if self._line(channel, settlements, consumer.queue) is not None:
                    return True
        return False

    def _line_of(self, channel: AmqpChannel, settlements: Settlements, tag: int) -> RequeueLine | None:
        """The line of the delivery with `tag`; None: it is not known, or nothing limits it."""
        consumer = settlements.source_of(tag)
        return None if consumer is None else self._line(channel, settlements, consumer.queue)

    def _line(self, channel: AmqpChannel, settlements: Settlements, queue: bytes) -> RequeueLine | None:
        number = self._numbers.get((channel.number, queue))
        line = None if number is None else self.lines[number]
        if line is None:
            origin = self.consumers.origin
            if origin is None or origin.vhost is None:
                return None
            raw = b"\xfe" + blake2b(queue, digest_size=16).digest()  # no publish has such: its exchange would be 254 bytes long
            name = amqp_topic(origin.vhost, b"", queue)
            key = self.judge.key(origin, raw, name, None, operations.REQUEUE, told_apart=True)
            if len(self.lines) >= MAX_LINES:
                self._prune()
            self._last_number -= 1
            line = RequeueLine(self._last_number, channel, settlements, queue, key)
            self.lines = put(self.lines, line.ordering_key, line)
            self._numbers = put(self._numbers, (channel.number, queue), line.ordering_key)
        return line if self.judge.is_limited(line.key) else None

    def move(self) -> None:
        """The connection has other keys now; what waits keeps those that it has."""
        self._numbers.clear()
        self._prune()

    def _prune(self) -> None:
        """Forget lines in which nothing waits."""
        for line in [each for each in self.lines.values() if each.unsent == 0 and each.idle()]:
            del self.lines[line.ordering_key]
            if self._numbers.get((line.channel.number, line.queue)) == line.ordering_key:
                del self._numbers[line.channel.number, line.queue]

    # ---- as settled ------------------------------------------------------------------------------------------------

    def send(self, part: Part) -> Part | None:
        """`part` goes on: returned where it may go now; else it waits for the end of a message, or is dropped with its channel."""
        line = self.lines.get(part.ordering_key)
        if line is None or line.over:
            self._drop(line, part)
            return None
        channel = line.channel
        self._end(line, part)
        self.lot.count(part.key, 0, part.count, 0)
        if channel.forwarding or channel.committing:
            self.requests.send(channel, part.data[part.start : part.end])
            return None
        part.kind = PLAIN
        part.ordering_key = channel.number
        return part

    def count_waiting(self) -> int:
        """How many lines there are in which something waits, or is with the judge."""
        return sum(1 for line in self.lines.values() if not line.idle())

    def may_wait(self, part: Part) -> bool:
        """Whether `part` may be held: its channel is open, and nothing that the client has said behind it would settle it otherwise."""
        line = self.lines.get(part.ordering_key)
        return line is not None and not line.over and not line.channel.rush

    def blame(self, part: Part) -> None:
        """Note the consumer whose requeue was refused, for those who look for it."""
        line = self.lines.get(part.ordering_key)
        consumer = None if line is None else line.settlements.source_of(u64(part.data, part.start + 11))
        subscription = None if consumer is None else consumer.subscription
        if part.key is not None and subscription is not None:
            part.key.consumer = subscription.tag.decode("utf-8", "backslashreplace")

    def pause(self, part: Part) -> int:
        """How long (ns) `part`, which was refused, waits beyond what its limit asks for.

        A consumer that gives back what was delivered to it before is in a loop: it waits twice as long each time that it meets its limit,
        until it gives back something new, or has nothing that waits.
        """
        line = self.lines.get(part.ordering_key)
        rule = part.rule
        if line is None or rule is None or rule.backoff_ns is None or line.waits():
            return 0
        if not line.settlements.was_redelivered(u64(part.data, part.start + 11)):
            line.pause_ns = 0
            return 0
        return line.pause(rule.backoff_ns)

    def end_pauses(self) -> list[RequeueLine]:
        """Other rules are in force: the lines that have paused, which ask anew."""
        found = [line for line in self.lines.values() if line.pause_ns > 0 and line.parts and line.taken == 0]
        for line in found:
            line.pause_ns = 0
        return found

    def take_rushing(self, channel: AmqpChannel) -> list[Part]:
        """What waits on `channel`, before a method that would settle it otherwise: it goes unpaid."""
        assert self.forget is not None
        taken: list[Part] = []
        for line in [each for each in self.lines.values() if each.channel is channel and each.parts]:
            for part in self.forget(line):
                sent = self.send(part)
                if sent is not None:
                    taken.append(sent)
        return taken

    def close(self, channel: AmqpChannel) -> None:
        """Either side closes `channel`: what waits is dropped, and the broker requeues it."""
        assert self.forget is not None
        for line in [each for each in self.lines.values() if each.channel is channel]:
            line.over = True
            self._numbers.pop((channel.number, line.queue), None)
            for part in self.forget(line):
                self._drop(line, part)
            if line.unsent == 0 and line.idle():
                self.lines.pop(line.ordering_key, None)
        channel.rush = False

    def close_all(self) -> None:
        """The connection is closed."""
        for channel in {line.channel for line in self.lines.values()}:
            self.close(channel)

    def end_life(self, channel: AmqpChannel) -> None:
        """The client has said that it closes `channel`: what it says next on that number is of another life."""
        for place in [each for each in self._numbers if each[0] == channel.number]:
            del self._numbers[place]

    def _drop(self, line: RequeueLine | None, part: Part) -> None:
        self.reports.give_up(part)
        if line is not None:
            line.unsent -= part.count
            if line.over and line.unsent == 0 and line.idle():
                self.lines.pop(line.ordering_key, None)

    def _end(self, line: RequeueLine, part: Part) -> None:
        """What `part` says is on its way."""
        line.unsent -= part.count
        for at in range(part.start, part.end, ANSWER_BYTES):
            line.settlements.pending.discard(u64(part.data, at + 11))

    def __repr__(self) -> str:
        return f"<Requeues lines={len(self.lines)}>"


def split_requeue(part: Part, count: int) -> Part:
    """Cut the first `count` requeues off `part`."""
    whole = isinstance(part, CostlyMethod)
    end = part.start if whole else part.start + count * ANSWER_BYTES
    made = CostlyMethod if whole else Part
    head = made(REQUEST, part.ordering_key, part.data, part.start, end, part.key, count, part.messages, part.size)
    part.split_into(head)
    return head


def answer(channel: int, method: int, tag: int, bits: int) -> bytes:
    """basic.ack or basic.nack."""
    return method_frame(channel, method, tag.to_bytes(8, "big") + bytes((bits,)))


def append_plain(parts: list[Part], channel: int, data: bytes) -> None:
    if data:
        parts.append(Part(PLAIN, channel, data, 0, len(data)))


def last_seen(channel: AmqpChannel, settlements: Settlements) -> int:
    """The last tag that the client may have seen: that before the first that is parked. A count would take for seen what went back."""
    parking = channel.parking
    if parking is not None:
        for parked_part in parking.parked_parts:
            if parked_part.part.kind == REQUEST:
                return delivery_tag(parked_part.part.data, parked_part.part.start) - 1
        if parking.method:
            return delivery_tag(parking.method, 0) - 1
    return settlements.delivered
