"""Problems: the answers to requests that fail (RFC 9457, `application/problem+json`).

A `ProblemError` holds its whole answer, so that it is phrased once, where the fault is found. The client may not be authorised, so an
answer never holds a token, a path of this machine or a stack trace.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Final, NamedTuple

import msgspec

CONTENT_TYPE: Final = "application/problem+json"
TYPE: Final = "urn:sluice:problem:"  # how every `type` begins; its name follows


class ProblemType(NamedTuple):
    """One `type`: the statuses it comes with, what it means, and what the client can do."""

    statuses: tuple[int, ...]
    meaning: str


PROBLEMS: Final = {  # every name; `docs/reference/problem-types.md` is generated from here (`make docs`)
    "malformed": ProblemType((400,), "The request, its query or its body cannot be read."),
    "unauthorised": ProblemType((401,), "No token, or none that is known. Send `Authorization: Bearer` and a token."),
    "forbidden": ProblemType((403,), "The token's role may not do this."),
    "cross-site": ProblemType((403,), "A browser asks for a page of another site, which may not change anything here."),
    "not-found": ProblemType((404,), "There is no such path, rule, connection, revision or change."),
    "method-not-allowed": ProblemType((405,), "The path has other methods: `Allow` names them."),
    "timeout": ProblemType((408,), "The request took too long to arrive."),
    "change-ends": ProblemType((409,), "The rule's live change has an end, so its candidate cannot be promoted for good."),
    "no-candidate": ProblemType((409,), "The rule has no candidate to promote."),
    "snapshot-damaged": ProblemType((409,), "The quotas of that revision are damaged on the disk."),
    "snapshot-gone": ProblemType((409,), "The quotas of that revision are no longer kept. Publish them again instead."),
    "token-exists": ProblemType((409,), "There is a token of that name. Rotate it, or choose another name."),
    "token-in-file": ProblemType((409,), "The token stands in a file, which is where it is changed."),
    "too-many-tokens": ProblemType((409,), "There are as many tokens as the gateway keeps. Revoke those that are not used."),
    "last-admin": ProblemType((409,), "It is the last valid token of the role admin. `?force=1` revokes it all the same."),
    "precondition-failed": ProblemType((412,), "It was changed since it was read. Read it again and decide anew."),
    "too-large": ProblemType((413,), "The body is longer than the route takes."),
    "unsupported-media-type": ProblemType((415,), "Send the body as `application/json`, as it is or by gzip."),
    "misdirected": ProblemType((421,), "The Host header names another server. Use an address, `localhost` or a configured name."),
    "invalid": ProblemType((422,), "The body or a parameter says what cannot be. `errors` has each fault, with a pointer to it."),
    "pattern": ProblemType((422,), "A pattern or a network where one name is meant. `errors` has the command that adds a rule instead."),
    "precondition-required": ProblemType((428,), "Send `If-Match` with the ETag of what was read, or `?force=1`."),
    "slow-down": ProblemType((429,), "Too many requests without a good token. Wait for `Retry-After` seconds."),
    "head-too-large": ProblemType((431,), "The request's head is too long."),
    "internal": ProblemType((500,), "A fault of the gateway. The log has it by `request_id`: please report it."),
    "idempotency-key-reused": ProblemType((422,), "The Idempotency-Key came with another request before. A new request needs a new key."),
    "idempotency-key-in-use": ProblemType((409,), "The request with this Idempotency-Key is still being worked on. Ask again in a moment."),
    "too-many-streams": ProblemType((503,), "There are as many streams as the gateway serves at once. Poll instead, or end one."),
    "not-stored": ProblemType((500, 507), "The state directory could not be written, or (507) is full or read-only. Nothing was changed."),
}


class Fault(msgspec.Struct, frozen=True):
    """One thing wrong with a body or a parameter. `pointer` is a JSON Pointer into the body (RFC 6901), or `?name` for a parameter."""

    pointer: str
    message: str


class ProblemBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to every request that failed."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str
    errors: list[Fault] = []


class ProblemError(Exception):
    """A request that fails, with its whole answer. `name` is one of PROBLEMS; the type is `urn:sluice:problem:<name>`."""

    def __init__(
        self, status: int, name: str, detail: str, *, errors: Iterable[Fault] = (), headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.name = name
        self.detail = detail
        self.errors = list(errors)
        self.headers = dict(headers or {})

    def body(self, request_id: str) -> ProblemBody:
        return ProblemBody(
            type=f"{TYPE}{self.name}",
            title=HTTPStatus(self.status).phrase,
            status=self.status,
            detail=self.detail,
            request_id=request_id,
            errors=self.errors,
        )

    def __repr__(self) -> str:
        return f"<ProblemError {self.status} {self.name}: {self.detail}>"


def pattern(fault: Fault) -> ProblemError:
    return ProblemError(422, "pattern", "a pattern where the name of one thing is meant", errors=[fault])


def not_found(detail: str) -> ProblemError:
    return ProblemError(404, "not-found", detail)


def invalid(detail: str, errors: Iterable[Fault]) -> ProblemError:
    """The body or the parameters can be read, but have values that are not allowed."""
    return ProblemError(422, "invalid", detail, errors=errors)


def suggestion(word: str, known: Sequence[str]) -> str:
    """`; did you mean `burst`?` or nothing."""
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean `{near[0]}`?" if near else ""
