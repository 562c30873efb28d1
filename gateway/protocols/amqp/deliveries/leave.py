"""One channel that leaves its queues (`leaving.py`): what was said of it, and what has shown itself since."""

from __future__ import annotations

from common.octets import u64
from gateway.protocols.amqp.channel_states import OF_GATEWAY
from gateway.protocols.amqp.frames import BASIC_CONSUME_OK, BASIC_DELIVER, read_short_string


class Leave:
    """Of one channel. It ends with the channel's close."""

    __slots__ = ("begun", "cancelled", "first", "given_back", "late", "recovering", "tag", "tags")

    def __init__(self) -> None:
        self.first = b""  # what the gateway had to say on the channel before (`broker_requests.py`)
        self.begun = False  # the consumers that were known at first are cancelled
        self.tags: list[bytes] = []  # consumers that have shown themselves, and are not cancelled yet
        self.cancelled: set[bytes] = set()
        self.given_back = False  # what was delivered before is given back
        self.recovering = False  # by a basic.recover that is not answered yet: it covers what comes until then
        self.late: list[int] = []  # delivery tags that came after that, to be given back one by one
        self.tag = 0  # one of these, if it is not of a stream: its header is still to come

    def arrive(self, method: int, data: bytes, pos: int, *, to_be_settled: bool) -> None:
        """The delivery, or basic.get-ok, whose method frame is at `data[pos]` has come, and is swallowed.

        `to_be_settled`: the broker waits for its acknowledgement, as far as is known.
        """
        at = pos + 11
        if method == BASIC_DELIVER:
            name, at = read_short_string(data, at)
            if name not in self.cancelled:
                self.tags.append(name)
        if self.given_back and not self.recovering and to_be_settled:
            self.tag = u64(data, at)

    def take(self, *, of_stream: bool) -> None:
        """The header of that delivery has come."""
        if self.tag > 0 and not of_stream:
            self.late.append(self.tag)
        self.tag = 0

    def hear(self, method: int, arguments: bytes, recover: bytes) -> bool:
        """The broker says `method`, which answers `recover`; whether that is not for the client."""
        if method == BASIC_CONSUME_OK:
            name, _ = read_short_string(arguments, 0)
            if name not in self.cancelled:
                self.tags.append(name)
        elif recover == OF_GATEWAY:
            self.recovering = False
            return True
        return False

    def __repr__(self) -> str:
        return f"<Leave cancelled={len(self.cancelled)} given_back={self.given_back} late={len(self.late)}>"
