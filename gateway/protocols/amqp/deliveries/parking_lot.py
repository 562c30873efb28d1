"""All that one connection keeps from its client: which channels have a parking, what of it may leave, and the sums.

A parking is **free** when its first parked part may leave: it is a delivery with its verdict (`paid`), or no delivery at all. It leaves at
the next frame boundary of the client's stream, unless the client is within a message on that channel.

Writes `parked_bytes`, `parked_messages` and `ask_due` of the conversation's budget, which the session goes by. Reports what was
`delivered`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.pipeline.empties import NO_ENTRIES, NO_ITEMS, added, put
from gateway.pipeline.parts import BODY, REQUEST, Part
from gateway.pipeline.reports import Delivered, Reports
from gateway.protocols.amqp.channel import AmqpChannel, held_cost
from gateway.protocols.amqp.deliveries.parked import ParkedPart, Parking, give_clients_tag, release_read_buffer
from gateway.protocols.amqp.frames import method_of
from limiter.limits import NEVER

if TYPE_CHECKING:
    from gateway.pipeline.held_budget import HeldBudget
    from gateway.protocols.amqp.deliveries.mover import SubscriptionMover
    from gateway.protocols.amqp.deliveries.subscription import Consumer
    from limiter.keys import Key


class ParkingLot:
    """The parkings of one connection."""

    def __init__(self, budget: HeldBudget, reports: Reports) -> None:
        self.budget = budget
        self.reports = reports
        self.parked: dict[int, AmqpChannel] = NO_ENTRIES  # channels with a parking
        self.free: dict[int, AmqpChannel] = NO_ENTRIES  # those whose first parked part may leave
        self.remainders: list[bytes] = NO_ITEMS  # methods of channels given up, which still go to the client
        self.fresh: list[Part] = NO_ITEMS  # parked since the read began that is looked at
        self.frame_left = 0  # bytes to come of a body frame that is taken out of the stream, its end octet included
        self.frame_channel_id = 0  # its channel
        self.windows: SubscriptionMover | None = None
        self.releasing = False  # parked parts leave just now

    # ---- in --------------------------------------------------------------------------------------------------------

    def open(self, channel: AmqpChannel) -> Parking:
        """From now on deliveries of `channel` are parked."""
        parking = channel.parking = Parking()
        self.parked = put(self.parked, channel.number, channel)
        return parking

    def park(self, channel: AmqpChannel, parking: Parking, part: Part, consumer: Consumer | None) -> None:
        """Put `part` behind everything that is parked on `channel`."""
        budget = self.budget
        budget.parked_bytes += held_cost(part)
        if part.kind == REQUEST:
            budget.parked_messages += part.count
            if not part.paid and parking.due == NEVER:
                parking.due = 0
                budget.ask_due = 0
        parking.parked_parts.append(ParkedPart(part, consumer))
        self.fresh = added(self.fresh, part)
        if len(parking.parked_parts) == 1:
            self.set_free(channel, parking)

    def extend(self, part: Part, stop: int, count: int) -> None:
        """The last part parked grows to `stop`, by `count` deliveries."""
        self.budget.parked_bytes += stop - part.end
        self.budget.parked_messages += count
        part.end = stop
        part.count += count

    def end_read(self) -> None:
        """The read is looked at, and no part of it grows any more: those it is mostly not made of let go of it."""
        for part in self.fresh:
            release_read_buffer(part)
        self.fresh.clear()

    def set_free(self, channel: AmqpChannel, parking: Parking) -> None:
        """Notice whether the first parked part may leave."""
        if parking.stands_free():
            self.free = put(self.free, channel.number, channel)

    # ---- out -------------------------------------------------------------------------------------------------------

    def release(self, out: list[bytes]) -> int:
        """Append what may leave; called where the client's stream stands between frames. Returns what it then lacks of a frame (or 0)."""
        out.extend(self.remainders)
        self.remainders.clear()
        self.releasing = True
        left = self._release_all(out)
        self.releasing = False
        if self.windows is not None:
            self.windows.take_back()
        return left

    def _release_all(self, out: list[bytes]) -> int:
        collecting = self.free.get(self.frame_channel_id) if self.frame_left else None
        for channel in list(self.free.values()):
            if channel is not collecting and not channel.within_message():
                self._release(channel, out)
        if collecting is not None and not collecting.within_message():  # last, because it may leave the client within a frame
            self._release(collecting, out)
            if collecting.parking is None:
                left, self.frame_left = self.frame_left, 0
                return left
        return 0

    def _release(self, channel: AmqpChannel, out: list[bytes]) -> None:
        """Append the parked parts that may leave, as few pieces as they lie in."""
        parking = channel.parking
        assert parking is not None
        del self.free[channel.number]
        data = b""
        start = end = 0
        while parking.stands_free():
            parked_part = parking.parked_parts.popleft()
            part = parked_part.part
            self.unpark(part)
            if part.kind == REQUEST:
                consumer = parked_part.consumer
                if channel.recovers and consumer is not None and consumer.acknowledged_here():
                    self._drop(parking, part)
                    continue
                self.count(part.key, 0, part.count, part.count * part.size)
                if consumer is not None and self.windows is not None:
                    self.windows.passes(channel, consumer, part)
                    give_clients_tag(part, consumer)
            else:
                channel.answer(method_of(part))
            if part.data is data and part.start == end:
                end = part.end
                continue
            if end:
                out.append(data[start:end])
            data, start, end = part.data, part.start, part.end
        out.append(data[start:end])
        self.leave_if_empty(channel, parking, within=parking.method != b"" or (parking.swallows and channel.broker_left != 0))

    def _drop(self, parking: Parking, part: Part) -> None:
        """`part` would be acknowledged by the gateway, but the client's basic.recover is on its way: the broker gives it again."""
        self.give_up(part)
        whole = part.complete
        while parking.parked_parts and parking.parked_parts[0].part.kind == BODY:
            rest = parking.parked_parts.popleft().part
            self.unpark(rest)
            whole = rest.complete
        parking.swallows = parking.swallows or not whole

    def unpark(self, part: Part) -> None:
        """`part` leaves, or is given up: it no longer counts as parked."""
        self.budget.parked_bytes -= held_cost(part)
        if part.kind == REQUEST:
            self.budget.parked_messages -= part.count

    def leave_if_empty(self, channel: AmqpChannel, parking: Parking, *, within: bool) -> None:
        """The channel goes on without a parking, unless `within` a content that must still be taken out of the stream."""
        if not within and not parking.parked_parts:
            channel.parking = None
            del self.parked[channel.number]

    def keeps_forgotten(self) -> bool:
        """Whether a delivery is parked that the broker has forgotten: lost, if its client does not get it."""
        for channel in self.parked.values():
            assert channel.parking is not None
            for parked_part in channel.parking.parked_parts:
                if parked_part.part.kind == REQUEST and (parked_part.consumer is None or parked_part.consumer.no_ack):
                    return True
        return False

    # ---- counting --------------------------------------------------------------------------------------------------

    def give_up(self, part: Part) -> None:
        """Deliveries that were received, and go nowhere."""
        self.reports.give_up(part)

    def count(self, key: Key | None, received: int, forwarded: int, size: int, redelivered: int = 0) -> None:
        """Report deliveries of `key`: received from the broker, forwarded to the client, and the bytes of the latter. None: nobody's.

        `redelivered`: so many of those received had been delivered before.
        """
        if key is None:
            return
        self.reports.unread = True
        delivered = self.reports.delivered
        if delivered and delivered[-1].key is key:
            last = delivered[-1]
            last.received += received
            last.forwarded += forwarded
            last.size += size
            last.redelivered += redelivered
        else:
            self.reports.delivered = added(delivered, Delivered(key, received, forwarded, size, redelivered))

    def __repr__(self) -> str:
        return f"<ParkingLot parked={list(self.parked)} free={list(self.free)}>"
