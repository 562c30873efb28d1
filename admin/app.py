"""The control plane, put together: from a request's head to its answer, and `serve`, which the gateway starts.

    head ─► Host, origin ─► route ─► token or session (401, 429) ─► role (403) ─► query ─► If-Match (428) ─► body (413, 415) ─► handler

Every answer has a request id; every attempt to change something leaves a line in the journal, also when it was refused.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import trio
import trio.abc

from admin.access import ADMIN_PORT, PROBES_PORT, Access, addresses_of, bound, text_of, token_files
from admin.authentication.auth import Actor, Role, ValidTokens
from admin.authentication.authentication import Authentication
from admin.authentication.token_store import TokenStore
from admin.context import Context
from admin.endpoints import ROUTES
from admin.endpoints.dashboard import missing_page
from admin.http.bodies import ENCODINGS, unpack
from admin.http.boundary import READS, Boundary
from admin.http.exchange import Deadlines
from admin.http.first_look import FirstLook
from admin.http.idempotency import HEADER, REPLAYED, IdempotencyKeys
from admin.http.parsing import Head, RequestRefusedError
from admin.http.preconditions import etag, require_stated
from admin.http.problems import CONTENT_TYPE, ProblemError, not_found
from admin.http.routing import JSON, ON, Answer, Request, Route, Router, parse_query
from admin.http.server import ReceiveBody, Server
from admin.http.side_thread import run_in_thread
from admin.http.slices import yield_to_loop
from admin.http.spreadsheet import export, wants_csv
from admin.http.tls import Handshakes
from admin.log_level import LiveLogLevel
from admin.quota_watch import QuotaWatch
from admin.store.changes import Author, WriteFailedError
from admin.stream_hub import StreamHub
from admin.views.glance import AdminGlance
from admin.views.marks import Marks
from common import log
from common.descriptors import own_share
from limiter.limits import SECOND

if TYPE_CHECKING:
    from admin.access import Bind
    from admin.http.peer import Peer
    from admin.ports import OperatedGateway, Sample
    from admin.store.store import Store

GRACE_S: Final = 3.0  # seconds; requests under way when the gateway stops; a change takes milliseconds (guess)
REFUSALS_PER_SECOND: Final = 10  # journal lines of refused requests with one; each is an fsync for which changes wait; a guess
MAX_PATH: Final = 512  # characters of a path in a journal line (a guess)
PROBES: Final = ("/livez", "/readyz", "/startupz", "/metrics")  # all there is on the probes' listener
TOKEN_PARAMETERS: Final = re.compile(
    r"(?:^|&)(?:access[_-]?|api[_-]?|bearer[_-]?|id[_-]?)?(?:token|key|bearer|authorization|password)=", re.I
)
NO_GOOD_TOKEN: Final = (401, 429)  # statuses of a sign-in with a wrong token
REFUSAL_NAMES: Final = {400: "malformed", 408: "timeout", 413: "too-large", 431: "head-too-large"}


class Admin:
    """Answers requests. Connections belong to `server.py`."""

    def __init__(
        self,
        gateway: OperatedGateway,
        store: Store,
        tokens: ValidTokens,
        tokens_made: TokenStore,
        wall_clock: Callable[[], float] = time.time,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._gateway = gateway
        self._store = store
        self._tokens = tokens
        self.tokens_made = tokens_made
        self._boundary = Boundary()
        self._wall_clock = wall_clock
        self._clock = clock
        self._router = Router(ROUTES)
        self._requests: dict[tuple[str, str, int], int] = {}  # (template, method, status); bounded by the routes
        self.authentication = Authentication(tokens, store, clock)
        self._refusals_audited = log.LineLimiter(REFUSALS_PER_SECOND)
        self.quota_watch = QuotaWatch(gateway, store, wall_clock)
        share = own_share()
        glance = AdminGlance(gateway, store)
        self.hub = StreamHub(gateway, glance, clock, share.streams)
        self._topic_limits = glance.limits
        self.marks = Marks(store)
        self.log_level = LiveLogLevel(gateway, wall_clock)
        self._idempotency = IdempotencyKeys()
        at_once = [route.template for route in ROUTES if route.at_once]
        on_admin, on_probes = (FirstLook(at_once, partial(self.authentication.is_good, cookies=cookies)) for cookies in (True, False))
        self.server = Server(self.respond, most=share.connections, arriving=share.arriving, first_look=on_admin)
        self.probes = Server(self.respond_to_probe, most=share.probes, arriving=share.arriving, first_look=on_probes)
        self._access = Access()

    def prepare(self, access: Access) -> Callable[[], None]:
        """Read the token files of `access`; what is returned puts all of it in force, for the next request and the next connection.

        Raises TokenError.
        """
        known = self._tokens.read(token_files(self._store.folder, access.tokens))

        def commit() -> None:
            self._tokens.take(known)
            self.put_in_force(access)

        return commit

    def put_in_force(self, access: Access) -> None:
        """Names, TLS and the openness of metrics. Connections that are open keep their TLS."""
        self._access = access
        self._boundary = Boundary(access.names)
        if access.tls is None:
            self.server.tls = None
        elif self.server.tls is None:
            self.server.tls = Handshakes(access.tls, access.explain, own_share().handshakes)
        else:
            self.server.tls.context = access.tls

    async def respond_to_probe(self, head: Head | RequestRefusedError, receive: ReceiveBody, peer: Peer) -> Answer:
        """The answer to a request on the probes' listener."""
        return await self.respond(head, receive, peer, probes_only=True)

    async def respond(self, head: Head | RequestRefusedError, receive: ReceiveBody, peer: Peer, *, probes_only: bool = False) -> Answer:
        """The answer to a request. Only trio's cancellation is raised."""
        request_id = secrets.token_hex(8)
        route: Route | None = None
        actor = Actor("nobody", Role.NOBODY, peer.address)
        method = "?"
        missing: ProblemError | None = None  # why there is no route
        try:
            if isinstance(head, RequestRefusedError):
                raise head
            method = head.method
            if not probes_only:
                self._boundary.check(head)
            refuse_token_in_query(head)
            names: dict[str, bytes] = {}
            try:
                route, names = self._find_probe(head) if probes_only else self._router.find(head.method, head.path)
            except ProblemError as error:
                if probes_only:
                    raise
                missing = error
            actor = await self._authenticate(head, peer, route, request_id, cookies=not probes_only)
            if route is None:
                assert missing is not None
                raise missing
            answer = await self._handle(Request(request_id, head, actor, names, {}, self._clock()), route, receive)
            await self._audit_done(head, route, actor, request_id, answer)
        except RequestRefusedError as refused:
            name = REFUSAL_NAMES.get(refused.status, "malformed")
            answer = problem_answer(ProblemError(refused.status, name, refused.detail), request_id)
        except ProblemError as problem:
            answer = problem_answer(problem, request_id)
            if missing is not None and missing.status == 404 and problem.status in (401, 404) and isinstance(head, Head):
                answer = missing_page(head) or answer
            if isinstance(head, Head):
                await self._audit_refused(head, route, actor, request_id, problem)
        except Exception as error:
            log.failure("admin_request_failed", error, method=method, route=route and route.template, request_id=request_id)
            answer = problem_answer(ProblemError(500, "internal", "an internal error; the log has it under this request_id"), request_id)
        self._count(route, method, answer.status)
        return replace(answer, headers={**answer.headers, "X-Request-Id": request_id})

    def _find_probe(self, head: Head) -> tuple[Route, dict[str, bytes]]:
        """The route of a request on the probes' listener; raises ProblemError 404 or 405."""
        if head.path not in PROBES:
            raise not_found(f"this port has {', '.join(PROBES)} and nothing else; the admin API listens at admin.bind")
        route, names = self._router.find(head.method, head.path)
        return (replace(route, role=Role.NOBODY) if self._access.metrics_open else route), names

    async def _authenticate(self, head: Head, peer: Peer, route: Route | None, request_id: str, *, cookies: bool) -> Actor:
        """The actor behind a request; raises ProblemError (`Authentication.actor`)."""
        peer.authenticated = False
        action = self._known_action(head, route)
        actor = await self.authentication.actor(
            head, peer.address, None if route is None else route.role, action, request_id, cookies=cookies
        )
        peer.authenticated = actor.role is not Role.NOBODY
        return actor

    async def _handle(self, request: Request, route: Route, receive: ReceiveBody) -> Answer:
        if request.actor.role < route.role:
            raise ProblemError(
                403, "forbidden", f"this needs the role {route.role.word}; {request.actor.name} has {request.actor.role.word}"
            )
        if not route.at_once:
            await yield_to_loop()
        request = replace(request, query=parse_query(route, request.head.query))
        if route.conditional:
            require_stated(request)
        request = replace(request, body=await self._body(request, route, receive))
        context = Context(
            request, self._gateway, self._store, self._tokens, self.tokens_made, self._wall_clock, self.quota_watch, self.own_metrics,
            self.hub, self.log_level, partial(self.authentication.still_allowed, request.head, request.actor, route.role), ROUTES,
            self.authentication, self.marks, self._topic_limits, self._access.tls is not None,
        )  # fmt: skip
        if HEADER in request.head.headers and route.method not in READS and not route.answers_secret and not request.flag("dry_run"):
            return await self._once(context, route)
        return await self._worked_on(context, route)

    async def _once(self, context: Context, route: Route) -> Answer:
        """The answer to a request with an Idempotency-Key: worked on once, and remembered."""
        request, token = context.request, context.request.actor.name
        before = self._idempotency.begin(token, request.head, request.body, time.monotonic())
        if before is not None:
            return before
        answer: Answer | None = None
        try:
            answer = await self._worked_on(context, route)
        finally:
            kept = self._idempotency.end(token, request.head, answer)
        assert kept is not None
        return kept

    async def _worked_on(self, context: Context, route: Route) -> Answer:
        await self._gateway.gather(route.views)
        if route.columns and wants_csv(context.request):
            return await export(context, route)
        if not route.at_once:
            await yield_to_loop()
        answer = await route.handler(context)
        if answer.etag is None and route.method == "GET" and answer.content_type == JSON and route.template.startswith("/v1/"):
            await yield_to_loop()
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
        encoding = request.head.headers.get("content-encoding", b"").strip().lower()
        if encoding not in {b"", *ENCODINGS}:
            known = ", ".join(each.decode() for each in ENCODINGS)
            raise ProblemError(415, "unsupported-media-type", f"send the body as it is, or by {known}", headers={"Accept-Encoding": known})
        body = await receive(route.body_limit)
        return await run_in_thread(lambda: unpack(body, route.body_limit)) if encoding else body

    # ---- the audit ---------------------------------------------------------------------------------------------------------

    async def _audit_done(self, head: Head, route: Route, actor: Actor, request_id: str, answer: Answer) -> None:
        """Write a line for an action that changed no state; a change of the state has its line already."""
        if head.method in READS or route.conditional or route.answers_session or answer.status >= 300:
            return
        query = parse_query(route, head.query)
        if query.get("dry_run") in ON or REPLAYED in answer.headers:
            return
        reason = answer.reason or query.get("reason", "")
        author = Author(actor.name, actor.role.word, actor.address, request_id)
        await self._store.note(author, _action(head), "done", answer.detail, reason)

    async def _audit_refused(self, head: Head, route: Route | None, actor: Actor, request_id: str, problem: ProblemError) -> None:
        if head.method in READS or actor.role is Role.NOBODY or isinstance(problem.__cause__, WriteFailedError):
            return
        if route is not None and route.answers_session and problem.status in NO_GOOD_TOKEN:
            return  # `Authentication.failed` has written it
        unaudited = self._refusals_audited.admit(self._clock() // SECOND)
        if unaudited < 0:
            return
        outcome = "refused" if problem.status < 500 else "failed"
        more = f"; {unaudited} more since the line before" if unaudited else ""
        author = Author(actor.name, actor.role.word, actor.address, request_id)
        action = self._known_action(head, route) if route is None else _action(head)
        await self._store.note(author, action, outcome, f"{problem.status} {problem.detail}{more}")

    def _known_action(self, head: Head, route: Route | None) -> str:
        """A request without a good token, for the audit: of its path only what is known, since a token may stand there by mistake."""
        path = self._router.without_names(head.path) if route is None else route.template
        return f"{head.method} {path[:MAX_PATH]}"

    def _count(self, route: Route | None, method: str, status: int) -> None:
        known = (route.template, method) if route is not None else ("none", "other")
        self._requests[(*known, status)] = self._requests.get((*known, status), 0) + 1

    def own_metrics(self) -> dict[str, list[Sample]]:
        """The admin's part of `/metrics`, by name."""
        counts = self.server.counts
        single = {
            "sluice_ready": int(not self._gateway.explain_unready()),
            "sluice_admin_auth_failures_total": self.authentication.failures,
            "sluice_admin_connections_active": len(self.server.places),
            "sluice_admin_connections_opened_total": counts.opened,
            "sluice_admin_connections_refused_total": counts.turned_away,
            "sluice_admin_connections_gave_way_total": self.server.places.gave_way,
            "sluice_admin_slow_readers_total": counts.too_slow,
            "sluice_admin_tls_failures_total": 0 if self.server.tls is None else self.server.tls.failed,
            "sluice_probe_connections_active": len(self.probes.places),
            "sluice_probe_connections_opened_total": self.probes.counts.opened,
            "sluice_probe_connections_refused_total": self.probes.counts.turned_away + self.probes.places.gave_way,
            "sluice_admin_streams": self.hub.streams,
            "sluice_state_write_failures_total": self._store.write_failures,
            "sluice_state_read_only": int(bool(self._store.read_only)),
            "sluice_state_revision": self._store.revision,
            "sluice_state_keys": len(self._store.state.keys),
            "sluice_state_warnings": len(self._store.warnings),
            "sluice_quotas_raised": self._store.quotas_raised,
        }
        requests: list[Sample] = [
            ((template, method, str(status)), count) for (template, method, status), count in sorted(self._requests.items())
        ]
        until = self._access.certificate_until
        return {
            "sluice_admin_requests_total": requests,
            "sluice_admin_tls_cert_expiry_timestamp_seconds": [] if until is None else [((), until)],
            **self.quota_watch.samples(),
            **{name: [((), value)] for name, value in single.items()},
        }


def _action(head: Head) -> str:
    return f"{head.method} {head.path[:MAX_PATH]}"  # never the query: a token may stand there by mistake


def refuse_token_in_query(head: Head) -> None:
    """Raises ProblemError 400 where a query parameter looks like a token: proxies log URLs, and browsers keep them."""
    if TOKEN_PARAMETERS.search(head.query):
        raise ProblemError(
            400,
            "malformed",
            "a token does not belong in a URL, where proxies log it: send it as `Authorization: Bearer TOKEN`, and rotate this one if it "
            "was real",
        )


def problem_answer(problem: ProblemError, request_id: str) -> Answer:
    return Answer(problem.body(request_id), problem.status, content_type=CONTENT_TYPE, headers=problem.headers)


async def serve(
    bind: Bind,
    gateway: OperatedGateway,
    store: Store,
    *,
    access: Access | None = None,
    probes: Bind | None = None,
    more: Iterable[trio.abc.Listener[trio.abc.Stream]] = (),
    began: Callable[[Admin], None] | None = None,
    deadlines: Deadlines | None = None,
    grace: float = GRACE_S,
    wall_clock: Callable[[], float] = time.time,
    task_status: trio.TaskStatus[list[tuple[str, int]]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the admin API at `bind` and on the listeners `more`, and the probes at `probes`, until cancelled; then finish what is under
    way within `grace` seconds.

    Makes `admin.token` where there is none. Starts with the bound addresses, once requests are accepted. From here on the store puts its
    changes in force through `gateway.enforce`. `began` gets what a reload changes. Raises OSError when an address cannot be bound,
    TokenError for a bad token file.
    """
    access = access or Access()
    tokens_made = TokenStore(store.folder, lent=store.lent)
    known = ValidTokens(token_files(store.folder, access.tokens), tokens_made, wall_clock)
    admin = Admin(gateway, store, known, tokens_made, wall_clock)
    admin.put_in_force(access)
    if deadlines is not None:
        admin.server.deadlines = admin.probes.deadlines = deadlines
    listeners = [*await bound(bind, *ADMIN_PORT), *more]
    probing = [] if probes is None else await bound(probes, *PROBES_PORT)
    store.enforce = gateway.enforce
    for warning in (*store.warnings, *known.warnings):
        log.event(logging.WARNING, "state_warning", detail=warning)
    addresses = addresses_of(listeners)
    probed = text_of(addresses_of(probing)) or None
    log.event(logging.INFO, "admin_listening", bind=text_of(addresses), probes=probed, tls=access.tls is not None or None)
    if began is not None:
        began(admin)
    task_status.started([*addresses, *addresses_of(probing)])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(admin.quota_watch.run)
        nursery.start_soon(admin.hub.run)
        nursery.start_soon(admin.log_level.run)
        nursery.start_soon(tokens_made.keep_last_used)
        if probing:
            nursery.start_soon(admin.probes.serve, probing, grace)
        await admin.server.serve(listeners, grace)
        nursery.cancel_scope.cancel()
