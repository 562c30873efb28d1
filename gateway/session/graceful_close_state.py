"""What is known of a graceful close that has begun (`graceful_close.py`), and what happens meanwhile to what goes to the client."""

from __future__ import annotations

from gateway.transport.channel import Channel


class GracefulClose:
    """One session's. Until its FIN, answers for the client are sent as they come, or gathered."""

    def __init__(self, reason: str, cause: str, now: int, leave_ns: int, *, gathering: bool) -> None:
        self.reason = reason
        self.cause = cause
        self.began_at = now
        self.rejections = 0  # `Conversation.rejected_after_drain` when it was last looked at,
        self.rejected_at = now  # and when that had changed
        self.leave_ns = leave_ns  # how long the client is given to leave by itself
        self.gathering = gathering
        self.gathered: list[bytes] = []
        self.gathered_bytes = 0
        self.over = False  # the client has got its FIN

    def pass_on(self, client: Channel, out: list[bytes]) -> None:
        """Answers for the client: sent, gathered, or dropped once it has its FIN."""
        if self.over:
            return
        for data in out:
            if self.gathering:
                self.gathered.append(data)
                self.gathered_bytes += len(data)
            else:
                client.queue(data, 0, len(data))

    def release(self, client: Channel) -> None:
        """Send what was gathered, and gather no more."""
        self.gathering = False
        gathered, self.gathered, self.gathered_bytes = self.gathered, [], 0
        self.pass_on(client, gathered)

    def __repr__(self) -> str:
        state = "over" if self.over else "gathering" if self.gathering else "rejecting"
        return f"<GracefulClose {state} rejections={self.rejections} {self.reason}>"
