"""A RocketMQ name server's clients, as the gateway must understand them (`docs/design/rocketmq.md` 4.1 and 4.2, mode B).

Clients ask a name server where a topic's brokers are and then dial them. Here the answer names listeners of this gateway instead, which
are opened as brokers become known (`ConversationContext.routes`), so clients need nothing but this name server's address.

    client's bytes ── Requests ──► parts ──► outbox            what brokers say (registrations): answered here, never passed on
                          │ PendingRequests: opaque → may its answer hold a route?     over a limit: HeldRequests
    client ◄────────── Answers ◄────────────── name server's bytes

Only what a rule of its operation limits is a request to the judge (routes are `query`). Over the limit it waits, and is refused when its
client would give up; all else passes it by.
"""

from __future__ import annotations

from typing import Final

from gateway.pipeline.context import ConversationContext
from gateway.pipeline.conversation import REFUSED, UNABLE, Conversation
from gateway.pipeline.errors import ProtocolError
from gateway.pipeline.parts import Part
from gateway.protocols.nameserver.answers import Answers
from gateway.protocols.nameserver.held_requests import HeldRequests, LimitedRequest
from gateway.protocols.nameserver.pending_requests import MAX_PENDING_REQUESTS, PendingRequests
from gateway.protocols.nameserver.requests import REGISTRATIONS, Requests
from gateway.protocols.rocketmq.origins import Origins, user_text
from gateway.protocols.rocketmq.refusals import FLOW_CONTROL, SYSTEM_BUSY, build_refusals, remark

NO_PERMISSION: Final = 16
NOT_HERE: Final = (
    "sluice: brokers cannot register through a rewriting name server listener; set namesrvAddr of the broker to the name server itself"
)
TOO_MANY: Final = (
    f"sluice: {MAX_PENDING_REQUESTS} requests of this connection wait for the name server's answer; ask again when some are answered"
)


class NameserverConversation(Conversation):
    """One client of a name server."""

    def __init__(self, context: ConversationContext) -> None:
        super().__init__(context)
        routes = context.routes
        assert routes is not None, "a name server's listener has ports for its brokers"
        self.routes = routes
        self.address = f"{context.client}:{context.client_port}"
        self.pending_requests = PendingRequests()
        self.origins = Origins(context)
        self.requests = Requests(self.pending_requests, context.max_frame, self.origins)
        self.lines = HeldRequests(context, self.budget, self.reports, self.pass_on)
        self.answers = Answers(self.pending_requests, routes, self.address, context.max_frame)
        self.need = self.requests.need
        self.has_close_frames = False  # as in `rocketmq/conversation.py`
        self.knows_answers = True
        self.answers_all = False  # some clients (Go, C++) send one-way requests that do not say that they are

    # ---- client to name server -------------------------------------------------------------------------------------

    def decode(self, data: bytes, start: int, room: int, parts: list[Part]) -> int:
        requests = self.requests
        before = len(parts)
        try:
            position = requests.decode(data, start, room, parts)
        except ProtocolError:
            if len(parts) == before:
                raise
            self.need = 1  # requests before the fault pass first; the next call meets the fault again
            return requests.at
        self.need = requests.need
        if self.budget.frame_left != requests.streaming:
            self.budget.frame_left = requests.streaming
            self.lines.update_due()
        self.user = user_text(next(reversed(self.origins.by_user), b""))
        self.handshake_done = self.handshake_done or requests.version >= 0
        if not requests.swallowing:
            self._answer()
        return position

    def _answer(self) -> None:
        """Tell the client what became of requests that were not passed on, and count them."""
        requests = self.requests
        for code in requests.refused:
            self.routes.note_refusal(code, self.address)
        requests.refused = []
        for opaque, code in requests.unanswered:
            if code in REGISTRATIONS:
                self.answers.add(build_refusals([opaque], NO_PERMISSION, NOT_HERE))
            else:
                self.answers.add(build_refusals([opaque], SYSTEM_BUSY, TOO_MANY))
        requests.unanswered = []
        # Replies wait while a frame of a slow name server passes, and count as held: or a client could pile them up.
        self.budget.reply_bytes = self.answers.waiting_bytes

    def admit(self, part: Part) -> None:
        if self.lines.by_name:
            self.lines.admit(part)
        else:
            self.pass_on(part)

    def pass_on(self, part: Part) -> None:
        """`part` goes on, unless too many of its connection wait for an answer."""
        if isinstance(part, LimitedRequest) and not part.one_way and not self.pending_requests.ask(part.opaque, part.code):
            self.reports.give_up(part)
            self._tell(build_refusals([part.opaque], SYSTEM_BUSY, TOO_MANY))
            return
        self.outbox.append(part)

    def refuse(self, part: Part) -> int:
        assert isinstance(part, LimitedRequest)
        if part.one_way:
            return UNABLE
        key, rule = part.key, part.rule
        assert key is not None
        code = SYSTEM_BUSY if rule is not None and rule.reply == "system_busy" else FLOW_CONTROL
        self._tell(build_refusals([part.opaque], code, remark(key.text or key.operation, part.wait_ns)))
        self.lines.let_go(part)
        return REFUSED

    def _tell(self, frames: bytes) -> None:
        self.answers.add(frames)
        self.budget.reply_bytes = self.answers.waiting_bytes

    # ---- name server to client -------------------------------------------------------------------------------------

    def relay(self, data: bytes, out: list[bytes]) -> None:
        self.answers.relay(data, out)
        self.budget.unanswered_bytes = self.answers.kept_bytes

    def take_replies(self) -> bytes:
        taken = self.answers.take()
        self.budget.reply_bytes = self.answers.waiting_bytes
        return taken

    # ---- the rest --------------------------------------------------------------------------------------------------

    def renew_keys(self) -> None:
        self.origins.renew()

    def settled(self) -> bool:
        return not self.pending_requests.open and self.answers.at_boundary()

    def end(self) -> None:
        super().end()
        self.origins.release()

    def describe(self) -> dict[str, object]:
        return {
            "language": self.requests.language or None,
            "version": self.requests.version if self.requests.version >= 0 else None,
            "unanswered": len(self.pending_requests.open),
            "held": self.budget.held_messages,
        }

    def __repr__(self) -> str:
        return f"<NameserverConversation {self.context.client} {self.requests.language or '?'} {self.pending_requests} {self.answers}>"
