"""Routes: the handler of each method and path, the role it needs, and its body.

A template's segments are literal, `{name}`, or `{name}:verb`; a path is split at its slashes first and decoded after, so that a virtual
host `/` travels as `%2F`. Names `.` and `..` travel as `~.` and `~..` (`limiter.topics.path_segment`). Segments may be empty only where
the last one is a name (an AMQP routing key may be empty).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec

from admin.authentication.auth import Actor, Role
from admin.http.parsing import Head
from admin.http.problems import Fault, ProblemError, invalid, not_found, suggestion
from common.records import dataclass
from limiter.topics import part_of

if TYPE_CHECKING:
    from admin.context import Context

JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"
ON: Final = ("1", "true")  # how a flag is set
BODY_LIMIT: Final = 256 * 1024  # bytes (docs/design/reliability.md 5)


@runtime_checkable
class LiveBody(Protocol):
    """A body without a foreseeable end."""

    def place(self) -> AbstractContextManager[None]:
        """Takes a place among the bodies of its kind while it is sent."""

    async def send(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Write to the end. Cancelled when the client is gone; `write` raises when it does not take what it gets."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter. Kinds: "text", "flag" (1/0/true/false), "count" (a whole number from 1 to `most`)."""

    name: str
    kind: str
    summary: str
    most: int = 0
    choices: tuple[str, ...] = ()
    example: str | int | None = None


FORCE: Final = Parameter("force", "flag", "write without If-Match")
DRY_RUN: Final = Parameter("dry_run", "flag", "change nothing, and answer with a preview")
REASON: Final = Parameter("reason", "text", "the reason, kept in the history (a `reason` in the body wins)")
WRITE_PARAMETERS: Final = (FORCE, DRY_RUN, REASON)
LITERAL: Final = Parameter("literal", "flag", "the name is meant as it is, though it looks like a pattern")
SET_PARAMETERS: Final = (*WRITE_PARAMETERS, LITERAL)


@dataclass(frozen=True, slots=True)
class Answer:
    """A handler's answer. `body`: a value to encode, bytes, text or bytes to stream (an iterator or async generator), or a LiveBody."""

    body: object
    status: int = 200
    etag: str | None = None
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""  # as the body gave it, for the audit
    detail: str = ""  # what was done, for the audit


@dataclass(frozen=True, slots=True)
class Route:
    """One method on one path template. `answer` and `body` are the msgspec types of the bodies (OpenAPI is made from them)."""

    method: str
    template: str
    role: Role
    handler: Callable[[Context], Awaitable[Answer]]
    summary: str
    answer: Any = None
    body: Any = None
    body_required: bool = True
    body_limit: int = BODY_LIMIT
    parameters: tuple[Parameter, ...] = ()
    conditional: bool = False  # needs If-Match or ?force=1
    answer_type: str = JSON
    statuses: tuple[int, ...] = (200,)
    refusals: tuple[int, ...] = ()  # statuses of problems that do not follow from the rest (`openapi.py`)
    answers_secret: bool = False  # the answer must not be kept for a request that is sent again
    answers_session: bool = False  # it begins or ends a session, and writes its own line of the journal
    columns: tuple[tuple[str, Callable[[dict[str, Any]], object]], ...] = ()  # of the list as CSV (`spreadsheet.py`); none: JSON alone
    at_once: bool = False  # so little work that it needs no turn of the event loop
    views: tuple[str, ...] | None = None  # of data planes, that the answer is made of (`admin.ports.OperatedGateway.gather`); None: none is
    any_query: bool = False  # the query is for the page's own script, and not looked at

    @property
    def segments(self) -> list[str]:
        return self.template.split("/")[1:]

    def __repr__(self) -> str:
        return f"<Route {self.method} {self.template} {self.role.word}>"


@dataclass(frozen=True, slots=True)
class Request:
    """A request on its way to its handler."""

    id: str
    head: Head
    actor: Actor
    path: Mapping[str, bytes]  # the template's names, decoded
    query: Mapping[str, str]
    now: int  # monotonic ns
    body: bytes = b""

    def flag(self, name: str) -> bool:
        return self.query.get(name) in ON

    def count(self, name: str, default: int) -> int:
        return int(self.query.get(name, default))

    def __repr__(self) -> str:
        return f"<Request {self.id} {self.head.method} {self.head.path} by {self.actor.name}>"


class Router:
    """Finds the route of a path. Tries all shapes, the most literal first; there are over a hundred."""

    def __init__(self, routes: list[Route]) -> None:
        self.routes = routes
        shapes: dict[str, tuple[list[str], dict[str, Route]]] = {}
        for route in routes:
            _, methods = shapes.setdefault(route.template, (route.segments, {}))
            if route.method in methods:
                raise ValueError(f"two routes for {route.method} {route.template}")
            methods[route.method] = route
        self._words = frozenset(segment for route in routes for segment in route.segments if not segment.startswith("{"))
        self._shapes = sorted(shapes.values(), key=lambda shape: [_rank(segment) for segment in shape[0]])

    def find(self, method: str, path: str) -> tuple[Route, dict[str, bytes]]:
        """The route and the path's names; HEAD is answered as GET. Raises ProblemError 404 or 405."""
        segments = [unquote_to_bytes(segment) for segment in path.split("/")[1:]]
        for shape, methods in self._shapes:
            names = _match(shape, segments)
            if names is None:
                continue
            route = methods.get("GET" if method == "HEAD" else method)
            if route is None:
                allowed = ", ".join(_allowed(methods))
                raise ProblemError(405, "method-not-allowed", f"{method} is not allowed here; {allowed} is", headers={"Allow": allowed})
            return route, names
        raise not_found("there is nothing at this path; GET /v1/openapi.json lists all paths")

    def without_names(self, path: str) -> str:
        """The path with `*` in place of each segment that is no literal word of a route: what a stranger put there may be a secret."""
        return "/" + "/".join(segment if segment in self._words else "*" for segment in path.split("/")[1:])


def _rank(segment: str) -> int:
    """Literal segments are tried before `{name}:verb`, and those before `{name}`."""
    return 0 if not segment.startswith("{") else 2 if segment.endswith("}") else 1


def _allowed(methods: Mapping[str, Route]) -> Iterator[str]:
    for method in methods:
        yield method
        if method == "GET":
            yield "HEAD"


def _match(shape: list[str], segments: list[bytes]) -> dict[str, bytes] | None:
    if len(shape) != len(segments):
        return None
    names: dict[str, bytes] = {}
    for at, (pattern, segment) in enumerate(zip(shape, segments, strict=True)):
        if not pattern.startswith("{"):
            if pattern.encode() != segment:
                return None
            continue
        name, _, verb = pattern[1:].partition("}")
        if not segment.endswith(verb.encode()):
            return None
        value = part_of(segment.removesuffix(verb.encode()))
        if not value and (at != len(shape) - 1 or not shape[at - 1].startswith("{")):
            return None
        names[name] = value
    return names


def parse_query(route: Route, query: str) -> dict[str, str]:
    """The query's parameters, checked against those `route` knows; raises ProblemError 422 naming every fault."""
    if route.any_query:
        return {}
    known = {parameter.name: parameter for parameter in route.parameters}
    values: dict[str, str] = {}
    faults: list[Fault] = []
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict", max_num_fields=32)
    except ValueError as error:
        raise ProblemError(400, "malformed", f"the query cannot be read: {error}") from error
    for name, value in pairs:
        parameter = known.get(name)
        if parameter is None:
            faults.append(Fault(f"?{name}", f"unknown parameter{suggestion(name, list(known))}"))
        elif name in values:
            faults.append(Fault(f"?{name}", "given more than once"))
        elif wrong := _wrong(parameter, value):
            faults.append(Fault(f"?{name}", wrong))
        else:
            values[name] = value
    if faults:
        raise invalid("the query's parameters cannot be used", faults)
    return values


def _wrong(parameter: Parameter, value: str) -> str | None:
    if parameter.kind == "flag" and value not in (*ON, "0", "false"):
        return f"{value!r} is neither 1 nor 0"
    if parameter.kind == "count":
        if not (value.isascii() and value.isdigit() and 1 <= int(value[:9]) <= parameter.most and len(value) < 10):
            return f"{value!r} is not a whole number from 1 to {parameter.most}"
    elif parameter.choices and value not in parameter.choices:
        return f"{value!r} is none of {', '.join(parameter.choices)}{suggestion(value, parameter.choices)}"
    return None


def encode(body: object) -> bytes:
    """JSON; bytes that are not UTF-8 never get here (topics are text already)."""
    return msgspec.json.encode(body)
