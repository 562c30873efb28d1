"""ROUTES: every method on every path of the admin API. To add a resource, write `admin/endpoints/<resource>.py` and name it here."""

from __future__ import annotations

from typing import Final

from admin.endpoints import dashboard, history, limits, openapi, process, quotas, rules, traffic
from admin.routing import Route

ROUTES: Final[list[Route]] = [
    *limits.ROUTES,
    *rules.ROUTES,
    *quotas.ROUTES,
    *history.ROUTES,
    *traffic.ROUTES,
    *process.ROUTES,
    *openapi.ROUTES,
    *dashboard.ROUTES,
]
