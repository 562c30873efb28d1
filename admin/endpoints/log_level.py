"""`/v1/log/level`: the level of the gateway's log, changed live."""

from __future__ import annotations

import logging
from typing import Final

from admin.authentication.auth import Role
from admin.context import Context
from admin.http.bodies import LogLevelBody, decode
from admin.http.problems import Fault, invalid, suggestion
from admin.http.routing import Answer, Parameter, Route
from admin.log_level import LEVELS
from admin.views.views import LogLevelNow
from common import log
from limiter.units import parse_from_now

MAX_FOR_S: Final = 30 * 86_400  # seconds; longer is a setting
REASON: Final = Parameter("reason", "text", "why; kept in the audit (a body's own `reason` wins)")


async def get(context: Context) -> Answer:
    return Answer(context.log_level.now())


async def put(context: Context) -> Answer:
    """Set the level, for a time or until the next start. A level of debug is written into the log first: it explains the flood."""
    body = decode(context.request.body, LogLevelBody)
    if body.level not in LEVELS:
        raise invalid("there is no such level", [Fault("/level", f"is none of {', '.join(LEVELS)}{suggestion(body.level, LEVELS)}")])
    seconds = None if not isinstance(body.duration, str) else _seconds(body.duration)
    log.event(logging.WARNING, "log_level_set", to=body.level, by=context.request.actor.name, for_s=seconds)
    context.log_level.set(body.level, seconds)
    return Answer(context.log_level.now(), reason=body.reason if isinstance(body.reason, str) else "")


def _seconds(text: str) -> float:
    try:
        seconds = parse_from_now(text) / 1e9
    except ValueError as error:
        raise invalid("the duration cannot be used", [Fault("/for", str(error))]) from error
    if not 0 < seconds <= MAX_FOR_S:
        raise invalid("the duration cannot be used", [Fault("/for", f"{text[:64]} is not above 0s and at most {MAX_FOR_S // 86_400}d")])
    return seconds


async def delete(context: Context) -> Answer:
    context.log_level.reset()
    return Answer(context.log_level.now())


ROUTES: Final[list[Route]] = [
    Route("GET", "/v1/log/level", Role.VIEWER, get, "The level of the log", answer=LogLevelNow),
    Route("PUT", "/v1/log/level", Role.ADMIN, put, "Set the level of the log, for a time or until the next start", answer=LogLevelNow,
          body=LogLevelBody, parameters=(REASON,)),
    Route("DELETE", "/v1/log/level", Role.ADMIN, delete, "Return to the configured level", answer=LogLevelNow, parameters=(REASON,)),
]  # fmt: skip
