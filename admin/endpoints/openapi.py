"""`/v1/openapi.json`: the description of this API, made from ROUTES and the types of their bodies."""

from __future__ import annotations

from typing import Any, Final

from admin.auth import Role
from admin.context import Context
from admin.openapi import document
from admin.routing import Answer, Route


async def get(context: Context) -> Answer:
    return Answer(document(context.routes))


ROUTES: Final[list[Route]] = [
    Route("GET", "/v1/openapi.json", Role.VIEWER, get, "This API as an OpenAPI 3.1 document", answer=dict[str, Any])
]
