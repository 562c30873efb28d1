"""`/v1/topics`, `/v1/clients`, `/v1/connections`, `/v1/listeners`: the traffic through the gateway, as the gateway describes it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import chain, filterfalse, islice
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio
from msgspec import UNSET

from admin.authentication.auth import Role
from admin.context import Context
from admin.http import spreadsheet
from admin.http.paging import (
    CURSOR,
    DEFAULT,
    DESCRIBED_AT_ONCE,
    LIMIT,
    OFFSET,
    PROTOCOL,
    QUERY,
    SortKey,
    decode,
    encode,
    in_order,
    matches,
    one_long_list,
    page,
    page_in_order,
    value_at,
)
from admin.http.problems import not_found
from admin.http.routing import Answer, Parameter, Request, Route
from admin.http.slices import rest_after, rest_if_due
from admin.http.spreadsheet import FORMAT
from admin.views.topic_limits import next_waits, used_shares, with_limits
from admin.views.views import Done, Page
from common.views.connections import ConnectionView
from common.views.listeners import ListenerView
from common.views.topics import ClientView, TopicView
from common.views.view import ViewT
from limiter.operations import OPERATIONS
from limiter.rules.match import PROTOCOLS

if TYPE_CHECKING:
    from admin.ports import OperatedGateway, TopicPlace
    from common.views.connections import AnyConnection

NAMES_PER_SLICE: Final = 500  # topics; of which only the name or a number is looked at between two looks at the clock: 0.1 ms
FEW: Final = 1000  # topics; of which a number is looked up one by one; a guess
SLICE_ITEMS: Final = 30  # items searched between two turns of the loop; 0.2 ms (measured 2026-11)
TOPIC_SORTS: Final = {
    "name": None,
    "worst": "trouble",
    "rate": "received_per_second",
    "forwarded": "forwarded_per_second",
    "refused": "refused_per_second",
    "bytes": "bytes_per_second",
    "waiting": "waiting",
    "used": "moving",
    "wait": "moving",
    "would_refuse": "shadow_refused",
}


ENDLESS_S: Final = 1e12  # seconds; of what waits without end: a number that a cursor can name


def seconds_to_wait(item: TopicView) -> float:
    """How long a message that comes now will wait: behind those that wait already."""
    account = item.account
    if account is not UNSET and account.state == "waiting":
        return ENDLESS_S if account.last_waits_seconds is None else account.last_waits_seconds
    return (item.wait_ms or 0.0) / 1e3


CONNECTION_SORTS: Final[dict[str, tuple[str, ...]]] = {  # sums of which the largest comes first; (): by number
    "name": (),
    "wait": ("held_messages", "held_deliveries"),
    "refused": ("refused_per_second",),
    "backlog": ("backlog_to_broker", "backlog_to_client", "held_bytes", "spooled_bytes", "held_delivery_bytes"),
    "forwarded": ("messages_forwarded",),
    "blocked": ("broker_blocked_seconds", "send_blocked_seconds"),
    "age": ("age_seconds",),
}

CLIENT_SORTS: Final[dict[str, tuple[str, ...]]] = {  # the numbers that count, one after the other; (): by address
    "refused": ("refused_per_second", "delayed_per_second"),
    "held": ("delayed_per_second", "refused_per_second"),
    "total": ("refused", "delayed"),
    "name": (),
}
FAINT: Final = 1e-6  # by so much the second number counts less than the first


def _words(value: object) -> list[str]:
    """Every text in a value: of a view, of its lists and objects (a client's own name, the rule that holds it)."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, msgspec.Struct):
        parts: Iterable[object] = [getattr(value, name) for name in value.__struct_fields__]
    elif isinstance(value, dict):
        parts = value.values()
    else:
        parts = value if isinstance(value, list) else ()
    return [word for part in parts for word in _words(part)]


async def _matching(request: Request, items: list[ViewT]) -> list[ViewT]:
    """The items with a text that contains `q`; all of them without `q`. Searched in slices."""
    if not request.query.get("q"):
        return items
    found: list[ViewT] = []
    for first in range(0, len(items), SLICE_ITEMS):
        started = trio.current_time()
        found += [item for item in items[first : first + SLICE_ITEMS] if matches(request, *_words(item))]
        await rest_after(started)
    return found


async def topics(context: Context) -> Answer:
    """Describes only the topics of the page, and those that move where their limits are what to sort by.

    Of most topics each number is 0: they come last, by their names, in which order the gateway has them.
    """
    request, gateway = context.request, context.gateway
    if "topic" in request.query:
        protocols = (request.query["protocol"],) if "protocol" in request.query else PROTOCOLS
        exact = await _described(context, [(each, request.query["topic"], operation) for each in protocols for operation in OPERATIONS])
        return Answer(Page(exact, None, len(exact)))
    sort = request.query.get("sort", "name")
    number, protocol, text = TOPIC_SORTS[sort], request.query.get("protocol"), request.query.get("q", "")
    async with one_long_list():
        places = await gateway.topic_places(protocol, text)
        numbers: dict[TopicPlace, float] = {}
        if number is not None:
            numbers = await (_numbers(gateway, number, places) if protocol or text else gateway.topic_numbers(number))
        if sort in BY_LIMIT:  # a topic at rest uses nothing of its limit, and nobody waits for it
            numbers = await BY_LIMIT[sort](context, list(numbers))
        found, following = await _page_of_topics(request, places, numbers)
        items = await _described(context, found[:DESCRIBED_AT_ONCE])
    for first in range(DESCRIBED_AT_ONCE, len(found), DESCRIBED_AT_ONCE):
        async with one_long_list():  # whoever looks at a page has a turn before an export has described all topics
            items += await _described(context, found[first : first + DESCRIBED_AT_ONCE])
    total = sum(map(len, places))
    started = trio.current_time()
    while places:  # run by run: to let a million topics go at once takes 20 ms
        places.pop()
        started = await rest_if_due(started)
    return Answer(Page(items, following, total))


async def _described(context: Context, places: list[TopicPlace]) -> list[TopicView]:
    return await with_limits(context.topic_limits, context.gateway, await context.gateway.topics(places), context.request.now)


async def _numbers(gateway: OperatedGateway, name: str, places: list[list[TopicPlace]]) -> dict[TopicPlace, float]:
    """One of the numbers of these topics, of which it is not 0. Of many topics most are at rest: those that move are asked for."""
    if sum(map(len, places)) <= FEW:
        return await gateway.topic_numbers(name, [*chain.from_iterable(places)])
    moving = await gateway.topic_numbers(name)
    found: dict[TopicPlace, float] = {}
    started = trio.current_time()
    for run in places if moving else ():
        found.update({place: moving[place] for place in filter(moving.__contains__, run)})
        started = await rest_if_due(started)
    return found


async def _by_use(context: Context, moving: list[TopicPlace]) -> dict[TopicPlace, float]:
    return await used_shares(context.topic_limits, context.gateway, moving, context.request.now)


async def _by_wait(context: Context, moving: list[TopicPlace]) -> dict[TopicPlace, float]:
    """Only those where messages wait are described: the next waits behind these."""
    gateway = context.gateway
    waiting = await gateway.topic_numbers("waiting", moving)
    found = await next_waits(context.topic_limits, gateway, [place for place in moving if place not in waiting], context.request.now)
    items = await _described(context, list(waiting))
    return found | {item.key(): seconds for item in items if (seconds := seconds_to_wait(item))}


BY_LIMIT: Final = {"used": _by_use, "wait": _by_wait}  # numbers that are known only beside the topics' limits


async def _page_of_topics(
    request: Request, places: list[list[TopicPlace]], numbers: dict[TopicPlace, float]
) -> tuple[list[TopicPlace], str | None]:
    """Those with the largest numbers first, which are among the `places`, then by name; with the cursor of the next page.

    Raises ProblemError 422.
    """
    first, count = request.count("offset", 0), request.count("limit", DEFAULT)
    after = decode(request.query.get("cursor"))
    last: TopicPlace | None = None
    if after is not None:
        first, last = 0, _place(after[1])
    known: list[TopicPlace] = []  # those with a number that come into question
    values: list[float] = []
    started = trio.current_time()
    pairs = iter(numbers.items())
    while some := list(islice(pairs, NAMES_PER_SLICE)):
        wanted = some if after is None else [(place, number) for place, number in some if (-number, place) > (after[0], last)]
        known += [place for place, _ in wanted]
        values += [number for _, number in wanted]
        started = await rest_if_due(started)
    found = await _largest(known, values, first, count + 1)
    at_rest = after is not None and after[0] == 0
    found += await _at_rest(places, numbers, last if at_rest else None, max(0, first - len(known)), count + 1 - len(found))
    shown = found[:count]
    return shown, encode((-numbers.get(shown[-1], 0.0) or 0.0, " ".join(shown[-1]))) if len(found) > count else None


def _place(text: str) -> TopicPlace:
    """The topic that a cursor names; its name may have spaces."""
    protocol, _, rest = text.partition(" ")
    name, _, operation = rest.rpartition(" ")
    return protocol, name, operation


async def _largest(places: list[TopicPlace], values: list[float], first: int, count: int) -> list[TopicPlace]:
    """Those with the largest values, without the `first` of them; of like ones by name.

    The value of the last one is found first. Only the topics with larger ones are sorted, and of those that have just that value, as a
    message in ten seconds, the part that is wanted.
    """
    if first >= len(places):
        return []
    least = await value_at(values, min(first + count, len(values)) - 1)
    larger: list[tuple[float, TopicPlace]] = []
    equal: list[TopicPlace] = []
    started = trio.current_time()
    for begin in range(0, len(places), NAMES_PER_SLICE):
        some = range(begin, min(begin + NAMES_PER_SLICE, len(places)))
        larger += [(-values[at], places[at]) for at in some if values[at] > least]
        equal += [places[at] for at in some if values[at] == least]
        started = await rest_if_due(started)
    found = [place for _, place in await in_order(larger, first, count)]
    return found + await in_order(equal, max(0, first - len(larger)), count - len(found))


async def _at_rest(
    runs: list[list[TopicPlace]], moving: dict[TopicPlace, float], last: TopicPlace | None, first: int, count: int
) -> list[TopicPlace]:
    """Those that are not moving, by name: behind the `last` of the page before, without the `first` of them."""
    found: list[TopicPlace] = []
    started = trio.current_time()
    for run in runs:
        if len(found) >= count:
            break
        behind = run if last is None or last < run[0] else run[bisect_right(run, last) :]
        some = [*filterfalse(moving.__contains__, behind)] if moving else behind
        found += some[first : first + count - len(found)]
        first = max(0, first - len(some))
        started = await rest_if_due(started)
    return found


def listing(
    view: str, sorts: Mapping[str, Sequence[str]], order: str, name: Callable[[Any], str]
) -> Callable[[Context], Awaitable[Answer]]:
    """Answers with a view that is a list: of one protocol, with a text that contains `q`, in the order of `sort`, page by page.

    `sorts`: the numbers that count, one after the other, the largest first; none: by `name`. `order`: where nothing is said.
    """

    async def answer(context: Context) -> Answer:
        request = context.request
        protocol, numbers = request.query.get("protocol"), sorts[request.query.get("sort", order)]

        def key(item: Any) -> SortKey:
            return sum(-float(getattr(item, number)) * FAINT**at for at, number in enumerate(numbers)), name(item)

        async with one_long_list():
            known: list[Any] = [item for item in context.gateway.view(view) if protocol in (None, item.protocol)]
            matching = await _matching(request, known)
        found, following = await page(matching, key, request)
        return Answer(Page(found, following, len(matching)))

    return answer


async def connections(context: Context) -> Answer:
    """Describes only the connections of the page; with `q` all of them, as any of their texts may contain it, and so with `sort`."""
    request, gateway = context.request, context.gateway
    protocol = request.query.get("protocol")
    numbers = [number for number, its in gateway.connections().items() if protocol in (None, its)]
    sums = CONNECTION_SORTS[request.query.get("sort", "name")]

    def key(item: AnyConnection) -> SortKey:
        return (-float(sum(getattr(item, name, 0) for name in sums)), f"{item.id:020}") if sums else (float(item.id), "")

    if request.query.get("q") or sums:
        async with one_long_list():
            matching = await _matching(request, await gateway.describe_connections(numbers))
        found, following = await page(matching, key, request)
        return Answer(Page(found, following, len(matching)))
    shown, following = await page(numbers, lambda number: (float(number), ""), request)
    return Answer(Page(await gateway.describe_connections(shown), following, len(numbers)))


def _number(context: Context) -> int:
    """The connection that the path names; raises ProblemError 404."""
    text = context.request.path["id"].decode(errors="replace")
    try:
        number = int(text)
    except ValueError:
        number = 0
    if str(number) != text or number not in context.gateway.connections():
        raise not_found(f"there is no connection {text!r}; GET /v1/connections lists them")
    return number


async def connection(context: Context) -> Answer:
    number = _number(context)
    for item in await context.gateway.describe_connections([number]):
        return Answer(item)
    raise not_found(f"connection {number} has just ended by itself")


async def close_connection(context: Context) -> Answer:
    number = _number(context)
    if not context.request.flag("dry_run") and not context.gateway.close_connection(number, context.reason):
        raise not_found(f"connection {number} has just ended by itself")
    return Answer(Done(f"connection {number} {'would be' if context.request.flag('dry_run') else 'is being'} closed"))


async def listeners(context: Context) -> Answer:
    """In the order of the configuration, which has each once; those of brokers behind a name server follow theirs."""
    protocol = context.request.query.get("protocol")
    items = [item for item in context.gateway.listeners() if protocol in (None, item.protocol)]
    wanted = await _matching(context.request, items)
    found, following = page_in_order(wanted, lambda item: item.name, context.request)
    return Answer(Page(found, following, len(wanted)))


clients: Final = listing(
    "clients", CLIENT_SORTS, "refused", lambda item: f"{item.client} {item.protocol} {item.listener} {item.user or ''}"
)
DRY: Final = Parameter("dry_run", "flag", "close nothing")
REASON: Final = Parameter("reason", "text", "the reason; sent to the client and kept in the audit")
TOPIC_QUERY: Final = Parameter("q", "text", "only topics whose name has each of these words, upper and lower case alike")
TOPIC: Final = Parameter("topic", "text", "only the topic of just this name, each of its operations; beside it, only `protocol` says which")
SORT: Final = Parameter(
    "sort",
    "text",
    "name; worst: by what is refused now, then what waits, then what comes; or the largest first: used, refused, rate, wait, forwarded, "
    "bytes, waiting, would_refuse",
    choices=tuple(TOPIC_SORTS),
)
CLIENT_SORT: Final = Parameter(
    "sort", "text", "the largest first: refused, held (per second now), total (refused); or name, by address", choices=tuple(CLIENT_SORTS)
)
CONNECTION_SORT: Final = Parameter(
    "sort",
    "text",
    "name (by number), or the largest first: wait (messages held), refused (per second now), backlog (bytes), forwarded (messages), "
    "blocked (seconds), age",
    choices=tuple(CONNECTION_SORTS),
)
ROUTES: Final[list[Route]] = [
    Route("GET", "/v1/topics", Role.VIEWER, topics, "Topics seen lately, and the clients refused most",
        answer=Page[TopicView], parameters=(PROTOCOL, TOPIC, TOPIC_QUERY, SORT, LIMIT, OFFSET, CURSOR, FORMAT),
          columns=spreadsheet.TOPICS, views=("topics",)),
    Route("GET", "/v1/clients", Role.VIEWER, clients, "Clients that limits refuse or hold, over all topics", answer=Page[ClientView],
          parameters=(PROTOCOL, QUERY, CLIENT_SORT, LIMIT, CURSOR, FORMAT), columns=spreadsheet.CLIENTS, views=("clients",)),
    Route("GET", "/v1/connections", Role.VIEWER, connections, "Connections, each with its bottleneck, credit and spool stage",
          answer=Page[ConnectionView], parameters=(PROTOCOL, QUERY, CONNECTION_SORT, LIMIT, CURSOR, FORMAT),
          columns=spreadsheet.CONNECTIONS, views=("connections",)),
    Route("GET", "/v1/connections/{id}", Role.VIEWER, connection, "One connection", answer=ConnectionView, views=("connections",)),
    Route("DELETE", "/v1/connections/{id}", Role.OPERATOR, close_connection, "Close a connection in the way of its protocol", answer=Done,
          parameters=(DRY, REASON), views=("connections",)),
    Route("GET", "/v1/listeners", Role.VIEWER, listeners, "Listeners with their real ports", answer=Page[ListenerView],
          parameters=(PROTOCOL, QUERY, LIMIT, CURSOR), views=("listeners",)),
]  # fmt: skip
