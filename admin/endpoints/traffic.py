"""`/v1/topics`, `/v1/connections`, `/v1/listeners`: what goes through the gateway now, as the gateway tells it."""

from __future__ import annotations

from typing import Any, Final

from admin.auth import Role
from admin.context import Context
from admin.paging import CURSOR, LIMIT, QUERY, SortKey, matches, page
from admin.problems import not_found
from admin.routing import Answer, Parameter, Route
from admin.views import Done, Items
from limiter.rule import PROTOCOLS

JSONObject = dict[str, Any]
PROTOCOL: Final = Parameter("protocol", "text", "only this protocol's", choices=PROTOCOLS)
TOPIC_SORTS: Final = {
    "name": None,
    "rate": "received_per_second",
    "forwarded": "forwarded_per_second",
    "refused": "refused_per_second",
    "bytes": "bytes_per_second",
    "waiting": "waiting",
}


def _words(item: JSONObject) -> list[str]:
    """Every text in it, those of its objects (a client's own name, the rule that holds it) too."""
    inner = [word for value in item.values() if isinstance(value, dict) for word in _words(value)]
    return [value for value in item.values() if isinstance(value, str)] + inner


def _page(context: Context, items: list[JSONObject], key: Any) -> Answer:
    protocol = context.request.query.get("protocol")
    wanted = [item for item in items if protocol in (None, item.get("protocol")) and matches(context.request, *_words(item))]
    found, following = page(wanted, key, context.request)
    return Answer(Items(found, following, len(wanted)))


async def topics(context: Context) -> Answer:
    number = TOPIC_SORTS[context.request.query.get("sort", "name")]

    def key(item: JSONObject) -> SortKey:
        return (-float(item.get(number) or 0) if number else 0.0), f"{item.get('protocol')} {item.get('topic')} {item.get('operation')}"

    return _page(context, context.gateway.topics(), key)


async def connections(context: Context) -> Answer:
    return _page(context, context.gateway.connections(), lambda item: (float(item["id"]), ""))


def _connection(context: Context) -> JSONObject:
    text = context.request.path["id"].decode(errors="replace")
    for item in context.gateway.connections():
        if str(item["id"]) == text:
            return item
    raise not_found(f"there is no connection {text!r}; GET /v1/connections lists them")


async def connection(context: Context) -> Answer:
    return Answer(_connection(context))


async def close_connection(context: Context) -> Answer:
    number = int(_connection(context)["id"])
    if not context.request.flag("dry_run") and not context.gateway.close_connection(number, context.reason):
        raise not_found(f"connection {number} has just ended by itself")
    return Answer(Done(f"connection {number} {'would be' if context.request.flag('dry_run') else 'is being'} closed"))


async def listeners(context: Context) -> Answer:
    items = context.gateway.listeners()
    return Answer(Items(items, None, len(items)))


DRY: Final = Parameter("dry_run", "flag", "close nothing")
REASON: Final = Parameter("reason", "text", "why; told to the client and kept in the audit")
SORT: Final = Parameter("sort", "text", "name, or the largest first: rate, forwarded, refused, bytes, waiting", choices=tuple(TOPIC_SORTS))
ROUTES: Final[list[Route]] = [
    Route("GET", "/v1/topics", Role.VIEWER, topics, "Topics seen lately, and the clients refused most",
        answer=Items, parameters=(PROTOCOL, QUERY, SORT, LIMIT, CURSOR)),
    Route("GET", "/v1/connections", Role.VIEWER, connections, "Connections, each with its bottleneck", answer=Items,
          parameters=(PROTOCOL, QUERY, LIMIT, CURSOR)),
    Route("GET", "/v1/connections/{id}", Role.VIEWER, connection, "One connection", answer=JSONObject),
    Route("DELETE", "/v1/connections/{id}", Role.OPERATOR, close_connection, "Close a connection, in its protocol's words", answer=Done,
          parameters=(DRY, REASON)),
    Route("GET", "/v1/listeners", Role.VIEWER, listeners, "Listeners with their real ports", answer=Items),
]  # fmt: skip
