"""Deliveries as the broker sends them: which pass, which are taken out of the stream and parked.

Two speeds, as for publishes. `run` takes a stream of whole deliveries of one consumer in one step: one look at who it is for and whether a
rule looks at it, then a tight loop over the frames that compares consumer tags where they lie. Anything unusual ends the
run, and goes frame by frame: `begin`, `header`, `body`. A delivery's method alone says nothing (its size is in the header), so where it may
have to wait the method is kept at its channel's parking until the header is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from common.octets import are_equal, u16, u32, u64
from gateway.pipeline.parts import BODY, PLAIN, REQUEST, Part
from gateway.protocols.amqp.channel import AmqpChannel
from gateway.protocols.amqp.channel_states import CLIENT_CLOSED
from gateway.protocols.amqp.deliveries.consumers import Consumers
from gateway.protocols.amqp.deliveries.ends import DeliveryEnds
from gateway.protocols.amqp.deliveries.parked import Parking, extends
from gateway.protocols.amqp.deliveries.parking_lot import ParkingLot
from gateway.protocols.amqp.deliveries.subscription import ASKED, QUEUE, STREAM, UNSEEN, Consumer
from gateway.protocols.amqp.deliveries.windows import Windows
from gateway.protocols.amqp.frames import BASIC_DELIVER, BODY_FRAME, END, HEADER, METHOD, OVERHEAD

if TYPE_CHECKING:
    from limiter.judge import Judge

MIN_DELIVER_BYTES: Final = 24  # of a basic.deliver with empty names
OF_A_STREAM: Final = b"\x0fx-stream-offset"  # among the headers of each message of a stream; publishers may copy it to a queue
MIN_HEADER_BYTES: Final = 20  # of a content header frame that ends with the body size
SHORT_TAG_BYTES: Final = 16  # consumer tags compared where they lie; longer ones are sliced, at the same cost for any length


class DeliveryIntake:
    """Where all deliveries of one connection come in. `reads` is counted up by the caller."""

    def __init__(self, judge: Judge, consumers: Consumers, lot: ParkingLot, ends: DeliveryEnds, windows: Windows) -> None:
        self.judge = judge
        self.consumers = consumers
        self.lot = lot
        self.ends = ends
        self.windows = windows
        self.reads = 0  # number of the read that is looked at; where two frames touch, they are of the same
        self.count: i64 = 0  # what `_alike` found: deliveries,
        self.bytes: i64 = 0  # and the bytes of their bodies
        self.redelivered: i64 = 0  # and how many of them had been delivered before
        self.received: i64 = 0  # deliveries of the broker's in all, those that are parked included

    # ---- whole ones, many at once ----------------------------------------------------------------------------------

    def run(self, channel: AmqpChannel, data: bytes, pos: i64, stop: i64, limit: i64) -> i64:
        """As many deliveries of one consumer as lie whole and one behind the other, from the basic.deliver at `data[pos:stop]` on.

        Returns where that ends, or `pos`: then they are not for this way. Where the channel has a parking they join what is parked last.
        """
        end: i64 = len(data)
        tag: i64 = data[pos + 11] if stop - pos >= MIN_DELIVER_BYTES else 255
        if pos + 12 + tag >= stop or stop + MIN_HEADER_BYTES > end or u64(data, stop + 11) > min(end - stop, limit):
            return pos
        parking = channel.parking
        name = data[pos + 12 : pos + 12 + tag]
        consumer = self.consumers.of_tag(channel.number, name)
        if channel.leave is not None:
            return pos
        if parking is None:
            if consumer is not None and (consumer.watched or self._limits(consumer)):
                return pos
            found = self._alike(data, pos, channel.number, limit, name, -1)
            self.received += self.count
            if self.count > 0:
                settlements = channel.settlements
                if settlements is not None:
                    if settlements.source is not consumer or settlements.redelivered != (self.redelivered > 0):
                        settlements.begin_source(consumer, self.redelivered > 0)
                    settlements.delivered += self.count
                channel.consumer = None
                channel.broker_left = 0
                if consumer is not None:
                    self.lot.count(consumer.key, self.count, self.count, self.bytes, self.redelivered)
                    if consumer.source != QUEUE:
                        self._see(channel, consumer, data, stop, stop + u32(data, stop + 3) + OVERHEAD, self.count)
            return found
        last = parking.joinable(consumer, data, pos)
        if last is None or self._ended(channel):
            return pos
        found = self._alike(data, pos, channel.number, limit, name, last.size)
        self.received += self.count
        if self.count > 0:
            settlements = channel.settlements
            if settlements is not None:
                if settlements.source is not consumer or settlements.redelivered != (self.redelivered > 0):
                    settlements.begin_source(consumer, self.redelivered > 0)
                settlements.delivered += self.count
            parking.passing = False
            parking.swallows = False
            channel.broker_left = 0
            if consumer is not None and consumer.source != QUEUE:
                self._see(channel, consumer, data, stop, stop + u32(data, stop + 3) + OVERHEAD, self.count)
            self.lot.count(last.key, self.count, 0, 0, self.redelivered)
            self.lot.extend(last, found, self.count)
        return found

    def _alike(self, data: bytes, pos: i64, channel_id: i64, limit: i64, name: bytes, only: i64) -> i64:
        """Where the whole deliveries from `pos` on end whose consumer tag is `name`, and which had all been made before, or none of them.
        `only`: those with bodies of that size; -1: of any.

        Looks at what the frame loop would look at, and ends at whatever that would find wrong. Leaves `count`, `bytes` and `redelivered`.
        """
        end: i64 = len(data)
        first: i64 = pos + 12  # its consumer tag; behind the length
        size_of_name: i64 = len(name)
        shortest: i64 = MIN_DELIVER_BYTES + size_of_name
        count: i64 = 0
        total: i64 = 0
        again: i64 = 0
        while pos + shortest + MIN_HEADER_BYTES <= end:
            if data[pos] != METHOD or u16(data, pos + 1) != channel_id or u32(data, pos + 7) != BASIC_DELIVER:
                break
            header: i64 = pos + u32(data, pos + 3) + OVERHEAD
            if header - pos < shortest or header - pos - OVERHEAD > limit or header + MIN_HEADER_BYTES > end or data[header - 1] != END:
                break
            if data[pos + 11] != size_of_name:
                break
            if size_of_name <= SHORT_TAG_BYTES:
                if count > 0 and not are_equal(data, first, data, pos + 12, size_of_name):
                    break
            elif data[pos + 12 : pos + 12 + size_of_name] != name:
                break
            if count > 0 and (data[pos + 20 + size_of_name] & 1) != again:
                break
            body: i64 = header + u32(data, header + 3) + OVERHEAD
            if data[header] != HEADER or u16(data, header + 1) != channel_id:
                break
            if body - header < MIN_HEADER_BYTES or body - header - OVERHEAD > limit or body > end or data[body - 1] != END:
                break
            size: i64 = u64(data, header + 11)
            if only not in (-1, size):
                break
            stop: i64 = body
            if size != 0:
                if size < 0 or size > limit or body + 7 > end:
                    break
                stop += size + OVERHEAD
                if stop > end or data[body] != BODY_FRAME or u16(data, body + 1) != channel_id or u32(data, body + 3) != size:
                    break
                if data[stop - 1] != END:
                    break
            count += 1
            total += size
            again = data[pos + 20 + size_of_name] & 1
            pos = stop
        self.count = count
        self.bytes = total
        self.redelivered = count * again
        return pos

    # ---- frame by frame --------------------------------------------------------------------------------------------

    def begin(self, channel: AmqpChannel, method: int, data: bytes, pos: int, stop: int) -> bool:
        """basic.deliver or basic.get-ok, whole at `data[pos:stop]`; True where it is taken out of the stream."""
        consumer = self.consumers.delivered(method, channel.number, data[pos + 11 : stop - 1])
        channel.broker_left = -1
        self.received += 1
        redelivered = is_redelivered(data, pos, stop)
        if consumer is not None and redelivered:
            self.lot.count(consumer.key, 0, 0, 0, 1)
        if channel.settlements is not None:
            if channel.settlements.source is not consumer or channel.settlements.redelivered != redelivered:
                channel.settlements.begin_source(consumer, redelivered)
            channel.settlements.delivered += 1
            if consumer is not None and consumer.source in (STREAM, ASKED):
                channel.settlements.keep_of_stream(1)
        leave = channel.leave
        if leave is not None:
            settlements = channel.settlements
            settled = consumer.no_ack if consumer is not None else settlements is None or settlements.unsure
            leave.arrive(method, data, pos, to_be_settled=not settled)
        parking = channel.parking
        if parking is None:
            passes = consumer is None or consumer.reservation is not None or not (consumer.watched or self._limits(consumer))
            if leave is None and passes:
                channel.consumer = consumer
                return False
            channel.consumer = None
            parking = self.lot.open(channel)
        self._flush_method(channel, parking)
        parking.passing = False
        swallows = consumer is not None and (self._ended(channel) or consumer.returns)
        parking.swallows = swallows or leave is not None
        parking.consumer = consumer
        parking.method = data[pos:stop]
        parking.method_end = stop
        parking.read = self.reads
        return True

    def header(self, channel: AmqpChannel, data: bytes, pos: int, stop: int, size: int) -> bool:
        """A content header, whole at `data[pos:stop]`, of a body of `size` bytes; True where it is taken out of the stream."""
        parking = channel.parking
        if parking is None:
            consumer = channel.consumer
            if consumer is not None:
                channel.consumer = None
                if consumer.source == UNSEEN:
                    self._see(channel, consumer, data, pos, stop, 1)
                self.lot.count(consumer.key, 1, 1, size)
                if consumer.reservation is not None:
                    self.windows.get_answered(consumer.key, consumer.reservation, 1, size)
            return False
        if parking.passing:
            return False
        consumer = parking.consumer
        method = parking.method
        parking.consumer = None
        parking.method = b""
        if consumer is not None and consumer.source == UNSEEN:
            self._see(channel, consumer, data, pos, stop, 1)
        if parking.swallows:
            of_stream = data.find(OF_A_STREAM, pos, stop) >= 0 if consumer is None else consumer.source != QUEUE
            if channel.leave is not None:
                channel.leave.take(of_stream=of_stream)
            elif consumer is not None and consumer.returns and not self._ended(channel):
                if not of_stream:
                    self.windows.return_to_broker(channel, method, 0, 1)
                parking.swallows = not of_stream  # what may be of a stream cannot go back, so it waits here
            if parking.swallows:
                self._swallow(channel, parking, consumer, size)
                return True
        start = pos - len(method)
        if not method or parking.read != self.reads or parking.method_end != pos:
            data = method + data[pos:stop]
            start = 0
            stop = len(data)
        self._keep(channel, parking, consumer, data, start, stop, size)
        return True

    def _keep(
        self, channel: AmqpChannel, parking: Parking, consumer: Consumer | None, data: bytes, start: int, stop: int, size: int
    ) -> None:
        """Park the delivery whose method and header are `data[start:stop]`, as one more of the last run where it is like that."""
        key = None if consumer is None else consumer.key
        self.lot.count(key, 1, 0, 0)
        last = parking.parked_parts[-1] if consumer is not None and parking.parked_parts else None
        if last is not None and key is not None and last.consumer is consumer and extends(last.part, key, size, data, start):
            last.part.complete = size == 0
            self.lot.extend(last.part, stop, 1)
            return
        part = Part(REQUEST, channel.number, data, start, stop, key, 1, 1, size, size == 0)
        part.paid = consumer is None or consumer.reservation is not None or not self._limits(consumer)
        if consumer is not None:
            part.reservation = consumer.overdraft
            if consumer.reservation is not None:
                self.windows.get_answered(consumer.key, consumer.reservation, 1, size)
        self.lot.park(channel, parking, part, consumer)

    def body(self, channel: AmqpChannel, data: bytes, pos: int, stop: int, *, complete: bool) -> bool:
        """A body frame, or a piece of one, at `data[pos:stop]`; True where it is taken out of the stream.

        `complete`: the content ends with it.
        """
        parking = channel.parking
        if parking is None or parking.passing:
            return False
        if parking.swallows:
            self.lot.leave_if_empty(channel, parking, within=not complete)
            return True
        last = parking.parked_parts[-1].part if parking.parked_parts else None
        if last is not None and last.kind != PLAIN and not last.complete and last.data is data and last.end == pos:
            last.complete = complete
            self.lot.extend(last, stop, 0)
        else:
            self.lot.park(channel, parking, Part(BODY, channel.number, data, pos, stop, None, 0, 0, 0, complete), None)
        return True

    def collect(self, channel: AmqpChannel | None, data: bytes, stop: int) -> None:
        """`data[:stop]` is more of the body frame that was taken out of the stream (`ParkingLot.frame_left`, already reckoned down)."""
        if channel is not None:
            self.body(channel, data, 0, stop, complete=self.lot.frame_left == 0 and channel.broker_left == 0)

    # ---- what is no delivery ---------------------------------------------------------------------------------------

    def other(self, channel: AmqpChannel, data: bytes, pos: int, stop: int) -> bool:
        """Any other method of `channel`; True where it has to keep its place behind what is parked."""
        parking = channel.parking
        if parking is None:
            return False
        self._flush_method(channel, parking)
        parking.passing = False
        if not parking.parked_parts:
            self.lot.leave_if_empty(channel, parking, within=False)
            return False
        self.lot.park(channel, parking, Part(PLAIN, channel.number, data, pos, stop), None)
        return True

    def overtake(self, channel: AmqpChannel) -> None:
        """A returned message follows, which is no delivery, and overtakes what is parked."""
        channel.broker_left = -1
        channel.consumer = None
        if channel.parking is not None:
            channel.parking.passing = True
            channel.parking.swallows = False

    # ---- rarely ----------------------------------------------------------------------------------------------------

    def _flush_method(self, channel: AmqpChannel, parking: Parking) -> None:
        """A delivery that never got its content: the broker's fault, and the client's to see."""
        method = parking.method
        if method:
            parking.method = b""
            parking.consumer = None
            self.lot.park(channel, parking, Part(PLAIN, channel.number, method, 0, len(method)), None)

    def _see(self, channel: AmqpChannel, consumer: Consumer, data: bytes, header: i64, end: i64, count: i64) -> None:
        """The last `count` deliveries of `channel` are for `consumer`; the content header of the first is `data[header:end]`."""
        if consumer.source == UNSEEN and data.find(OF_A_STREAM, header, end) >= 0:
            self.windows.ask_source(channel, consumer)
        elif consumer.source == UNSEEN:
            self.windows.know_queue(consumer)
        if consumer.source != QUEUE and channel.settlements is not None:
            channel.settlements.keep_of_stream(count)

    def _ended(self, channel: AmqpChannel) -> bool:
        """Whether the client wants no more deliveries on `channel`."""
        return self.ends.over or channel.client_state == CLIENT_CLOSED

    def _swallow(self, channel: AmqpChannel, parking: Parking, consumer: Consumer | None, size: int) -> None:
        """The delivery whose header has come is given up: its channel or the connection is closed."""
        if consumer is not None:
            self.lot.count(consumer.key, 1, 0, 0)
            self.lot.give_up(Part(REQUEST, channel.number, b"", 0, 0, consumer.key, 1, 1, size))
        self.lot.leave_if_empty(channel, parking, within=size > 0)

    def _limits(self, consumer: Consumer) -> bool:
        """Whether its deliveries need a verdict."""
        return self.judge.is_limited(consumer.key)

    def __repr__(self) -> str:
        return f"<DeliveryIntake reads={self.reads}>"


def is_redelivered(data: bytes, pos: int, stop: int) -> bool:
    """Whether the basic.deliver or basic.get-ok at `data[pos:stop]` says that the message was delivered before."""
    at = pos + 11 + 8
    if u32(data, pos + 7) == BASIC_DELIVER:
        at += 1 + data[pos + 11]
    return at < stop and (data[at] & 1) != 0
