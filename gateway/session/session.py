"""A session: one client, one broker connection of its own, and the turn it takes in the loop.

The loop calls `turn` when something may have happened, `resume` when the judge has looked at its batch, and after either `settle`. A turn
does a bounded amount of work: at most one read from each side. What the session wants next it leaves in plain attributes: `batch` (to be
submitted to the judge), `again` (call it in the next sweep without waiting), `due` (call it at that time), `state` (OVER: take it out).
How it comes to its end is in `states.py` and `ending.py`.

When is the client not read? While its batch is with the judge, while the credit is used up, while either backlog is above its cap,
while as much is held as `hold_bytes` allows, while something is held that blocks it (action `block`), while the gateway as a whole
holds more than its high watermark, and while another process is about to take over. The gateway then sends the heartbeats that the broker
expects (`heartbeats.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64, u8

from gateway.clock import now_ns
from gateway.pipeline.actions.holding import REJUDGE_WITHIN_NS
from gateway.pipeline.conversation import Conversation
from gateway.pipeline.deliveries import LimitDeliveries
from gateway.pipeline.empties import NO_ITEMS
from gateway.pipeline.handlers.decode import Decode
from gateway.pipeline.handlers.forward import Forward
from gateway.pipeline.message_spans import MessageSpans
from gateway.pipeline.parts import REQUEST, Part, pieces_of
from gateway.pipeline.pipeline import Batch, Pipeline
from gateway.pipeline.reports import ROOM
from gateway.session.broker_flow import FlowWatch
from gateway.session.heartbeats import Heartbeats
from gateway.session.listener_config import ListenerConfig
from gateway.session.shared import Shared
from gateway.session.states import CLOSING, DRAINING, OPEN, OVER, STEPS
from gateway.transport.channel import Channel
from gateway.transport.channel_states import READ_EOF
from gateway.waiting.stage import Wait
from limiter.algorithms.slots import GIVEN_UP
from limiter.limits import NEVER

if TYPE_CHECKING:
    from gateway.admission import ConnectionPermit
    from gateway.session.graceful_close_state import GracefulClose

LARGE_FRAME_BYTES: Final = 65_536  # of an unfinished frame that is worth stopping its connection for: less are a read's odds and ends
SCARCE_READ_BYTES: Final = (
    16_384  # of one read of the broker's while too much waits for the listener's clients: some progress for those that read
)
MAX_DUE_PER_TURN: Final = 256  # held requests judged again per turn (a guess)
# Delay between the last delivery and connection.close: pika discards undelivered messages on close; 1 s is a guess
CLOSE_DELAY_NS: Final = 1_000_000_000


class Stages:
    """What one session's bytes pass through; `gateway/assembly.py` makes it."""

    def __init__(
        self,
        conversation: Conversation,
        decode: Decode,
        wait: Wait,
        forward: Forward,
        pipeline: Pipeline,
        deliveries: LimitDeliveries,
        spans: MessageSpans | None = None,
    ) -> None:
        self.conversation = conversation
        self.decode = decode
        self.wait = wait
        self.forward = forward
        self.pipeline = pipeline
        self.deliveries = deliveries
        self.spans = spans


class Session:
    """One client and its broker connection. See the module's docstring for what the loop reads from it."""

    def __init__(
        self,
        number: int,
        client: Channel,
        upstream: Channel,
        config: ListenerConfig,
        shared: Shared,
        stages: Stages,
        permit: ConnectionPermit | None = None,
    ) -> None:
        # What every turn looks at comes first. Compiled, attributes lie in this order, and with some hundred sessions a turn misses the
        # cache as often as what it looks at has lines of 64 bytes. A test holds the order (`test_attribute_order.py`).
        self.conversation = stages.conversation
        self.budget = stages.conversation.budget
        self.reports = stages.conversation.reports
        self.client = client
        self.upstream = upstream
        self.shared = shared
        self.deliveries = stages.deliveries
        self.batch: Batch | None = None  # under way with the judge, or to be submitted by the loop now
        self.graceful_close: GracefulClose | None = None  # one has begun; its protocol has no close frame
        self.forward = stages.forward
        self.again = False
        self.state: u8 = OPEN
        self.queued = False  # for the loop: already on its list for this sweep
        self.client_silent = False  # for too long: nothing more of it is waited for, its end included
        self.broker_silent = False
        self.decode = stages.decode
        self.pipeline = stages.pipeline
        self.freed = 0  # requests in flight that have ended since something held was judged again: there may be room for it now
        self.due = NEVER
        self.timed = NEVER  # for the loop: the `due` it has a timer for
        self.settled_in = 0  # for the loop: number of the sweep it was last settled in
        self.idle_until = 0  # for the loop: when there is something to do here next (`deadlines.quiet_until`); 0: something has happened
        self.first_end = ""  # which side ended first: "client" or "broker"
        self.first_end_at = 0  # when
        self.gone_at = 0  # since when the client is gone, or has said that it closes, and nothing is consumed for it; 0: it is there
        self.frame_due = 0  # by when the frame that the client has begun must have gone on; 0: none is under way
        self.frame_began = 0  # the client's bytes before it, by which it is known
        self.frame_received = 0  # the client's bytes when it was last found to have gone on
        self.full_due = 0  # by when an unfinished frame must be finished, or memory be less; 0: memory is not full
        self.idle_bytes = 0  # what `buffered` said when it became idle
        self.permit = permit
        self.number = number
        self.listener_config = config
        self.cause = ""  # why it ended: the label of sluice_connections_closed_total
        self.detail = ""  # one line for the log
        self.opened_at = 0
        self.close_due = NEVER  # when to send the protocol's close for the reason in `detail`, see `ending.close_gracefully`
        self.forgotten_at = -CLOSE_DELAY_NS  # when `drained` last saw something waiting here that the broker has forgotten
        self.heartbeats = Heartbeats(self.conversation, client, upstream)
        self.flow = FlowWatch(config.flow, self.conversation, upstream)
        self.spans = stages.spans  # None: nothing is traced
        self.wait = stages.wait

    # ---- a turn ----------------------------------------------------------------------------------------------------

    def turn(self, now: int, buffer: memoryview) -> bool:
        """Read and decode what can be read now; True when `batch` is to be submitted to the judge. `buffer` is the loop's one buffer.

        `settle` follows in the same sweep, after the judge's verdicts where they come at once: so everything a sweep has for a peer leaves
        with one system call. Raises ProtocolError (see `ending.fail_on_protocol_error`).
        """
        self._relay(now, buffer)
        if self.reports.endings:
            self.end_in_flight(now)
        if self.state >= CLOSING:
            self._discard(buffer)
            return False
        return self.batch is None and self._advance(now, buffer)

    def resume(self, now: int, verdict_now: int) -> None:
        """The judge has looked at `batch`: carry it on. `settle` follows. Raises ProtocolError."""
        batch = self.batch
        assert batch is not None
        self.batch = None
        if self.state >= CLOSING:  # the last bytes are queued by now: nothing may follow them
            self.abandon(batch.parts)
            return
        batch.now = max(now, verdict_now)
        self.pipeline.resume(batch)

    def resume_deliveries(self, now: int, verdict_now: int) -> None:
        """The judge has looked at deliveries: those that pass leave with `settle`, which follows."""
        self.deliveries.resume(max(now, verdict_now))

    def settle(self, now: int) -> None:
        """Send what is to be sent, then set what is wanted next: `again`, `due`, `state`."""
        if self.state == OVER:
            return
        if self.reports.unread and self.reports.gateway_requests:
            self._hand_over_gateway_requests()
        self._send(now)
        if self.reports.unread:
            self._take_reports(now)
        if self.reports.endings:
            self.end_in_flight(now)
        self.due = self._next_due()
        self.again = (self.batch is None and (self.freed > 0 or self._wants_client())) or (self.upstream.readable and self.reads_broker())

    def _next_due(self) -> int:
        """When there will be something to do without a byte from either side; NEVER while the judge has it, and after the close was sent.

        A time in the past would make the loop spin until there is something to do.
        """
        if self.state >= CLOSING:
            return NEVER
        held_due = self.budget.next_due
        if held_due < NEVER and (self.batch is not None or self.disk_waits_for_broker()):
            held_due = NEVER
        return min(held_due, self.budget.ask_due if self.deliveries.batch is None else NEVER)

    def _take_reports(self, now: int) -> None:
        """Act on what the conversation reports."""
        reports = self.reports
        reports.unread = False
        if reports.full != ROOM:
            if self.shared.make_room is not None:
                self.shared.make_room(self)
            reports.full = ROOM
        if reports.abandoned:
            self.abandon(reports.abandoned)
            reports.abandoned = NO_ITEMS
        if reports.delivered:
            self.deliveries.count(now)
        self.flow.observe(now)

    def _hand_over_gateway_requests(self) -> None:
        """Hand over what the client asks of the gateway itself; the answers come later (`Conversation.answer`)."""
        take = self.shared.take_gateway_request
        assert take is not None, "a listener that takes gateway requests has a handler for them"
        gateway_requests = self.reports.gateway_requests
        self.reports.gateway_requests = NO_ITEMS
        for request in gateway_requests:
            take(self, request)

    def reads_broker(self) -> bool:
        """Whether the broker's bytes are read as they come."""
        full = self.listener_config.deliveries_full
        if self.upstream.read_state == READ_EOF:
            return False
        if self.client.backlog > (0 if full else self.shared.backlog_bytes):
            return self.state >= CLOSING  # nothing of it is kept then, and its end ends the session
        return self.deliveries.may_read(memory_full=full, last_words=self.upstream.hangup_pending)

    def _relay(self, now: int, buffer: memoryview) -> None:
        """One read from the broker, passed on to the client."""
        upstream = self.upstream
        if not upstream.readable or not self.reads_broker():
            return
        conversation = self.conversation
        most: i64 = len(buffer)
        if self.budget.parked_bytes:
            most = self.deliveries.read_bytes(len(buffer))
        if self.listener_config.deliveries_full:
            most = min(most, SCARCE_READ_BYTES)
        data = upstream.read(most, buffer)
        self.shared.unchecked_bytes += len(data)
        if not data:
            return
        if self.state >= CLOSING:  # then nothing more of the broker's goes to the client
            if conversation.awaits_close_ok:
                conversation.relay(data, [])
            return
        upstream.received_at = now
        upstream.heard.channel = upstream
        out: list[bytes] = []
        conversation.relay(data, out)
        client = self.client
        if self.graceful_close is not None:
            self.graceful_close.pass_on(client, out)
            return
        for data in out:
            client.queue(data, 0, len(data))

    def _advance(self, now: int, buffer: memoryview) -> bool:
        """Held parts whose time has come, else one read from the client, into the pipeline; True when the judge is asked."""
        conversation = self.conversation
        freed = self.freed
        self.freed = 0
        soon = now if freed == 0 else now + REJUDGE_WITHIN_NS
        budget = self.budget
        if budget.next_due <= soon and not self.disk_waits_for_broker():
            batch = Batch(self, b"", now)
            if budget.next_due <= now:
                batch.parts = conversation.lines.take_due(now, MAX_DUE_PER_TURN)
            else:  # before its time: all that is held is due within REJUDGE_WITHIN_NS
                batch.parts = conversation.lines.take_due(soon, freed)
            if batch.parts:
                return self._carry(batch, 1)  # not decoded again
        if not self._wants_client():
            return False
        data = b""
        if self.client.readable and not self.decode.pending:
            data = self._read(now, buffer)
            if not data:
                return False
        return self._carry(Batch(self, data, now), 0)

    def _read(self, now: int, buffer: memoryview) -> bytes:
        """One read of the client's socket."""
        most: i64 = len(buffer)
        left = self.budget.frame_left
        if left and (self.state == DRAINING or self._full()):  # only what the broker still lacks of the frame it stands in
            most = min(most, left)
        data = self.client.read(most, buffer)
        if data:
            self.client.received_at = now
            self.shared.unchecked_bytes += len(data)
        return data

    def _discard(self, buffer: memoryview) -> None:
        """After the last bytes: read the client only to see it close, or to go on telling it why it was rejected."""
        if not self.client.readable:
            return
        data = self.client.read(len(buffer), buffer)
        if data and self.conversation.rejection_reason:
            answer = self.conversation.continue_rejection(data)
            self.client.queue(answer, 0, len(answer))

    def _carry(self, batch: Batch, first: int) -> bool:
        self.batch = batch
        if self.pipeline.carry(batch, first):
            self.batch = None
            return False
        return True

    def _wants_client(self) -> bool:
        """Whether there is something of the client's to read or decode, and room for it."""
        if self.state >= CLOSING:
            return self.client.readable
        readable = self.client.readable
        if self.state == DRAINING and not self.budget.frame_left:
            readable = readable and self.client.hangup_pending  # what it sent before it hung up is part of what is in flight
        return (readable or self.decode.pending) and not self.withheld()

    def withheld(self) -> bool:
        """Whether the client is deliberately not read."""
        shared = self.shared
        return (
            self.decode.credit.credit <= 0
            or self.forward.credit.credit <= 0
            or self.upstream.backlog > shared.credit_bytes
            or (not self.budget.frame_left and (self._full() or self.client.backlog > shared.backlog_bytes))
        )  # a frame that has begun to flow must end, or neither what is held nor a heartbeat could ever be sent

    def buffered(self) -> int:
        """All bytes this connection keeps in memory."""
        return self.bytes_from_client() + self.bytes_for_client()

    def bytes_from_client(self) -> int:
        """What the client has sent and is still here, the answers to it included: it is less when the client is not read."""
        budget = self.budget
        return budget.held_bytes + budget.reply_bytes + budget.unanswered_bytes + self.decode.undecoded() + self.upstream.backlog

    def bytes_for_client(self) -> int:
        """What the broker has sent and is still here: it is less when the broker is not read."""
        return self.budget.parked_bytes + self.client.backlog + self.conversation.broker_unfinished()

    def _full(self) -> bool:
        """Whether as much is held as may be, or something that blocks the client, or none is read."""
        if self.shared.standing_still and self.conversation.handshake_done:
            return True
        budget = self.budget
        pending = self.decode.pending  # whole frames that were read leave memory by going on alone
        if budget.blocking > (1 if pending and self.budget.held_back else 0):
            return True
        held = budget.held_bytes + budget.reply_bytes
        if self.shared.memory_full:  # a large frame that has begun since then waits for its place (`memory_watermark.py`)
            return held > 0 or (not pending and self.full_due == 0 and self.decode.undecoded() >= LARGE_FRAME_BYTES)
        if budget.paging_bytes > 0 and self._disk_over():
            return True
        return held >= self.shared.hold_bytes + (self._disk_allowance() if budget.paged_queues else 0)

    def _disk_over(self) -> bool:
        """Whether the disk's queues have more in memory than it should: what is on its way to the disk goes first."""
        disk = self.shared.disk
        return disk is not None and disk.paging.over()

    def _disk_allowance(self) -> int:
        """Bytes in memory that queues of the disk may have beyond `hold_bytes`: what is about to leave, what is about to be written."""
        disk = self.shared.disk
        return 0 if disk is None else 3 * self.budget.paged_queues * disk.share()

    def disk_waits_for_broker(self) -> bool:
        """Whether what comes from the disk waits because the broker does not take it: or memory would fill."""
        return self.budget.paged_queues > 0 and (self.upstream.backlog > self.shared.credit_bytes or self.forward.credit.credit <= 0)

    def disk_full(self) -> bool:
        """Whether the client is not read because the disk does not take what it sends fast enough, or not at all."""
        return self.budget.paged_queues > 0 and self._full()

    def _send(self, now: int) -> None:
        client = self.client
        self.conversation.memory_starved = self.shared.memory_full and (self.budget.held_back or self._full())
        replies = self.conversation.take_replies()
        if replies:
            if self.graceful_close is not None:
                self.graceful_close.pass_on(client, [replies])
            else:
                client.queue(replies, 0, len(replies))
        client.flush(now)
        self.upstream.flush(now)
        self.forward.acknowledge(now)

    def end_in_flight(self, now: int) -> None:
        """Tell the judge which requests in flight have ended; something held here may have waited for that."""
        ended = self.reports.endings
        if self.budget.next_due < NEVER:
            for ending in ended:
                self.freed += ending.count
        self.shared.judge.free_slots(ended.copy(), now)
        ended.clear()

    def give_up(self, batch: Batch) -> None:
        """The judge has looked at `batch` after this session was over, or has failed on it: what passed goes nowhere."""
        for part in pieces_of(batch.requests):
            part.release_slots(self.reports.endings)
        self._release_all_slots()

    def _release_all_slots(self) -> None:
        ended = self.reports.endings
        for ending in ended:
            ending.outcome = GIVEN_UP
        if ended:
            self.end_in_flight(0)

    # ---- the end ---------------------------------------------------------------------------------------------------

    def begin_drain(self) -> None:
        """Take no more from the client; what is in flight goes its way."""
        if self.state == OPEN:
            self.become(DRAINING)

    def become(self, state: u8) -> None:
        assert state in STEPS[self.state], f"a session in state {self.state} cannot become {state}"
        self.state = state

    def drained(self, now: int, quiet_ns: int) -> bool:
        """Whether nothing is in flight any more: nothing with the judge, held or queued, no answer outstanding.

        Where the protocol does not let us know its answers, the broker must have been quiet for `quiet_ns` since anything went to it.
        Deliveries that wait here may be lost if the broker still has them; if not, they must be with the client, for CLOSE_DELAY_NS.
        """
        if self.conversation.keeps_forgotten():
            self.forgotten_at = now
            return False
        unread = self.decode.pending or (self.client.hangup_pending and self.client.readable)
        conversation = self.conversation
        quiet = now - max(self.upstream.received_at, self.upstream.sent_at) >= quiet_ns
        answered = (conversation.knows_answers or quiet) if conversation.settled() else (quiet and not conversation.answers_all)
        return (
            self.batch is None
            and not unread
            and self.budget.held_messages == 0
            and self.conversation.pending_gateway_requests == 0
            and self.budget.frame_left == 0
            and self.client.backlog == 0
            and self.upstream.backlog == 0
            and answered
            and now - self.forgotten_at >= CLOSE_DELAY_NS
        )

    def abort(self, cause: str, detail: str) -> None:
        """Close at once: the session itself failed, or its deadline has passed."""
        self.finish(cause, detail)

    def finish(self, cause: str, detail: str) -> None:
        """The session is over. A cause and a detail that were set before stay."""
        if self.state == OVER:
            return
        self.become(OVER)
        self.cause = self.cause or cause
        self.detail = self.detail or detail

    def close(self) -> None:
        """Count what is abandoned, give everything back, and close both sockets whatever else may fail. Called once, by the loop."""
        try:
            if self.permit is not None:
                self.permit.release()  # first, whatever else may fail
            self._count_abandoned()
        finally:
            self._give_back()

    def _give_back(self) -> None:
        try:
            self.conversation.release_all_slots()
            self._release_all_slots()
            self.conversation.end()
        finally:
            try:
                self.client.close()
            finally:
                self.upstream.close()

    def _count_abandoned(self) -> None:
        conversation = self.conversation
        parts = conversation.abandon()
        if self.batch is not None:
            parts.extend(self.batch.parts)
            self.batch = None
        self.deliveries.batch = None
        self.deliveries.count(self.upstream.received_at)
        self.abandon(parts)
        accounts = self.shared.accounts
        self.forward.acknowledge(now_ns())
        accounts.unsent += self.forward.unsent + self.forward.lost
        if conversation.awaits_close_ok:
            accounts.unanswered += 1
        if self.spans is not None:
            self.spans.close()

    def abandon(self, parts: list[Part]) -> None:
        """Count the messages of `parts` as abandoned."""
        for part in pieces_of(parts):
            key = part.key
            if part.columns is not None:  # the judge may have it at this moment: it is not cut here
                for of_key in part.columns.sums:
                    self.shared.accounts.tally_of(of_key.key).abandoned += of_key.count
                if self.spans is not None:
                    for piece in part.make_pieces():
                        assert isinstance(piece, Part)
                        self.spans.give_up(piece)
                continue
            part.release_slots(self.reports.endings)
            self.conversation.lines.end_wait(part)  # the judge had it
            if part.kind == REQUEST and key is not None:
                self.shared.accounts.tally_of(key).abandoned += part.count * part.messages
                if self.spans is not None:
                    self.spans.give_up(part)

    def __repr__(self) -> str:
        state = ("open", "half closed", "draining", "closing", "over")[self.state]
        return f"<Session {self.number} {state} {self.listener_config.protocol} client={self.client} upstream={self.upstream}>"
