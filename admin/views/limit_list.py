"""The list of limits: every limit in use or changed live as an entry to search and sort, and descriptions of the entries of one page.

The plain way is to describe every limit and to show a hundred of them: 0.65 s of the processor for each page of 10,000 limits
(measured 2026-11). An entry has what there is to search and to sort by. Only what is shown is described: 0.11 s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from admin.http.paging import SortKey, matches
from admin.http.slices import in_slices, rest_after
from admin.ports import TopicPlace
from admin.store.level_targets import level_key_of
from admin.store.state import key_of
from admin.views.level_views import holding
from admin.views.limit_views import LimitInUse, in_use, level_of, limit_now, usage_of, used_share
from limiter.protocols import protocol_of_level

if TYPE_CHECKING:
    from collections.abc import Collection

    from admin.context import Context
    from common.views.topics import TopicView
    from limiter.limit_state import LimitState
    from limiter.rules.level_keys import LevelKey
    from limiter.rules.rule_set import Effective
    from limiter.topics import TopicName

NAMES_PER_SLICE: Final = 50  # live changes whose names are read between two turns of the event loop: 0.2 ms; a guess
CHANGES_PER_SLICE: Final = 10  # live changes whose limits are looked up between two turns of the event loop: 0.2 ms
DESCRIBED_PER_SLICE: Final = 10  # limits described between two turns of the event loop: 0.2 ms


class LimitEntry(NamedTuple):
    """A limit of the list. `state` None: it is changed live, and no message has used it yet; only then it has a `path`."""

    protocol: str
    operation: str
    effective: Effective
    state: LimitState | None
    path: str

    def name(self) -> str:
        """What it is sorted by, last of all."""
        return f"{self.effective.per} {self.protocol} {self.effective.thing} {self.effective.rule.name}"

    def place(self) -> TopicPlace | None:
        """The topic whose rates are its own; None: it is no topic's, or not in use."""
        state = self.state
        return (state.protocol, state.thing, state.operation) if state is not None and state.per == "topic" else None


async def find_entries(context: Context, take: Callable[[list[LimitEntry]], None]) -> None:
    """Call `take` with every limit that the request asks for, in slices: of a hundred thousand limits no more is made at once."""
    request = context.request
    protocol, searching = request.query.get("protocol"), bool(request.query.get("q"))
    rules, live = context.store.rules(), context.store.state
    keys = dict(await in_slices(lambda target: (key_of(target), target), list(live.keys), NAMES_PER_SLICE))
    levels = dict(await in_slices(lambda target: (level_key_of(target), target), list(live.levels), NAMES_PER_SLICE))
    in_use: set[TopicName] = set()  # of those that are changed live
    used: set[tuple[str, str, str]] = set()  # the same, of levels
    wanted_levels = {(key.operation, key.per, key.thing) for key in levels}

    def wanted(entries: Iterable[LimitEntry]) -> list[LimitEntry]:
        return [
            entry
            for entry in entries
            if protocol in (None, entry.protocol) and (not searching or matches(request, entry.effective.thing, entry.effective.rule.name))
        ]

    def of_state(state: LimitState) -> LimitEntry:
        if state.name in keys:
            in_use.add(state.name)
        place = (state.operation, state.per, state.effective.thing)
        if place in wanted_levels:
            used.add(place)
        return LimitEntry(state.protocol, state.operation, state.effective, state, "")

    def of_key(name: TopicName, target: str) -> Iterator[LimitEntry]:
        for effective in rules.effective(name):
            if effective.per == "topic":
                used.add(("produce", effective.per, effective.thing))
                yield LimitEntry(name.protocol, "produce", effective, None, f"/v1/{target}")

    def of_level(key: LevelKey, target: str) -> Iterator[LimitEntry]:
        its_protocol = key.protocol or protocol_of_level(key.per) or ""
        for effective in holding(rules, key):
            yield LimitEntry(its_protocol, key.operation, effective, None, f"/v1/{target}")

    async for states in context.states_in_slices():
        take(wanted(map(of_state, states)))
    unused = [(name, target) for name, target in keys.items() if name not in in_use]
    await in_slices(lambda each: take(wanted(of_key(*each))), unused, CHANGES_PER_SLICE)
    others = [(key, target) for key, target in levels.items() if (key.operation, key.per, key.thing) not in used]
    await in_slices(lambda each: take(wanted(of_level(*each))), others, CHANGES_PER_SLICE)


async def rates_of(context: Context, wanted: Collection[TopicPlace]) -> dict[TopicPlace, TopicView]:
    """The current rates of the topics `wanted`, by protocol, topic and operation."""
    return {item.key(): item for item in await context.gateway.topics(wanted)}


async def describe(context: Context, entries: list[LimitEntry]) -> list[LimitInUse]:
    """The entries in full, in slices."""
    rates = await rates_of(context, {place for entry in entries if (place := entry.place()) is not None})
    found: list[LimitInUse] = []
    for first in range(0, len(entries), DESCRIBED_PER_SLICE):
        started = trio.current_time()
        for entry in entries[first : first + DESCRIBED_PER_SLICE]:
            place = entry.place()
            found.append(_described(context, entry, None if place is None else rates.get(place)))
        await rest_after(started)
    return found


def _described(context: Context, entry: LimitEntry, rates: TopicView | None) -> LimitInUse:
    if entry.state is not None:
        return in_use(entry.state, usage_of(entry.state, rates, context.seconds_at))
    level = level_of(entry.effective, operation=entry.operation)
    return LimitInUse(entry.protocol, entry.path, overflow=False, level=level, operation=entry.operation)


# ---- the order --------------------------------------------------------------------------------------------------------

Number = Callable[[LimitEntry, "LimitState"], float]  # of a limit in use; what comes first is smallest


def _fill(entry: LimitEntry, state: LimitState) -> float:
    del entry
    return round(state.fill, 4)


def _wait(entry: LimitEntry, state: LimitState) -> float:
    del entry
    return -float(state.wait_ns)


def _last_refused(entry: LimitEntry, state: LimitState) -> float:
    """By the monotonic clock: the time of day of one moment differs a little from request to request, and cursors would not fit."""
    del entry
    return -float(state.last_refused_at) if state.last_refused_at is not None else 1.0


OF_STATES: Final[dict[str, Number]] = {"fill": _fill, "wait": _wait, "last_refused": _last_refused}
OF_TOPICS: Final = {"rate": "received_per_second", "refused": "refused_per_second"}
SORTS: Final = ("name", "used", "refused", "rate", "wait", "fill", "last_refused")


async def sort_key(context: Context, sort: str) -> Callable[[LimitEntry], SortKey]:
    """The key of `sort`: the largest first (of `fill` the emptiest), limits not in use last, and then by name."""
    if sort == "name":
        return lambda entry: (0.0, entry.name())
    if sort in OF_STATES:
        number = OF_STATES[sort]
    elif sort == "used":
        number = await _by_use(context)
    else:
        number = _by_rate(await context.gateway.topic_numbers(OF_TOPICS[sort]), refusing=sort == "refused")
    last = 2.0

    def key(entry: LimitEntry) -> SortKey:
        return last if entry.state is None else number(entry, entry.state), entry.name()

    return key


def _by_rate(rates: dict[TopicPlace, float], *, refusing: bool) -> Number:
    """By the topic's rate. What is no topic's has none: by refusals it comes after those and before the others while it refuses."""

    def number(entry: LimitEntry, state: LimitState) -> float:
        place = entry.place()
        rate = None if place is None else rates.get(place, 0.0)
        if rate is None and refusing and state.breaker == "open":
            return -1e-9
        return -(rate or 0.0)

    return number


async def _by_use(context: Context) -> Number:
    """By the share of the limit that passes."""
    moves = await context.gateway.topic_numbers("moving")
    messages = await context.gateway.topic_numbers("forwarded_per_second")
    sizes = await context.gateway.topic_numbers("bytes_per_second")

    def number(entry: LimitEntry, state: LimitState) -> float:
        place = entry.place()
        if place not in moves:
            return 0.0
        return -(used_share(limit_now(state.effective, state), messages.get(place, 0.0), sizes.get(place, 0.0)) or 0.0)

    return number
