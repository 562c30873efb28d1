"""`/` and `/dashboard`: the dashboard's files (`admin/dashboard/`), each a route for everybody."""

from __future__ import annotations

from typing import Final

from admin.auth import Role
from admin.context import Context
from admin.dashboard import PAGES, POLICY, Page
from admin.routing import Answer, Route


def static(path: str, page: Page) -> Route:
    """A route that answers with the bytes the file has now. Raises OSError where there is none."""
    answer = Answer(page.read(), content_type=page.content_type, headers={"Content-Security-Policy": POLICY})

    async def get(context: Context) -> Answer:
        del context
        return answer

    return Route("GET", path, Role.NOBODY, get, page.summary, answer_type=page.content_type)


ROUTES: Final[list[Route]] = [static(path, page) for path, page in PAGES.items()]
