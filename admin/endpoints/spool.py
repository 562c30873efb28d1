"""`/v1/spool`: what waits in the gateway because a rule says `action: spool`, as a whole and by topic."""

from __future__ import annotations

from typing import Final

import msgspec

from admin.authentication.auth import Role
from admin.context import Context
from admin.http import spreadsheet
from admin.http.paging import CURSOR, LIMIT, PROTOCOL, QUERY, SortKey, matches, one_long_list, page
from admin.http.routing import Answer, Parameter, Route
from admin.http.spreadsheet import FORMAT
from common.views.spool import SpooledTopicView, SpoolView

SORTS: Final[dict[str, str]] = {"messages": "messages", "bytes": "bytes", "wait": "waiting_seconds", "name": ""}


class SpoolPage(msgspec.Struct, frozen=True):
    """The topics that wait in the spool (`items`), and the spool as a whole, over all workers."""

    items: list[SpooledTopicView]
    next: str | None
    total: int
    spool: SpoolView


async def spool(context: Context) -> Answer:
    request = context.request
    protocol, topic, number = request.query.get("protocol"), request.query.get("topic"), SORTS[request.query.get("sort", "messages")]

    def wanted(item: SpooledTopicView) -> bool:
        return protocol in (None, item.protocol) and topic in (None, item.topic) and matches(request, item.topic)

    def key(item: SpooledTopicView) -> SortKey:
        return -float(getattr(item, number)) if number else 0.0, f"{item.topic} {item.protocol}"

    async with one_long_list():
        items = [item for item in await context.gateway.spooled_topics() if wanted(item)]
    found, following = await page(items, key, request)
    return Answer(SpoolPage(found, following, len(items), context.gateway.spool()))


TOPIC: Final = Parameter("topic", "text", "only the topic of exactly this name")
SORT: Final = Parameter("sort", "text", "the largest first: messages, bytes, wait (seconds); or name", choices=tuple(SORTS))
ROUTES: Final[list[Route]] = [
    Route("GET", "/v1/spool", Role.VIEWER, spool, "The spool, and the topics that wait in it", answer=SpoolPage,
          parameters=(PROTOCOL, TOPIC, QUERY, SORT, LIMIT, CURSOR, FORMAT), columns=spreadsheet.SPOOL, views=("spool", "spooled_topics")),
]  # fmt: skip
