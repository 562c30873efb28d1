"""The AMQP 0-9-1 conversation: what each of its parts does, in the order in which the session asks for it.

`ClientStream` cuts the client's bytes into parts, and `Settling` decides what becomes of a part. The broker's bytes pass through
`BrokerStream`, deliveries that a rule limits by way of `Deliveries`. All of them know the channels (`AmqpChannel`). Here is what concerns
the connection as a whole: its handshake, its heartbeats, its end, and what operators see of it.

Frames of the gateway's own go out at frame boundaries only, on either side.
"""

from __future__ import annotations

from typing import Any

from gateway.admission import UNKNOWN_USER, RefusedError
from gateway.pipeline.context import ConversationContext
from gateway.pipeline.conversation import Conversation
from gateway.pipeline.empties import NO_ITEMS
from gateway.pipeline.errors import ProtocolError
from gateway.pipeline.parts import Part
from gateway.pipeline.reports import FULL_FOR_USER, ROOM, SAMPLED
from gateway.protocols.amqp.broker_methods import BrokerMethods
from gateway.protocols.amqp.broker_stream import BrokerStream
from gateway.protocols.amqp.channel import AWAITS_BODY, AmqpChannel
from gateway.protocols.amqp.channel_states import CLIENT_CLOSED, PASSING
from gateway.protocols.amqp.client_stream import ClientStream
from gateway.protocols.amqp.deliveries.deliveries import Deliveries
from gateway.protocols.amqp.frames import (
    CONNECTION_FORCED,
    HEARTBEAT_FRAME,
    NOT_ALLOWED,
    PROTOCOL_HEADER,
    REPLY_SUCCESS,
    client_error,
    connection_close,
)
from gateway.protocols.amqp.handshake import Handshake
from gateway.protocols.amqp.held_parts import HeldParts
from gateway.protocols.amqp.rejection import Rejection
from gateway.protocols.amqp.settling import Settling
from gateway.protocols.amqp.traceparents import traceparents
from limiter.limits import NEVER
from limiter.operations import PRODUCE


class AmqpConversation(Conversation):
    """One AMQP client and its broker."""

    __deletable__ = ("settling",)

    def __init__(self, context: ConversationContext) -> None:
        super().__init__(context)
        self.channels: dict[int, AmqpChannel] = {}
        self.handshake = Handshake(context.max_frame, context.certificate_user, lends_certificate=context.lends_certificate)
        self.deliveries = Deliveries(context.judge, self.budget, self.reports, context.connection, self.channels)
        self.client_stream = ClientStream(context, self.channels, self.handshake, self.deliveries)
        self.broker_stream = BrokerStream(self.channels, self.handshake, self.deliveries)
        self.held_parts = HeldParts(context, self.budget, self.reports, self.client_stream, self.broker_stream)
        self.lines = self.held_parts
        self.settling = Settling(self, self.channels, self.handshake, self.broker_stream, self.held_parts)
        self.knows_answers = True
        self._over = False
        self._counted = False  # for its user
        self._broker_started = False  # it has answered as a broker that speaks 0-9-1 does
        self._rejection: Rejection | None = None

    # ---- client to broker ------------------------------------------------------------------------------------------

    def decode(self, data: bytes, start: int, room: int, parts: list[Part]) -> int:
        stream = self.client_stream
        try:
            position = stream.decode(data, start, room, parts)
            if not self.handshake_done:
                self._notice_handshake()
                self._wait_for_open()
        except ProtocolError:
            if not self.handshake_done:
                parts.clear()  # who is not let in has nothing that goes on
            raise
        if stream.closing and not self.broker_stream.methods.connection_closed:
            self.leaves = True
            self.leave()
        self.need = stream.need
        self.user = self.handshake.user
        self.heartbeat_ns = self.handshake.heartbeat_ns
        return position

    def admit(self, part: Part) -> None:
        self.settling.admit(part)

    def split(self, part: Part, count: int) -> Part:
        return self.held_parts.split(part, count)

    def refuse(self, part: Part) -> int:
        return self.settling.refuse(part)

    def settle_rows(self, part: Part) -> bool:
        return self.settling.settle_rows(part)

    def close(self, part: Part) -> int:
        return self.settling.close(part)

    def drop(self, part: Part) -> bool:
        return self.settling.drop(part)

    def ask(self, now: int) -> list[Part]:
        return self.deliveries.verdicts.ask(now)

    def deliver(self, now: int) -> None:
        self.deliveries.verdicts.settle(now)

    def traceparents(self, part: Part, most: int) -> list[bytes]:
        if part.key is None or part.key.operation != PRODUCE:
            return []
        return traceparents(part.data, part.start, part.end, most)

    def abandon(self) -> list[Part]:
        self.deliveries.ends.end_by_client()
        parts = self.reports.abandoned + self.held_parts.forget_all()
        self.reports.abandoned = NO_ITEMS
        return parts

    def heartbeat(self) -> bytes:
        if self.budget.frame_left or not self.handshake.tuned or self.draining or self.close_said or self.heartbeat_ns == NEVER:
            return b""
        return HEARTBEAT_FRAME

    def heartbeat_to_client(self) -> bytes:
        stream = self.broker_stream
        if stream.frame_left or stream.opaque or stream.methods.connection_closed or not self.handshake.tuned or self.draining:
            return b""
        return HEARTBEAT_FRAME

    def _notice_handshake(self) -> None:
        """Count the client for its user once it is authenticated and asks for its virtual host; notice the handshake's end.

        Raises ProtocolError where the user has too many connections: at the place and with the code of RabbitMQ's own limit.
        """
        handshake = self.handshake
        if self.client_stream.opaque:
            self.broker_stream.opaque = True
            self.knows_answers = False
            self.handshake_done = True
            return
        if handshake.authenticated and handshake.vhost is not None and not self._counted:
            self._counted = True
            permit = self.context.permit
            if permit is not None:
                try:
                    permit.take_user(handshake.user or UNKNOWN_USER)
                except RefusedError as error:
                    self.reports.report_full(FULL_FOR_USER)
                    raise client_error(NOT_ALLOWED, str(error), error.cause) from None
        self.heartbeat_ns = handshake.heartbeat_ns
        self.handshake_done = handshake.opened
        if handshake.opened:
            self.client_stream.methods.begin()

    def _wait_for_open(self) -> None:
        """What a client sends for its channels is not looked at before the broker has let it in: it costs nothing and names nothing."""
        stream = self.client_stream
        waits = (stream.waits_for_open and not self.handshake.opened) or (stream.waits_for_tune and not self.handshake.authenticated)
        waits = waits and not self.broker_stream.methods.connection_closed  # the broker has refused: its close-ok is to reach it
        if waits != self.postpones_decoding:
            self.postpones_decoding = waits
            self.budget.blocking += 1 if waits else -1

    # ---- broker to client ------------------------------------------------------------------------------------------

    def relay(self, data: bytes, out: list[bytes]) -> None:
        if self.draining:
            self._hear_close_ok(data)
            return
        if not self._broker_started and self._is_version_answer(data):
            return
        stream = self.broker_stream
        try:
            stream.relay(data, out)
            if not self.handshake_done:
                self._notice_handshake()
                self._wait_for_open()
        except ProtocolError as error:
            error.last_frames = b"".join(out) + (error.last_frames if stream.frame_left == 0 else b"")
            out.clear()
            self._note_close_ok()
            raise
        if stream.methods.blocked != self.reports.broker_blocked:
            self.reports.set_blocked(stream.methods.blocked_reason, blocked=stream.methods.blocked)
            if self.reports.broker_blocked:
                self._report_busy()
        if self.reports.sample == SAMPLED:
            self.reports.set_sample(self.settling.sampler.look())
        methods = stream.methods
        if methods.closed or methods.crossed or methods.finished or methods.full != ROOM or methods.connection_closed:
            self._end_channels(methods)
        if self.awaits_close_ok:
            self._note_close_ok()

    def _note_close_ok(self) -> None:
        self.awaits_close_ok = self.awaits_close_ok and not self.broker_stream.methods.closed_in_words

    def _report_busy(self) -> None:
        """The broker takes no more publishes for now: those it has not confirmed are reported as met by a busy broker."""
        for channel in self.channels.values():
            confirms = channel.confirms
            if confirms is not None and confirms.slots is not None:
                confirms.slots.report_busy()

    def release_all_slots(self) -> None:
        for channel in self.channels.values():
            channel.release_all_slots()

    def _end_channels(self, methods: BrokerMethods) -> None:
        """Channels that the broker has closed, or agreed to close."""
        if methods.connection_closed:
            self.client_stream.closing = True
        if methods.full != ROOM:
            self.reports.report_full(methods.full)
            methods.full = ROOM
        for channel in methods.closed:
            self.settling.lose(channel)
        for channel in methods.crossed:
            self.settling.channel_closes.cross(channel)
        for channel in methods.finished:
            self.settling.channel_closes.finish(channel)
        methods.closed = methods.crossed = methods.finished = NO_ITEMS

    def _is_version_answer(self, data: bytes) -> bool:
        """Whether the broker answers with its protocol header, as if it spoke another version: RabbitMQ's answer to a PROXY header it does
        not expect. It closes after that."""
        if data == PROTOCOL_HEADER and not self.client_stream.opaque:
            return True
        self._broker_started = True
        return False

    def needs_ticks(self) -> bool:
        return self.broker_stream.replies.notices.gateway_blocks

    def tick(self, now: int) -> bool:
        notices = self.broker_stream.replies.notices
        notices.tick(blocked=self.budget.blocking > 0 or self.memory_starved)
        return notices.pending

    def take_replies(self) -> bytes:
        if self.draining:
            return b""
        if self.memory_starved:
            self.broker_stream.replies.notices.block("low on memory")
        taken = self.broker_stream.take_replies()
        self.budget.reply_bytes = self.broker_stream.replies.reply_bytes
        return taken

    # ---- the end ---------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        if not self.deliveries.leaving.everything:
            self.deliveries.leaving.leave_all(self.channels, self.handshake.most_channels())
            self.deliveries.ends.end_by_client()

    def take_farewells(self, *, quiet: bool) -> bytes:
        if quiet and self.client_gone:
            self.held_parts.drop_operations()
        if self.budget.frame_left or self.close_said or self.draining:
            return b""
        words = self.deliveries.leaving.take_words(quiet=quiet)
        if self.held_parts.dropped:
            self.held_parts.end_dropped()
        return words

    def has_farewells(self) -> bool:
        leaving = self.deliveries.leaving
        if leaving.everything and self.client_gone and self.held_parts.operation_lines():
            return True
        return len(leaving.channels) > 0 or (leaving.exclusive.channel is not None and leaving.exclusive.waiting())

    def is_stuck(self) -> bool:
        return self.budget.frame_left > 0 or self.deliveries.leaving.stuck()

    def last_frames(self, error: ProtocolError) -> bytes:
        return b"" if self.broker_stream.frame_left else self.take_replies() + error.last_frames

    def last_words(self, reason: str) -> bytes:
        if self.close_said or not self.handshake.opened or self.budget.frame_left or self.client_stream.opaque:
            return b""  # before it is open nothing was forwarded
        self.close_said = True
        self.awaits_close_ok = not self.broker_stream.methods.closed_in_words
        if not self.awaits_close_ok:
            return b""
        self.broker_stream.methods.asked_to_close = True
        return connection_close(REPLY_SUCCESS, reason)

    def _hear_close_ok(self, data: bytes) -> None:
        stream = self.broker_stream
        try:
            stream.relay(data, [])
        except ProtocolError:
            stream.methods.closed_in_words = True  # nobody will find an answer in that
        self._note_close_ok()

    def settled(self) -> bool:
        if self.broker_stream.replies.channels or self.held_parts.holds_close():
            return False
        for channel in self.channels.values():
            confirms = channel.confirms
            if confirms is None or channel.settled_state != PASSING:
                continue
            half_in = 1 if channel.awaits == AWAITS_BODY and not channel.discarding else 0  # which cannot be confirmed
            if confirms.outstanding() > half_in:
                return False
        return True

    def keeps_forgotten(self) -> bool:
        return self.deliveries.lot.keeps_forgotten()

    def take_forgotten(self) -> bytes:
        return b"" if self.broker_stream.frame_left else self.deliveries.ends.lose_all(by_client=False)

    def tell_broker_lost(self, reason: str) -> bytes:
        """Something for an open connection, and where the broker has not even begun. In between, clients read a bare end as the broker's
        answer to wrong credentials.
        """
        stream = self.broker_stream
        if not self._broker_started and not self.client_stream.opaque:
            return self._reject()
        if not self.handshake.opened or stream.frame_left or stream.methods.connection_closed or self.client_stream.closing:
            return b""
        return self.deliveries.ends.lose_all(by_client=False) + connection_close(CONNECTION_FORCED, reason)

    def _reject(self) -> bytes:
        """Reject the client in the broker's place."""
        sent = "v2" if self.context.sends_proxy else "none"
        self.rejection_reason = (
            f"the broker closed before connection.start; does send_proxy_protocol ({sent}) fit the broker's proxy_protocol?"
        )
        self._rejection = Rejection(CONNECTION_FORCED, self.rejection_reason, away=True)
        return self.continue_rejection(PROTOCOL_HEADER) if self.client_stream.greeted else b""

    def continue_rejection(self, data: bytes) -> bytes:
        rejection = self._rejection
        if rejection is None:
            return b""
        answer = rejection.receive(data)
        if rejection.over:
            self.rejection_reason = ""
        return answer

    def broker_unfinished(self) -> int:
        return self.broker_stream.rest_size

    def close_client(self, reason: str) -> bytes:
        stream = self.broker_stream
        if not self.handshake.started or stream.frame_left or stream.methods.connection_closed:
            return b""
        return self.deliveries.ends.lose_all(by_client=False) + stream.take_replies() + connection_close(CONNECTION_FORCED, reason)

    def renew_keys(self) -> None:
        publishes = self.client_stream.publishes
        if publishes.origin is not None:
            publishes.origin = self.context.judge.own(publishes.origin, self.context.connection)
            self.deliveries.consumers.move(publishes.origin)
            self.deliveries.requeues.move()

    def end(self) -> None:
        super().end()
        self.deliveries.end()
        self.client_stream.methods.end()
        origin = self.client_stream.publishes.origin
        if origin is not None and not self._over:
            self.context.judge.release(origin)
        if not self._over:
            del self.settling
        self._over = True

    def describe(self) -> dict[str, Any]:
        handshake = self.handshake
        opened = [channel for channel in self.channels.values() if channel.client_state != CLIENT_CLOSED]
        return {
            "vhost": None if handshake.vhost is None else handshake.vhost.decode("utf-8", "backslashreplace"),
            "client_properties": handshake.properties,
            "channels": len(opened),
            "confirm_channels": len([channel for channel in opened if channel.confirms is not None]),
            "held_channels": self.held_parts.held_channels(),
            "consumers": self.deliveries.consumers.count(),
            "messages_delivered": max(0, self.deliveries.intake.received - self.budget.parked_messages),
            "frame_max": handshake.frame_max,
            "heartbeat": handshake.heartbeat,
        }

    def __repr__(self) -> str:
        return f"<AmqpConversation {self.handshake.vhost!r} channels={len(self.channels)} {self.budget}>"
