"""What the judge is asked about parked deliveries, and what becomes of them by its verdicts.

A verdict is given once per delivery: one that has it (`paid`) but stands behind another is not judged again. A run that passes in part is
cut in two; the refused half is judged again when its time has come (`turn_of`: channels that wait for one limit take turns), the whole
run at once. A delivery that is with the judge stays where it is until the verdict is there, also where its consumer was cancelled
meanwhile: then it is asked for again, as part of that consumer's overdraft (`limiter.reservation`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pipeline.actions.holding import turn_of
from gateway.pipeline.empties import NO_ENTRIES, NO_ITEMS, put
from gateway.pipeline.parts import REQUEST, Part
from gateway.protocols.amqp.channel import AmqpChannel, held_cost
from gateway.protocols.amqp.deliveries.parked import ParkedPart, Parking, count_shadow_and_bypass, refuse, release_read_buffer
from gateway.protocols.amqp.deliveries.parking_lot import ParkingLot
from gateway.protocols.amqp.refusals import publish_end
from limiter.limits import NEVER
from limiter.request import Request
from limiter.reservation import Overdraft

if TYPE_CHECKING:
    from gateway.protocols.amqp.deliveries.mover import SubscriptionMover
    from limiter.judge import Judge

MAX_DELIVERIES_ASKED: Final = 512  # judged in one go, per connection; as many as Decode's MAX_MESSAGES_PER_TURN


class DeliveryVerdicts:
    """The way of one connection's deliveries to the judge and back."""

    def __init__(self, judge: Judge, lot: ParkingLot, connection: int) -> None:
        self.judge = judge
        self.connection = connection  # its number, not 0
        self.lot = lot
        self.asked: dict[int, list[Part]] = NO_ENTRIES  # with the judge, by channel
        self.windows: SubscriptionMover | None = None
        self.settlements: list[Part] = NO_ITEMS  # of reservations (`windows.py`)
        self.asking = False  # even where `asked` is empty, because those channels were closed meanwhile

    def ask(self, now: int) -> list[Part]:
        """Runs of deliveries that need a verdict now, in order. `settle` follows; nothing is read from the broker in between."""
        found: list[Part] = []
        room = MAX_DELIVERIES_ASKED
        for channel in self._due(now):
            parking = channel.parking
            assert parking is not None
            if room <= 0:
                break
            parts = parking.unjudged(room)
            parking.due = NEVER
            if parts:
                self.asked = put(self.asked, channel.number, parts)
                found.extend(parts)
                room -= sum([part.count for part in parts])
        found.extend(self.settlements)
        self.settlements = NO_ITEMS
        self.asking = len(found) > 0
        self.update_due()
        return found

    def _due(self, now: int) -> list[AmqpChannel]:
        """The channels to be asked for, in order of their moments: those that come first get what there is."""
        found: list[tuple[int, int, AmqpChannel]] = []
        for channel in self.lot.parked.values():
            parking = channel.parking
            assert parking is not None
            if parking.due <= now:
                found.append((parking.due, channel.number, channel))
        if len(found) > 1:
            found.sort(key=moment_of)
        return [channel for _, _, channel in found]

    def settle(self, now: int) -> None:
        """The verdicts are there. Deliveries that pass leave with `ParkingLot.release`."""
        self.asking = False
        windows = self.windows
        assert windows is not None
        windows.judged(now)
        for channel_id, parts in self.asked.items():
            channel = self.lot.parked[channel_id]
            parking = channel.parking
            assert parking is not None
            self._settle_channel((self.connection << 16) + channel_id, parking, parts, now)
            self.lot.set_free(channel, parking)
        self.asked = NO_ENTRIES
        windows.take_back()
        self.update_due()

    def overdraw(self, channel: AmqpChannel, parking: Parking) -> None:
        """A consumer of `channel` is cancelled: what is parked for it is asked for at once, by its overdraft."""
        with_judge = len(self.asked.get(channel.number, ()))  # the first without a verdict
        for parked_part in parking.parked_parts:
            part = parked_part.part
            if part.kind != REQUEST or part.paid:
                continue
            if with_judge > 0:
                with_judge -= 1
            elif parked_part.consumer is not None and parked_part.consumer.overdraft is not None and part.reservation is None:
                part.reservation = parked_part.consumer.overdraft
                parking.due = 0
        self.update_due()

    def charge(self, part: Part) -> None:
        """`part` passes without a verdict, because its channel ends and the broker has forgotten it: it is charged all the same."""
        if part.key is not None and not part.paid and self.judge.is_limited(part.key):
            owed = Request(part.key, part.count, part.messages, part.size)
            owed.again = part.again
            owed.reservation = Overdraft(taken=True)
            self.judge.owe(owed)

    def forget(self, channel_id: int) -> None:
        """Channel `channel_id` is closed: its verdicts will change nothing."""
        self.asked.pop(channel_id, None)

    def update_due(self) -> None:
        """When `ask` has something to ask next."""
        earliest = NEVER
        if not self.asking:
            for channel in self.lot.parked.values():
                assert channel.parking is not None
                earliest = min(earliest, channel.parking.due)
            if self.settlements:
                earliest = 0
        self.lot.budget.ask_due = earliest

    def _settle_channel(self, who: int, parking: Parking, parts: list[Part], now: int) -> None:
        """Mark what passes as paid, cut where a run passes in part, and set when to ask again. `who`: the channel, among all that wait."""
        parked_parts = parking.parked_parts
        settled: list[ParkedPart] = []
        over: list[ParkedPart] = []
        waits = NEVER
        had_turn = False
        for part in parts:
            while True:
                parked_part = parked_parts.popleft()
                if parked_part.part is part:
                    break
                settled.append(parked_part)
            count_shadow_and_bypass(part)
            had_turn = had_turn or part.passed > 0
            self.lot.count(part.key, 0, 0, 0)  # so that the session notes the key
            if part.passed >= part.count:
                part.paid = True
                settled.append(parked_part)
                continue
            if part.passed > 0:
                settled.append(ParkedPart(self.split(part, part.passed), parked_part.consumer))
            release_read_buffer(part)
            settled.append(parked_part)
            overdraft = None if parked_part.consumer is None else parked_part.consumer.overdraft
            if part.reservation is None and overdraft is not None:  # cancelled while the judge looked
                part.reservation = overdraft
                waits = now
            else:
                waits = min(waits, turn_of(who, part, now, had_turn=had_turn))
            refuse(part)
            over.append(parked_part)
        for parked_part in parked_parts:
            if waits == NEVER and parked_part.part.kind == REQUEST and not parked_part.part.paid:
                waits = now  # there was no room to ask for that one
            release_read_buffer(parked_part.part)
        parked_parts.extendleft(reversed(settled))
        parking.due = waits
        for parked_part in over:
            assert self.windows is not None
            self.windows.refused(parked_part.consumer, parked_part.part)

    def split(self, part: Part, count: int) -> Part:
        """Cut the first `count` deliveries off `part`, paid."""
        at = part.start
        for _ in range(count):
            at = publish_end(part.data, at, part.end)  # a delivery is built like a publish
        head = Part(REQUEST, part.ordering_key, part.data, part.start, at, part.key, count, 1, part.size)
        head.paid = True
        part.start = at
        part.count -= count
        self.lot.budget.parked_bytes += held_cost(head) - (at - head.start)
        return head

    def __repr__(self) -> str:
        return f"<DeliveryVerdicts asking={self.asking} channels={list(self.asked)}>"


def moment_of(found: tuple[int, int, AmqpChannel]) -> tuple[int, int]:
    """When a channel is to be asked for, and its number."""
    return found[0], found[1]
