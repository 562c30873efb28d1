"""What becomes of parked deliveries when their channel, their connection or their consumer ends.

Deliveries parked for a channel that the broker has closed are given up: the broker delivers them again. Those consumed without
acknowledgement it has forgotten, so they pass, over the limit, before the close, and are charged. Where the client itself has closed the
channel or the connection, it wants no more of them: none passes, and those that the broker still sends before its close-ok are swallowed.

A consumer that the client cancels gets what is on its way for it at once, and its limits are charged (an overdraft, `limiter.reservation`):
libraries wait for cancel-ok, which comes behind it, before they close a channel. Where the limits still owe much for a consumer cancelled
before, it waits, and cancel-ok with it. Giving it back instead (a basic.nack of the gateway's own, with requeue) is not safe. The client
may settle them with the ones before, and a nack for a tag that is settled costs the client its channel (406, unknown delivery tag). In a
transaction the nack would be the client's to commit or to roll back. And each time counts towards a quorum queue's delivery limit, beyond
which the message is dropped.
"""

from __future__ import annotations

from collections import deque

from gateway.pipeline.empties import added
from gateway.pipeline.parts import BODY, PLAIN, REQUEST
from gateway.protocols.amqp.channel import AmqpChannel
from gateway.protocols.amqp.deliveries.parked import ParkedPart, Parking, give_clients_tag
from gateway.protocols.amqp.deliveries.parking_lot import ParkingLot
from gateway.protocols.amqp.deliveries.subscription import QUEUE, UNSEEN
from gateway.protocols.amqp.deliveries.verdicts import DeliveryVerdicts
from limiter.limits import NEVER


class DeliveryEnds:
    """The ends of one connection's deliveries."""

    def __init__(self, lot: ParkingLot, verdicts: DeliveryVerdicts) -> None:
        self.lot = lot
        self.verdicts = verdicts
        self.over = False  # the connection is being closed: no more deliveries are wanted

    def lose(self, channel: AmqpChannel, *, by_client: bool) -> bytes:
        """`channel` is closed: give up what is parked there. Returns what still goes to the client."""
        parking = channel.parking
        if parking is None:
            return b""
        lot = self.lot
        self.verdicts.forget(channel.number)
        lot.free.pop(channel.number, None)
        self._give_up_half(parking)
        pieces: list[bytes] = []
        passes = False  # whether the last delivery does; its body follows it
        for parked_part in parking.parked_parts:
            part = parked_part.part
            lot.unpark(part)
            if part.kind == REQUEST:
                passes = not by_client and (parked_part.consumer is None or parked_part.consumer.no_ack)
                if not passes:
                    lot.give_up(part)
                    continue
                lot.count(part.key, 0, part.count, part.count * part.size)
                self.verdicts.charge(part)
                if parked_part.consumer is not None:
                    give_clients_tag(part, parked_part.consumer)
            elif part.kind == BODY and not passes:
                continue
            pieces.append(part.data[part.start : part.end])
        parking.parked_parts.clear()
        parking.due = NEVER
        if not parking.passing:
            parking.swallows = True
        collecting = lot.frame_left > 0 and lot.frame_channel_id == channel.number
        lot.leave_if_empty(channel, parking, within=channel.broker_left != 0 or collecting)
        self.verdicts.update_due()
        return b"".join(pieces)

    def recover(self, channel: AmqpChannel) -> None:
        """The broker has answered basic.recover: what is parked and not acknowledged, it delivers again, under other tags.

        Not what is of a stream: RabbitMQ takes that for settled, and goes on behind it.
        """
        parking = channel.parking
        if parking is None:
            return
        kept: deque[ParkedPart] = deque()
        stale = False  # whether the last delivery is; its body follows it
        due = NEVER
        for parked_part in parking.parked_parts:
            part = parked_part.part
            if part.kind == REQUEST:
                consumer = parked_part.consumer
                stale = consumer is not None and not consumer.no_ack and consumer.source in (UNSEEN, QUEUE)
            if stale and part.kind != PLAIN:
                self.lot.unpark(part)
                if part.kind == REQUEST:
                    self.lot.give_up(part)
                continue
            if part.kind == REQUEST and not part.paid:
                due = parking.due
            kept.append(parked_part)
        parking.parked_parts = kept
        parking.due = due
        self.lot.free.pop(channel.number, None)
        self.lot.set_free(channel, parking)
        self.lot.leave_if_empty(channel, parking, within=False)
        self.verdicts.update_due()

    def _give_up_half(self, parking: Parking) -> None:
        """The last delivery is not whole yet, and nothing of it may pass: the client would take what follows for the rest of it."""
        parked_parts = parking.parked_parts
        if not parked_parts or parked_parts[-1].part.kind == PLAIN or parked_parts[-1].part.complete:
            return
        while parked_parts:
            parked_part = parked_parts.pop()
            part = parked_part.part
            if part.kind == REQUEST and part.count > 1:
                parked_parts.append(ParkedPart(self.verdicts.split(part, part.count - 1), parked_part.consumer))
            self.lot.unpark(part)
            if part.kind == REQUEST:
                self.lot.give_up(part)
                return

    def lose_all(self, *, by_client: bool) -> bytes:
        """The connection is closed, or about to be: give up what is parked. Returns what still goes to the client."""
        self.over = True
        lot = self.lot
        if not lot.parked and not lot.remainders:
            return b""
        pieces = list(lot.remainders)
        lot.remainders.clear()
        parked = list(lot.parked.values())
        pieces.extend([self.lose(channel, by_client=by_client or channel.within_message()) for channel in parked])
        return b"".join(pieces)

    def end_by_client(self) -> None:
        """The client closes the connection, or is gone."""
        words = self.lose_all(by_client=True)
        if words:
            self.lot.remainders = added(self.lot.remainders, words)

    def close_by_client(self, channel: AmqpChannel) -> None:
        """The client closes `channel`."""
        words = self.lose(channel, by_client=True)
        if words:
            self.lot.remainders = added(self.lot.remainders, words)

    def let_go(self, channel: AmqpChannel) -> None:
        """The client has cancelled a consumer of `channel` and waits for cancel-ok: what is parked for it is to pass now."""
        if channel.parking is not None:
            self.verdicts.overdraw(channel, channel.parking)

    def __repr__(self) -> str:
        return f"<DeliveryEnds over={self.over}>"
