"""RocketMQ remoting, as the gateway must understand it (`docs/design/rocketmq.md` 1 to 4).

Requests and answers are matched by `opaque`, not by order. So there is one ordering key and no state between requests: a send can be
refused, or wait, while the others pass.

    client's bytes ── Frames ──► parts ──► (verdicts) ──► outbox ── Outstanding
                                            │ hold: HeldSends, Polls    refuse: build_refusals, empty_answer    paged: PagedQueue
    client ◄──────────── BrokerStream ◄─────┴───────────────────── broker's bytes

* Sends and consumer send-backs become `Sends`, one part per run of like ones; pulls and pops become `Poll` (see `polls.py`).
  Everything else passes, known or not, unread.
* The broker's stream is passed on at once; only its frames' heads are looked at: where a reply may be put, what is answered, whether the
  broker says that it is overloaded; and, in the answers to polls, how many messages there are.
"""

from __future__ import annotations

from typing import Any, Final

from mypy_extensions import i64

from common.octets import u32
from gateway.pipeline.context import ConversationContext
from gateway.pipeline.conversation import DROPPED, REFUSED, UNABLE, Conversation
from gateway.pipeline.empties import NO_ITEMS
from gateway.pipeline.errors import ProtocolError
from gateway.pipeline.parts import BODY, REQUEST, Part
from gateway.protocols.rocketmq.broker_stream import BrokerStream
from gateway.protocols.rocketmq.frames import Frames
from gateway.protocols.rocketmq.goodbye import build_go_away, build_unavailable, understands
from gateway.protocols.rocketmq.held_sends import HeldSends
from gateway.protocols.rocketmq.membership import leave_groups
from gateway.protocols.rocketmq.mixed_sends import MixedSends
from gateway.protocols.rocketmq.outstanding import Outstanding
from gateway.protocols.rocketmq.polls.polls import Polls
from gateway.protocols.rocketmq.question import QUESTION, STATEMENT
from gateway.protocols.rocketmq.refusals import (
    MESSAGE_ILLEGAL,
    NOTHING_REFUSES,
    SILENCE_REFUSES,
    build_format,
    build_refusals,
    explain,
    explain_unfit,
    what_refuses_send_back,
)
from gateway.protocols.rocketmq.requests import GatewayRequest, Poll, RejectedRequest, Sends
from gateway.protocols.rocketmq.traceparents import traceparents
from limiter.operations import PRODUCE
from limiter.rules.rule import FIT

KEEP_ALIVE_NS: Final = 30_000_000_000  # between two questions to the broker of a client that is gone: a client's own heartbeat has as much


class RocketmqConversation(Conversation):
    """One RocketMQ client and its broker."""

    def __init__(self, context: ConversationContext) -> None:
        super().__init__(context)
        self.outstanding = Outstanding(self.reports.endings)
        self.polls = Polls(self.outstanding)
        self.polls.queues.broker = context.broker_id
        self.frames = Frames(context, self.polls)
        self.need = self.frames.need
        self.has_close_frames = False
        self.knows_answers = True
        self.answers_all = False  # until a Java client has said that it is one
        self.discarding = False  # the rest of a large frame is thrown away
        self.pending_reply = b""  # the reply to it, for when the last of it is in
        self.held_sends = HeldSends(context, self.budget, self.reports, self.polls, self.pass_on)
        self.lines = self.held_sends
        self.broker_stream = BrokerStream(self.outstanding)

    # ---- client to broker ------------------------------------------------------------------------------------------

    def decode(self, data: bytes, start: int, room: int, parts: list[Part]) -> int:
        frames = self.frames
        before = len(parts)
        try:
            position = frames.decode(data, start, room, parts)
        except ProtocolError:
            if len(parts) == before:
                raise
            self.need = 1  # requests before the fault pass first; the next call meets the fault again
            return frames.at
        finally:
            if frames.mixed is not None:
                frames.end_mixed()
        self.need = frames.need
        self.user = frames.user
        self.answers_all = frames.language == "JAVA"  # of the others nobody knows which are one-way (`docs/design/rocketmq.md` 1.4)
        self.handshake_done = self.handshake_done or len(parts) > before
        return position

    # ---- verdicts --------------------------------------------------------------------------------------------------

    def admit(self, part: Part) -> None:
        if part.columns is not None and (self.held_sends.by_name or self.reports.close_reason):
            for piece in part.cut():
                assert isinstance(piece, Part)
                piece.passed = piece.count
                self.admit(piece)
        elif self.held_sends.by_name:
            self.held_sends.admit(part)
        else:
            self.pass_on(part)

    def pass_on(self, part: Part) -> None:
        """`part` is the next of its line, and goes on."""
        if self.reports.close_reason:  # the client will take it for failed
            if part.kind == REQUEST:
                self.held_sends.end_wait(part)
                self.reports.give_up(part)
            return
        if part.kind == BODY:
            if self.discarding:
                if part.complete:
                    self._reply(self.pending_reply)
                    self.pending_reply = b""
                return
        elif isinstance(part, Poll):
            self.polls.send(part)
            self._update_budget()
            if self.asks_broker and self.lines.holds_close():  # nobody would get its messages; what it has reserved comes back
                return
        elif part.columns is not None:
            if not part.unanswered:
                self.outstanding.count_requests(part.count)
        elif part.kind == REQUEST:
            assert isinstance(part, Sends)
            self.held_sends.end_wait(part)
            part.copies = None  # which are not counted as copies
            if not part.one_way:
                self.outstanding.count_requests(part.count)
                if part.flight is not None:
                    self.outstanding.track_sends(part.flight, part.opaques)
            else:
                part.release_slots(self.reports.endings)
        elif isinstance(part, GatewayRequest):
            if self.frames.rejects_requests:
                self._reject(part)
            else:
                self.reports.ask_gateway(part)
                self.pending_gateway_requests += 1
            return
        elif isinstance(part, RejectedRequest):
            self._reply(part.reply)
            return
        elif part.count:
            self.outstanding.count_requests(part.count)
        if not part.complete:
            self.discarding = False
        self.outbox.append(part)
        left = 0 if part.complete else self.frames.streaming
        if left != self.budget.frame_left:
            self.budget.frame_left = left
            self._update_budget()

    def split(self, part: Part, count: int) -> Part:
        assert isinstance(part, Sends)
        data = part.data
        key = part.key
        assert key is not None
        cut: i64 = part.start
        for _ in range(count):
            cut += 4 + u32(data, cut)
        head = Sends(data, part.start, cut, key, part.messages, part.size, part.opaques[:count], part.one_way, part.streamed, True)
        head.send_backs = part.send_backs
        part.split_into(head)
        part.opaques = part.opaques[count:]
        self.held_sends.count_split(part)
        return head

    def refuse(self, part: Part) -> int:
        if isinstance(part, Poll):
            self._reply(self.polls.answer_empty(part))
            self._update_budget()
            return REFUSED
        assert isinstance(part, Sends)
        rule = part.rule
        if part.one_way:
            if part.only_waits() and self.held_sends.may_wait(part):
                return UNABLE
            self.drop(part)
            return DROPPED
        if part.send_backs:
            taken = what_refuses_send_back(self.frames.language, self.frames.version)
            if taken == NOTHING_REFUSES and not self.reports.close_reason:
                return UNABLE
            if taken == SILENCE_REFUSES:
                self.held_sends.let_go(part)
                return REFUSED
        key = part.key
        assert key is not None
        code, text = explain(key, rule, part.wait_ns)
        if part.unfit != FIT and rule is not None:
            code, text = MESSAGE_ILLEGAL, explain_unfit(part.size, rule)
        frames = build_refusals(part.opaques, code, text)
        self.held_sends.let_go(part)
        if part.complete:
            self._reply(frames)
        else:
            self.pending_reply = frames
            self.discarding = True
        return REFUSED

    def settle_rows(self, part: Part) -> bool:
        columns = part.columns
        assert columns is not None
        if part.unanswered or self.held_sends.by_name or self.reports.close_reason:
            return False
        assert isinstance(part, MixedSends)
        formats = [build_format(*explain(each.of_key.key, each.rule, each.wait_ns)) for each in columns.refusals]
        self._reply(part.settle(formats, self.outbox))
        if part.count:
            self.pass_on(part)
        return True

    def drop(self, part: Part) -> bool:
        """Always possible. A client that waits for an answer sees its own timeout, as a rule that says `drop` wants it."""
        self.held_sends.let_go(part)
        if not part.complete:
            self.pending_reply = b""
            self.discarding = True
        return True

    def close(self, part: Part) -> int:
        """The connection is closed without an answer; so fail the client's other requests on it, as when a broker stops."""
        key = part.key
        assert key is not None
        rule = "" if part.rule is None else part.rule.name
        whose = key.text if part.bucket is None else part.bucket.owner_text()
        self.reports.close_reason = self.reports.close_reason or f"{whose} is over its limit (rule {rule})"
        self.held_sends.let_go(part)
        if not part.complete:
            self.pending_reply = b""
            self.discarding = True
        return REFUSED

    def traceparents(self, part: Part, most: int) -> list[bytes]:
        published = isinstance(part, Sends) and not part.send_backs and part.key is not None and part.key.operation == PRODUCE
        return traceparents(part.data, part.start, part.end, most) if published else []

    def answer(self, frames: bytes) -> None:
        self.pending_gateway_requests -= 1
        self._reply(frames)

    def _reply(self, frames: bytes) -> None:
        if frames:
            self.broker_stream.add(frames)
            self._update_budget()

    def _update_budget(self) -> None:
        """Write what counts against the connection. Replies that wait for the end of a broker's frame count, or a client could pile them
        up."""
        self.budget.reply_bytes = self.broker_stream.reply_bytes
        self.held_sends.update_polls()

    # ---- broker to client ------------------------------------------------------------------------------------------

    def broker_unfinished(self) -> int:
        return len(self.broker_stream.head)

    def relay(self, data: bytes, out: list[bytes]) -> None:
        broker_stream = self.broker_stream
        outstanding = self.outstanding
        reply_bytes = broker_stream.reply_bytes
        broker_stream.relay(data, out)
        if outstanding.unread:
            outstanding.unread = False
            self.reports.unread = True
            self.reports.busy = self.reports.busy + outstanding.busy
            self.reports.delivered = self.reports.delivered + self.polls.delivered
            outstanding.busy = self.polls.delivered = NO_ITEMS
            self._update_budget()
        elif broker_stream.reply_bytes != reply_bytes:
            self._update_budget()

    def ask(self, now: int) -> list[Part]:
        """Not deliveries, which are never kept here, but what is to be settled for those that have passed."""
        parts = self.polls.ask(now)
        self._update_budget()
        return parts

    def take_replies(self) -> bytes:
        taken = self.broker_stream.take()
        if taken:
            self._update_budget()
        return taken

    def needs_ticks(self) -> bool:
        return len(self.outstanding.sends) > 0

    def tick(self, now: int) -> bool:
        if self.outstanding.sends:
            self.outstanding.release_late_slots(now)
        return False

    def release_all_slots(self) -> None:
        self.outstanding.release_all_slots()

    # ---- the end ---------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        if not self.asks_broker:
            self.asks_broker = True
            self.heartbeat_ns = KEEP_ALIVE_NS
            self.reports.abandoned = [*self.reports.abandoned, *self.polls.held.abandon()]
            self.reports.unread = True
            self.outstanding.drop_watchers()
            self._update_budget()

    def has_farewells(self) -> bool:
        return self.asks_broker and not self.frames.left

    def take_farewells(self, *, quiet: bool) -> bytes:
        frames = self.frames
        if self.budget.frame_left or not quiet:  # a heartbeat that is with the judge would make it a member again
            return b""
        frames.left = True
        heartbeat, frames.heartbeat = frames.heartbeat, b""
        return leave_groups(heartbeat, frames.language, frames.version)

    def heartbeat(self) -> bytes:
        """The broker closes a connection on which nothing is said for 120 s, and this one may wait for longer. Any answer to the question
        shows that it lives; a living client would get that answer."""
        if self.budget.frame_left or self.draining:
            return b""
        return QUESTION.send if self.asks_broker else STATEMENT

    def renew_keys(self) -> None:
        self.frames.renew_keys()

    def settled(self) -> bool:
        """Whether everything is answered, to the end, but polls, which the broker may keep for half a minute."""
        return self.outstanding.settled() and self.pending_gateway_requests == 0 and self.broker_stream.at_boundary()

    def is_polling(self) -> bool:
        return len(self.outstanding.polls) > 0 or self.polls.held.count > 0

    def begin_graceful_close(self) -> None:
        self.rejects_requests = understands(self.frames.language, self.frames.version)
        self.frames.rejects_requests = self.rejects_requests

    def end_graceful_close(self) -> bytes:
        """Polls, out or held, are answered, so that they are repeated soon: a client that sees only the end waits for up to 30 s."""
        held = self.polls.held.abandon()
        opaques = [*self.outstanding.polls, *[poll.opaque for poll in held]]
        words = b""
        if opaques:
            self._reply(build_go_away(opaques) if self.rejects_requests else build_unavailable(opaques))
            words = self.take_replies()
        self.reports.abandoned = [*self.reports.abandoned, *held]
        self.reports.unread = True
        self.outstanding.drop_watchers()
        self.rejects_requests = False
        self.frames.rejects_requests = True
        self._update_budget()
        return words

    def _reject(self, part: GatewayRequest) -> None:
        self.rejected_after_drain += 1
        if self.rejects_requests and not part.one_way:
            self._reply(build_go_away([part.opaque]))

    def end(self) -> None:
        super().end()
        self.frames.origins.release()

    def describe(self) -> dict[str, Any]:
        return {
            "language": self.frames.language or None,
            "version": self.frames.version if self.frames.version >= 0 else None,
            "held": self.budget.held_messages,
            "held_polls": self.polls.held.count,
            "limited_polls": self.polls.limited,
            "empty_polls": self.polls.empty,
        }

    def __repr__(self) -> str:
        return (
            f"<RocketmqConversation {self.context.client} {self.frames.language or '?'} held={self.budget.held_messages}"
            f" streaming={self.frames.streaming} {self.broker_stream}>"
        )
