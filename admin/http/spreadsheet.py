"""Lists as comma-separated values, for spreadsheets: `Accept: text/csv` or `?format=csv`.

The columns are those of `sluice ... -o csv`, with the same names (a test compares them). Names in the cells are chosen by strangers, and a
spreadsheet takes a cell that begins with `=` for a formula, which may run programs and send other cells away. So such a cell gets an
apostrophe in front, which spreadsheets show as text. Characters that would do something where they are shown are escaped, as in the
command's tables and CSV: an export is read on a terminal, too. Numbers stay numbers.

Without `limit` and `cursor` it is the whole list, of a million topics, too. It is made in blocks of BLOCK_ROWS, each when the client has
taken the one before. So it takes the memory of one block, and rows of one block are of one moment.
"""

from __future__ import annotations

import io
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec
import trio

from admin.http.paging import MAX_ITEMS
from admin.http.routing import Answer, Parameter
from admin.http.scrape_formats import preferences
from admin.http.side_thread import run_in_thread
from common.unsafe_characters import escape
from common.views import columns

if TYPE_CHECKING:
    from admin.context import Context
    from admin.http.routing import Request, Route

JSONObject = dict[str, Any]
Read: TypeAlias = Callable[[JSONObject], object]
Column: TypeAlias = tuple[str, Read]

CSV: Final = "text/csv; charset=utf-8; header=present"
FORMAT: Final = Parameter("format", "text", "csv: comma-separated values, the whole list unless `limit` says less", choices=("json", "csv"))
READ_BY_PAGE: Final = frozenset({"/v1/history"})  # lists on disk, of which only the page is read
BLOCK_ROWS: Final = 20_000  # twice as many as there are topics by default; 5 MB (guess)
FORMULA: Final = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # the last four are full-width, for Excel


def wants_csv(request: Request) -> bool:
    """Whether the request asks for CSV: `format` says so, or `Accept` names it and likes JSON less."""
    asked = request.query.get("format")
    if asked is not None:
        return asked == "csv"
    liked = preferences(request.head.headers.get("accept", b""))
    return liked.get("text/csv", 0.0) > liked.get("application/json", 0.0)


class Block(NamedTuple):
    """Some rows of a list as lines, in parts of MAX_ITEMS rows, and the cursor of the block behind it; None: it is the last."""

    parts: list[bytes]
    following: str | None


NOTHING: Final = Block([], None)


async def export(context: Context, route: Route) -> Answer:
    """The list of `route` as CSV, streamed. Raises ProblemError, as the list does, where its first block cannot be made."""
    query = dict(context.request.query)
    whole = "limit" not in query and "cursor" not in query
    if whole and any(parameter.name == "limit" for parameter in route.parameters):
        query["limit"] = str(MAX_ITEMS if route.template in READ_BY_PAGE else BLOCK_ROWS)
    first = await _block(context, route, query)
    name = f"sluice-{route.segments[1]}.csv"
    body = _parts(context, route, query, first if whole else first._replace(following=None))
    return Answer(body, content_type=CSV, headers={"Content-Disposition": f'attachment; filename="{name}"'})


async def _parts(context: Context, route: Route, query: dict[str, str], block: Block) -> AsyncGenerator[bytes, None]:
    began = trio.current_time()
    yield write_lines([[title for title, _ in route.columns]])
    while True:
        for part in block.parts:
            yield part
        if block.following is None:
            return
        await context.gateway.gather(route.views)
        now = context.request.now + round((trio.current_time() - began) * 1e9)
        later = replace(context, request=replace(context.request, now=now))
        block = await _block(later, route, {**query, "cursor": block.following})


async def _block(context: Context, route: Route, query: dict[str, str]) -> Block:
    """One block. It is made once for all who asked for it before it was begun, and no other is made meanwhile."""
    asked = replace(context.request, query=query)
    key = (route.template, tuple(sorted(query.items())), asked.actor.role.word)
    return await _exports().made(key, partial(_made, replace(context, request=asked), route))


class Exports:
    """Makes blocks one at a time: a dozen at once would take all turns of who looks at one page. Those who asked before share one."""

    def __init__(self) -> None:
        self._turn = trio.Lock()
        self._asked = 0  # exports
        self._last: tuple[object, int, Block] = (None, 0, NOTHING)  # which one was made last, how many had asked by then, its lines

    async def made(self, key: object, make: Callable[[], Awaitable[Block]]) -> Block:
        """The block `key`, made by `make` after this call began."""
        self._asked += 1
        number = self._asked
        async with self._turn:
            made, begun_after, block = self._last
            if made != key or begun_after < number:
                begun_after = self._asked
                block = await make()
            waits = self._turn.statistics().tasks_waiting
            self._last = (key, begun_after, block) if waits else (None, 0, NOTHING)
            return block


_running: Final[trio.lowlevel.RunVar[Exports]] = trio.lowlevel.RunVar("exports")


def _exports() -> Exports:
    try:
        return _running.get()
    except LookupError:
        made = Exports()
        _running.set(made)
        return made


async def _made(context: Context, route: Route) -> Block:
    """Where a page is cut out of a list that is made for it, the block is one page."""
    answer = await route.handler(context)
    body: Any = await run_in_thread(msgspec.json.decode, answer.body) if isinstance(answer.body, bytes) else answer.body
    page: JSONObject = body if isinstance(body, dict) else {name: getattr(body, name) for name in body.__struct_fields__}
    items: Sequence[object] = page["items"] if "items" in page else page["quotas"]
    parts = [await run_in_thread(_lines, route.columns, items[first : first + MAX_ITEMS]) for first in range(0, len(items), MAX_ITEMS)]
    return Block(parts, None if page.get("next") is None else str(page["next"]))


def _lines(columns: Sequence[Column], items: Sequence[object]) -> bytes:
    """Items as lines, one after the other, so that the event loop's thread gets its turns."""
    return write_lines([read(item) for _, read in columns] for item in map(msgspec.to_builtins, items))


def write_lines(rows: Iterable[Sequence[object]]) -> bytes:
    """Lines as RFC 4180 has them."""
    import csv  # here, as it is rarely asked for

    text = io.StringIO()
    csv.writer(text).writerows([cell(value) for value in row] for row in rows)
    return text.getvalue().encode(errors="backslashreplace")


def cell(value: object) -> object:
    """A value as it stands in a cell: a text that would be a formula gets an apostrophe in front."""
    if value is None or isinstance(value, int | float):
        return str(value).lower() if isinstance(value, bool) else value
    text = escape(value if isinstance(value, str) else msgspec.json.encode(value).decode())
    return f"'{text}" if text.startswith(FORMULA) else text


# ---- columns --------------------------------------------------------------------------------------------------------


def column(title: str, *paths: str) -> Column:
    """The first member of an item that exists; `a.b` is the member b of a."""
    return title, columns.first_member(*paths)


def _in_flight(item: JSONObject) -> str | None:
    usage = item["level"].get("usage") or {}
    return None if usage.get("in_flight") is None else f"{usage['in_flight']} of {usage.get('concurrent_now')}"


def _targets(item: JSONObject) -> str:
    return ", ".join(change["target"] for change in item.get("changes", []))


def _became(item: JSONObject) -> object:
    """Before and after, as the history has them."""
    changes = item.get("changes", [])
    return [[change.get("before"), change.get("after")] for change in changes] if len(changes) == 1 else f"{len(changes)} changes"


def of_views(found: Sequence[columns.Column]) -> tuple[Column, ...]:
    return tuple((each.title.replace(" ", "_"), each.read) for each in found)


TOPICS: Final = of_views(columns.TOPICS)
CLIENTS: Final = of_views(columns.CLIENTS)
CONNECTIONS: Final = of_views(columns.CONNECTIONS)
SPOOL: Final = of_views(columns.SPOOL)
LIMITS: Final = (
    column("protocol", "protocol"), column("operation", "operation"), column("per", "level.per"), column("for", "level.thing"),
    column("messages", "level.limit.messages"), column("bytes", "level.limit.bytes"), ("in_flight", _in_flight),
    column("mode", "level.mode"), column("would_refuse", "level.usage.would_refuse"), column("origin", "level.origin"),
    column("rule", "level.rule"), column("place", "level.place"), column("used", "level.usage.used"),
    column("received/s", "level.usage.received_per_second"), column("forwarded/s", "level.usage.forwarded_per_second"),
    column("refused/s", "level.usage.refused_per_second"), column("refused", "level.usage.refused"),
    column("wait_ms", "level.usage.wait_ms"), column("fill", "level.usage.fill"), column("breaker", "level.usage.breaker"),
    column("last_refused", "level.usage.last_refused"), column("candidate", "level.candidate.messages", "level.candidate.bytes"),
)  # fmt: skip
RULES: Final = (
    column("rule", "name"), column("match", "match"), column("per", "per"), column("key_words", "routing_key_words"),
    column("messages", "limit.messages"), column("concurrent", "limit.concurrent"), column("bytes", "limit.bytes"),
    column("action", "action"), column("fallback", "fallback"), column("mode", "mode"),
    column("would_refuse", "would_refuse"),
    column("candidate", "candidate.messages", "candidate.bytes"), column("origin", "origin"), column("place", "place"),
    column("by", "override.by", "live.by"), column("until", "override.expires", "live.expires"),
    column("reason", "override.reason", "live.reason"), column("cost", "cost"),
)  # fmt: skip
HISTORY: Final = (
    column("revision", "revision"), column("at", "at"), column("by", "by"), column("action", "action"), ("what", _targets),
    ("change", _became), column("reason", "reason"),
)  # fmt: skip
QUOTAS: Final = (
    column("protocol", "protocol"), column("topic", "topic"), column("messages", "messages.rate"),
    column("messages_burst", "messages.burst"), column("bytes", "bytes.rate"), column("bytes_burst", "bytes.burst"),
    column("evidence", "evidence"),
)  # fmt: skip
