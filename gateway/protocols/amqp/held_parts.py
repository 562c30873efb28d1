"""The held parts of a connection: which channels wait, how much, and until when.

Each channel holds its own parts in order (`AmqpChannel.held`); here they are kept together. `connection.close` waits for all of them, with
everything the client sends after it (`behind_close`). While the upstream stands within a frame that flows through (`frame_left`), nothing
is let go: another channel's frame would land in the middle of it.

Where a rule spools, most of what a channel holds is in its `SpoolQueue` (`gateway/spool/queue.py`), and `AmqpChannel.held` has what comes
next. It is filled up again when half of that is gone.

Writes `held_bytes`, `held_messages` and `next_due` of the conversation's budget, which the session goes by.
"""

from __future__ import annotations

from typing import Final

from gateway.pipeline.conversation import Conversation
from gateway.pipeline.parts import BODY, PLAIN, REQUEST, Part
from gateway.protocols.amqp.broker_requests import BrokerRequests
from gateway.protocols.amqp.channel import PART_OVERHEAD, AmqpChannel, HeldPart, held_cost
from gateway.protocols.amqp.deliveries.windows import Windows
from gateway.protocols.amqp.frames import (
    CHANNEL_CLOSE,
    CHANNEL_CLOSE_OK,
    CHANNEL_OPEN,
    INTERNAL_ERROR,
    client_error,
    method_of,
)
from gateway.spool.queue import SpoolQueue
from limiter.limits import NEVER

SPOOLED_METHODS: Final = (CHANNEL_OPEN, CHANNEL_CLOSE, CHANNEL_CLOSE_OK)


class HeldParts:
    """Those of one connection. Parts that went to the judge again are `taken` until each is settled (`settle`) or held anew."""

    def __init__(self, conversation: Conversation, requests: BrokerRequests, windows: Windows) -> None:
        self.conversation = conversation
        self.budget = conversation.budget
        self.channels: dict[int, AmqpChannel] = {}  # those with held parts, or with parts away with the judge
        self.behind_close: list[Part] = []  # connection.close and what follows it, until `channels` is empty
        self.ready: list[Part] = []  # parts that wait for nothing but the next take
        self.requests = requests  # the gateway's own, which do as well
        requests.wake = self.update_due
        self.windows = windows
        self.taken = 0  # parts away with the judge, of all channels
        self.frame_left = 0  # bytes the frame still lacks in whose middle the upstream stands
        self.damage = ""  # why the rest of a channel's spool is lost

    def set_frame_left(self, frame_left: int) -> None:
        """The upstream now stands within a frame that lacks `frame_left` bytes; 0: between frames."""
        if frame_left != self.frame_left:
            self.frame_left = frame_left
            self.conversation.frame_left = frame_left
            self.update_due()

    def hold(self, channel: AmqpChannel, part: Part, due: int) -> list[Part]:
        """Hold `part` behind the others of its channel, or, where it was taken from there, in its old place. Returns what `settle` does."""
        if channel.spool is not None:
            channel.spool.waiting.begin(part)
        if channel.taken:
            if (part.end - part.start) * 2 < len(part.data):  # copied when half of it is gone, not for each request
                part.copy_out()
            channel.returned.append(HeldPart(part, due))
            return self.settle(channel)
        part.copy_out()
        budget = self.budget
        budget.held_bytes += held_cost(part)
        if part.kind == REQUEST:
            budget.held_messages += part.count * part.messages
        if self._add_to_spool(channel, part):
            return []
        channel.held.append(HeldPart(part, due))
        if len(channel.held) == 1:
            self.channels[channel.number] = channel
            if due < budget.next_due and not self.frame_left:
                budget.next_due = due
        return []

    def hold_behind_close(self, part: Part) -> None:
        part.copy_out()
        self.behind_close.append(part)
        self.budget.held_bytes += held_cost(part)

    def add_ready(self, part: Part) -> None:
        """`part`, already counted out, goes on with the next take."""
        self.ready.append(part)
        self.update_due()

    def take_ready(self, channel_id: int) -> list[Part]:
        """The ready parts of a channel, now: what follows them goes on at once."""
        taken = [part for part in self.ready if part.ordering_key == channel_id]
        if taken:
            self.ready = [part for part in self.ready if part.ordering_key != channel_id]
            self.update_due()
        return taken

    def make_due(self, channel: AmqpChannel) -> None:
        """The first held part of `channel` waits for nothing any more."""
        channel.held[0].due = 1  # long past
        self.update_due()

    def waiting(self) -> bool:
        """Whether anything is still to go to the broker."""
        return len(self.channels) > 0 or len(self.behind_close) > 0 or len(self.ready) > 0

    def count_out(self, part: Part) -> None:
        """`part` is settled or given up: it no longer counts as held."""
        self.budget.held_bytes -= held_cost(part)
        self.unblock(part)
        if part.kind == REQUEST:
            self.budget.held_messages -= part.count * part.messages
            self.conversation.end_wait(part)

    def block(self, part: Part) -> None:
        """The client is not read until `part`, which is held, is settled."""
        if not part.blocking:
            part.blocking = True
            self.budget.blocking += 1

    def unblock(self, part: Part) -> None:
        if part.blocking:
            part.blocking = False
            self.budget.blocking -= 1

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

    def count_split(self, channel: AmqpChannel) -> None:
        """A taken part became two: both will be settled."""
        channel.taken += 1
        self.taken += 1
        self.budget.held_bytes += PART_OVERHEAD

    def take_due(self, now: int, room: int, flowing: int) -> list[Part]:
        """Requests whose time has come, of all channels in turn, and what waits for nothing any more.

        `flowing`: the channel whose frame is still coming in, or -1.
        """
        parts: list[Part] = []
        if self.damage:
            raise client_error(INTERNAL_ERROR, self.damage, "spool_damaged")
        if self.frame_left or self.taken:
            return parts
        self.windows.tick(now)
        if self.channels:
            due = [channel for channel in self.channels.values() if channel.number != flowing and channel.due() <= now]
            last = self.channels.get(flowing)  # because it leaves the upstream within a frame
            if last is not None and last.due() <= now:
                due.append(last)
            served = 0
            for channel in due:
                if room <= 0:
                    break
                room = channel.take(now, room, parts)
                served += 1
            for channel in due[:served] if served < len(due) else ():  # there was no room for all: next time the others come first
                self.end_turn(channel)
            self.taken = len(parts)
        else:
            parts = self.behind_close
            self.behind_close = []
            for part in parts:
                self.count_out(part)
        if self.ready:
            parts = self.ready + parts
            self.ready = []
        if self.requests.channels:
            parts = self.requests.take() + parts
        self.update_due()
        return parts

    def end_turn(self, channel: AmqpChannel) -> None:
        """Something of `channel` has gone on: next time the others come first, which may be due at the same moment."""
        if channel.number in self.channels:
            self.channels[channel.number] = self.channels.pop(channel.number)

    def begin_spool(self, channel: AmqpChannel, spool: SpoolQueue) -> None:
        """What comes on `channel` waits in `spool`, behind what is held there."""
        channel.spool = spool
        for held in channel.held:
            spool.waiting.begin(held.part)

    def forget_verdicts(self) -> None:
        """As `Conversation.limits_changed`."""
        for channel in self.channels.values():
            if channel.spool is not None:
                for held in (*channel.returned, *channel.held):
                    held.part.forget_verdict()
                channel.spool.forget_verdicts()

    def _add_to_spool(self, channel: AmqpChannel, part: Part) -> bool:
        """Put `part` behind what waits in the channel's spool, or begin that where enough waits in memory; whether it is there."""
        spool = channel.spool
        if spool is None:
            return False
        if spool.empty():
            if not channel.held:
                return False
            last = channel.held[-1].part
            if last.kind == BODY and last.size > 0:  # it continues a frame, and those are not parted
                return False
            front = 0
            most = spool.disk.share()
            for held in channel.held:
                front += held_cost(held.part)
                if front >= most:
                    break
            if front < most:
                return False
        spool.add(part)
        if part.kind == PLAIN and method_of(part) in SPOOLED_METHODS:
            channel.spooled_methods.append(part)
        return True

    def _refill(self, channel: AmqpChannel) -> bool:
        """Take what is next out of the channel's spool, if half of what was taken before is gone; whether anything was there."""
        spool = channel.spool
        if spool is None or len(channel.held) > channel.refill_at or spool.empty():
            return False
        parts = spool.take()
        for part in parts:
            if channel.spooled_methods and part.kind == PLAIN and method_of(part) in SPOOLED_METHODS:
                channel.spooled_methods.pop(0)
            channel.held.append(HeldPart(part, 0))
        if not parts:
            return False
        channel.refill_at = len(channel.held) // 2
        spool.read_next()
        return True

    def spool_ready(self, channel: AmqpChannel) -> None:
        """What is next in the channel's spool has been read, or is damaged."""
        spool = channel.spool
        if spool is None:
            return
        if spool.damage:
            self.damage = (
                self.damage or f"channel {channel.number}: what waited in this gateway's spool cannot be read back: {spool.damage}"
            )
            self.update_due()
        elif channel.taken == 0 and not channel.held and self._refill(channel):
            self.make_due(channel)

    def settle(self, channel: AmqpChannel) -> list[Part]:
        """One of the parts taken is settled. After the last: the parts that no longer wait for anything, to be passed on."""
        channel.taken -= 1
        self.taken -= 1
        free: list[Part] = []
        if channel.taken == 0:
            held = channel.held
            if channel.returned:
                held.extendleft(reversed(channel.returned))
                channel.returned = []
            while True:
                while held and (held[0].part.kind != REQUEST or held[0].part.paid):
                    part = held.popleft().part
                    self.count_out(part)
                    free.append(part)
                if channel.spool is None or not self._refill(channel):
                    break
            if not held and not channel.spools():
                self.channels.pop(channel.number, None)
                channel.spool = None
        if self.taken == 0:
            self.update_due()
        return free

    def forget(self, channel: AmqpChannel) -> list[Part]:
        """Give up the held parts of `channel`; what is away with the judge stays taken."""
        parts = channel.forget_held()
        for part in parts:
            self.count_out(part)
        parts.extend(self._forget_spooled(channel))
        if channel.taken == 0:
            self.channels.pop(channel.number, None)
        self.update_due()
        return parts

    def _forget_spooled(self, channel: AmqpChannel) -> list[Part]:
        """Give up what waits in the spool: its messages, and the methods that are answered all the same."""
        spool = channel.spool
        if spool is None:
            return []
        parts = spool.forget()
        channel.spool = None
        for part in parts:
            self.budget.held_messages -= part.count
        parts.extend(channel.spooled_methods)
        channel.spooled_methods = []
        return parts

    def forget_all(self) -> list[Part]:
        """Give up everything held."""
        parts: list[Part] = []
        for channel in self.channels.values():
            parts.extend(channel.forget_held())
            parts.extend(self._forget_spooled(channel))
        parts.extend(self.behind_close)
        self.behind_close = []
        self.ready = []
        for part in parts:
            self.conversation.end_wait(part)
        self.channels.clear()
        self.taken = 0
        self.budget.held_bytes = 0
        self.budget.held_messages = 0
        self.budget.blocking = 1 if self.conversation.held_back else 0
        self.budget.next_due = NEVER
        return parts

    def update_due(self) -> None:
        """When `take_due` has something to give next."""
        due = NEVER
        if self.frame_left == 0 and self.taken == 0:
            for channel in self.channels.values():
                due = min(due, channel.due())
            due = min(due, self.windows.due)
            if self.ready or (self.behind_close and not self.channels) or self.requests.any_ready():
                due = 0
        if self.damage:
            due = 0
        self.budget.next_due = due

    def __repr__(self) -> str:
        behind = f" behind_close={len(self.behind_close)}"
        return f"<HeldParts channels={list(self.channels)}{behind} taken={self.taken} frame_left={self.frame_left}>"
