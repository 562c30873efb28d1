"""RocketMQ remoting, as the gateway must understand it (`docs/design/rocketmq.md` 1 to 4).

Requests and answers are matched by `opaque`, not by order. So there is one ordering key and no state between requests: a send can be
refused, or wait, while the others pass.

    client's bytes ── Frames ──► parts ──► (verdicts) ──► outbox ── Outstanding
                                            │ hold: HeldSends, Polls    refuse: build_refusals, empty_answer    spool: SpoolQueue
    client ◄──────────── BrokerStream ◄─────┴───────────────────── broker's bytes

* Sends and consumer send-backs become `Sends`, one part per run of like ones; pulls and pops become `Poll` (see `polls.py`).
  Everything else passes, known or not, unread.
* The broker's stream is passed on at once; only its frames' heads are looked at: where a reply may be put, what is answered, whether the
  broker says that it is overloaded; and, in the answers to polls, how many messages there are.
"""

from __future__ import annotations

import random
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from gateway.pipeline.conversation import DROPPED, REFUSED, UNABLE, Conversation, ConversationContext
from gateway.pipeline.errors import ProtocolError
from gateway.pipeline.parts import BODY, REQUEST, Part
from gateway.pipeline.spool_orders import COPYING, GIVE_UP, SpoolCopy, SpoolOrder
from gateway.protocols.octets import u32
from gateway.protocols.rocketmq.accepted_sends import Acceptances, accepts_now, questions_of
from gateway.protocols.rocketmq.broker_stream import BrokerStream
from gateway.protocols.rocketmq.frames import Frames
from gateway.protocols.rocketmq.goodbye import build_go_away, build_unavailable, understands
from gateway.protocols.rocketmq.held_sends import HeldSends, count, held_cost
from gateway.protocols.rocketmq.outstanding import Outstanding
from gateway.protocols.rocketmq.polls.polls import Polls
from gateway.protocols.rocketmq.refusals import (
    FLOW_CONTROL,
    NOTHING_REFUSES,
    SILENCE_REFUSES,
    SYSTEM_BUSY,
    build_refusals,
    remark,
    what_refuses_send_back,
)
from gateway.protocols.rocketmq.requests import GatewayRequest, Poll, RejectedRequest, Sends
from gateway.protocols.rocketmq.spool_copy import SendsCopy
from gateway.protocols.rocketmq.traceparents import traceparents
from gateway.spool.queue import ENDLESS, SpoolQueue
from gateway.spool.queue_copy import WaitingPart
from gateway.spool.records import BATCH, RECORD
from limiter.keys import Key
from limiter.limits import NEVER
from limiter.protocols import ROCKETMQ

if TYPE_CHECKING:
    from gateway.spool.disk import SpoolDisk

OPAQUE_BYTES: Final = 11  # characters of the gateway's own opaques
PATIENCE_NS: Final = 2_500_000_000  # clients give a request up after 3 s (docs/design/limiter.md 4)


class RocketmqConversation(Conversation):
    """One RocketMQ client and its broker."""

    def __init__(self, context: ConversationContext) -> None:
        super().__init__(context)
        self.outstanding = Outstanding(self.reports.endings)
        self.polls = Polls(self.outstanding)
        self.frames = Frames(context, self.polls)
        self.need = self.frames.need
        self.patience_ns = PATIENCE_NS
        self.has_close_frames = False
        self.discarding = False  # the rest of a large frame is thrown away
        self.pending_reply = b""  # the reply to it, for when the last of it is in
        self.held_sends = HeldSends()
        self.held_bytes = 0  # of what is held here, as the budget has it; what the spool has in memory comes to it there
        self.acceptances: Acceptances | None = None  # once a rule lets the gateway answer sends
        self.waiting_accepted = 0  # messages of accepted sends that are not forwarded yet
        self.unmarked_queues: list[SpoolQueue] = []  # with durable messages that the broker's machine may not have yet
        self.uncommitted: deque[tuple[SpoolQueue, int, bytes]] = deque()  # answers that wait until the disk has what they are for
        self.damage = ""  # why the rest of a topic's spool is lost
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
        self.need = frames.need
        self.user = frames.user
        self.handshake_done = self.handshake_done or len(parts) > before
        return position

    # ---- verdicts --------------------------------------------------------------------------------------------------

    def admit(self, part: Part) -> None:
        if self.close_reason:  # the client will take it for failed
            if part.kind == REQUEST:
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
        elif part.kind == REQUEST:
            assert isinstance(part, Sends)
            if self.held_sends.lines and not part.streamed and self.held_sends.goes_behind(part):
                self.held_sends.hold_behind(part, paid=not part.requeue_without_slots(self.reports.endings))
                self._update_budget()
                return
            if not part.one_way:
                self.outstanding.count_requests(part.count)
                if part.flight is not None:
                    self.outstanding.track_sends(part.flight, part.opaques)
                if part.accepted:
                    assert part.key is not None
                    self.waiting_accepted -= 0 if part.durable else part.count * part.messages
                    self.outstanding.track_accepted(part.key, part.opaques, part.messages, durable=part.durable)
            else:
                part.release_slots(self.reports.endings)
            self.held_sends.settle(part)
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
        if left != self.frame_left:
            self.frame_left = left
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
        head.order = part.order
        head.accepted = part.accepted
        head.counted = part.counted
        head.durable = part.durable
        part.split_into(head)
        part.opaques = part.opaques[count:]
        return head

    def refuse(self, part: Part) -> int:
        if isinstance(part, Poll):
            self._reply(self.polls.answer_empty(part))
            self._update_budget()
            return REFUSED
        assert isinstance(part, Sends)
        if part.accepted and not self.close_reason:
            return UNABLE  # its client believes that it is safe
        if part.one_way or part.accepted:
            self.drop(part)
            return DROPPED
        if part.send_backs:
            taken = what_refuses_send_back(self.frames.language, self.frames.version)
            if taken == NOTHING_REFUSES and not self.close_reason:
                return UNABLE
            if taken == SILENCE_REFUSES:
                return REFUSED
        rule = part.rule
        key = part.key
        assert key is not None
        code = SYSTEM_BUSY if rule is not None and rule.reply == "system_busy" else FLOW_CONTROL
        frames = build_refusals(part.opaques, code, remark(key.text, part.wait_ns))
        self.held_sends.settle(part)
        if part.complete:
            self._reply(frames)
        else:
            self.pending_reply = frames
            self.discarding = True
        return REFUSED

    def drop(self, part: Part) -> bool:
        """Always possible. A client that waits for an answer sees its own timeout, as a rule that says `drop` wants it.

        A replay has none, and is refused.
        """
        if self.patient and isinstance(part, Sends) and not part.one_way:
            assert part.key is not None
            self._reply(build_refusals(part.opaques, FLOW_CONTROL, remark(part.key.text, part.wait_ns)))
        if not part.complete:
            self.pending_reply = b""
            self.discarding = True
        if isinstance(part, Sends) and part.counted:
            assert part.key is not None
            queue = self.held_sends.spooled.get(part.key)
            if queue is not None and part.spool_order is None:  # what an operator gives up is removed already
                queue.remove(part)
            self.held_sends.settle(part)
        if isinstance(part, Sends) and part.accepted:
            messages: int = part.count * part.messages
            self.waiting_accepted -= 0 if part.durable else messages
            if part.spool_order is None:
                self.reports.dropped_accepted += messages
            else:
                self.reports.ordered_accepted += messages
            self.reports.unread = True
        return True

    def patience_with(self, part: Part) -> int:
        assert isinstance(part, Poll)
        terms = part.terms
        assert terms is not None
        return terms.patience_ns

    def hold(self, part: Part, due: int) -> bool:
        if isinstance(part, Poll):
            if self.close_reason:
                return False
            self.polls.hold(part, due)
            self._update_budget()
            return True
        return self._hold_sends(part, due, blocking=False)

    def block(self, part: Part, due: int) -> bool:
        return self._hold_sends(part, due, blocking=True)

    def spool(self, part: Part, due: int) -> bool:
        """One-way sends, and those that the gateway may answer: for all others the answer would come too late (`docs/spooling.md`)."""
        spool = self.context.spool
        if not isinstance(part, Sends) or part.streamed or self.close_reason or spool is None:
            return False
        if self.patient:  # it must not be answered, or written, again
            self.has_spooled = True
            return self._hold_sends(part, due, blocking=False)
        key = part.key
        rule = part.rule
        assert key is not None
        assert rule is not None
        queue = self.held_sends.spooled.get(key)
        accepts = rule.answer == "accepted_by_gateway"
        if queue is not None:
            queue.accepts = accepts
        if not part.one_way and not part.accepted:
            if part.counted:  # it has passed, and waited for a slot behind what is spooled: it is on no disk, and others are behind it
                return False
            if not accepts or spool.trouble or not spool.room_for(written_bytes(part), rule.name, rule.spool_size or ENDLESS):
                return False
            if (queue is not None and (queue.waits_for_room or queue.damage)) or not self._may_accept(part):
                return False
        self.has_spooled = True
        if queue is None:
            queue = self._begin_queue(spool, key)
            queue.accepts = accepts
        queue.take_rule(rule)
        if not part.one_way and not part.accepted:
            self._accept(part, queue)
        if not part.counted:
            part.copy_out()
            count(queue, part)
            queue.write_through(part)
        return self._hold_sends(part, due, blocking=False)

    def _begin_queue(self, spool: SpoolDisk, key: Key) -> SpoolQueue:
        """What waits of `key` from now on. It is durable, where its rule is, unless others waited already: its order would not be known."""
        queue = self.held_sends.resting.pop(key, None)
        if queue is None:
            ready = partial(self._spool_ready, key)
            origin = {
                "listener": self.context.listener,
                "protocol": ROCKETMQ.name,
                "topic": key.text,
                "group": (key.group or b"").decode("utf-8", "backslashreplace"),
            }
            queue = SpoolQueue(
                spool, self.budget, self.context.connection, 0, partial(same_key, key), held_cost, ready, origin, self.unmarked_queues
            )
            queue.on_committed = self._answer_committed
        queue.replays = key not in self.held_sends.lines
        self.held_sends.spooled[key] = queue
        return queue

    def waits_behind(self, part: Part) -> bool:
        if not isinstance(part, Sends) or part.streamed or part.key is None:
            return False
        queue = self.held_sends.spooled.get(part.key)
        if queue is None or part.one_way:
            return queue is not None
        return queue.accepts and accepts_now(part.key) and queue.has_room(part.end - part.start) and self._may_accept(part)

    def _may_accept(self, part: Sends) -> bool:
        """Whether all of `part` are sends that the gateway may answer (`accepted_sends.py`)."""
        if part.send_backs:
            return False
        part.questions = questions_of(part.data, part.start, part.end)
        return part.questions is not None

    def _accept(self, part: Sends, queue: SpoolQueue) -> None:
        """Answer `part`, which comes to `queue` next: now, or once it is on the disk where it is durable."""
        questions = part.questions
        assert questions is not None
        if self.acceptances is None:
            self.acceptances = Acceptances(random.getrandbits(62))
        part.data, part.opaques, answers = self.acceptances.accept(part.data, questions, part.opaques)
        part.start = 0
        part.end = len(part.data)
        part.questions = None
        part.accepted = True
        messages: int = part.count * part.messages
        part.durable = queue.durable and queue.replays
        self.waiting_accepted += 0 if part.durable else messages
        self.reports.accepted += messages
        self.reports.unread = True
        if part.durable:
            self.uncommitted.append((queue, queue.came + part.end, answers))
        else:
            self._reply(answers)

    def _answer_committed(self) -> None:
        """Give the answers to what is on the disk for good by now."""
        still: deque[tuple[SpoolQueue, int, bytes]] = deque()
        answers: list[bytes] = []
        for waiting in self.uncommitted:
            if waiting[0].committed >= waiting[1]:
                answers.append(waiting[2])
            else:
                still.append(waiting)
        self.uncommitted = still
        self._reply(b"".join(answers))

    def would_overtake(self, part: Part) -> bool:
        if not isinstance(part, Sends) or (part.one_way and not part.streamed) or part.key not in self.held_sends.spooled:
            return False
        assert part.key is not None
        line = self.held_sends.lines.get(part.key)
        if line:  # what it would overtake waits for this
            part.rule = line[0].rule
            part.bucket = line[0].bucket
            part.wait_ns = line[0].wait_ns
        return True

    def postpone(self, part: Part, now: int) -> None:
        assert isinstance(part, Sends)
        assert part.key is not None
        queue = self.held_sends.spooled.get(part.key)
        if queue is None or self.close_reason:  # given up meanwhile, or nothing of it will be forwarded
            self.reports.give_up(part)
            return
        if not part.one_way:
            self._accept(part, queue)
        part.deadline = min(now + queue.max_age_ns, NEVER)
        self.held_sends.spool(part)
        self._update_budget()

    def keep(self, part: Part, due: int) -> None:
        assert isinstance(part, Sends)
        if self.close_reason:
            self.reports.give_up(part)
            return
        self.held_sends.hold(part, due, blocking=False)
        self._update_budget()

    def spools(self, part: Part) -> bool:
        return isinstance(part, Sends) and (self.patient or part.key in self.held_sends.spooled)

    def may_be_spooled(self, part: Part) -> bool:
        return isinstance(part, Sends)

    def line_of(self, part: Part) -> object:
        return part.key

    def order_spooled(self, topic: str, state: int, judged: list[Part]) -> list[SpoolOrder]:
        orders: list[SpoolOrder] = []
        for key, queue in self.held_sends.spooled.items():
            if key.text == topic and not (state == GIVE_UP and queue.durable):
                order = SpoolOrder(topic, state)
                self.held_sends.give_order(key, order, judged)
                if order.messages:
                    orders.append(order)
        return orders

    def copy_spooled(self, topic: str, *, only_durable: bool = False) -> list[SpoolCopy]:
        copies: list[SpoolCopy] = []
        for key, queue in self.held_sends.spooled.items():
            if key.text == topic and (queue.durable or not only_durable):
                order = SpoolOrder(topic, COPYING)
                self.held_sends.give_order(key, order, [])
                if order.messages:
                    line = self.held_sends.lines.get(key, ())
                    held = [WaitingPart(part, part, ours=part.spool_order is order) for part in line]
                    copies.append(SendsCopy(order, held, queue, self.context.listener))
        return copies

    def wake_spooled(self, topic: str) -> None:
        self.held_sends.wake(topic)
        self._update_budget()

    def may_expire(self, part: Part) -> bool:
        return isinstance(part, Sends) and (part.one_way or part.accepted) and part.key in self.held_sends.spooled

    def _spool_ready(self, key: Key) -> None:
        """What is next in the key's spool has been read, or is damaged."""
        queue = self.held_sends.spooled.get(key)
        if queue is not None and queue.damage:
            self.damage = self.damage or f"{key.text}: what waited in this gateway's spool cannot be read back: {queue.damage}"
        self.held_sends.emptied.append(key)
        self._update_budget()

    def _hold_sends(self, part: Part, due: int, *, blocking: bool) -> bool:
        assert isinstance(part, Sends)
        if part.streamed or self.close_reason:
            return False
        self.held_sends.hold(part, due, blocking=blocking)
        self._update_budget()
        return True

    def close(self, part: Part) -> int:
        """The connection is closed without an answer; so fail the client's other requests on it, as when a broker stops."""
        key = part.key
        assert key is not None
        rule = "" if part.rule is None else part.rule.name
        whose = key.text if part.bucket is None else part.bucket.owner_text()
        self.close_reason = self.close_reason or f"{whose} is over its limit (rule {rule})"
        if isinstance(part, Sends) and part.accepted:
            self.drop(part)
        if not part.complete:
            self.pending_reply = b""
            self.discarding = True
        return REFUSED

    def take_due(self, now: int, room: int) -> list[Part]:
        """Those of one key in the order they came, the paid ones behind them included; settle them before anything decoded later."""
        if self.damage:
            raise ProtocolError(self.damage, cause="spool_damaged")
        if self.frame_left:
            return []
        taken: list[Part] = list(self.held_sends.take_due(now, room))
        if self.polls.held.due_queue.next_due <= now:
            taken.extend(self.polls.take_due(now, room))
        self._update_budget()
        return taken

    def abandon(self) -> list[Part]:
        parts = self.held_sends.abandon()
        for queue in self.unmarked_queues:
            queue.leave()
        self.unmarked_queues.clear()
        self.uncommitted.clear()
        parts.extend(self.polls.held.abandon())
        self._update_budget()
        return parts

    def traceparents(self, part: Part, most: int) -> list[bytes]:
        return traceparents(part.data, part.start, part.end, most) if isinstance(part, Sends) and not part.send_backs else []

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
        held_sends = self.held_sends
        polls = self.polls
        budget = self.budget
        held_bytes = held_sends.bytes + polls.held.bytes + self.broker_stream.reply_bytes
        budget.held_bytes += held_bytes - self.held_bytes
        self.held_bytes = held_bytes
        budget.held_polls = polls.held.count
        budget.ask_due = polls.ask_due
        budget.held_messages = held_sends.messages + held_sends.spooled_messages
        budget.blocking = held_sends.blocking + (1 if self.held_back else 0)
        budget.next_due = NEVER if self.frame_left else min(held_sends.due_queue.next_due, polls.held.due_queue.next_due)
        if self.damage or (held_sends.emptied and not self.frame_left):
            budget.next_due = 0

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
            self.reports.busy.extend(outstanding.busy)
            outstanding.busy = []
            self.reports.delivered.extend(self.polls.delivered)
            self.polls.delivered = []
            if outstanding.late_refusals:
                self.reports.late_refusals.extend(outstanding.late_refusals)
                outstanding.late_refusals = []
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

    def mark_off(self, queued: int, acknowledged: int, now: int, *, read: bool) -> None:
        for queue in list(self.unmarked_queues):
            queue.mark_off(queued, acknowledged, now, read=read)
            if not queue.unsafe():
                self.unmarked_queues.remove(queue)
        resting = self.held_sends.resting
        for key in list(resting):
            if not resting[key].unsafe():
                del resting[key]

    def needs_ticks(self) -> bool:
        return len(self.outstanding.sends) > 0 or len(self.unmarked_queues) > 0

    def release_late_slots(self, now: int) -> None:
        if self.outstanding.sends:
            self.outstanding.release_late_slots(now)

    def release_all_slots(self) -> None:
        self.outstanding.release_all_slots()

    # ---- the end ---------------------------------------------------------------------------------------------------

    def rules_changed(self) -> None:
        self.frames.rules_changed()

    def settled(self) -> bool:
        """Whether everything is answered, to the end, but polls, which the broker may keep for half a minute."""
        return (
            self.outstanding.settled() and not self.uncommitted and self.pending_gateway_requests == 0 and self.broker_stream.at_boundary()
        )

    def reads_answers(self) -> bool:
        return len(self.outstanding.accepted) > 0

    def lost_accepted(self) -> tuple[int, int]:
        unanswered = self.outstanding.forgotten
        for request in self.outstanding.accepted.values():
            unanswered += 0 if request.durable else request.messages
        return self.waiting_accepted, unanswered

    def knows_answers(self) -> bool:
        return True

    def answers_all(self) -> bool:
        """Only Java clients say which requests are one-way (`docs/design/rocketmq.md` 1.4); of what the others ask, some is never
        answered."""
        return self.frames.language == "JAVA"

    def is_polling(self) -> bool:
        return len(self.outstanding.polls) > 0 or self.polls.held.count > 0

    def be_patient(self) -> None:
        self.patient = True
        self.held_sends.patient = True

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
        self.reports.abandoned.extend(held)
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

    def ended(self) -> None:
        self.frames.origins.release()

    def waits_for(self) -> Part | None:
        for line in self.held_sends.lines.values():
            if line[0].rule is not None:
                return line[0]
        for key, line in self.held_sends.lines.items():
            if key in self.held_sends.spooled:  # an operator keeps it, unjudged
                return line[0]
        return self.polls.held.longest()

    def describe(self) -> dict[str, object]:
        return {
            "language": self.frames.language or None,
            "version": self.frames.version if self.frames.version >= 0 else None,
            "held": self.held_sends.messages + self.held_sends.spooled_messages,
            "held_polls": self.polls.held.count,
            "limited_polls": self.polls.limited,
            "empty_polls": self.polls.empty,
        }

    def __repr__(self) -> str:
        return (
            f"<RocketmqConversation {self.context.client} {self.frames.language or '?'} held={self.held_sends.messages}"
            f" streaming={self.frames.streaming} {self.broker_stream}>"
        )


def written_bytes(part: Sends) -> int:
    """At most so many bytes of a file `part` takes once it is accepted."""
    size: int = part.end - part.start
    return size + BATCH.size + RECORD.size + OPAQUE_BYTES * part.count


def same_key(key: Key, data: bytes) -> Key:
    """The key of what waits in one queue: all of it has the same."""
    return key
