"""`/v1/tokens`: who may use this API. Tokens are made, listed, rotated and revoked without a restart; each is shown once, when it is made.

The tokens of files (`admin.tokens`, and the state directory's `admin.token`) are listed, too. They are changed where they stand; only
`admin.token` can be rotated here, since it is the gateway's own file.
"""

from __future__ import annotations

import errno
import hashlib
from typing import Any, Final

import msgspec
import trio
from msgspec import UNSET, UnsetType

from admin.authentication.auth import TOKEN_FILE, FileToken, Role
from admin.authentication.token_store import MAX_OVERLAP_S, MAX_TOKENS, NAME, ROLES, StoredToken, made
from admin.context import Context
from admin.endpoints.process import REASON, text_of
from admin.http.bodies import decode, expiry
from admin.http.paging import CURSOR, LIMIT, QUERY, matches, page
from admin.http.problems import Fault, ProblemError, invalid, not_found, suggestion
from admin.http.routing import DRY_RUN, Answer, Parameter, Route
from admin.store.state import format_time, parse_time
from common import durable_files as durable
from limiter.units import parse_from_now

OWN: Final = "admin"  # the name of the state directory's own token
RESERVED: Final = (OWN, "nobody", "gateway")
EVEN_LAST: Final = Parameter("force", "flag", "also where no token of the role admin would be left")


class NewTokenBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token to be made. `expires` is a duration (`90d`) or a time (`2026-11-21T12:00:00Z`); without it the token has no end."""

    name: str
    role: str
    expires: str | UnsetType | None = UNSET
    reason: str | UnsetType | None = UNSET


class RotateBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to rotate: for so long (`overlap: 10m`, at most a day) the token before stays valid, too. `expires` as for a new token."""

    overlap: str | UnsetType | None = UNSET
    expires: str | UnsetType | None = UNSET
    reason: str | UnsetType | None = UNSET


class TokenShown(msgspec.Struct, frozen=True):
    """A token without its secret. `origin`: `file` (of the configuration), `state` (admin.token), or `api` (made here)."""

    name: str
    role: str
    origin: str
    valid: bool
    created_at: str | None
    created_by: str | None
    rotated_at: str | None
    expires_at: str | None
    last_used_at: str | None
    reason: str


class TokensPage(msgspec.Struct, frozen=True):
    """A page of tokens, by name. Of tokens in files `last_used_at` is since the start."""

    items: list[TokenShown]
    next: str | None
    total: int


class TokenMade(msgspec.Struct, frozen=True):
    """A new token. This is the only time that it is shown; a dry run shows none."""

    name: str
    role: str
    token: str | None
    expires_at: str | None


async def list_tokens(context: Context) -> Answer:
    shown = [token for token in _all(context) if matches(context.request, token.name)]
    items, following = await page(shown, lambda token: (0.0, token.name), context.request)
    return Answer(TokensPage(items, following, len(shown)))


async def make(context: Context) -> Answer:
    body = _decode_new(context)
    store = context.tokens_made
    async with store.turn:
        if any(token.name == body.name for token in context.tokens.of_files()) or body.name in store.by_name:
            raise ProblemError(409, "token-exists", f"there is a token {body.name!r} already; rotate it, or choose another name")
        if len(store.by_name) >= MAX_TOKENS:
            raise ProblemError(409, "too-many-tokens", f"there are {MAX_TOKENS} tokens already; revoke those that are not used")
        now = context.wall_clock()
        ends = _expiry(body.expires, now)
        token, digest = made()
        stored = StoredToken(
            body.name, body.role, digest, format_time(now), context.request.actor.name, ends, reason=text_of(body.reason) or context.reason
        )
        dry = context.request.flag("dry_run")
        if not dry:
            await _durably(store.put(stored))
    return Answer(
        TokenMade(body.name, body.role, None if dry else token, ends),
        status=200 if dry else 201,
        reason=_told(f"{body.name} ({body.role})", stored.reason),
    )


async def revoke(context: Context) -> Answer:
    store = context.tokens_made
    async with store.turn:
        stored = _stored(context, "revoke")
        if stored.role == Role.ADMIN.word and not context.request.flag("force") and not _admins(context, without=stored.name):
            raise ProblemError(
                409,
                "last-admin",
                "it is the last valid token of the role admin: nobody could make another; ?force=1 revokes it all the same",
            )
        if not context.request.flag("dry_run"):
            await _durably(store.remove(stored.name))
    return Answer(_shown_stored(context, stored, valid=False), reason=context.reason)


async def rotate(context: Context) -> Answer:
    body = decode(context.request.body, RotateBody)
    reason = text_of(body.reason) or context.reason
    store = context.tokens_made
    async with store.turn:
        name = _name(context)
        now = context.wall_clock()
        overlap = _overlap(body.overlap)
        dry = context.request.flag("dry_run")
        if name == OWN:
            if overlap or isinstance(body.expires, str):
                raise invalid(
                    "the token cannot be rotated like this", [Fault("", f"{OWN}, whose file has one token, takes no overlap or end")]
                )
            token = None if dry else await _rotate_own(context)
            return Answer(TokenMade(OWN, Role.ADMIN.word, token, None), reason=reason)
        stored = _stored(context, "rotate")
        ends = stored.expires_at if body.expires is UNSET else _expiry(body.expires, now)
        if ends is not None and parse_time(ends) <= now:
            fault = Fault("/expires", f"{name} ended at {ends}; say when the new one ends, or null")
            raise invalid("the new token would never be valid", [fault])
        token, digest = made()
        if not dry:
            until = format_time(now + overlap) if overlap else None
            await _durably(
                store.put(
                    msgspec.structs.replace(
                        stored,
                        sha256=digest,
                        previous=stored.sha256 if overlap else None,
                        previous_until=until,
                        rotated_at=format_time(now),
                        expires_at=ends,
                    )
                )
            )
    return Answer(TokenMade(stored.name, stored.role, None if dry else token, ends), reason=reason)


async def _rotate_own(context: Context) -> str:
    """Put a new token into admin.token, and in force."""
    token, _ = made()
    path = context.store.folder / TOKEN_FILE

    def write() -> None:
        context.tokens_made.check_owned()
        durable.replace(durable.FileSystem(), path, token.encode() + b"\n")

    await _durably(trio.to_thread.run_sync(write))
    context.tokens.rotate(hashlib.sha256(token.encode()).digest(), FileToken(OWN, Role.ADMIN, path))
    return token


async def _durably(change: Any) -> None:
    """Raises ProblemError 500 or 507 where the change could not be written."""
    try:
        await change
    except OSError as error:
        raise ProblemError(
            507 if error.errno in (errno.ENOSPC, *durable.UNWRITABLE) else 500,
            "not-stored",
            f"the state directory could not be written ({error.strerror or error}); nothing was changed",
        ) from error


# ---- what a request names ----------------------------------------------------------------------------------------------


def _decode_new(context: Context) -> NewTokenBody:
    faults = []
    try:
        body = decode(context.request.body, NewTokenBody)
    except TypeError:
        raise invalid("the token cannot be made", [Fault("", "needs name and role (viewer, operator or admin)")]) from None
    if NAME.fullmatch(body.name) is None:
        faults.append(Fault("/name", "must have 1 to 64 letters, digits and . _ - @, and begin with a letter or digit"))
    elif body.name in RESERVED:
        faults.append(Fault("/name", f"{body.name!r} is taken by the gateway itself; choose another"))
    if body.role not in ROLES:
        faults.append(Fault("/role", f"{body.role!r} is none of {', '.join(ROLES)}{suggestion(body.role, ROLES)}"))
    if faults:
        raise invalid("the token cannot be made", faults)
    return body


def _expiry(given: str | UnsetType | None, now: float) -> str | None:
    if not isinstance(given, str):
        return None
    try:
        return expiry(given, now)
    except ValueError as error:
        raise invalid("the token's end cannot be used", [Fault("/expires", str(error))]) from error


def _overlap(given: str | UnsetType | None) -> float:
    """Seconds."""
    if not isinstance(given, str):
        return 0.0
    try:
        seconds = parse_from_now(given) / 1e9
    except ValueError as error:
        raise invalid("the token cannot be rotated like this", [Fault("/overlap", str(error))]) from error
    if seconds > MAX_OVERLAP_S:
        raise invalid("the token cannot be rotated like this", [Fault("/overlap", f"{given} is more than a day")])
    return seconds


def _name(context: Context) -> str:
    return context.request.path["name"].decode("utf-8", "replace")


def _stored(context: Context, verb: str) -> StoredToken:
    """The token that the path names; raises ProblemError 404, or 409 for one that stands in a file."""
    name = _name(context)
    stored = context.tokens_made.by_name.get(name)
    if stored is not None:
        return stored
    if name == OWN:
        raise ProblemError(
            409,
            "token-in-file",
            f"{OWN} is the token in {TOKEN_FILE}, the way back in for who may read the state directory: rotate it instead",
        )
    if any(token.name == name for token in context.tokens.of_files()):
        raise ProblemError(
            409,
            "token-in-file",
            f"{name!r} stands in a file that the configuration names; to {verb} it change admin.tokens or the file, and reload",
        )
    raise not_found(f"there is no token {name!r}{suggestion(name, list(context.tokens_made.by_name))}")


def _admins(context: Context, *, without: str) -> int:
    """How many valid tokens of the role admin there are but for one made here."""
    now = context.wall_clock()
    made_here = sum(
        token.role == Role.ADMIN.word and token.name != without and _valid(token, now) for token in context.tokens_made.by_name.values()
    )
    return made_here + sum(token.role is Role.ADMIN for token in context.tokens.of_files())


def _valid(token: StoredToken, now: float) -> bool:
    return token.expires_at is None or now < parse_time(token.expires_at)


# ---- what is shown -----------------------------------------------------------------------------------------------------


def _all(context: Context) -> list[TokenShown]:
    now = context.wall_clock()
    own = context.store.folder / TOKEN_FILE
    found = [_shown_file(context, token, "state" if token.path == own else "file") for token in context.tokens.of_files()]
    return found + [_shown_stored(context, token, valid=_valid(token, now)) for token in context.tokens_made.by_name.values()]


def _shown_file(context: Context, token: FileToken, origin: str) -> TokenShown:
    used = context.tokens.used.get(token.name)
    return TokenShown(
        token.name,
        token.role.word,
        origin,
        True,
        None,
        None,
        None,
        None,
        None if used is None else format_time(used),
        "",
    )


def _shown_stored(context: Context, token: StoredToken, *, valid: bool) -> TokenShown:
    used = context.tokens_made.last_used(token.name) if token.name in context.tokens_made.by_name else token.last_used_at
    return TokenShown(
        token.name, token.role, "api", valid, token.created_at, token.created_by, token.rotated_at, token.expires_at, used, token.reason
    )


def _told(what: str, reason: str) -> str:
    return f"{what}: {reason}" if reason else what


ROUTES: Final[list[Route]] = [
    Route("GET", "/v1/tokens", Role.ADMIN, list_tokens, "The tokens, without their secrets", answer=TokensPage,
          parameters=(QUERY, LIMIT, CURSOR)),
    Route("POST", "/v1/tokens", Role.ADMIN, make, "Make a token, which is shown this once", answer=TokenMade, body=NewTokenBody,
          statuses=(200, 201), parameters=(DRY_RUN, REASON), answers_secret=True, refusals=(507,)),
    Route("DELETE", "/v1/tokens/{name}", Role.ADMIN, revoke, "Revoke a token; requests and streams with it end", answer=TokenShown,
          parameters=(EVEN_LAST, DRY_RUN, REASON), refusals=(507,)),
    Route("POST", "/v1/tokens/{name}:rotate", Role.ADMIN, rotate, "Replace a token by a new one, which is shown this once",
          answer=TokenMade, body=RotateBody, body_required=False, parameters=(DRY_RUN, REASON), answers_secret=True, refusals=(507,)),
]  # fmt: skip
