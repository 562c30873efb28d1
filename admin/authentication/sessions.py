"""Sessions of browsers: a token is presented once, and a cookie stands for it from then on (`/v1/session`).

Scripts cannot read the cookie (HttpOnly). So a script that gets into a page by mistake cannot take it away, as it could take a token from
the page's memory. A session is worth less than its token, too. It ends after IDLE_NS without a request, after LONGEST_NS in any case, with
the process, and with its token: it keeps the token's digest and looks that up at each request, so a token that is revoked, has expired, or
has another role after a reload needs no word to its sessions.

A cookie is sent to every port of its host (RFC 6265, 8.5). So its name has the port that the browser asked for: with one name for all, who
signs in at a second gateway of a host would be signed out at the first.

Of a session's secret only the digest is kept, as of tokens. Each token may have MAX_PER_TOKEN sessions. Beyond that its own session that
was idle longest ends, and never one of another token. Tokens are made by administrators, so this bounds all of them: 0.1 MB for each token.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from admin.authentication.auth import FoundToken, ValidTokens
    from admin.http.parsing import Head

COOKIE: Final = "sluice_session"  # and `_9180`, see `cookie_name`
SECRET_BYTES: Final = 32  # bytes of randomness
LONGEST_NS: Final = 12 * 3_600_000_000_000  # ns; a working day and a shift's handover (guess)
IDLE_NS: Final = 3_600_000_000_000  # ns; without a request and without an open stream (guess)
MAX_PER_TOKEN: Final = 256  # a whole team behind one viewer's token (guess)
SECOND: Final = 1_000_000_000  # ns
_PORT: Final = re.compile(rb":([0-9]{1,5})$")  # of a Host header


@dataclass(slots=True)
class BrowserSession:
    """One browser that signed in. Times are monotonic ns."""

    token: bytes  # digest
    began: int
    used: int

    def over(self, now: int) -> bool:
        return now - self.began >= LONGEST_NS or now - self.used >= IDLE_NS


class Sessions:
    """The sessions that are open, by the digest of their secret, the one that began first in front."""

    def __init__(self, tokens: ValidTokens, clock: Callable[[], int]) -> None:
        """`clock`: monotonic ns."""
        self._tokens = tokens
        self._clock = clock
        self._open: dict[bytes, BrowserSession] = {}
        self._by_token: dict[bytes, OrderedDict[bytes, None]] = {}  # token's digest -> its sessions, the one idle longest first

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, token: bytes) -> str:
        """A new session of the token with this digest, which is a good one; the secret that its cookie has."""
        now = self._clock()
        secret = secrets.token_urlsafe(SECRET_BYTES)
        digest = hashlib.sha256(secret.encode()).digest()
        while self._open and now - next(iter(self._open.values())).began >= LONGEST_NS:
            self._end(next(iter(self._open)))  # its cookie may never come again
        own = self._by_token.setdefault(token, OrderedDict())
        if len(own) >= MAX_PER_TOKEN:
            self._end(next(iter(own)))
        self._open[digest] = BrowserSession(token, now, now)
        own[digest] = None
        return secret

    def find(self, secret: bytes) -> FoundToken | None:
        """The token of the session with this secret; None where it is over, or its token is. It was used now."""
        digest = hashlib.sha256(secret).digest()
        session, now = self._open.get(digest), self._clock()
        if session is None:
            return None
        found = None if session.over(now) else self._tokens.find_digest(session.token)
        if found is None:
            self._end(digest)
            return None
        session.used = now
        self._by_token[session.token].move_to_end(digest)
        return found

    def ends_in(self, secret: bytes) -> int:
        """Seconds until it ends in any case, rounded up; 0: there is no such session."""
        session = self._open.get(hashlib.sha256(secret).digest())
        return 0 if session is None else max(0, -((self._clock() - session.began - LONGEST_NS) // SECOND))

    def end(self, secret: bytes) -> None:
        digest = hashlib.sha256(secret).digest()
        if digest in self._open:
            self._end(digest)

    def _end(self, digest: bytes) -> None:
        token = self._open.pop(digest).token
        del self._by_token[token][digest]
        if not self._by_token[token]:
            del self._by_token[token]

    def __repr__(self) -> str:
        return f"<Sessions {len(self._open)} open>"


def cookie_name(head: Head) -> str:
    """`sluice_session_9180` where the browser asked port 9180 (of a tunnel: its end there); `sluice_session` where it named no port."""
    port = _PORT.search(head.headers.get("host", b""))
    return COOKIE if port is None else f"{COOKIE}_{port[1].decode()}"


def secrets_of(head: Head) -> list[bytes]:
    """The secrets in a request's cookies of this gateway's name. There may be several: other programs of this host may have set some."""
    ours = cookie_name(head).encode()
    pairs = (pair.strip().partition(b"=") for pair in head.headers.get("cookie", b"").split(b";"))
    return [value for name, _, value in pairs if name == ours and value]


def cookie(head: Head, secret: str, seconds: int, *, secure: bool) -> str:
    """The value of Set-Cookie for who sent `head`; with 0 seconds a browser forgets it."""
    return f"{cookie_name(head)}={secret}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}"
