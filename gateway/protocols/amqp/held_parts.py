"""The held parts of a connection, channel by channel, and what AMQP has beside (`gateway/waiting/lines.py` has the rest).

A refused publish on a channel without confirms can only wait. All that comes behind it on that channel must wait behind it, publishes, acks
and `channel.close` alike, because order within a channel is promised. So a channel is a line (`AmqpChannel.line`). A channel.open that
waits for the broker's close-ok is due NEVER until that has come.

`connection.close` waits for all of them, with everything the client sends after it (`behind_close`). While the upstream stands within a
frame that flows through (`frame_left`), nothing is let go: another channel's frame would land in the middle of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.pipeline.conversation import Conversation
from gateway.pipeline.parts import PLAIN, Part
from gateway.protocols.amqp.broker_requests import BrokerRequests
from gateway.protocols.amqp.channel import PART_OVERHEAD, AmqpChannel
from gateway.protocols.amqp.deliveries.windows import Windows
from gateway.protocols.amqp.frames import (
    CHANNEL_CLOSE,
    CHANNEL_CLOSE_OK,
    CHANNEL_OPEN,
    INTERNAL_ERROR,
    client_error,
    method_of,
)
from gateway.waiting.line import Line
from gateway.waiting.lines import Lines

ANSWERED_METHODS: Final = (CHANNEL_OPEN, CHANNEL_CLOSE, CHANNEL_CLOSE_OK)


class HeldParts(Lines):
    """Those of one connection; `lines` are named by their channels' numbers."""

    def __init__(self, conversation: Conversation, channels: dict[int, AmqpChannel], requests: BrokerRequests, windows: Windows) -> None:
        super().__init__(conversation, PART_OVERHEAD)
        self.channels = channels
        self.forward: Callable[[Part], None] | None = None  # `Settling.pass_on`
        self.behind_close: list[Part] = []  # connection.close and what follows it, until `lines` is empty
        self.ready: list[Part] = []  # parts that wait for nothing but the next take
        self.requests = requests  # the gateway's own, which do as well
        requests.wake = self.update_due
        self.windows = windows
        self.frame_left = 0  # bytes the frame still lacks in whose middle the upstream stands

    def line_of(self, part: Part) -> Line | None:
        channel = self.channels.get(part.ordering_key)
        return None if channel is None else channel.line

    def pass_on(self, part: Part) -> None:
        assert self.forward is not None
        self.forward(part)

    def next_due(self) -> int:
        due = super().next_due()
        if self.frame_left or self.taken:
            return due
        if self.ready or (self.behind_close and not self.lines) or self.requests.any_ready():
            return 0
        return min(due, self.windows.due)

    def is_answered(self, part: Part) -> bool:
        return part.kind == PLAIN and method_of(part) in ANSWERED_METHODS

    def describe(self, line: Line) -> str:
        return f"channel {line.name}"

    def set_frame_left(self, frame_left: int) -> None:
        """The upstream now stands within a frame that lacks `frame_left` bytes; 0: between frames."""
        if frame_left != self.frame_left:
            self.frame_left = frame_left
            self.conversation.frame_left = frame_left
            self.update_due()

    def hold_behind_close(self, part: Part) -> None:
        part.copy_out()
        self.behind_close.append(part)
        self.budget.held_bytes += self.cost_of(part)

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

    def waiting(self) -> bool:
        """Whether anything is still to go to the broker."""
        return len(self.lines) > 0 or len(self.behind_close) > 0 or len(self.ready) > 0

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

    def take_all_due(self, now: int, room: int, flowing: int) -> list[Part]:
        """`take_due`, and what waits for nothing any more.

        `flowing`: the channel whose frame is still coming in, or -1: it comes last, because it leaves the upstream within a frame.
        """
        parts: list[Part] = []
        if self.damage:
            raise client_error(INTERNAL_ERROR, self.damage, "spool_damaged")
        if self.frame_left or self.taken:
            return parts
        self.windows.tick(now)
        if self.lines:
            parts = self.take_due(now, room, flowing)
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

    def forget_all(self) -> list[Part]:
        parts = super().forget_all()
        parts.extend(self.behind_close)
        self.behind_close = []
        self.ready = []
        return parts

    def __repr__(self) -> str:
        behind = f" behind_close={len(self.behind_close)}"
        return f"<HeldParts channels={list(self.lines)}{behind} taken={self.taken} frame_left={self.frame_left}>"
