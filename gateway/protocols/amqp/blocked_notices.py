"""connection.blocked and connection.unblocked: the broker's word and the gateway's own, merged.

A client must never see two `blocked` in a row, nor `unblocked` while somebody still blocks. So: blocked = the broker or the gateway says
so, and only transitions are said. Clients that did not declare the capability are told nothing, as RabbitMQ does it (`docs/design/amqp.md`
1.5).

The gateway's own word begins at once and ends late: a connection under a limit blocks and unblocks with every message that passes,
perhaps hundreds of times a second, and each notice costs a client a callback and a line in its log. So `unblocked` is said when nothing was
blocked for a whole tick (0.25 to 0.5 s).
"""

from __future__ import annotations

from gateway.protocols.amqp.frames import CONNECTION_BLOCKED, CONNECTION_UNBLOCKED, method_frame, short_string
from gateway.protocols.amqp.handshake import Handshake


class BlockedNotices:
    """What one client has been told about being blocked."""

    __slots__ = ("broker", "gateway", "handshake", "lately", "news", "reason", "told")

    def __init__(self, handshake: Handshake) -> None:
        self.handshake = handshake  # knows whether the client declared the capability
        self.broker = False  # the broker's last word
        self.gateway = False  # the gateway's own
        self.lately = False  # something was blocked since the last tick
        self.told = False  # what the client believes
        self.news = False  # there may be something to say
        self.reason = ""

    def block(self, reason: str) -> None:
        """The gateway stops reading this client; `reason` is what the client reads."""
        self.lately = True
        if not self.gateway and self.handshake.takes_blocked and self.handshake.opened:
            self.gateway = True
            self.reason = reason
            self.news = True

    def tick(self, *, blocked: bool) -> None:
        """A few times a second: take the gateway's word back once nothing was blocked since the last tick."""
        if blocked:
            return
        if self.lately:
            self.lately = False
        elif self.gateway:
            self.gateway = False
            self.news = True

    def broker_says(self, *, blocked: bool) -> bool:
        """The broker's own notice has come: whether it goes to the client. Whoever is blocked by the gateway stays blocked."""
        self.broker = blocked
        if self.gateway and self.told:
            return False
        self.told = blocked
        return True

    def take(self) -> bytes:
        """The notice the client is to be sent now, or b""."""
        self.news = False
        wanted = self.broker or self.gateway
        if wanted == self.told:
            return b""
        self.told = wanted
        if wanted:
            return method_frame(0, CONNECTION_BLOCKED, short_string(self.reason.encode()))
        return method_frame(0, CONNECTION_UNBLOCKED, b"")

    def __repr__(self) -> str:
        return f"<BlockedNotices told={self.told} broker={self.broker} gateway={self.gateway}>"
