"""What is known of a graceful close that has begun (`graceful_close.py`), and what happens meanwhile to what goes to the client."""

from __future__ import annotations

from typing import Final

from gateway.transport.channel import Channel

GATHERING: Final = 0  # answers for the client are kept
PASSING: Final = 1  # they are sent as they come, whether or not some were gathered before
DONE: Final = 2  # the client has its FIN: what the broker still answers is dropped


class GracefulClose:
    """One session's. `phase` says what becomes of answers for the client."""

    def __init__(self, reason: str, cause: str, now: int, leave_ns: int, *, gathering: bool) -> None:
        self.reason = reason
        self.cause = cause
        self.began_at = now
        self.rejections = 0  # `Conversation.rejected_after_drain` when it was last looked at,
        self.rejected_at = now  # and when that had changed
        self.leave_ns = leave_ns  # how long the client is given to leave by itself
        self.phase = GATHERING if gathering else PASSING
        self.gathered: list[bytes] = []
        self.gathered_bytes = 0

    def pass_on(self, client: Channel, out: list[bytes]) -> None:
        """Answers for the client: sent, gathered, or dropped once it has its FIN."""
        if self.phase == DONE:
            return
        for data in out:
            if self.phase == GATHERING:
                self.gathered.append(data)
                self.gathered_bytes += len(data)
            else:
                client.queue(data, 0, len(data))

    def release(self, client: Channel) -> None:
        """Send what was gathered, and gather no more."""
        self.phase = PASSING
        gathered, self.gathered, self.gathered_bytes = self.gathered, [], 0
        self.pass_on(client, gathered)

    def __repr__(self) -> str:
        phase = ("gathering", "passing", "done")[self.phase]
        return f"<GracefulClose {phase} rejections={self.rejections} {self.reason}>"
