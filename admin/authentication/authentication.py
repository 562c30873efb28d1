"""Authentication: finds a request's actor by its bearer token, or by the cookie of a session that such a token began.

A browser sends the cookie with every request, no matter which page made it. SameSite=Strict keeps pages of other sites from that. But a
site is a host without its port, so pages of any other program on this host are of the same site. So a request with a cookie must show that
a page of this very origin made it. A change must prove it by `Sec-Fetch-Site` or `Origin`, of which browsers always send one. A read must
not deny it.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from admin.authentication.auth import OWN_TOKEN, Actor, FailureRateLimiter, FoundToken, Role, bearer
from admin.authentication.sessions import Sessions, secrets_of
from admin.authentication.sign_in_code import SignInCode
from admin.http.boundary import READS, comes_from_here, denies_to_come_from_here
from admin.http.problems import ProblemError
from admin.store.changes import Author
from common import log
from limiter.limits import SECOND

if TYPE_CHECKING:
    from admin.authentication.auth import ValidTokens
    from admin.http.parsing import Head
    from admin.store.store import Store

FAILURES_PER_SECOND: Final = 1  # journal lines of requests without a good token; the others are counted
SIGN_INS_PER_SECOND: Final = 10  # journal lines of sessions begun and ended; each is an fsync for which changes wait; a guess
CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="sluice"'}


class Authentication:
    """Tokens and sessions, and the brake on failures."""

    def __init__(self, tokens: ValidTokens, store: Store, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self.tokens = tokens
        self.sessions = Sessions(tokens, clock)
        self._code = SignInCode(clock)
        self.failures = 0
        self._store = store
        self._clock = clock
        self._brake = FailureRateLimiter()
        self._failures_audited = log.LineLimiter(FAILURES_PER_SECOND)
        self._sign_ins_audited = log.LineLimiter(SIGN_INS_PER_SECOND)

    async def actor(self, head: Head, address: str, needed: Role | None, action: str, request_id: str, *, cookies: bool) -> Actor:
        """The actor behind a request; raises ProblemError 401, 429 after too many failures, 403 for a change that another origin asks for.

        `needed`: the least role that may ask this; None: there is nothing to ask at this path. `action`: the request, for the audit.
        `cookies`: whether sessions count here.
        """
        token, secrets = _credentials(head, cookies=cookies)
        found = self._found(token, secrets, head)
        if found is not None:
            if token is None and head.method not in READS and not comes_from_here(head):
                raise ProblemError(
                    403, "cross-site",
                    "with a session, a change needs `Sec-Fetch-Site: same-origin`, or an `Origin` with our Host; or send a bearer token",
                )  # fmt: skip
            return Actor(found.name, found.role, address)
        if needed is Role.NOBODY:
            return Actor("nobody", Role.NOBODY, address)
        if secrets:  # a session that is over: what every page meets after a restart, and no attempt to guess
            raise ProblemError(401, "unauthorised", "the session is over: sign in again", headers=CHALLENGE)
        raise await self.failed(address, action, request_id)

    def _found(self, token: bytes | None, secrets: list[bytes], head: Head) -> FoundToken | None:
        if token is not None:
            return self.tokens.find(token)
        if secrets and denies_to_come_from_here(head):
            return None
        return next((found for secret in secrets if (found := self.sessions.find(secret)) is not None), None)

    def is_good(self, head: Head, *, cookies: bool) -> bool:
        """Whether a request has a good token, or the secret of a session that goes on."""
        return self._found(*_credentials(head, cookies=cookies), head) is not None

    def still_allowed(self, head: Head, actor: Actor, needed: Role) -> bool:
        """Whether a request that is being answered would still be answered now."""
        found = self._found(bearer(head.headers.get("authorization")), secrets_of(head), head)
        return found is not None and found.name == actor.name and found.role >= needed

    async def failed(self, address: str, action: str, request_id: str) -> ProblemError:
        """The refusal of a request, or an attempt to sign in, without a good token: counted, and audited now and then."""
        self.failures += 1
        now = self._clock()
        wait = self._brake.fail(address, now)
        unaudited = self._failures_audited.admit(now // SECOND)
        if unaudited >= 0:
            detail = f"401 no good token; {unaudited} more since the line before" if unaudited else "401 no good token"
            log.event(logging.WARNING, "admin_unauthorised", client=address, request_id=request_id, suppressed=unaudited)
            await self._store.note(Author("nobody", "", address, request_id), action, "refused", detail)
        if wait:
            seconds = str(-(-wait // SECOND))
            return ProblemError(429, "slow-down", "too many requests without a good token", headers={"Retry-After": seconds})
        return ProblemError(
            401, "unauthorised", "send Authorization: Bearer and a token; the first one is in the state directory, in admin.token",
            headers=CHALLENGE,
        )  # fmt: skip

    # ---- sessions --------------------------------------------------------------------------------------------------

    async def sign_in(self, presented: bytes, address: str, action: str, request_id: str) -> tuple[str, FoundToken]:
        """A new session's secret, and the token behind it; raises ProblemError as `actor`."""
        return await self._begin(hashlib.sha256(presented).digest(), address, action, request_id)

    def make_code(self) -> str | None:
        """A code for a link that signs in once, with the token of the state directory; None where that is not valid."""
        own = (digest for digest, file in self.tokens.by_digest().items() if file.name == OWN_TOKEN and file.role is Role.ADMIN)
        token = next(own, None)
        return None if token is None else self._code.make(token)

    async def use_code(self, code: bytes, address: str, action: str, request_id: str) -> tuple[str, FoundToken]:
        """The same by a code of `make_code`."""
        return await self._begin(self._code.use(code), address, action, request_id, "by the link of the terminal")

    async def _begin(self, token: bytes | None, address: str, action: str, request_id: str, how: str = "") -> tuple[str, FoundToken]:
        found = None if token is None else self.tokens.find_digest(token)
        if token is None or found is None:
            raise await self.failed(address, action, request_id)
        secret = self.sessions.begin(token)
        await self._audit(Author(found.name, found.role.word, address, request_id), action, how)
        return secret, found

    async def sign_out(self, head: Head, author: Author, action: str) -> None:
        """End the sessions of the request's cookies."""
        for secret in secrets_of(head):
            self.sessions.end(secret)
        await self._audit(author, action)

    async def _audit(self, author: Author, action: str, how: str = "") -> None:
        unaudited = self._sign_ins_audited.admit(self._clock() // SECOND)
        if unaudited >= 0:
            more = f"{unaudited} more since the line before" if unaudited else ""
            await self._store.note(author, action, "done", "; ".join(text for text in (how, more) if text))

    def __repr__(self) -> str:
        return f"<Authentication {self.tokens!r}, {len(self.sessions)} sessions>"


def _credentials(head: Head, *, cookies: bool) -> tuple[bytes | None, list[bytes]]:
    """The bearer token, or without one the secrets of sessions."""
    token = bearer(head.headers.get("authorization"))
    return token, secrets_of(head) if cookies and token is None else []
