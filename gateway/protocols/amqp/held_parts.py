"""The held parts of a connection, channel by channel, and what AMQP has beside (`gateway/waiting/lines.py` has the rest).

A refused publish on a channel without confirms can only wait. All that comes behind it on that channel must wait behind it, publishes, acks
and `channel.close` alike, because order within a channel is promised. So a channel is a line (`AmqpChannel.line`). A channel.open that
waits for the broker's close-ok is due NEVER until that has come.

`connection.close` waits for all of them, with everything the client sends after it (`behind_close`). While the upstream stands within a
frame that flows through (`HeldBudget.frame_left`), nothing is let go: another channel's frame would land in the middle of it.
"""

from __future__ import annotations

from typing import Final

from gateway.pipeline.context import ConversationContext
from gateway.pipeline.empties import NO_ITEMS, added
from gateway.pipeline.errors import ProtocolError
from gateway.pipeline.held_budget import HeldBudget
from gateway.pipeline.parts import PLAIN, REQUEST, Part
from gateway.pipeline.reports import Reports
from gateway.protocols.amqp.broker_stream import BrokerStream
from gateway.protocols.amqp.channel import PART_OVERHEAD, AmqpChannel
from gateway.protocols.amqp.channel_states import CLOSED_WHILE_HELD, NO_CLOSE, PASSING
from gateway.protocols.amqp.client_stream import ClientStream
from gateway.protocols.amqp.costly_method import CostlyMethod
from gateway.protocols.amqp.deliveries.gets import PATIENCE_NS
from gateway.protocols.amqp.deliveries.requeues import RequeueLine, split_requeue
from gateway.protocols.amqp.expirations import expiration_of
from gateway.protocols.amqp.frames import (
    CHANNEL_CLOSE,
    CHANNEL_CLOSE_OK,
    CHANNEL_OPEN,
    INTERNAL_ERROR,
    client_error,
    method_of,
)
from gateway.protocols.amqp.refusals import over_limit, publish_end
from gateway.waiting.line import Line
from gateway.waiting.lines import IN_MEMORY, Lines
from limiter.keys import Key
from limiter.limits import NEVER

PENDING_BYTES: Final = 130  # of memory for each tag of a requeue that waits, beside its frame (two entries of `Settlements`)
ANSWERED_METHODS: Final = (CHANNEL_OPEN, CHANNEL_CLOSE, CHANNEL_CLOSE_OK)


class HeldParts(Lines):
    """Those of one connection; lines are named by their channels' numbers."""

    def __init__(
        self, context: ConversationContext, budget: HeldBudget, reports: Reports, client_stream: ClientStream, broker_stream: BrokerStream
    ) -> None:
        super().__init__(context, budget, reports, PART_OVERHEAD)
        self.client_stream = client_stream
        self.broker_stream = broker_stream
        self.channels = broker_stream.channels
        self.deliveries = broker_stream.deliveries
        self.dropped: list[AmqpChannel] = NO_ITEMS  # channels of a client that is gone, whose operations were given up
        self.behind_close: list[Part] = NO_ITEMS  # connection.close and what follows it, until `by_name` is empty
        self.opening: Line | None = None  # a connection.open that waits
        self.failure: ProtocolError | None = None  # that ends the connection with the next take
        self.ready: list[Part] = NO_ITEMS  # parts that wait for nothing but the next take
        self.requests = self.deliveries.requests  # the gateway's own, which do as well
        self.requests.wake = self.update_due
        self.windows = self.deliveries.windows
        self.requeues = self.deliveries.requeues
        self.requeues.forget = self.forget

    # ---- what a protocol says --------------------------------------------------------------------------------------

    def line_of(self, part: Part) -> Line | None:
        if part.ordering_key < 0:
            return self.requeues.lines.get(part.ordering_key)
        if part.ordering_key == 0:
            return self.opening
        channel = self.channels.get(part.ordering_key)
        return None if channel is None else channel.line

    def line_for(self, part: Part) -> Line | None:
        if part.ordering_key < 0:
            return self.requeues.lines.get(part.ordering_key)
        if part.ordering_key == 0:
            self.opening = self.opening or Line(0)
            return self.opening
        channel = self.channels.get(part.ordering_key)
        return None if channel is None or channel.settled_state != PASSING else channel.line

    def next_due(self) -> int:
        if self.failure is not None:
            return 0
        due = super().next_due()
        if self.budget.frame_left or self.taken:
            return due
        if self.ready or (self.behind_close and not self.by_name) or self.requests.any_ready():
            return 0
        return min(due, self.windows.due)

    def lifetimes(self, part: Part) -> list[tuple[Part, int]]:
        found: list[tuple[Part, int]] = []
        at = part.start
        lifetime = expiration_of(part.data, at, part.end)
        alike = 1
        for _ in range(part.count - 1):
            at = publish_end(part.data, at, part.end)
            following = expiration_of(part.data, at, part.end)
            if following != lifetime:
                head = self.split(part, alike)
                head.passed = 0
                head.wait_ns = part.wait_ns
                found.append((head, lifetime))
                lifetime = following
                alike = 0
            alike += 1
        found.append((part, lifetime))
        return found

    def patience_with(self, part: Part) -> int:
        return PATIENCE_NS

    def may_page(self, part: Part) -> bool:
        return part.reservation is None and part.ordering_key > 0 and not isinstance(part, CostlyMethod)  # those are judged all the same

    def may_expire(self, part: Part) -> bool:
        channel = self.channels.get(part.ordering_key)
        return channel is not None and channel.line.paged is not None and not channel.tx

    def key_of(self, line: Line, data: bytes) -> Key | None:
        return self.client_stream.publishes.key_of(data)

    def restore(self, part: Part) -> Part:
        if part.kind == REQUEST and part.count == 1:
            self.client_stream.publishes.find_copies(part)
        return part

    def is_answered(self, part: Part) -> bool:
        return part.kind == PLAIN and method_of(part) in ANSWERED_METHODS

    def describe(self, line: Line) -> str:
        if isinstance(line, RequeueLine):
            return f"requeues of channel {line.channel.number}"
        return f"channel {line.name}"

    def cost_of(self, part: Part) -> int:
        cost = super().cost_of(part)
        return cost + part.count * PENDING_BYTES if part.ordering_key < 0 else cost

    def count_messages(self, part: Part, sign: int) -> None:
        if part.ordering_key < 0 or isinstance(part, CostlyMethod):
            self.budget.held_polls += sign * part.count
        else:
            super().count_messages(part, sign)

    def make_method(self, part: Part) -> None:
        """`part`, a `CostlyMethod`, has passed: from now on it is a method as any other."""
        if part.held is not None:
            self.count_messages(part, -1)
        self.deliveries.lot.count(part.key, 0, part.count * part.messages, 0)
        self.end_wait(part)
        part.kind = PLAIN

    # ---- in and out ------------------------------------------------------------------------------------------------

    def hold(self, part: Part, due: int, manner: int = IN_MEMORY) -> bool:
        if part.ordering_key < 0 and not self.requeues.may_wait(part):
            self.let_go(part)
            self.pass_on(part)
            return True
        if part.ordering_key < 0:
            self.requeues.blame(part)
        if part.ordering_key < 0 and part.rule is not None and part.rule.backoff_ns is not None:
            due += self.requeues.pause(part)
        line = self.line_for(part)
        channel = self.channels.get(part.ordering_key)
        if channel is not None and channel.gateway_close != NO_CLOSE and not channel.line.waits():
            due = NEVER  # an open, which the broker takes once it has said close-ok; what is behind that waits for its own time
        if line is not None and line.paged is not None and part.reservation is not None:
            self.deliveries.gets.goes_unjudged(part)
            due = 0
        elif line is not None and line.paged is not None and isinstance(part, CostlyMethod):  # a file would make a publish of it
            self.make_method(part)
            due = 0
        held = super().hold(part, due, manner)
        if held and part.held is not None and part.held.blocking:
            notices = self.broker_stream.replies.notices
            notices.block(notices.reason if notices.gateway_blocks else over_limit(part))
        return held

    def split(self, part: Part, count: int) -> Part:
        """As `Conversation.split`."""
        if part.ordering_key < 0 or isinstance(part, CostlyMethod):
            head = split_requeue(part, count)
            self.count_split(part)
            return head
        at = part.start
        end = part.end
        data = part.data
        for _ in range(count):
            at = publish_end(data, at, end)
        head = Part(REQUEST, part.ordering_key, data, part.start, at, part.key, count, part.messages, part.size)
        part.split_into(head)
        self.count_split(part)
        return head

    def fail(self, error: ProtocolError) -> None:
        """The connection ends by `error`, as soon as what is being settled is."""
        self.failure = error
        self.update_due()

    def set_frame_left(self, frame_left: int) -> None:
        """The upstream now stands within a frame that lacks `frame_left` bytes; 0: between frames."""
        if frame_left != self.budget.frame_left:
            self.budget.frame_left = frame_left
            self.update_due()

    def hold_behind_close(self, part: Part) -> None:
        part.copy_out()
        self.behind_close = added(self.behind_close, part)
        self.budget.held_bytes += self.cost_of(part)

    def add_ready(self, part: Part) -> None:
        """`part`, already counted out, goes on with the next take."""
        self.ready = added(self.ready, part)
        self.update_due()

    def take_ready(self, channel_id: int) -> list[Part]:
        """The ready parts of a channel, now: what follows them goes on at once."""
        taken = [part for part in self.ready if part.ordering_key == channel_id]
        if taken:
            self.ready = [part for part in self.ready if part.ordering_key != channel_id]
            self.update_due()
        return taken

    def holds_close(self) -> bool:
        return self.held_channels() > 0 or len(self.behind_close) > 0 or len(self.ready) > 0

    def held_channels(self) -> int:
        """How many channels wait. What they have requeued does not hold a close: the broker requeues it by itself."""
        return len(self.by_name) - (self.requeues.count_waiting() if self.by_name else 0)

    def begin_late_loss(self, channel: AmqpChannel) -> None:
        """The broker has closed `channel` within a message whose rest waits here.

        It takes no method, not even the client's close-ok, before that message has ended. So that rest goes on first, and the client, whose
        next words are of another life of the channel, is not read.
        """
        if not channel.lose_later:
            channel.lose_later = True
            self.budget.blocking += 1

    def end_late_loss(self, channel: AmqpChannel) -> None:
        if channel.lose_later:
            channel.lose_later = False
            self.budget.blocking -= 1

    def take_due(self, now: int, room: int) -> list[Part]:
        """What waits for nothing comes first; the channel whose frame is still coming in last: that leaves the upstream within it."""
        if self.damage:
            raise client_error(INTERNAL_ERROR, self.damage, "spool_damaged")
        if self.failure is not None:
            raise self.failure
        parts: list[Part] = []
        if self.budget.frame_left or self.taken:
            return parts
        self.windows.tick(now)
        if self.by_name:
            stream = self.client_stream
            parts = self.take_requests(now, room, stream.frame_channel_id if stream.frame_left > 0 else None)
            if self.requeues.lines:  # what is freed behind a publish may have to find them settled (`AmqpChannel.rush`)
                parts.sort(key=is_of_channel)
        else:
            parts = self.behind_close
            self.behind_close = NO_ITEMS
            for part in parts:
                self.count_out(part)
        if self.ready:
            parts = self.ready + parts
            self.ready = NO_ITEMS
        if self.requests.channels:
            parts = self.requests.take() + parts
        self.update_due()
        return parts

    def operation_lines(self) -> list[Line]:
        """The lines in which nothing waits but operations, and nothing is with the judge."""
        lines = self.by_name.values() if self.by_name else ()
        return [
            line for line in lines if line.taken == 0 and line.paged is None and all(isinstance(part, CostlyMethod) for part in line.parts)
        ]

    def drop_operations(self) -> None:
        """The client has gone: what it would have opened or declared, with nothing published behind it, is given up, as by a broker that
        has not come to it. It would use the limit up for those who are there. Nor does anything follow on such a channel."""
        for line in self.operation_lines():
            channel = self.channels.get(line.parts[0].ordering_key)
            if channel is not None and any(method_of(part) == CHANNEL_OPEN for part in line.parts):
                channel.settled_state = CLOSED_WHILE_HELD  # the broker does not know it
            elif channel is not None:
                self.dropped = added(self.dropped, channel)
            for part in self.forget(line):
                self.reports.give_up(part)

    def end_dropped(self) -> None:
        """The broker has been told what is not consumed any more on channels whose operations were dropped."""
        for channel in list(self.dropped):
            if channel.leave is None or channel.leave.given_back:
                self.dropped.remove(channel)
                if channel.settled_state == PASSING:
                    channel.settled_state = CLOSED_WHILE_HELD

    def follows_limits(self) -> bool:
        return self.has_paged or self.deliveries.consumers.follows

    def limits_changed(self) -> None:
        if self.has_paged:
            super().limits_changed()
        self.windows.limits_changed()
        for line in self.requeues.end_pauses():
            self.make_due(line)

    def first_waiting(self) -> Part | None:
        held = super().first_waiting()
        if held is not None:
            return held
        for channel in self.deliveries.parked.values():
            for parked_part in () if channel.parking is None else channel.parking.parked_parts:
                if parked_part.part.rule is not None and not parked_part.part.paid:
                    return parked_part.part
        return self.windows.away() if self.budget.held_polls else None

    def forget_all(self) -> list[Part]:
        parts = super().forget_all()
        parts.extend(self.behind_close)
        self.behind_close = NO_ITEMS
        self.ready = NO_ITEMS
        return parts

    def __repr__(self) -> str:
        behind = f" behind_close={len(self.behind_close)}"
        return f"<HeldParts channels={list(self.by_name)}{behind} taken={self.taken} frame_left={self.budget.frame_left}>"


def is_of_channel(part: Part) -> bool:
    """Whether `part` waits in its channel's line, and is no requeue with a line of its own."""
    return part.ordering_key > 0
