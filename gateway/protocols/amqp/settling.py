"""What becomes of a part, channel by channel.

    admit   ─►  nothing of its channel held ─►  outbox (publishes counted for the confirms)
            ─►  something is held before it ─►  held, too; a publish with its verdict, paid
    refuse  ─►  it never fits           ─►  as close, with 406: what the broker itself says of it
            ─►  channel with confirms       ─►  basic.nack with the client's own tag (basic.return before it if mandatory)
            ─►  any other channel           ─►  UNABLE: a publish nobody confirms would be lost without a word, and one taken out of
                                                a transaction would break it. The rule's fallback says what happens instead
            ─►  something is held before it ─►  LATER: an answer must not overtake
    hold    ─►  held; block: and the client is not read meanwhile; paged: and what comes behind it goes to the disk when it is much
    close   ─►  channel.close to both sides (`channel_close.py`)
    drop    ─►  nowhere, where no answer was promised

Other channels, and channel 0, go on while one is held. `connection.close` does not: it waits, with all that follows it, until nothing is
held any more (`held_parts.py`). A held publish that never reaches its broker, because its channel was closed, is reported as abandoned.

Two rules keep the upstream whole. Nothing comes between the parts of one frame that flows through: while the upstream stands within a
frame, nothing held is let go. And once the broker has closed a channel, what the client still sends on it is passed on unjudged (the broker
discards it) or, where parts held before it were abandoned, discarded here.
"""

from __future__ import annotations

from gateway.pipeline.conversation import DROPPED, LATER, REFUSED, UNABLE, Conversation
from gateway.pipeline.parts import BODY, PLAIN, REQUEST, Part
from gateway.pipeline.reports import NOT_SAMPLED
from gateway.protocols.amqp.broker_stream import BrokerStream
from gateway.protocols.amqp.channel import AmqpChannel
from gateway.protocols.amqp.channel_close import ChannelCloses
from gateway.protocols.amqp.channel_states import CLOSED_WHILE_HELD, NO_CLOSE, PASSING
from gateway.protocols.amqp.confirm_sample import ConfirmSample
from gateway.protocols.amqp.confirm_slots import ConfirmSlots
from gateway.protocols.amqp.confirms import Confirms
from gateway.protocols.amqp.costly_method import CostlyMethod
from gateway.protocols.amqp.frames import (
    BASIC_CANCEL,
    CHANNEL_CLOSE,
    CHANNEL_CLOSE_OK,
    CHANNEL_OPEN,
    CONFIRM_SELECT,
    CONNECTION_CLOSE,
    METHOD,
    NOT_ALLOWED,
    RECOVERS,
    TX_COMMIT,
    TX_SELECT,
    client_error,
    method_of,
)
from gateway.protocols.amqp.handshake import Handshake
from gateway.protocols.amqp.held_parts import HeldParts
from gateway.protocols.amqp.mixed_publishes import MixedPublishes
from gateway.protocols.amqp.refusals import Unanswered, over_limit, publish_end
from limiter.limits import NEVER
from limiter.operations import CONNECT
from limiter.rules.rule import FIT


class Settling:
    """Settles the parts of one connection. Keeps what its refusals still need; all else is with the channels and their held parts."""

    def __init__(
        self,
        conversation: Conversation,
        channels: dict[int, AmqpChannel],
        handshake: Handshake,
        broker_stream: BrokerStream,
        held_parts: HeldParts,
    ) -> None:
        self.conversation = conversation
        self.budget = conversation.budget
        self.reports = conversation.reports
        self.channels = channels
        self.handshake = handshake
        self.methods = broker_stream.methods
        self.replies = broker_stream.replies
        self.deliveries = broker_stream.deliveries
        self.held_parts = held_parts
        held_parts.forward = self.pass_on
        self.channel_closes = ChannelCloses(conversation, channels, held_parts, broker_stream)
        self.sampler = ConfirmSample()
        self._reserved = 0  # bytes of refused contents that may be kept for their return; `unanswered_bytes` are

    # ---- verdicts --------------------------------------------------------------------------------------------------

    def admit(self, part: Part) -> None:
        channel = self.channels.get(part.ordering_key)
        if part.columns is not None and (channel is None or not self._is_plain(channel)):
            self._admit_pieces(part)
            return
        if part.reservation is not None:  # a basic.get that has passed
            part.kind = PLAIN
        elif isinstance(part, CostlyMethod):
            self.held_parts.make_method(part)
        if channel is None:
            self._admit_to_connection(part)
        elif channel.settled_state >= CLOSED_WHILE_HELD:
            self._discard_part(channel, part)
        elif channel.gateway_close != NO_CLOSE and not channel.line.waits():
            self.held_parts.keep(channel.line, part, NEVER)  # nothing goes on before the broker's close-ok to the gateway's close
        elif not self.held_parts.by_name or channel.line.idle():
            self._pass(channel, part, waited=False)
        else:
            self.held_parts.admit(part)
            self._look_for_late_loss(channel)

    def _is_plain(self, channel: AmqpChannel) -> bool:
        """Whether whatever passes on `channel` goes on as it is."""
        return (
            channel.settled_state == PASSING
            and channel.gateway_close == NO_CLOSE
            and (not self.held_parts.by_name or channel.line.idle())
            and not self.deliveries.leaving.exclusive.gone
        )

    def _admit_pieces(self, part: Part) -> None:
        """All of `part` has passed, but its channel is not plain."""
        for piece in part.cut():
            assert isinstance(piece, Part)
            piece.passed = piece.count
            self.admit(piece)

    def refuse(self, part: Part) -> int:
        if part.ordering_key < 0:
            return UNABLE
        channel = self.channels.get(part.ordering_key)
        if channel is None and part.key is not None and part.key.operation == CONNECT:
            self.held_parts.let_go(part)
            self.held_parts.fail(client_error(NOT_ALLOWED, over_limit(part), "connect_limit"))
            return REFUSED
        if channel is None:
            return DROPPED
        if part.reservation is not None:
            return self._refuse_get(channel, part)
        if channel.settled_state != PASSING:
            self._swallow(channel, part)
            return REFUSED if channel.is_closed_by_gateway() else DROPPED
        if channel.line.waits():
            return LATER
        if part.unfit != FIT:
            return self.close(part)
        confirms = channel.confirms
        if confirms is None or isinstance(part, CostlyMethod):
            return UNABLE
        first = confirms.refuse(part.count)
        complete = part.count if part.complete else part.count - 1
        if complete:
            self.replies.refuse(channel, part, first, complete, self.handshake.body_frame())
        if not part.complete:
            at = part.start
            for _ in range(complete):
                at = publish_end(part.data, at, part.end)
            room = self.conversation.context.hold_bytes - self._reserved
            channel.unanswered = Unanswered(part, at, first + complete, room)
            self._reserved += channel.unanswered.reserved
            self.budget.unanswered_bytes += channel.unanswered.size()
        self._swallow(channel, part)
        return REFUSED

    def settle_rows(self, part: Part) -> bool:
        """Admit what passes of `part`, and answer the rest; False, doing nothing, where its channel is not plain, or has no confirms."""
        channel = self.channels.get(part.ordering_key)
        if channel is None or channel.confirms is None or not self._is_plain(channel):
            return False
        assert isinstance(part, MixedPublishes)
        outbox = self.conversation.outbox
        self.replies.settle(channel, channel.confirms, part, self.handshake.body_frame(), outbox)
        if part.count:
            self._sample(channel, part)
            channel.forwarding = False
            outbox.append(part)
        return True

    def _refuse_get(self, channel: AmqpChannel, part: Part) -> int:
        """`part`, a basic.get, has waited long enough."""
        if channel.settled_state == PASSING:
            if channel.line.waits():
                self.held_parts.keep(channel.line, part, 1)  # long past
                return LATER
            empty = self.deliveries.gets.empty(part)
            if part.rule is not None and part.rule.action == "close":
                self.channel_closes.begin(channel, part)
            else:
                self.replies.reply(channel, empty)
        self._swallow(channel, part)
        return REFUSED

    def close(self, part: Part) -> int:
        channel = self.channels.get(part.ordering_key)
        if channel is not None and channel.settled_state == PASSING:
            if channel.line.waits():
                return LATER
            self.channel_closes.begin(channel, part)
        return self.refuse(part)

    def drop(self, part: Part) -> bool:
        channel = self.channels.get(part.ordering_key)
        if channel is None:
            return False
        if not channel.is_closed_by_broker() and (channel.confirms is not None or channel.tx or channel.line.waits()):
            return False
        self._swallow(channel, part)
        return True

    def lose(self, channel: AmqpChannel) -> None:
        """The broker has closed `channel`: what was held for it goes nowhere."""
        self.deliveries.requeues.close(channel)
        if channel.unanswered is not None:
            self._forget(channel, channel.unanswered)
        if channel.line.idle():
            return
        if channel.forwarding and channel.line.waits():
            self.held_parts.begin_late_loss(channel)
            return
        self.held_parts.end_late_loss(channel)
        channel.give_up_held()
        for part in self.held_parts.forget(channel.line):
            self._give_up(part)

    def _give_up(self, part: Part) -> None:
        """`part` was held when the broker closed its channel."""
        if part.kind == REQUEST:
            self.reports.give_up(part)
        elif method_of(part) == CHANNEL_CLOSE:
            self.held_parts.add_ready(part)  # the client waits for its own close-ok, also when both sides close at once

    # ---- one part --------------------------------------------------------------------------------------------------

    def _admit_to_connection(self, part: Part) -> None:
        """A part of channel 0, or of a channel that is not open."""
        held_parts = self.held_parts
        if part.ordering_key < 0 or (part.ordering_key == 0 and isinstance(part, CostlyMethod)):
            held_parts.admit(part)
            return
        if held_parts.by_name and method_of(part) == CONNECTION_CLOSE:
            self.deliveries.requeues.close_all()
        if (held_parts.behind_close and not part.paid) or (held_parts.by_name and method_of(part) == CONNECTION_CLOSE):
            held_parts.hold_behind_close(part)
            return
        if part.kind == BODY:
            held_parts.set_frame_left(part.size)
        elif self.conversation.leaves and method_of(part) == CONNECTION_CLOSE:
            self.conversation.close_said = True
            self.conversation.awaits_close_ok = not self.methods.closed_in_words
        part.release_slots(self.reports.endings)  # the broker closes the connection for a publish on no channel
        self.conversation.outbox.append(part)

    def _pass(self, channel: AmqpChannel, part: Part, *, waited: bool) -> None:
        """`part` is the next of its channel and goes on, unless it continues what was refused."""
        if part.kind == REQUEST:
            confirms = channel.confirms
            exclusive = self.deliveries.leaving.exclusive
            if exclusive.gone and part.copies is None and exclusive.takes_publish(part.data, part.start):
                self._lose_with_queue(channel, part)
                return
            if part.flight is not None:
                self._take_slots(channel, part, confirms)
            if confirms is not None:
                confirms.forward(part.count)
                self._sample(channel, part)
            channel.forwarding = not part.complete
            if not part.complete:
                channel.discarding = False
        elif part.kind == BODY:
            if channel.discarding:
                self._discard_content(channel, part)
                return
            channel.forwarding = not part.complete
            self.held_parts.set_frame_left(part.size)
            if part.complete and self.held_parts.requests.channels:
                self.held_parts.update_due()
        elif part.start == part.end:  # of several that wait for one frame, it is not the last
            return
        elif part.data[part.start] == METHOD:
            leaving = self.deliveries.leaving
            # A client that has said close and waits for nothing here is answered in order, as by the broker.
            if (channel.leave is not None or leaving.everything) and (waited or (leaving.everything and not self.conversation.leaves)):
                rest = leaving.without_takes(part)
                if rest is None:
                    return
                part = rest
            self._let_gateway_speak(channel)
            self._look_at_method(channel, part)
        self.conversation.outbox.append(part)

    def _sample(self, channel: AmqpChannel, part: Part) -> None:
        """`part` is forwarded on `channel`, which has confirms."""
        if self.reports.sample == NOT_SAMPLED:
            self.reports.set_sample(self.sampler.take(channel, part.count))

    def _let_gateway_speak(self, channel: AmqpChannel) -> None:
        """What the gateway says by itself goes before a method that may depend on it: an ack of all before, a cancel of what it begins."""
        leave = channel.leave
        if leave is not None and leave.first and not channel.forwarding:  # behind the client's close nothing can be said of it
            data = leave.first
            leave.first = b""
            self.conversation.outbox.append(Part(PLAIN, 0, data, 0, len(data)))
        if channel.rush:
            self.conversation.outbox.extend(self.deliveries.requeues.take_rushing(channel))
        if channel.number in self.deliveries.requests.channels and not channel.forwarding:
            ours = self.deliveries.requests.take_of(channel)
            if ours is not None:
                self.conversation.outbox.append(ours)

    def _lose_with_queue(self, channel: AmqpChannel, part: Part) -> None:
        """`part` goes to an exclusive queue of a client that is gone, and is given up with it."""
        if channel.confirms is not None:
            channel.confirms.refuse(part.count)
        channel.discarding = not part.complete
        self.reports.give_up(part)

    def _take_slots(self, channel: AmqpChannel, part: Part, confirms: Confirms | None) -> None:
        """Publishes that hold slots go on: until they are confirmed, or at once where they will not be."""
        flight = part.flight
        if flight is None or confirms is None or channel.is_closed_by_broker() or channel.gateway_close != NO_CLOSE:
            part.release_slots(self.reports.endings)
            return
        if confirms.slots is None:
            confirms.slots = ConfirmSlots(self.reports.endings)
        confirms.slots.forward(flight, confirms.forwarded + 1)

    def _look_at_method(self, channel: AmqpChannel, part: Part) -> None:
        """A method goes on to the broker: what it changes for the parts behind it, and for deliveries."""
        method = method_of(part)
        if method == CONFIRM_SELECT:
            if channel.confirms is None and not channel.tx:
                if not part.data[part.start + 11] & 1:  # nowait
                    channel.expect_select_ok()
                channel.confirms = Confirms()
        elif method == TX_SELECT:
            if channel.confirms is None and not channel.tx:
                self.deliveries.windows.select(channel)
                self._let_gateway_speak(channel)
        elif method == TX_COMMIT:
            channel.committing = channel.tx
        elif method == CHANNEL_OPEN:
            channel.unsettled_opens = max(channel.unsettled_opens - 1, 0)
            if not channel.is_closed_by_broker():
                self.replies.discard(channel)  # of the channel of that number before, which the client has closed
                channel.begin()
            channel.expect_open_ok()
        elif method == BASIC_CANCEL:
            self.deliveries.cancel(channel, part)
        elif method in RECOVERS:
            self.deliveries.recover(channel, part)
        elif method == CHANNEL_CLOSE:
            self.deliveries.requeues.close(channel)
        elif method == CHANNEL_CLOSE_OK and channel.is_closed_by_broker():
            channel.begin()
            if channel.over():
                del self.channels[channel.number]

    def pass_on(self, part: Part) -> None:
        """`part`, which has waited, goes on: not behind the end of a message that the broker's close had to wait for."""
        if part.ordering_key < 0:
            sent = self.deliveries.requeues.send(part)
            if sent is not None:
                self.conversation.outbox.append(sent)
            return
        if part.ordering_key == 0:
            self.conversation.outbox.append(part)
            return
        channel = self.channels[part.ordering_key]
        if channel.settled_state >= CLOSED_WHILE_HELD:
            self._give_up(part)
            return
        self._pass(channel, part, waited=True)
        if channel.lose_later and not channel.forwarding:
            self.lose(channel)

    def _look_for_late_loss(self, channel: AmqpChannel) -> None:
        if channel.lose_later and channel.line.taken == 0 and not channel.line.waits():  # the end of that message is still with the client
            self.held_parts.end_late_loss(channel)

    def _discard_content(self, channel: AmqpChannel, part: Part) -> None:
        """`part` continues a content that was refused or dropped."""
        unanswered = channel.unanswered
        if unanswered is not None and unanswered.reserved:
            before = unanswered.size()
            unanswered.add(part)
            self.budget.unanswered_bytes += unanswered.size() - before
        if not part.complete:
            return
        channel.discarding = False
        if unanswered is not None:
            self._forget(channel, unanswered)
            self.replies.reply(channel, unanswered.answer(self.handshake.body_frame()))

    def _forget(self, channel: AmqpChannel, unanswered: Unanswered) -> None:
        channel.unanswered = None
        self._reserved -= unanswered.reserved
        self.budget.unanswered_bytes -= unanswered.size()

    def _swallow(self, channel: AmqpChannel, part: Part) -> None:
        """A request is settled without going on; so is what continues it."""
        if not part.complete:
            channel.discarding = True
        if channel.line.taken:
            self.held_parts.let_go(part)
            self._look_for_late_loss(channel)

    def _discard_part(self, channel: AmqpChannel, part: Part) -> None:
        """A part of a channel on which nothing goes on. Where the broker has closed it while parts were held, close and close-ok do."""
        taken = channel.line.taken > 0
        method = method_of(part)
        if channel.is_closed_by_gateway():
            self.channel_closes.discard(channel, part)
        elif method in (CHANNEL_CLOSE, CHANNEL_CLOSE_OK):
            self.conversation.outbox.extend(self.held_parts.take_ready(channel.number))  # the client's own close, sent before this
            self._look_at_method(channel, part)
            self.conversation.outbox.append(part)
        elif part.kind == REQUEST:
            self.reports.give_up(part)
        if taken:
            self.held_parts.let_go(part)
            self._look_for_late_loss(channel)

    def __repr__(self) -> str:
        return f"<Settling {self.held_parts} {self.channel_closes} reserved={self._reserved}>"
