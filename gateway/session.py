"""A session: one client, one broker connection of its own, and the turn it takes in the loop.

The loop calls `turn` when something may have happened, `resume` when the judge has looked at its batch, and after either `settle`. A turn
does a bounded amount of work: at most one read from each side. What the session wants next it leaves in plain attributes: `batch` (to be
submitted to the judge), `again` (call me in the next sweep without waiting), `due` (call me at that time), `over` (take me out).

How the end travels. Each side's FIN reaches the other only after everything that was in flight before it: a batch with the judge, held
parts, backlogs. The naive way, closing both sockets when one read returns nothing, loses the broker's last confirms and
whatever waits for its limit. An error (RST) has nothing to wait for: what is held is abandoned, and counted so.

When is the client not read? While its batch is with the judge, while the credit is used up, while either backlog is above its cap,
while as much is held as `hold_bytes` allows, and while the gateway as a whole holds more than its high watermark. The broker is then
kept from taking the silence for death (`heartbeat`).
"""

from __future__ import annotations

from typing import Final

from gateway.assembly import Place, Shared, assemble
from gateway.channel import Channel
from gateway.messages import NEVER, REQUEST, Part, ProtocolError
from gateway.pipeline import Batch

SHORT_REST: Final = 32768  # bytes; copying them twice costs less than the read itself, however small the reads are
REQUESTS_DUE: Final = 256  # held requests judged again per turn


class Session:
    """One client and its broker connection. See the module's docstring for what the loop reads from it."""

    def __init__(self, number: int, client: Channel, address: tuple[str, int], upstream: Channel, place: Place, shared: Shared) -> None:
        assembly = assemble(shared, place, number, address[0], address[1], upstream)
        self.number = number
        self.place = place
        self.client = client
        self.upstream = upstream
        self.conversation = assembly.conversation
        self.pipeline = assembly.pipeline
        self.decode = assembly.decode
        self.forward = assembly.forward
        self.shared = shared
        self.batch: Batch | None = None  # under way with the judge, or to be submitted by the loop now
        self.again = False
        self.due = NEVER
        self.settled_in = 0  # for the loop: number of the sweep it was last settled in
        self.timed = NEVER  # for the loop: the `due` it has a timer for
        self.over = False
        self.queued = False  # for the loop: already on its list for this sweep
        self.cause = ""  # why it ended: the label of sluice_connections_closed_total
        self.detail = ""  # one line for the log
        self.opened_at = 0
        self.first_end = ""  # whose end came first: "client" or "broker"
        self.first_end_at = 0  # when
        self.draining = False
        self.last_relayed_at = 0
        self.beat_at = 0  # when the broker was sent a heartbeat of ours

    # ---- a turn ----------------------------------------------------------------------------------------------------

    def turn(self, now: int, buffer: memoryview) -> bool:
        """Read and decode what can be read now; True when `batch` is to be submitted to the judge. `buffer` is the loop's one buffer.

        `settle` follows in the same sweep, after the judge's verdicts where they come at once: so everything a sweep has for a peer leaves
        with one system call.
        """
        submit = False
        try:
            self._relay(now, buffer)
            if self.conversation.draining:
                self._discard(buffer)
            elif self.batch is None:
                submit = self._advance(now, buffer)
        except ProtocolError as error:
            self._broken(error, now)
            return False
        return submit

    def resume(self, now: int, verdict_now: int) -> None:
        """The judge has looked at `batch`: carry it on. `settle` follows."""
        batch = self.batch
        assert batch is not None
        self.batch = None
        if self.conversation.draining:  # the farewell was said meanwhile: nothing may follow it
            self._abandon(batch.parts)
            return
        batch.now = max(now, verdict_now)
        try:
            self.pipeline.resume(batch)
        except ProtocolError as error:
            self._broken(error, now)

    def settle(self, now: int) -> None:
        """Send what is to be sent, then say what is wanted next: `again`, `due`, `over`."""
        if self.over:
            return
        self._send(now)
        if self.conversation.abandoned:
            self._abandon(self.conversation.abandoned)
            self.conversation.abandoned = []
        self.due = self.conversation.next_due if self.batch is None else NEVER
        self.again = (self.batch is None and self._wants_client()) or (self.upstream.readable and self._may_relay())
        self._end(now)

    def _may_relay(self) -> bool:
        return not self.upstream.eof and self.client.backlog <= self.shared.backlog_bytes

    def _relay(self, now: int, buffer: memoryview) -> None:
        """One read from the broker, passed on to the client."""
        upstream = self.upstream
        if not upstream.readable or not self._may_relay():
            return
        count = upstream.receive(buffer, 0)
        if count == 0 or self.conversation.draining:  # after the farewell nothing of the broker's goes to the client
            return
        self.last_relayed_at = now
        out: list[bytes] = []
        self.conversation.relay(bytes(buffer[:count]), out)
        client = self.client
        for data in out:
            client.queue(data, 0, len(data))

    def _advance(self, now: int, buffer: memoryview) -> bool:
        """Held parts whose time has come, else one read from the client, into the pipeline; True when the judge is asked."""
        conversation = self.conversation
        if conversation.next_due <= now:
            batch = Batch(self, b"", now)
            batch.parts = conversation.take_due(now, REQUESTS_DUE)
            if batch.parts:
                return self._carry(batch, 1)  # not decoded again
        if not self._wants_client():
            return False
        data = b""
        if self.client.readable and not self.decode.pending:
            data = self._read(buffer)
            if not data:
                return False
        return self._carry(Batch(self, data, now), 0)

    def _read(self, buffer: memoryview) -> bytes:
        """One read of the client's socket, behind the undecoded rest where that is short: one copy then makes the two contiguous."""
        decode = self.decode
        offset = len(decode.rest)
        if offset > SHORT_REST or decode.later_bytes:
            offset = 0
        if offset:
            buffer[:offset] = decode.rest
        left = self.conversation.frame_left
        if left and (self.draining or self._full()):  # only what the broker still lacks of the frame it stands in
            buffer = buffer[: offset + left]
        count = self.client.receive(buffer, offset)
        if count == 0:
            return b""
        if offset:
            decode.rest = b""
        return bytes(buffer[: offset + count])

    def _discard(self, buffer: memoryview) -> None:
        """After the farewell: read the client only to see it close."""
        if self.client.readable:
            self.client.receive(buffer, 0)

    def _carry(self, batch: Batch, first: int) -> bool:
        self.batch = batch
        if self.pipeline.carry(batch, first):
            self.batch = None
            return False
        return True

    def _wants_client(self) -> bool:
        """Whether there is something of the client's to read or decode, and room for it."""
        if self.conversation.draining:
            return self.client.readable
        readable = self.client.readable
        if self.draining and not self.conversation.frame_left:
            readable = readable and self.client.hung_up  # it has finished: what it sent before it went is part of what is in flight
        return (readable or self.decode.pending) and not self.withheld()

    def withheld(self) -> bool:
        """Whether the client is deliberately not read."""
        shared = self.shared
        return (
            self.decode.credit.credit <= 0
            or self.upstream.backlog > shared.backlog_bytes
            or self.client.backlog > shared.backlog_bytes
            or (self._full() and not self.conversation.frame_left)  # what began to flow must end, or nothing held could ever go
        )

    def buffered(self) -> int:
        """All bytes this connection keeps in memory."""
        conversation = self.conversation
        return conversation.held_bytes + conversation.reply_bytes + self.decode.undecoded() + self.upstream.backlog + self.client.backlog

    def _full(self) -> bool:
        """Whether as much is held as may be."""
        held = self.conversation.held_bytes + self.conversation.reply_bytes
        return held >= self.shared.hold_bytes or (self.shared.memory_full and held > 0)

    def _send(self, now: int) -> None:
        client = self.client
        replies = self.conversation.take_replies()
        if replies:
            client.queue(replies, 0, len(replies))
        client.flush(now)
        self.upstream.flush(now)
        self.forward.acknowledge(now)

    # ---- the end ---------------------------------------------------------------------------------------------------

    def _end(self, now: int) -> None:
        """Pass each side's end on when nothing is in flight before it; notice when both are through."""
        client = self.client
        upstream = self.upstream
        if not self.first_end and (client.eof or upstream.eof or client.error is not None or upstream.error is not None):
            self.first_end = "client" if client.eof or client.error is not None else "broker"
            self.first_end_at = now
        if client.error is not None or upstream.error is not None:
            # After an end from either side, a reset of the other is only an end without ceremony.
            self._finish(self.first_end, "" if client.eof or upstream.eof else str(client.error or upstream.error))
            return
        torn = self.conversation.frame_left > 0  # what is held can never go: the frame before it will not end
        if client.eof and self.batch is None and not self.decode.pending and (torn or not self.conversation.holds_close()):
            upstream.shut_down()
        if upstream.eof:
            client.shut_down()
        both = client.eof and upstream.eof and (upstream.backlog == 0 or client.shut)
        # Both are read to their end: closing with unread bytes sends a RST, which overtakes the last words to the client and takes the
        # last messages from the broker.
        if client.backlog == 0 and both:
            self._finish(self.first_end, "")

    def _broken(self, error: ProtocolError, now: int) -> None:
        """A peer broke the protocol: the client gets the protocol's last words, then both sides are closed.

        The client is read to its end before that, or the RST of its unread bytes would overtake the words.
        """
        last_words = error.farewell or self.conversation.take_replies()
        self.client.queue(last_words, 0, len(last_words))
        self.client.flush(now)
        self.cause = self.cause or error.cause
        self.detail = self.detail or str(error)
        if self.batch is not None and self.pipeline.kept_at < 0:  # not with the judge: it was being decoded
            self._abandon(self.batch.parts)
            self.batch = None
        if not error.farewell or self.client.error is not None or self.client.eof:
            self._finish(error.cause, "")
            return
        self.draining = True
        self.conversation.draining = True
        self.first_end_at = now
        self.client.shut_down()
        self.upstream.shut_down()

    def begin_drain(self) -> None:
        """Take no more from the client; what is in flight goes its way."""
        self.draining = True

    def drained(self, now: int, quiet_ns: int) -> bool:
        """Whether nothing is in flight any more: nothing with the judge, held or queued, no answer outstanding.

        Where the protocol does not let us know its answers, the broker must have been quiet for `quiet_ns` since anything went to it.
        """
        unread = self.decode.pending or (self.client.hung_up and self.client.readable)
        return (
            self.batch is None
            and not unread
            and self.conversation.held_messages == 0
            and self.client.backlog == 0
            and self.upstream.backlog == 0
            and self.conversation.settled()
            and (self.conversation.knows_answers() or now - max(self.last_relayed_at, self.upstream.sent_at) >= quiet_ns)
        )

    def say_farewell(self, reason: str, cause: str, now: int) -> None:
        """Tell both sides in their protocol that the gateway closes this connection, then wait for them to close."""
        if self.over or self.conversation.draining:
            return
        self.cause = cause
        self.draining = True
        to_client, to_broker = self.conversation.farewell(reason)
        self.conversation.draining = True
        self.client.queue(to_client, 0, len(to_client))
        self.upstream.queue(to_broker, 0, len(to_broker))
        self.client.flush(now)
        self.upstream.flush(now)
        self.first_end_at = self.first_end_at or now
        if not to_client:
            self.client.shut_down()
        if not to_broker:
            self.upstream.shut_down()

    def abort(self, cause: str, detail: str) -> None:
        """Close at once: the session itself failed, or its time is up."""
        self._finish(cause, detail)

    def _finish(self, cause: str, detail: str) -> None:
        if self.over:
            return
        self.over = True
        self.cause = self.cause or cause
        self.detail = self.detail or detail

    def close(self) -> None:
        """Count what is abandoned, give everything back, close both sockets. Called once, by the loop."""
        conversation = self.conversation
        parts = conversation.abandon()
        if self.batch is not None:
            parts.extend(self.batch.parts)
            self.batch = None
        self._abandon(parts)
        conversation.ended()
        self.client.close()
        self.upstream.close()

    def _abandon(self, parts: list[Part]) -> None:
        for part in parts:
            key = part.key
            if part.kind == REQUEST and key is not None:
                if not key.dirty:
                    self.shared.accounts.note(key)
                key.tally.abandoned += part.count * part.messages

    def __repr__(self) -> str:
        state = "over" if self.over else "draining" if self.draining else "open"
        return f"<Session {self.number} {state} {self.place.protocol} client={self.client} upstream={self.upstream}>"
