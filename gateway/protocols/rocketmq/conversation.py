"""RocketMQ remoting, as the gateway must understand it (`rocketmq.md` 1 to 4).

Requests and answers are matched by `opaque`, not by order, so there is one lane and no state between requests: a send can be refused,
or wait, while the others pass.

    client's bytes ── Frames ──► parts ──► (verdicts) ──► onward
                                            │ hold: Waiting        refuse: build_refusals
    client ◄──────────── Replies ◄──────────┴───────────────────── broker's bytes

* Sends and consumer send-backs become `Sends`, one part per run of like ones. Everything else passes, known or not, unread.
* The broker's stream is passed on at once; only its frames' lengths are read, to know where a reply may be put.

What it does not do: limit pulls, rewrite routes, say GO_AWAY. It does not remember what was forwarded, so it cannot tell whether an
answer is outstanding; draining waits for the broker to fall silent instead (`settled`).
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from gateway.conversation import DROPPED, REFUSED, Circumstances, Conversation
from gateway.messages import BODY, NEVER, REQUEST, Part, ProtocolError
from gateway.protocols.octets import u32
from gateway.protocols.rocketmq.frames import Frames
from gateway.protocols.rocketmq.refusals import FLOW_CONTROL, SYSTEM_BUSY, build_refusals, remark
from gateway.protocols.rocketmq.replies import Replies
from gateway.protocols.rocketmq.requests import Sends
from gateway.protocols.rocketmq.waiting import Waiting

PATIENCE_NS: Final = 2_500_000_000  # clients give a request up after 3 s (limiter.md 4)


class RocketmqConversation(Conversation):
    """One RocketMQ client and its broker."""

    def __init__(self, circumstances: Circumstances) -> None:
        super().__init__(circumstances)
        self.origin = circumstances.judge.origin(
            "rocketmq", circumstances.listener, circumstances.client, None, connection=circumstances.connection
        )
        self.released = False
        self.frames = Frames(circumstances, self.origin)
        self.need = self.frames.need
        self.patience_ns = PATIENCE_NS
        self.discarding = False  # what still comes of a large frame is thrown away
        self.last_words = b""  # reply to be given when the last of it is in
        self.waiting = Waiting()
        self.replies = Replies()

    # ---- client to broker ------------------------------------------------------------------------------------------

    def decode(self, data: bytes, start: int, room: int, parts: list[Part]) -> int:
        frames = self.frames
        before = len(parts)
        try:
            position = frames.decode(data, start, room, parts)
        except ProtocolError:
            if len(parts) == before:
                raise
            self.need = 1  # what came before the fault goes its way first; the next call meets the fault again
            return frames.at
        self.need = frames.need
        self.begun = self.begun or len(parts) > before
        return position

    # ---- verdicts --------------------------------------------------------------------------------------------------

    def admit(self, part: Part) -> None:
        if self.hang_up:  # the client will take it for failed
            if part.kind == REQUEST:
                self.abandoned.append(part)
            return
        if part.kind == BODY:
            if self.discarding:
                if part.complete:
                    self._say(self.last_words)
                    self.last_words = b""
                return
        elif part.kind == REQUEST:
            assert isinstance(part, Sends)
            if self.waiting.queues and not part.streamed and self.waiting.goes_behind(part):
                self.waiting.queue_behind(part)
                self._tell()
                return
        if not part.complete:
            self.discarding = False
        self.onward.append(part)
        left = 0 if part.complete else self.frames.streaming
        if left != self.frame_left:
            self.frame_left = left
            self._tell()

    def split(self, part: Part, count: int) -> Part:
        assert isinstance(part, Sends)
        data = part.data
        key = part.key
        assert key is not None
        cut: i64 = part.start
        for _ in range(count):
            cut += 4 + u32(data, cut)
        head = Sends(data, part.start, cut, key, part.messages, part.size, part.opaques[:count], part.one_way, part.streamed, True)
        head.order = part.order
        part.hand_over(head)
        part.opaques = part.opaques[count:]
        return head

    def refuse(self, part: Part, now: int) -> int:
        assert isinstance(part, Sends)
        if part.one_way:
            self.drop(part)
            return DROPPED
        rule = part.rule
        key = part.key
        assert key is not None
        code = SYSTEM_BUSY if rule is not None and rule.reply == "system_busy" else FLOW_CONTROL
        frames = build_refusals(part.opaques, code, remark(key.text, part.wait_ns))
        if part.complete:
            self._say(frames)
        else:
            self.last_words = frames
            self.discarding = True
        return REFUSED

    def drop(self, part: Part) -> bool:
        """Always possible; a client that waits for an answer sees its own timeout, which is what a rule that says `drop` asks for."""
        if not part.complete:
            self.last_words = b""
            self.discarding = True
        return True

    def hold(self, part: Part, due: int) -> bool:
        return self._wait(part, due, blocking=False)

    def block(self, part: Part, due: int) -> bool:
        return self._wait(part, due, blocking=True)

    def _wait(self, part: Part, due: int, *, blocking: bool) -> bool:
        assert isinstance(part, Sends)
        if part.streamed or self.hang_up:
            return False
        self.waiting.hold(part, due, blocking=blocking)
        self._tell()
        return True

    def close(self, part: Part) -> int:
        """The connection is closed without an answer; so fail the client's other requests on it, as when a broker stops."""
        key = part.key
        assert key is not None
        rule = "" if part.rule is None else part.rule.name
        whose = key.text if part.level is None else part.level.whose()
        self.hang_up = self.hang_up or f"{whose} is over its limit (rule {rule})"
        if not part.complete:
            self.last_words = b""
            self.discarding = True
        return REFUSED

    def take_due(self, now: int, room: int) -> list[Part]:
        """Those of one key in the order they came, the paid ones behind them included; settle them before anything decoded later."""
        if self.frame_left:
            return []
        taken: list[Part] = list(self.waiting.take_due(now, room))
        self._tell()
        return taken

    def abandon(self) -> list[Part]:
        parts: list[Part] = list(self.waiting.abandon())
        self._tell()
        return parts

    def _say(self, frames: bytes) -> None:
        if frames:
            self.replies.add(frames)
            self._tell()

    def _tell(self) -> None:
        """Keep the numbers others read. Replies that wait for the end of a broker's frame count as held, or a client could pile them up."""
        waiting = self.waiting
        self.held_bytes = waiting.bytes + self.replies.waiting_bytes
        self.held_messages = waiting.messages
        self.blocking = waiting.blocking
        self.next_due = NEVER if self.frame_left else waiting.next_due

    # ---- broker to client ------------------------------------------------------------------------------------------

    def relay(self, data: bytes, out: list[bytes]) -> None:
        self.replies.relay(data, out)
        self._tell()

    def take_replies(self) -> bytes:
        taken = self.replies.take()
        if taken:
            self._tell()
        return taken

    # ---- the end ---------------------------------------------------------------------------------------------------

    def rules_changed(self) -> None:
        self.origin = self.circumstances.judge.own(self.origin, self.circumstances.connection)
        self.frames.ask_as(self.origin)

    def settled(self) -> bool:
        """Always: requests that wait for an answer are not counted, long polls would never settle. Wait for a quiet broker instead."""
        return True

    def ended(self) -> None:
        if not self.released:
            self.released = True
            self.circumstances.judge.release(self.origin)

    def waits_for(self) -> Part | None:
        for queue in self.waiting.queues.values():
            if queue[0].rule is not None:
                return queue[0]
        return None

    def describe(self) -> dict[str, object]:
        return {
            "language": self.frames.language or None,
            "version": self.frames.version if self.frames.version >= 0 else None,
            "held": self.waiting.messages,
        }

    def __repr__(self) -> str:
        return (
            f"<RocketmqConversation {self.circumstances.client} {self.frames.language or '?'} held={self.waiting.messages}"
            f" streaming={self.frames.streaming} {self.replies}>"
        )
