"""What a conversation raises where its peer breaks the protocol."""

from __future__ import annotations


class ProtocolError(Exception):
    """The peer broke the protocol. Knows whose fault it was, what to count it as, and the protocol's own last words.

    `whose` is "client" or "broker"; `cause` the label of `sluice_connections_closed_total`; `last_frames` what to send to the client
    before its connection is closed (may be empty).
    """

    def __init__(self, message: str, *, whose: str = "client", cause: str = "protocol_error", last_frames: bytes = b"") -> None:
        super().__init__(message)
        self.whose = whose
        self.cause = cause
        self.last_frames = last_frames
