"""The control plane, put together: from a request's head to its answer, and `serve`, which the gateway starts.

    head ─► Host, origin ─► route ─► token (401, 429) ─► role (403) ─► query ─► If-Match (428) ─► body (413, 415) ─► handler

Every answer has a request id; every attempt to change something leaves a line in the journal, also when it was refused.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio
import trio.abc

from admin import log
from admin.auth import Actor, FailureBrake, Role, TokenFile, Tokens, bearer, first_token
from admin.boundary import READS, Boundary
from admin.changes import Author, WriteFailedError
from admin.context import Context
from admin.endpoints import ROUTES
from admin.exchange import Deadlines
from admin.http import Head, RefusedError
from admin.preconditions import etag, require_stated
from admin.problems import CONTENT_TYPE, ProblemError
from admin.quota_watch import QuotaWatch
from admin.routing import JSON, ON, Answer, Request, Route, Router, parse_query
from admin.server import ReceiveBody, Server

if TYPE_CHECKING:
    from pathlib import Path

    from admin.ports import Gateway, Sample
    from admin.store import Store

GRACE_S: Final = 3.0  # seconds; requests under way when the gateway stops; a change takes milliseconds (guess)
AUDIT_FAILURES_EVERY_NS: Final = 1_000_000_000  # ns; between two journal lines of failed log-ins; the others are counted
REFUSAL_NAMES: Final = {400: "malformed", 408: "timeout", 413: "too-large", 431: "head-too-large"}


class ConfiguredToken(Protocol):
    """A token of the configuration (`admin.tokens`)."""

    @property
    def name(self) -> str: ...
    @property
    def role(self) -> str: ...
    @property
    def file(self) -> Path: ...


class Admin:
    """Answers requests. Connections belong to `server.py`."""

    def __init__(
        self,
        gateway: Gateway,
        store: Store,
        tokens: Tokens,
        boundary: Boundary,
        wall_clock: Callable[[], float] = time.time,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._gateway = gateway
        self._store = store
        self._tokens = tokens
        self._boundary = boundary
        self._wall_clock = wall_clock
        self._clock = clock
        self._router = Router(ROUTES)
        self._brake = FailureBrake()
        self._requests: dict[tuple[str, str, int], int] = {}  # (template, method, status); bounded by the routes
        self._auth_failures = 0
        self._unaudited = 0
        self._audited_at = clock() - AUDIT_FAILURES_EVERY_NS
        self.quota_watch = QuotaWatch(gateway, store, wall_clock)
        self.server = Server(self.respond)

    async def respond(self, head: Head | RefusedError, receive: ReceiveBody, address: str) -> Answer:
        """The answer to a request. Only trio's cancellation is raised."""
        request_id = secrets.token_hex(8)
        route: Route | None = None
        actor = Actor("nobody", Role.NOBODY, address)
        method = "?"
        try:
            if isinstance(head, RefusedError):
                raise head
            method = head.method
            self._boundary.check(head)
            missing: ProblemError | None = None
            names: dict[str, bytes] = {}
            try:
                route, names = self._router.find(head.method, head.path)
            except ProblemError as error:
                missing = error
            actor = await self._authenticate(head, address, route, request_id)
            if route is None:
                assert missing is not None
                raise missing
            answer = await self._handle(Request(request_id, head, actor, names, {}, self._clock()), route, receive)
            await self._audit_done(head, route, actor, request_id, answer)
        except RefusedError as refused:
            name = REFUSAL_NAMES.get(refused.status, "malformed")
            answer = problem_answer(ProblemError(refused.status, name, refused.detail), request_id)
        except ProblemError as problem:
            answer = problem_answer(problem, request_id)
            if isinstance(head, Head):
                await self._audit_refused(head, actor, request_id, problem)
        except Exception as error:
            log.failure("admin_request_failed", error, method=method, route=route and route.template, request_id=request_id)
            answer = problem_answer(ProblemError(500, "internal", "an internal error; the log has it under this request_id"), request_id)
        self._count(route, method, answer.status)
        return replace(answer, headers={**answer.headers, "X-Request-Id": request_id})

    async def _authenticate(self, head: Head, address: str, route: Route | None, request_id: str) -> Actor:
        """The actor behind a request; raises ProblemError 401, or 429 after too many failures."""
        presented = bearer(head.headers.get("authorization"))
        found = None if presented is None else self._tokens.find(presented)
        if found is not None:
            return Actor(found[0], found[1], address)
        if route is not None and route.role is Role.NOBODY:
            return Actor("nobody", Role.NOBODY, address)
        self._auth_failures += 1
        wait = self._brake.fail(address, self._clock())
        await self._audit_failure(head, address, request_id)
        if wait:
            seconds = str(-(-wait // 1_000_000_000))
            raise ProblemError(429, "slow-down", "too many requests without a good token", headers={"Retry-After": seconds})
        raise ProblemError(
            401, "unauthorised", "send Authorization: Bearer and a token; the first one is in the state directory, in admin.token",
            headers={"WWW-Authenticate": 'Bearer realm="sluice"'},
        )  # fmt: skip

    async def _handle(self, request: Request, route: Route, receive: ReceiveBody) -> Answer:
        if request.actor.role < route.role:
            raise ProblemError(
                403, "forbidden", f"this needs the role {route.role.word}; {request.actor.name} has {request.actor.role.word}"
            )
        request = replace(request, query=parse_query(route, request.head.query))
        if route.conditional:
            require_stated(request)
        request = replace(request, body=await self._body(request, route, receive))
        context = Context(request, self._gateway, self._store, self._tokens, self._wall_clock, self.quota_watch, self.own_metrics, ROUTES)
        await self._gateway.gather(route.template)
        answer = await route.handler(context)
        if answer.etag is None and route.method == "GET" and answer.content_type == JSON and route.role > Role.NOBODY:
            answer = replace(answer, etag=etag(answer.body))
        return answer

    async def _body(self, request: Request, route: Route, receive: ReceiveBody) -> bytes:
        if route.body is None:
            if request.head.has_body:
                raise ProblemError(400, "malformed", f"{route.method} {route.template} takes no body")
            return b""
        if not request.head.has_body:
            if route.body_required:
                raise ProblemError(400, "malformed", "a JSON body is needed")
            return b""
        kind = request.head.headers.get("content-type", b"").partition(b";")[0].strip().lower()
        if kind != JSON.encode():
            raise ProblemError(415, "unsupported-media-type", f"send the body as {JSON}", headers={"Accept": JSON})
        return await receive(route.body_limit)

    # ---- the audit ---------------------------------------------------------------------------------------------------------

    async def _audit_done(self, head: Head, route: Route, actor: Actor, request_id: str, answer: Answer) -> None:
        """Write a line for an action that changed no state; a change of the state has its line already."""
        query = parse_query(route, head.query)
        if head.method in READS or route.conditional or answer.status >= 300 or query.get("dry_run") in ON:
            return
        reason = answer.reason or query.get("reason", "")
        await self._store.note(Author(actor.name, actor.role.word, actor.address, request_id), _action(head), "done", reason=reason)

    async def _audit_refused(self, head: Head, actor: Actor, request_id: str, problem: ProblemError) -> None:
        if head.method in READS or actor.role is Role.NOBODY or isinstance(problem.__cause__, WriteFailedError):
            return
        outcome = "refused" if problem.status < 500 else "failed"
        author = Author(actor.name, actor.role.word, actor.address, request_id)
        await self._store.note(author, _action(head), outcome, f"{problem.status} {problem.detail}")

    async def _audit_failure(self, head: Head, address: str, request_id: str) -> None:
        now = self._clock()
        if now - self._audited_at < AUDIT_FAILURES_EVERY_NS:
            self._unaudited += 1
            return
        self._audited_at, unaudited, self._unaudited = now, self._unaudited, 0
        detail = f"401 no good token; {unaudited} more since the line before" if unaudited else "401 no good token"
        log.event(logging.WARNING, "admin_unauthorised", client=address, request_id=request_id, suppressed=unaudited)
        await self._store.note(Author("nobody", "", address, request_id), _action(head), "refused", detail)

    def _count(self, route: Route | None, method: str, status: int) -> None:
        known = (route.template, method) if route is not None else ("none", "other")
        self._requests[(*known, status)] = self._requests.get((*known, status), 0) + 1

    def own_metrics(self) -> dict[str, list[Sample]]:
        """The admin's part of `/metrics`, by name."""
        counts = self.server.counts
        single = {
            "sluice_admin_auth_failures_total": self._auth_failures,
            "sluice_admin_connections_active": len(self.server.open),
            "sluice_admin_connections_opened_total": counts.opened,
            "sluice_admin_connections_refused_total": counts.turned_away,
            "sluice_admin_slow_readers_total": counts.too_slow,
            "sluice_state_write_failures_total": self._store.write_failures,
            "sluice_state_revision": self._store.revision,
            "sluice_state_keys": len(self._store.state.keys),
            "sluice_state_warnings": len(self._store.warnings),
            "sluice_quotas_raised": self._store.quotas_raised,
        }
        requests: list[Sample] = [
            ((template, method, str(status)), count) for (template, method, status), count in sorted(self._requests.items())
        ]
        return {
            "sluice_admin_requests_total": requests,
            **self.quota_watch.samples(),
            **{name: [((), value)] for name, value in single.items()},
        }


def _action(head: Head) -> str:
    return f"{head.method} {head.path[:512]}"  # never the query: a token may stand there by mistake


def problem_answer(problem: ProblemError, request_id: str) -> Answer:
    return Answer(problem.body(request_id), problem.status, content_type=CONTENT_TYPE, headers=problem.headers)


def _token_files(store: Store, configured: Iterable[ConfiguredToken]) -> Iterator[TokenFile]:
    yield TokenFile("admin", Role.ADMIN, first_token(store.folder))
    for token in configured:
        yield TokenFile(token.name, Role[token.role.upper()], token.file)


async def serve(
    bind: tuple[str, int] | Sequence[trio.abc.Listener[trio.abc.Stream]],
    gateway: Gateway,
    store: Store,
    *,
    tokens: Iterable[ConfiguredToken] = (),
    names: Iterable[str] = (),
    deadlines: Deadlines | None = None,
    grace: float = GRACE_S,
    wall_clock: Callable[[], float] = time.time,
    task_status: trio.TaskStatus[list[tuple[str, int]]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the admin API until cancelled, then finish what is under way within `grace` seconds.

    Makes `admin.token` where there is none. Starts with the bound addresses, once requests are accepted. From here on the store puts its
    changes in force through `gateway.enforce`. Raises OSError when the address cannot be bound, TokenError for a bad token file.
    """
    known = Tokens(_token_files(store, tokens))
    admin = Admin(gateway, store, known, Boundary(names), wall_clock)
    if deadlines is not None:
        admin.server.deadlines = deadlines
    listeners: Sequence[trio.abc.Listener[trio.abc.Stream]]
    listeners = await _bound(*bind) if isinstance(bind[0], str) else bind  # type: ignore[assignment]  # told apart by their first
    store.enforce = gateway.enforce
    for warning in (*store.warnings, *known.warnings):
        log.event(logging.WARNING, "state_warning", detail=warning)
    addresses = [_address(listener) for listener in listeners]
    log.event(logging.INFO, "admin_listening", bind=", ".join(f"{host}:{port}" for host, port in addresses))
    task_status.started(addresses)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(admin.quota_watch.run)
        await admin.server.serve(listeners, grace)
        nursery.cancel_scope.cancel()


async def _bound(host: str, port: int) -> Sequence[trio.abc.Listener[trio.abc.Stream]]:
    try:
        return await trio.open_tcp_listeners(port, host=host, backlog=128)
    except OSError as error:
        raise OSError(
            error.errno, f"the admin API cannot listen on {host} port {port}: {error.strerror or error}; see admin.bind"
        ) from error


def _address(listener: Any) -> tuple[str, int]:
    if not isinstance(listener, trio.SocketListener):
        return ("local", 0)
    name = listener.socket.getsockname()
    return (str(name[0]), int(name[1]))
