"""`/v1/status`, `/v1/config`, `/v1/drain`, the probes, and `/metrics`: the gateway as a process."""

from __future__ import annotations

import logging
import time
from typing import Any, Final

import trio
from msgspec.structs import asdict

from admin.authentication.auth import Role
from admin.context import Context
from admin.http import scrape_formats
from admin.http.bodies import ConfirmBody, ReasonBody, decode
from admin.http.problems import Fault, invalid
from admin.http.routing import DRY_RUN, Answer, Parameter, Route
from admin.ports import ReloadFailedError
from admin.store.state import format_time
from admin.views.views import Done, GatewayView, Live, Ready, Started, StoreView
from common import log

EXPOSITION: Final = "text/plain; version=0.0.4; charset=utf-8"  # Prometheus 3 refuses a scrape without a type
ORIGINS: Final = Parameter(
    "origins", "flag", "value by value: `values` of `path`, `value` and `origin` (file and line, environment, flag, default)"
)
REASON: Final = Parameter("reason", "text", "why; kept in the audit (a body's own `reason` wins)")


async def status(context: Context) -> Answer:
    store = context.store
    state = StoreView(
        revision=store.revision,
        live_changes_of_keys=len(store.state.keys) + len(store.state.levels),
        live_changes_of_rules=len(store.state.rules) + len(store.state.live_rules),
        unfit_changes_of_rules=store.unfit(),
        quotas=store.state.quotas,
        next_expiry=None if store.next_expiry is None else format_time(store.next_expiry),
        write_failures=store.write_failures,
        read_only=store.read_only or None,
    )
    warnings = [*context.gateway.warnings(), *store.warnings, *context.tokens.warnings]
    found = asdict(context.gateway.status())
    return Answer(GatewayView(**{**found, "state": state, "warnings": warnings}))


async def configuration(context: Context) -> Answer:
    """The configuration as it would be written; with `?origins=1` value by value, each with where it comes from."""
    if not context.request.flag("origins"):
        return Answer(context.gateway.configuration())
    now = context.log_level.now()
    values = context.gateway.origins()
    if now.live:
        live = {"kind": "live", "name": "PUT /v1/log/level", "until": now.until}
        values = [{**each, "value": now.level, "origin": live} if each["path"] == "log.level" else each for each in values]
    return Answer({"values": values})


async def reload(context: Context) -> Answer:
    """Read the configuration and the token files again; the last good ones stay where the new ones cannot be used. A dry run puts
    nothing in force.
    """
    body = decode(context.request.body, ReasonBody)
    dry_run = context.request.flag("dry_run")
    try:
        done = await context.gateway.reload(dry_run=dry_run)
        await context.gateway.reloaded_everywhere()
    except ReloadFailedError as error:
        raise invalid(f"the configuration cannot be used; {error.holds}", [Fault("", text) for text in error.errors]) from error
    return Answer(done, reason=text_of(body.reason))


def text_of(reason: object) -> str:
    """A body's reason; "" where it gives none."""
    return reason if isinstance(reason, str) else ""


async def drain(context: Context) -> Answer:
    body = decode(context.request.body, ConfirmBody)
    if not body.confirm:
        raise invalid("draining ends the gateway", [Fault("/confirm", 'send {"confirm": true}; it cannot be undone')])
    if context.request.flag("dry_run"):
        return Answer(Done("would begin to drain; nothing is changed"), status=202)
    log.event(logging.INFO, "stopping", by=context.request.actor.name)
    context.gateway.drain()
    return Answer(
        Done(drain_text(context.gateway.configuration().get("drain"))),
        status=202,
        reason=text_of(body.reason),
    )


def drain_text(settings: object) -> str:
    """What happens now, under these settings (`drain`)."""
    said = settings if isinstance(settings, dict) else {}
    within = f", within {said['timeout']} (drain.timeout)" if "timeout" in said else ""
    if said.get("hold", "at_once") == "at_once":
        return f"draining: no new connections are accepted, requests in flight are finished, then the gateway ends{within}"
    return f"draining: clients are served until they leave by themselves (drain.hold), then the gateway ends{within}"


async def livez(context: Context) -> Answer:
    """Measures one turn of the loop that everything here runs on."""
    del context
    before = time.monotonic_ns()
    await trio.lowlevel.checkpoint()
    return Answer(Live("alive", round((time.monotonic_ns() - before) / 1e6, 3)))


async def startupz(context: Context) -> Answer:
    """Unlike readiness it does not look at brokers: a gateway that has begun stays begun, whatever becomes of those."""
    begun = context.gateway.has_begun()
    return Answer(Started(begun), status=200 if begun else 503)


async def readyz(context: Context) -> Answer:
    reasons = context.gateway.explain_unready()
    if context.request.actor.role < Role.VIEWER:
        return Answer(Ready(not reasons), status=503 if reasons else 200)
    return Answer(Ready(not reasons, reasons, context.gateway.warnings()), status=503 if reasons else 200)


async def metrics(context: Context) -> Answer:
    """As the scraper asks for it: `Accept` chooses text or OpenMetrics, `Accept-Encoding` whether it is compressed."""
    headers = context.request.head.headers
    text = context.gateway.metrics(context.own_metrics())
    content_type = EXPOSITION
    if scrape_formats.wants_openmetrics(headers.get("accept", b"")):
        text, content_type = scrape_formats.openmetrics(text), scrape_formats.OPENMETRICS
    told = {"Vary": "Accept, Accept-Encoding"}
    if scrape_formats.wants_gzip(headers.get("accept-encoding", b"")):
        return Answer(scrape_formats.compress(text), content_type=content_type, headers={**told, "Content-Encoding": "gzip"})
    return Answer(text, content_type=content_type, headers=told)


ROUTES: Final[list[Route]] = [
    Route("GET", "/v1/status", Role.VIEWER, status, "The gateway as a whole, with its warnings and the settings that need a restart",
          answer=GatewayView, views=("status",)),
    Route("GET", "/v1/config", Role.VIEWER, configuration, "The effective configuration, without secrets", answer=dict[str, Any],
          parameters=(ORIGINS,)),
    Route("POST", "/v1/config:reload", Role.ADMIN, reload, "Read the configuration again", answer=dict[str, Any], body=ReasonBody,
          body_required=False, parameters=(DRY_RUN, REASON)),
    Route("POST", "/v1/drain", Role.ADMIN, drain, "Stop gracefully, as SIGTERM does", answer=Done, body=ConfirmBody, statuses=(202,),
          parameters=(DRY_RUN, REASON)),
    Route("GET", "/livez", Role.NOBODY, livez, "Whether the process is alive", answer=Live, at_once=True),
    Route("GET", "/readyz", Role.NOBODY, readyz, "Whether traffic is served", answer=Ready, statuses=(200, 503),
          at_once=True, views=("status",)),
    Route("GET", "/startupz", Role.NOBODY, startupz, "Whether clients are accepted, or were before a drain", answer=Started,
          statuses=(200, 503), at_once=True),
    Route("GET", "/metrics", Role.VIEWER, metrics, "Prometheus text, or OpenMetrics by `Accept`; gzip by `Accept-Encoding`",
          answer_type=EXPOSITION, views=("metrics", "status")),
]  # fmt: skip
