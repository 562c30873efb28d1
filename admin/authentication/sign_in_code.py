"""A code that signs a browser in once: for the link that `sluice run` shows at a terminal (`POST /v1/session`).

The link has the code behind its `#`, which no browser sends to anybody; the page takes it from there. The code stands for the token of the
state directory, is good once and for VALID_NS, and ends with the process. Only its digest is kept. A newer code ends the one before.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

CODE_BYTES: Final = 16  # bytes of randomness
VALID_MINUTES: Final = 10  # to find the browser (guess)
VALID_NS: Final = VALID_MINUTES * 60_000_000_000


class SignInCode:
    """The code that is good now, if there is one."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """`clock`: monotonic ns."""
        self._clock = clock
        self._good: tuple[bytes, bytes, int] | None = None  # digests of the code and of its token, and its end

    def make(self, token: bytes) -> str:
        """A new code for the token with the digest `token`."""
        code = secrets.token_urlsafe(CODE_BYTES)
        self._good = (hashlib.sha256(code.encode()).digest(), token, self._clock() + VALID_NS)
        return code

    def use(self, presented: bytes) -> bytes | None:
        """The digest of the token that the code stands for; None where it is none, was used, or is too old."""
        if self._good is None or not hmac.compare_digest(hashlib.sha256(presented).digest(), self._good[0]):
            return None
        _, token, end = self._good
        self._good = None
        return token if self._clock() < end else None

    def __repr__(self) -> str:
        return f"<SignInCode{'' if self._good is None else ' to be used'}>"
