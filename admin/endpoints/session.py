"""`/v1/session`: a browser signs in with a token once, and has a cookie from then on (`admin/authentication/sessions.py`)."""

from __future__ import annotations

from typing import Final

import msgspec

from admin.authentication.auth import FoundToken, Role, bearer
from admin.authentication.sessions import cookie, secrets_of
from admin.context import Context
from admin.endpoints.dashboard import revision
from admin.http.bodies import decode
from admin.http.problems import Fault, ProblemError, invalid
from admin.http.routing import Answer, Route
from admin.store.state import format_time

BODY_LIMIT: Final = 8 * 1024  # bytes; a token of a file may have 4,096, and JSON writes some characters longer
SIGN_IN: Final = "POST /v1/session"  # in the audit
SIGN_OUT: Final = "DELETE /v1/session"


class SignInBody(msgspec.Struct, frozen=True):
    """A token, as it would stand behind `Authorization: Bearer`; or the code of the link that `sluice run` shows at a terminal."""

    token: str = ""
    code: str = ""

    def __repr__(self) -> str:
        return "<SignInBody>"  # never the token


class SessionNow(msgspec.Struct, frozen=True):
    """Who asks: the token's name and role; `expires`: the end of the session, or of the bearer token (null: it has none).

    A session also ends after an hour without a request, and with its token. `gateway` and `version`: what is asked. `page`: the revision of
    the dashboard's files there.
    """

    name: str
    role: str
    expires: str | None
    gateway: str
    version: str
    page: str


def shown(context: Context, found: FoundToken, seconds: int | None) -> SessionNow:
    """`seconds`: until the session ends; None: there is none."""
    ends = [] if found.ends is None else [found.ends]
    if seconds is not None:
        ends.append(context.wall_clock() + seconds)
    status = context.gateway.status()
    return SessionNow(
        name=found.name,
        role=found.role.word,
        expires=format_time(min(ends)) if ends else None,
        gateway=status.name,
        version=status.version,
        page=revision(),
    )


async def sign_in(context: Context) -> Answer:
    body, request = decode(context.request.body, SignInBody), context.request
    token, code = (text.strip().encode("utf-8", "surrogatepass") for text in (body.token, body.code))
    if not token and not code:
        raise invalid("the body cannot be used", [Fault("/token", "a token is needed")])
    begin = context.authentication.sign_in if token else context.authentication.use_code
    secret, found = await begin(token or code, request.actor.address, SIGN_IN, request.id)
    seconds = context.authentication.sessions.ends_in(secret.encode())
    if found.ends is not None:
        seconds = min(seconds, max(1, int(found.ends - context.wall_clock())))
    return Answer(shown(context, found, seconds), headers={"Set-Cookie": cookie(request.head, secret, seconds, secure=context.secure)})


async def get(context: Context) -> Answer:
    """Who asks. Whoever has neither token nor session is told so, and it is no failed attempt: a page asks this before it shows a form."""
    head, authentication = context.request.head, context.authentication
    presented = bearer(head.headers.get("authorization"))
    if presented is not None:
        found = authentication.tokens.find(presented)
        if found is None:
            raise await authentication.failed(context.request.actor.address, "GET /v1/session", context.request.id)
        return Answer(shown(context, found, None))
    if context.request.actor.role is not Role.NOBODY:
        for secret in secrets_of(head):
            if (found := authentication.sessions.find(secret)) is not None:
                return Answer(shown(context, found, authentication.sessions.ends_in(secret)))
    raise ProblemError(401, "unauthorised", "there is no session: sign in with POST /v1/session and a token")


async def sign_out(context: Context) -> Answer:
    await context.authentication.sign_out(context.request.head, context.author, SIGN_OUT)
    return Answer(b"", 204, headers={"Set-Cookie": cookie(context.request.head, "", 0, secure=context.secure)})


ROUTES: Final[list[Route]] = [
    Route("POST", "/v1/session", Role.NOBODY, sign_in, "Sign in: a session for a token, as a cookie", answer=SessionNow, body=SignInBody,
          body_limit=BODY_LIMIT, refusals=(401, 429), answers_secret=True, answers_session=True),
    Route("GET", "/v1/session", Role.NOBODY, get, "Who asks: the name and role of the session, or of the bearer token", answer=SessionNow,
          refusals=(401, 429)),
    Route("DELETE", "/v1/session", Role.VIEWER, sign_out, "Sign out: the session ends, and the browser forgets its cookie",
          statuses=(204,), answers_secret=True, answers_session=True),
]  # fmt: skip
