"""A RocketMQ name server's clients, as the gateway must understand them (`docs/design/rocketmq.md` 4.1 and 4.2, mode B).

Clients ask a name server where a topic's brokers are and then dial them. Here the answer names listeners of this gateway instead, which
are opened as brokers become known (`ConversationContext.routes`), so clients need nothing but this name server's address.

    client's bytes ── Requests ──► parts ──► outbox            what brokers say (registrations): answered here, never passed on
                          │ PendingRequests: opaque → may its answer hold a route?
    client ◄────────── Answers ◄────────────── name server's bytes

Nothing is limited here: requests cost a name server little, and clients repeat them every 30 s. So no part is a request to the judge, and
nothing is ever held.
"""

from __future__ import annotations

from typing import Final

from gateway.pipeline.context import ConversationContext
from gateway.pipeline.conversation import Conversation
from gateway.pipeline.errors import ProtocolError
from gateway.pipeline.parts import Part
from gateway.protocols.nameserver.answers import Answers
from gateway.protocols.nameserver.pending_requests import MAX_PENDING_REQUESTS, PendingRequests
from gateway.protocols.nameserver.requests import REGISTRATIONS, Requests
from gateway.protocols.rocketmq.refusals import SYSTEM_BUSY, build_refusals

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
        self.requests = Requests(self.pending_requests, context.max_frame)
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
        self.budget.frame_left = requests.streaming
        self.handshake_done = self.handshake_done or requests.version >= 0
        if not requests.swallowing:
            self._answer()
        return position

    def _answer(self) -> None:
        """Tell the client what became of requests that were not passed on, and count them."""
        requests = self.requests
        for code in requests.refused:
            self.routes.refused(code, self.address)
        requests.refused = []
        for opaque, code in requests.unanswered:
            if code in REGISTRATIONS:
                self.answers.add(build_refusals([opaque], NO_PERMISSION, NOT_HERE))
            else:
                self.answers.add(build_refusals([opaque], SYSTEM_BUSY, TOO_MANY))
        requests.unanswered = []
        # Replies wait while a frame of a slow name server passes, and count as held: or a client could pile them up.
        self.budget.held_bytes = self.answers.waiting_bytes

    def admit(self, part: Part) -> None:
        self.outbox.append(part)

    # ---- name server to client -------------------------------------------------------------------------------------

    def relay(self, data: bytes, out: list[bytes]) -> None:
        self.answers.relay(data, out)
        self.budget.unanswered_bytes = self.answers.kept_bytes

    def take_replies(self) -> bytes:
        taken = self.answers.take()
        self.budget.held_bytes = self.answers.waiting_bytes
        return taken

    # ---- the rest --------------------------------------------------------------------------------------------------

    def rules_changed(self) -> None:
        """No rule is about name servers."""

    def settled(self) -> bool:
        return not self.pending_requests.open and self.answers.at_boundary()

    def ended(self) -> None:
        """Nothing was taken from the judge."""

    def describe(self) -> dict[str, object]:
        return {
            "language": self.requests.language or None,
            "version": self.requests.version if self.requests.version >= 0 else None,
            "unanswered": len(self.pending_requests.open),
        }

    def __repr__(self) -> str:
        return f"<NameserverConversation {self.context.client} {self.requests.language or '?'} {self.pending_requests} {self.answers}>"
