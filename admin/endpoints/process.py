"""`/v1/status`, `/v1/config`, `/v1/drain`, the probes, and `/metrics`: the gateway as a process."""

from __future__ import annotations

import time
from typing import Any, Final

import trio

from admin.auth import Role, TokenError
from admin.bodies import ConfirmBody, ReasonBody, decode
from admin.context import Context
from admin.ports import ReloadFailedError
from admin.problems import Fault, ProblemError, invalid
from admin.routing import DRY_RUN, Answer, Parameter, Route
from admin.state import format_time
from admin.views import Done, Live, Ready

EXPOSITION: Final = "text/plain; version=0.0.4; charset=utf-8"  # Prometheus 3 refuses a scrape without a type
REASON: Final = Parameter("reason", "text", "why; kept in the audit (a body's own `reason` wins)")


async def status(context: Context) -> Answer:
    store = context.store
    state: dict[str, Any] = {
        "revision": store.revision,
        "live_changes_of_keys": len(store.state.keys),
        "live_changes_of_rules": len(store.state.rules),
        "unfit_changes_of_rules": store.unfit(),
        "quotas": store.state.quotas,
        "next_expiry": None if store.next_expiry is None else format_time(store.next_expiry),
        "write_failures": store.write_failures,
    }
    warnings = [*context.gateway.warnings(), *store.warnings, *context.tokens.warnings]
    found = context.gateway.status()
    found.setdefault("limits", context.gateway.judge.usage())
    return Answer({**found, "state": state, "warnings": warnings})


async def configuration(context: Context) -> Answer:
    return Answer(context.gateway.configuration())


async def reload(context: Context) -> Answer:
    """Read the configuration and the token files again; the last good ones stay where the new ones cannot be used. A dry run puts
    nothing in force and leaves the tokens alone.
    """
    body = decode(context.request.body, ReasonBody)
    dry_run = context.request.flag("dry_run")
    try:
        if not dry_run:
            context.tokens.refresh()
        done = await context.gateway.reload(dry_run=dry_run)
        await context.gateway.in_force()
    except ReloadFailedError as error:
        raise invalid(
            "the configuration cannot be used; the last good one stays in force", [Fault("", text) for text in error.errors]
        ) from error
    except TokenError as error:
        raise ProblemError(422, "invalid", f"{error}; the tokens valid so far stay valid") from error
    return Answer(done, reason=text_of(body.reason))


def text_of(reason: object) -> str:
    """A body's reason; "" where it gives none."""
    return reason if isinstance(reason, str) else ""


async def drain(context: Context) -> Answer:
    body = decode(context.request.body, ConfirmBody)
    if not body.confirm:
        raise invalid("draining ends the gateway", [Fault("/confirm", 'send {"confirm": true}; it cannot be undone')])
    context.gateway.drain()
    return Answer(
        Done("draining: no new connections are accepted, requests in flight are finished, then the gateway ends"),
        status=202,
        reason=text_of(body.reason),
    )


async def livez(context: Context) -> Answer:
    """Measures one turn of the loop that everything here runs on."""
    del context
    before = time.monotonic_ns()
    await trio.lowlevel.checkpoint()
    return Answer(Live("alive", round((time.monotonic_ns() - before) / 1e6, 3)))


async def readyz(context: Context) -> Answer:
    reasons = context.gateway.ready()
    if context.request.actor.role < Role.VIEWER:
        return Answer(Ready(not reasons), status=503 if reasons else 200)
    return Answer(Ready(not reasons, reasons, context.gateway.warnings()), status=503 if reasons else 200)


async def metrics(context: Context) -> Answer:
    return Answer(context.gateway.metrics(context.own_metrics()), content_type=EXPOSITION)


ROUTES: Final[list[Route]] = [
    Route("GET", "/v1/status", Role.VIEWER, status, "The gateway as a whole, with its warnings and the settings that need a restart",
          answer=dict[str, Any]),
    Route("GET", "/v1/config", Role.VIEWER, configuration, "The effective configuration, without secrets", answer=dict[str, Any]),
    Route("POST", "/v1/config:reload", Role.ADMIN, reload, "Read the configuration again", answer=dict[str, Any], body=ReasonBody,
          body_required=False, parameters=(DRY_RUN, REASON)),
    Route("POST", "/v1/drain", Role.ADMIN, drain, "Stop gracefully, as SIGTERM does", answer=Done, body=ConfirmBody, statuses=(202,),
          parameters=(REASON,)),
    Route("GET", "/livez", Role.NOBODY, livez, "Whether the process is alive", answer=Live),
    Route("GET", "/readyz", Role.NOBODY, readyz, "Whether traffic is served", answer=Ready, statuses=(200, 503)),
    Route("GET", "/metrics", Role.VIEWER, metrics, "Prometheus text exposition", answer_type=EXPOSITION),
]  # fmt: skip
