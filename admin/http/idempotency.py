"""Idempotency keys: a request that is sent again with the same `Idempotency-Key` gets the answer of the first and changes nothing again.

A client that lost the answer of a write does not know whether it was done. Sent again with If-Match it gets 412 and still does not know;
with ?force=1 it may undo what somebody else has changed since. With a key it gets the answer that was lost.

Kept are answers of success, per token and key, for KEEP_S, at most MAX_KEYS of them and MAX_BYTES of answers: the oldest go first. They are
in memory, so a start of the gateway forgets them. (draft-ietf-httpapi-idempotency-key-header)
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Final

from admin.http.parsing import Head
from admin.http.problems import ProblemError
from admin.http.routing import Answer, encode

HEADER: Final = "idempotency-key"
REPLAYED: Final = "Idempotency-Replayed"
KEEP_S: Final = 24 * 3600  # seconds; as long as a retry makes sense
MAX_KEYS: Final = 2000  # keys; a guess: more writes than scripts send in a day
MAX_BYTES: Final = 8 * 1024 * 1024  # bytes; of all answers together; a guess

_KEY: Final = re.compile(rb"[\x21-\x7e]{1,255}")


@dataclass(slots=True)
class _Entry:
    """A request under way (no answer yet), or done."""

    fingerprint: bytes
    at: float  # seconds, monotonic
    answer: Answer | None = None
    size: int = 0


class IdempotencyKeys:
    """The answers that are remembered."""

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[str, bytes], _Entry] = OrderedDict()
        self._bytes = 0

    def begin(self, token: str, head: Head, body: bytes, now: float) -> Answer | None:
        """The answer of the same request before, or None: it is to be done, and `end` to be called. Raises ProblemError."""
        key = head.headers[HEADER]
        if not _KEY.fullmatch(key):
            raise ProblemError(400, "malformed", "an Idempotency-Key is 1 to 255 visible ASCII characters without spaces")
        self._forget(now)
        fingerprint = fingerprint_of(head, body)
        known = self._entries.get((token, key))
        if known is None:
            self._entries[token, key] = _Entry(fingerprint, now)
            return None
        if known.fingerprint != fingerprint:
            raise ProblemError(
                422, "idempotency-key-reused", "this Idempotency-Key came with another request before; a new request needs a new key"
            )
        if known.answer is None:
            raise ProblemError(
                409, "idempotency-key-in-use", "the request with this Idempotency-Key is still being worked on; ask again in a moment",
                headers={"Retry-After": "1"},
            )  # fmt: skip
        return replace(known.answer, headers={**known.answer.headers, REPLAYED: "true"})

    def end(self, token: str, head: Head, answer: Answer | None) -> Answer | None:
        """Remember the answer of a request that was done; None or no success: forget it, nothing was changed. Returns what to send."""
        place = (token, head.headers[HEADER])
        entry = self._entries.get(place)
        if entry is None:
            return answer
        if answer is None or answer.status >= 300:
            del self._entries[place]
            return answer
        body = answer.body if isinstance(answer.body, bytes) else encode(answer.body)
        entry.answer, entry.size = replace(answer, body=body), len(body)
        self._bytes += entry.size
        return entry.answer

    def _forget(self, now: float) -> None:
        while self._entries:
            place, entry = next(iter(self._entries.items()))
            if len(self._entries) < MAX_KEYS and self._bytes <= MAX_BYTES and now - entry.at <= KEEP_S:
                return
            self._bytes -= entry.size
            del self._entries[place]

    def __repr__(self) -> str:
        return f"<IdempotencyKeys {len(self._entries)} keys, {self._bytes} bytes>"


def fingerprint_of(head: Head, body: bytes) -> bytes:
    """What makes two requests the same: method, target, condition and body."""
    parts = (head.method.encode(), head.path.encode(), head.query.encode(), head.headers.get("if-match", b""), body)
    return hashlib.sha256(b"".join(len(part).to_bytes(8) + part for part in parts)).digest()
