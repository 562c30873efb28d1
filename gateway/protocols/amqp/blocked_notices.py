"""connection.blocked and connection.unblocked: the broker's and the gateway's own, merged.

A client must never see two `blocked` in a row, nor `unblocked` while somebody still blocks. So a client is blocked while the broker or the
gateway blocks it, and only changes are sent. Clients that did not declare the capability are sent nothing, as RabbitMQ does it
(`docs/design/amqp.md` 1.5).

The gateway blocks at once and unblocks late. A connection under a limit blocks and unblocks with every message that passes, perhaps
hundreds of times a second, and each notice costs a client a callback and a line in its log. So `unblocked` is sent when nothing was blocked
for a whole tick (0.25 to 0.5 s).
"""

from __future__ import annotations

from gateway.protocols.amqp.frames import CONNECTION_BLOCKED, CONNECTION_UNBLOCKED, method_frame, short_string
from gateway.protocols.amqp.handshake import Handshake


class BlockedNotices:
    """The notices of one client."""

    __slots__ = ("blocked_lately", "broker_blocks", "client_blocked", "gateway_blocks", "handshake", "pending", "reason")

    def __init__(self, handshake: Handshake) -> None:
        self.handshake = handshake  # knows whether the client declared the capability
        self.broker_blocks = False  # by its last notice
        self.gateway_blocks = False
        self.blocked_lately = False  # something was blocked since the last tick
        self.client_blocked = False  # by the last notice it was sent
        self.pending = False  # there may be a notice to send
        self.reason = ""

    def block(self, reason: str) -> None:
        """The gateway stops reading this client; `reason` is what the client reads."""
        self.blocked_lately = True
        if not self.gateway_blocks and self.handshake.takes_blocked and self.handshake.opened:
            self.gateway_blocks = True
            self.reason = reason
            self.pending = True

    def tick(self, *, blocked: bool) -> None:
        """A few times a second: unblock once nothing was blocked since the last tick."""
        if blocked:
            return
        if self.blocked_lately:
            self.blocked_lately = False
        elif self.gateway_blocks:
            self.gateway_blocks = False
            self.pending = True

    def take_broker_notice(self, *, blocked: bool) -> bool:
        """The broker's own notice has come: whether it goes to the client. A client that the gateway blocks stays blocked."""
        self.broker_blocks = blocked
        if self.gateway_blocks and self.client_blocked:
            return False
        self.client_blocked = blocked
        return True

    def take(self) -> bytes:
        """The notice the client is to be sent now, or b""."""
        self.pending = False
        wanted = self.broker_blocks or self.gateway_blocks
        if wanted == self.client_blocked:
            return b""
        self.client_blocked = wanted
        if wanted:
            return method_frame(0, CONNECTION_BLOCKED, short_string(self.reason.encode()))
        return method_frame(0, CONNECTION_UNBLOCKED, b"")

    def __repr__(self) -> str:
        return f"<BlockedNotices client_blocked={self.client_blocked} broker={self.broker_blocks} gateway={self.gateway_blocks}>"
