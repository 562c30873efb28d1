"""Deliveries that wait: what a rule with `operation: consume` keeps from the client for a while.

The naive way to slow a consumer down, reading the broker more slowly, stops everything else the broker has to say on that connection:
confirms, other channels, heartbeats. So deliveries of queues with such a rule are cut out of the stream, run by run of like ones, and
**parked** at their channel until the judge lets them pass; none is ever dropped for a limit. Where no rule looks at a queue, its
deliveries are only counted, and pass as they come. How many come is another matter (`windows.py`), and so is basic.get (`gets.py`)::

    broker's frames ─► intake ─► nobody limits it ──────────────────────────────────────────────► client
                         │
                         ▼                       passes (`paid`)                 frame boundary
                    parking lot ─► verdicts ─► judge ──────────────► free ─────────────────────► client
                         │            ▲          │ refused: asks again when due
                         │            └──────────┘
                         └─► ends: channel, connection or consumer closed ─► given up, or passed over the limit

Order. Behind a parked delivery its channel keeps its order, because clients count on it: other deliveries (judged meanwhile, `paid`),
consume-ok, cancel-ok, get-empty and whatever else the broker sends on that channel. Only confirms and returned messages, which belong to
the client's publishing half, and the broker's channel.close overtake (**passing**). Other channels and channel 0 do not notice. While
deliveries wait on a channel, the client's stream is never within a message on it: a delivery leaves as a whole, or begins to leave and
flows on, its end being what the broker sends next.

Memory. A delivery is judged at its content header; while it waits, its body is **collected** as it comes. When as much is parked as the
connection may hold, the broker is not read (`Session.reads_broker`), so a delivery larger than that is collected in part; when its turn
comes the part leaves and the rest flows. Deliveries that nobody wants any more are **swallowed**: taken out of the stream, and not kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.octets import u32
from gateway.pipeline.parts import PLAIN, Part
from gateway.protocols.amqp.broker_requests import BrokerRequests
from gateway.protocols.amqp.channel import AmqpChannel
from gateway.protocols.amqp.channel_states import OF_CLIENT, WITHOUT_ANSWER
from gateway.protocols.amqp.costly_methods import CostlyMethods
from gateway.protocols.amqp.deliveries.consumers import Consumers, takes_without_ack
from gateway.protocols.amqp.deliveries.ends import DeliveryEnds
from gateway.protocols.amqp.deliveries.gets import LimitedGets
from gateway.protocols.amqp.deliveries.intake import DeliveryIntake
from gateway.protocols.amqp.deliveries.leaving import REQUEUE, Leaving
from gateway.protocols.amqp.deliveries.parking_lot import ParkingLot
from gateway.protocols.amqp.deliveries.requeues import Requeues, last_seen
from gateway.protocols.amqp.deliveries.settlements import Settlements
from gateway.protocols.amqp.deliveries.verdicts import DeliveryVerdicts
from gateway.protocols.amqp.deliveries.windows import Windows
from gateway.protocols.amqp.frames import (
    BASIC_ACK,
    BASIC_CANCEL,
    BASIC_CONSUME,
    BASIC_GET,
    BASIC_NACK,
    BASIC_RECOVER,
    BASIC_REJECT,
    CHANNEL_CLOSE,
    OVERHEAD,
    QUEUE_DECLARE,
    RECOVERS,
    method_frame,
    method_of,
)

if TYPE_CHECKING:
    from gateway.pipeline.held_budget import HeldBudget
    from gateway.pipeline.reports import Reports
    from limiter.judge import Judge


SETTLES: Final = frozenset({BASIC_ACK, BASIC_NACK, BASIC_REJECT, *RECOVERS})  # of the client


class Deliveries:
    """The parts that deal with the deliveries of one connection, put together."""

    def __init__(self, judge: Judge, budget: HeldBudget, reports: Reports, connection: int, channels: dict[int, AmqpChannel]) -> None:
        self.consumers = Consumers(judge)
        self.requests = BrokerRequests()
        self.lot = ParkingLot(budget, reports)
        self.verdicts = DeliveryVerdicts(judge, self.lot, connection)
        self.windows = Windows(judge, channels, self.consumers, self.lot, self.verdicts, self.requests)
        self.consumers.windows = self.lot.windows = self.verdicts.windows = self.windows
        self.ends = DeliveryEnds(self.lot, self.verdicts)
        self.leaving = Leaving(self.consumers, self.requests)
        self.gets = LimitedGets(judge, self.consumers, self.windows)
        self.intake = DeliveryIntake(judge, self.consumers, self.lot, self.ends, self.windows)
        self.requeues = Requeues(judge, self.consumers, self.lot, self.requests, reports)
        self.requeues.settle = self.settle
        self.costly_methods = CostlyMethods(judge, self.lot)
        self.leaving.recovers = self.requeues.close

    @property
    def parked(self) -> dict[int, AmqpChannel]:
        """The channels on which something is parked."""
        return self.lot.parked

    def overhear(self, method: int, channel: AmqpChannel, arguments: bytes) -> Part | None:
        """The client says one of `consumers.ASKS` on an open channel: what goes on in its place; None: it goes as it is."""
        instead = self.consumers.ask(method, channel.number, arguments)
        if method == QUEUE_DECLARE:
            declared = self.consumers.declared(channel.number)
            if declared is not None:
                self.leaving.exclusive.declare(arguments, declared)
        if method in (BASIC_CONSUME, BASIC_GET):
            by_gateway = len(instead) > 0 and u32(instead, 7) != BASIC_CONSUME  # else it has a tag of the gateway's at most
            self._keep_account(method, channel, arguments, by_gateway=by_gateway)
        if method == CHANNEL_CLOSE:
            self.requeues.end_life(channel)
            self.leaving.leave(channel)
            self.requests.forget(channel.number)
            self.ends.close_by_client(channel)
        if method == BASIC_GET and channel.line.paged is None:
            return self.gets.ask(channel, arguments)
        return Part(PLAIN, channel.number, instead, 0, len(instead)) if instead else None

    def end(self) -> None:
        """The connection is over: its parts let go of each other."""
        self.consumers.end()
        self.consumers.windows = self.lot.windows = self.verdicts.windows = None
        self.requeues.settle = self.requeues.forget = None
        self.requests.wake = None

    def settle(self, method: int, channel: AmqpChannel, frame: bytes) -> bytes | None:
        """The client settles deliveries by `frame`, one of SETTLES: what goes to the broker in its place, b"" nothing; None: as it is."""
        settlements = channel.settlements
        if settlements is None:
            return None
        if settlements.given_back:
            return b""
        if settlements.watched:
            if method in RECOVERS:
                settlements.forget_watched()
            elif len(frame) == OVERHEAD + 13:
                all_before = method != BASIC_REJECT and (frame[19] & 1) != 0
                settlements.settle_watched(int.from_bytes(frame[11:19], "big"), all_before=all_before)
        if settlements.unsure:
            return None
        if method in RECOVERS and not channel.tx:
            settlements.recover()
            return None
        if method in RECOVERS or len(frame) != OVERHEAD + 13 or channel.tx:
            settlements.lose_track()
            return None
        tag = int.from_bytes(frame[11:19], "big")
        multiple = method != BASIC_REJECT and (frame[19] & 1) != 0
        if tag > 0 or not multiple:
            settlements.settle(tag, multiple=multiple)
            return None
        tag = settlements.last_open(last_seen(channel, settlements))
        if tag == 0:
            return b""
        settlements.settle(tag, multiple=True)
        return frame[:11] + tag.to_bytes(8, "big") + frame[19:]

    def select(self, channel: AmqpChannel) -> None:
        """The client says tx.select: what it has requeued before that is not the transaction's, and goes first."""
        channel.selects_tx = True
        channel.rush = channel.rush or (channel.settlements is not None and len(channel.settlements.pending) > 0)

    def _keep_account(self, method: int, channel: AmqpChannel, arguments: bytes, *, by_gateway: bool) -> None:
        """The client consumes on `channel`: from now on it is noted what it settles there. `by_gateway`: as the gateway puts it."""
        settlements = channel.settlements
        if settlements is None:
            settlements = channel.settlements = Settlements()
        if not takes_without_ack(method, arguments):
            settlements.by_client = True
        elif method == BASIC_GET or not by_gateway:
            settlements.lose_track()

    def cancel(self, channel: AmqpChannel, part: Part) -> None:
        """A basic.cancel of the client's goes on to the broker. Not before: behind a held publish the consumer would be free meanwhile."""
        instead = self.consumers.ask(BASIC_CANCEL, channel.number, part.data[part.start + 11 : part.end - 1])
        if instead:
            part.data = instead
            part.start = 0
            part.end = len(instead)
        self.ends.let_go(channel)

    def recover(self, channel: AmqpChannel, part: Part) -> None:
        """A recover of the client's goes on to the broker.

        Of basic.recover-async no answer would tell what it covers, and what waits here would be delivered twice. So the broker is told
        basic.recover, which does the same, and its answer is kept from the client.
        """
        if method_of(part) == BASIC_RECOVER:
            channel.recovers += OF_CLIENT
        elif part.data[part.start + 11] & 1:
            channel.recovers += WITHOUT_ANSWER
            part.data = method_frame(channel.number, BASIC_RECOVER, REQUEUE)
            part.start = 0
            part.end = len(part.data)

    def __repr__(self) -> str:
        return f"<Deliveries {self.lot} {self.verdicts}>"
