"""One AMQP channel, seen from both sides, and the parts held for it.

A channel is looked at in three places, which are not at the same message: where the client's bytes are decoded, where decoded parts are
settled, and where the broker's bytes are relayed. The attributes stand in those three groups. Each group has a state of its own; what
leads from one state to the next is in `channel_states.py`.

A channel is a line: what comes behind a held part of it waits, too (`line`, `gateway/waiting/line.py`).

Deliveries that wait, on the way back, stand apart from that: in `parking` (`deliveries.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from gateway.pipeline.parts import Part
from gateway.protocols.amqp.channel_states import (
    CLIENT_CLOSED,
    CLIENT_IGNORED,
    CLIENT_OPEN,
    CLOSE_SENT,
    CLOSE_WAITS,
    CLOSED_BY_BOTH,
    CLOSED_BY_BROKER,
    CLOSED_BY_GATEWAY,
    CLOSED_WHILE_HELD,
    NO_CLOSE,
    PASSING,
)
from gateway.protocols.amqp.costly_method import CostlyMethod
from gateway.protocols.amqp.frames import CHANNEL_OPEN_OK, CONFIRM_SELECT_OK
from gateway.waiting.line import Line

if TYPE_CHECKING:
    from gateway.protocols.amqp.confirms import Confirms
    from gateway.protocols.amqp.deliveries.leave import Leave
    from gateway.protocols.amqp.deliveries.parked import Parking
    from gateway.protocols.amqp.deliveries.settlements import Settlements
    from gateway.protocols.amqp.deliveries.subscription import Consumer
    from gateway.protocols.amqp.refusals import Unanswered

AWAITS_METHOD: Final = 0
AWAITS_HEADER: Final = 1
AWAITS_BODY: Final = 2

PART_OVERHEAD: Final = 400  # bytes of memory a held part takes beside its own bytes (sys.getsizeof of its objects, Python 3.11)


def held_cost(part: Part) -> int:
    """What a held or parked part counts against the connection's budget: its bytes and its objects."""
    return part.end - part.start + PART_OVERHEAD


class ChannelLine(Line):
    """The held parts of a channel."""

    def goes_alone(self, part: Part) -> bool:
        return isinstance(part, CostlyMethod)


class AmqpChannel:
    """State of one channel of one connection."""

    __slots__ = (
        "awaits",
        "broker_left",
        "client_state",
        "close_frames",
        "committing",
        "confirms",
        "consumer",
        "content_left",
        "discarding",
        "forwarding",
        "gateway_close",
        "leave",
        "line",
        "lose_later",
        "method",
        "number",
        "parking",
        "recovers",
        "replies",
        "rush",
        "selects_tx",
        "settled_state",
        "settlements",
        "tx",
        "unanswered",
        "unanswered_opens",
        "unanswered_select",
        "unsettled_opens",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        # As decoded:
        self.client_state: i64 = CLIENT_CLOSED
        self.unsettled_opens = 0  # channel.opens decoded and not yet settled
        self.awaits = AWAITS_METHOD
        self.content_left = 0  # body bytes still to come
        self.method = b""  # a publish's method frame that waits for its header
        self.settlements: Settlements | None = None  # of its deliveries, from the first basic.consume or basic.get on
        self.selects_tx = False  # tx.select has been said
        # As settled:
        self.settled_state: i64 = PASSING
        self.confirms: Confirms | None = None
        self.tx = False
        self.committing = False  # tx.commit has gone on, and is not answered: until then RabbitMQ takes nothing on the channel (504)
        self.recovers = b""  # for each basic.recover that is not answered, whose it is: all that comes until then goes back by it
        self.discarding = False  # the rest of the last request's content is thrown away
        self.forwarding = False  # of the last message that went to the broker the rest is still to go
        self.lose_later = False  # the broker has closed the channel; what of that rest waits here must reach it, then the rest is given up
        self.unanswered: Unanswered | None = None  # the refusal to be written when that content is complete
        self.line: Line = ChannelLine(number)  # its held parts
        self.rush = False  # what the client has requeued may not wait for its limit (`deliveries/requeues.py`)
        # As relayed:
        self.gateway_close: i64 = NO_CLOSE
        self.close_frames = b""  # the gateway's channel.close for the client, and what goes before it, while CLOSE_WAITS
        self.broker_left = 0  # body bytes still to come from the broker; -1: a content header is to come
        self.unanswered_opens = 0  # channel.opens whose answers the client has not got yet
        self.unanswered_select = False  # the same of the first confirm.select
        self.replies: BytesWriter | None = None  # replies of the gateway's own that wait (`replies.py`)
        self.consumer: Consumer | None = None  # of the delivery whose header is to come, where it passes as it comes
        self.leave: Leave | None = None  # nothing is consumed any more: the client has closed it, or gone
        self.parking: Parking | None = None  # deliveries that wait, and what waits behind them

    # ---- from one state to the next --------------------------------------------------------------------------------

    def open(self) -> None:
        """The client opens the channel, as decoded."""
        self.client_state = CLIENT_OPEN
        self.unsettled_opens += 1
        self.awaits = AWAITS_METHOD
        self.content_left = 0
        self.method = b""
        self.settlements = None
        self.selects_tx = False

    def close_by_client(self) -> None:
        """The client closes the channel, or agrees to its being closed, as decoded."""
        self.client_state = CLIENT_CLOSED

    def begin(self) -> None:
        """The client's channel.open, or its close-ok, is settled."""
        self.release_all_slots()
        self.settled_state = PASSING
        self.confirms = None
        self.tx = False
        self.committing = False
        self.recovers = b""
        self.discarding = False
        self.forwarding = False
        self.unanswered = None

    def close_by_broker(self) -> bool:
        """The broker closes the channel, or its connection; False: that was known."""
        self._expect_no_answers()
        if self.is_closed_by_broker():
            return False
        self.settled_state = CLOSED_BY_BROKER if self.settled_state == PASSING else CLOSED_BY_BOTH
        self._ignore_client()
        return True

    def give_up_held(self) -> None:
        """Parts were held, or with the judge, when the broker closed the channel: they are given up."""
        if self.settled_state == CLOSED_BY_BROKER:
            self.settled_state = CLOSED_WHILE_HELD

    def close_by_gateway(self) -> None:
        """The gateway closes the channel, which nobody has closed."""
        self.settled_state = CLOSED_BY_GATEWAY
        self.release_all_slots()
        self._ignore_client()

    def _ignore_client(self) -> None:
        if self.client_state == CLIENT_OPEN:
            self.client_state = CLIENT_IGNORED

    def tell_close(self, frames: bytes) -> None:
        """The broker has been told of the gateway's close; `frames` are for the client, and end with channel.close."""
        self.gateway_close = CLOSE_WAITS
        self.close_frames = frames

    def close_told(self) -> None:
        """The client has been told, by the gateway's close or by the broker's own, that the channel is closed."""
        if self.gateway_close == CLOSE_WAITS:
            self.gateway_close = CLOSE_SENT
            self.close_frames = b""

    def finish_close(self) -> None:
        """The broker has answered the gateway's close."""
        self.gateway_close = NO_CLOSE
        self._expect_no_answers()

    # ---- what the states mean --------------------------------------------------------------------------------------

    def is_closed_by_broker(self) -> bool:
        return self.settled_state in (CLOSED_BY_BROKER, CLOSED_WHILE_HELD, CLOSED_BY_BOTH)

    def is_closed_by_gateway(self) -> bool:
        """Whether the client's close-ok to the gateway's close is to come."""
        return self.settled_state >= CLOSED_BY_GATEWAY

    def over(self) -> bool:
        """Whether the channel is closed and nothing of it is under way, so that it may be forgotten."""
        if self.client_state != CLIENT_CLOSED or self.is_closed_by_gateway() or self.gateway_close != NO_CLOSE:
            return False
        return not self.unsettled_opens and self.line.idle()

    def expect_open_ok(self) -> None:
        """The client's channel.open goes on to the broker."""
        self.unanswered_select = False
        if not self.is_closed_by_broker():
            self.unanswered_opens += 1

    def expect_select_ok(self) -> None:
        """The client's first confirm.select does. Only the first: a reply that waited for another could be overtaken by an ack."""
        if not self.is_closed_by_broker():
            self.unanswered_select = True

    def _expect_no_answers(self) -> None:
        self.unanswered_opens = 0
        self.unanswered_select = False

    def answer(self, method: int) -> None:
        """The broker's `method` has come to the client."""
        if method == CHANNEL_OPEN_OK:
            self.unanswered_opens = max(self.unanswered_opens - 1, 0)
        elif method == CONFIRM_SELECT_OK and self.unanswered_opens == 0:  # else it is of the channel before
            self.unanswered_select = False

    def take_recover(self) -> bytes:
        """The broker has answered the first of `recovers`: whose it was."""
        first, self.recovers = self.recovers[:1], self.recovers[1:]
        return first

    def takes_replies(self) -> bool:
        """Whether replies of the gateway's own may be sent now: behind the answers that make them possible, and not within a message."""
        return self.unanswered_opens == 0 and not self.unanswered_select and not self.within_message()

    def within_message(self) -> bool:
        """Whether the client's stream stands within a message on this channel."""
        return self.broker_left != 0 and (self.parking is None or self.parking.passing)

    def release_all_slots(self) -> None:
        """What is not confirmed will never be."""
        confirms = self.confirms
        if confirms is not None and confirms.slots is not None:
            confirms.slots.lose()

    def __repr__(self) -> str:
        state = "closed" if self.client_state == CLIENT_CLOSED else "open"
        if self.is_closed_by_gateway() or self.gateway_close != NO_CLOSE:
            state = "closed by the gateway"
        elif self.settled_state != PASSING:
            state = "closed by the broker" if self.settled_state == CLOSED_BY_BROKER else "closed by the broker while parts were held"
        return f"<AmqpChannel {self.number} {state} {self.confirms} {self.line}>"
