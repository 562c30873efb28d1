"""ROUTES: every method on every path of the admin API. To add a resource, write `admin/endpoints/<resource>.py` and name it here."""

from __future__ import annotations

from typing import Final

from admin.endpoints import (
    dashboard,
    events,
    history,
    level_limits,
    limits,
    live_changes,
    log_level,
    openapi,
    process,
    quotas,
    rules,
    series,
    session,
    spool,
    tokens,
    traffic,
)
from admin.http.routing import Route

ROUTES: Final[list[Route]] = [
    *limits.ROUTES,
    *level_limits.ROUTES,
    *rules.ROUTES,
    *quotas.ROUTES,
    *history.ROUTES,
    *live_changes.ROUTES,
    *traffic.ROUTES,
    *spool.ROUTES,
    *series.ROUTES,
    *events.ROUTES,
    *log_level.ROUTES,
    *process.ROUTES,
    *session.ROUTES,
    *tokens.ROUTES,
    *openapi.ROUTES,
    *dashboard.ROUTES,
]
