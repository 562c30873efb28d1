"""Problems: what the admin API answers when it does not do what was asked (RFC 9457, `application/problem+json`).

A `ProblemError` knows its whole answer, so that whoever finds the fault says it once, where it is found. Its words go to a client that
may not be authorised: they never hold a token, a path of this machine or a stack trace.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus

import msgspec

CONTENT_TYPE = "application/problem+json"


class Fault(msgspec.Struct, frozen=True):
    """One thing wrong with a body or a parameter. `pointer` is a JSON Pointer into the body (RFC 6901), or `?name` for a parameter."""

    pointer: str
    message: str


class ProblemBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer of every request that was not done."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str
    errors: list[Fault] = []


class ProblemError(Exception):
    """A request that is not done, with its whole answer. `name` becomes the problem's type, `urn:sluice:problem:<name>`."""

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
            type=f"urn:sluice:problem:{self.name}",
            title=HTTPStatus(self.status).phrase,
            status=self.status,
            detail=self.detail,
            request_id=request_id,
            errors=self.errors,
        )

    def __repr__(self) -> str:
        return f"<ProblemError {self.status} {self.name}: {self.detail}>"


def not_found(what: str) -> ProblemError:
    return ProblemError(404, "not-found", what)


def invalid(detail: str, errors: Iterable[Fault]) -> ProblemError:
    """The body or the parameters could be read but say something that cannot be."""
    return ProblemError(422, "invalid", detail, errors=errors)


def suggestion(word: str, known: Sequence[str]) -> str:
    """`; did you mean `burst`?` or nothing."""
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean `{near[0]}`?" if near else ""
