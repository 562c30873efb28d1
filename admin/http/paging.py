"""Pages of a list: sorted, filtered, cut, with a cursor that says after which item the next one begins.

The cursor holds the last item's sort key, not its number: items that come and go between two pages neither repeat nor hide others, unless
their own key moves past the cursor meanwhile (a rate does, a name does not).
"""

from __future__ import annotations

import base64
import binascii
import heapq
import random
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, Generic, TypeVar

import msgspec
import trio

from admin.http.problems import Fault, invalid
from admin.http.routing import Parameter, Request
from admin.http.slices import rest_after, rest_if_due
from limiter.rules.match import PROTOCOLS

T = TypeVar("T")
ComparableT = TypeVar("ComparableT", str, float, tuple[str, str, str], tuple[float, tuple[str, str, str]])
SortKey = tuple[float, str]

MAX_ITEMS: Final = 500  # items; one page; docs/design/reliability.md 5
MAX_OFFSET: Final = 1_000_000  # items; more than any list has
DEFAULT: Final = 100
DESCRIBED_AT_ONCE: Final = 100  # items, between two turns of others' lists: a page as it comes by default
SLICE_ITEMS: Final = 200  # items sorted between two turns of the event loop: 0.2 ms
SAMPLE: Final = 256  # items; to know about where those wanted are
SORTED_AT_ONCE: Final = 400  # items; between two turns: 0.3 ms
SIFTED_AT_ONCE: Final = 500  # items, compared twice: 0.1 ms
LIMIT: Final = Parameter("limit", "count", f"items per page, at most {MAX_ITEMS}", most=MAX_ITEMS)
OFFSET: Final = Parameter("offset", "count", "so many items of the list before the page, where there is no cursor", most=MAX_OFFSET)
CURSOR: Final = Parameter("cursor", "text", "`next` of the page before")
_one_long_list: Final[trio.lowlevel.RunVar[trio.Lock]] = trio.lowlevel.RunVar("one_long_list")

PROTOCOL: Final = Parameter("protocol", "text", "only items of this protocol", choices=PROTOCOLS)
QUERY: Final = Parameter("q", "text", "only items whose name contains this, upper and lower case alike")


def one_long_list() -> trio.Lock:
    """Held while a list that may be long is made: two at a time would take twice as much of each turn of the event loop."""
    try:
        return _one_long_list.get()
    except LookupError:
        lock = trio.Lock()
        _one_long_list.set(lock)
        return lock


class Selection(Generic[T]):
    """The items of one page, chosen while a list comes slice by slice: of the others nothing is kept."""

    def __init__(self, key: Callable[[T], SortKey], request: Request) -> None:
        """In order of `key`; raises ProblemError 422 where the request's cursor cannot be used."""
        self._key = key
        self._after = decode(request.query.get("cursor"))
        self._offset = 0 if self._after is not None else request.count("offset", 0)
        self._count = request.count("limit", DEFAULT) + self._offset
        self._seen = 0  # items
        self._best: list[tuple[SortKey, int, T]] = []  # one more than the page has, in order; no two are compared beyond their number
        self._runs: list[list[tuple[SortKey, int, T]]] = []  # of more items than a page has, which an export takes: some slices, in order

    def add(self, items: Sequence[T]) -> None:
        """Choose among some more. SLICE_ITEMS at most, between two turns of the event loop."""
        key, after = self._key, self._after
        keyed = [(key(item), at, item) for at, item in enumerate(items, self._seen)]
        wanted = [entry for entry in keyed if after is None or entry[0] > after]
        self._seen += len(items)
        if self._count > MAX_ITEMS:
            last = self._runs.pop() if self._runs and len(self._runs[-1]) < SLICE_ITEMS else []  # few runs, however few come at a time
            self._runs.append(sorted(last + wanted))
        else:
            self._best = sorted(self._best + wanted)[: self._count + 1]

    async def ended(self) -> tuple[list[T], str | None]:
        """The page, and the cursor of the next."""
        best, count = self._best, self._count
        merged = heapq.merge(*self._runs)
        while len(best) <= count and (some := list(islice(merged, min(SLICE_ITEMS, count + 1 - len(best))))):
            started = trio.current_time()
            best += some
            await rest_after(started)
        found = best[:count]
        return [item for _, _, item in found[self._offset :]], encode(found[-1][0]) if len(best) > count else None

    @property
    def seen(self) -> int:
        """Items of the whole list so far."""
        return self._seen

    def __repr__(self) -> str:
        return f"<Selection of {self._seen}>"


async def page(items: Sequence[T], key: Callable[[T], SortKey], request: Request) -> tuple[list[T], str | None]:
    """The items of the page that `request` asks for, in order of `key`, and the cursor of the next; raises ProblemError 422.

    Chosen slice by slice, with a turn of the event loop after each: to sort 10,000 items at once takes 20 ms.
    """
    chosen = Selection(key, request)
    for first in range(0, len(items), SLICE_ITEMS):
        started = trio.current_time()
        chosen.add(items[first : first + SLICE_ITEMS])
        await rest_after(started)
    return await chosen.ended()


async def value_at(values: list[float], place: int) -> float:
    """`sorted(values, reverse=True)[place]`, in slices: by one of a sample, those beyond which it cannot be are left out, again and again.

    Many may be alike: of most topics that move one message has come lately.
    """
    started = trio.current_time()
    while len(values) > SORTED_AT_ONCE:
        middle = sorted(random.sample(values, SAMPLE), reverse=True)[place * SAMPLE // len(values)]
        larger: list[float] = []
        smaller: list[float] = []
        for begin in range(0, len(values), SIFTED_AT_ONCE):
            some = values[begin : begin + SIFTED_AT_ONCE]
            larger += [value for value in some if value > middle]
            smaller += [value for value in some if value < middle]
            started = await rest_if_due(started)
        if place < len(larger):
            values = larger
        elif place < len(values) - len(smaller):
            return middle
        else:
            place -= len(values) - len(smaller)
            values = smaller
    return sorted(values, reverse=True)[place]


async def in_order(items: Sequence[ComparableT], first: int, count: int) -> list[ComparableT]:
    """`sorted(items)[first : first + count]`, for a tenth of what sorting 100,000 costs, in slices.

    A sample says between which two items those wanted lie, but for a margin. Only these are gone on with.
    """
    margin = SAMPLE // 8
    started = trio.current_time()
    while first < len(items) > max(SORTED_AT_ONCE, 2 * count):
        sample = sorted(random.sample(items, SAMPLE))
        lowest = first * len(sample) // len(items) - margin
        highest = (first + count) * len(sample) // len(items) + 1 + margin
        low = sample[lowest] if lowest > 0 else None
        high = sample[highest] if highest < len(sample) else None
        before = 0
        between: list[ComparableT] = []
        started = await rest_if_due(started)
        for begin in range(0, len(items), SIFTED_AT_ONCE):
            some = items[begin : begin + SIFTED_AT_ONCE]
            above = some if low is None else [item for item in some if item >= low]
            before += len(some) - len(above)
            between += above if high is None else [item for item in above if item < high]
            started = await rest_if_due(started)
        complete = before <= first and (high is None or first + count <= before + len(between))
        if complete and len(between) < len(items):
            items, first = between, first - before
        elif low is None and high is None:
            break
        else:  # the sample was not like the rest
            margin *= 2
    await rest_if_due(started)
    if len(items) <= SORTED_AT_ONCE:
        return sorted(items)[first : first + count]
    return await _merged(items, first, count)


async def _merged(items: Sequence[ComparableT], first: int, count: int) -> list[ComparableT]:
    """The same of a large part of a long list, as an export takes it."""
    runs: list[list[ComparableT]] = []
    for begin in range(0, len(items), SORTED_AT_ONCE):
        started = trio.current_time()
        runs.append(sorted(items[begin : begin + SORTED_AT_ONCE]))
        await rest_after(started)
    merged = heapq.merge(*runs)
    found: list[ComparableT] = []
    while some := list(islice(merged, min(SLICE_ITEMS, first + count - len(found)))):
        started = trio.current_time()
        found += some
        await rest_after(started)
    return found[first:]


def page_in_order(items: Sequence[T], name: Callable[[T], str], request: Request) -> tuple[list[T], str | None]:
    """The same of a list with an order of its own, as that in which rules are tried; raises ProblemError 422.

    The next page begins after the last item's name, wherever that is now, so items that are put in front meanwhile repeat nothing. Where
    that item is gone, it begins at its place.
    """
    after = decode(request.query.get("cursor"))
    count = request.count("limit", DEFAULT)
    first = 0
    if after is not None:
        place, last = after
        first = next((at + 1 for at, item in enumerate(items) if name(item) == last), max(0, int(place)))
    found = list(items[first : first + count])
    following = (float(first + len(found) - 1), name(found[-1])) if found and first + count < len(items) else None
    return found, None if following is None else encode(following)


def matches(request: Request, *names: str) -> bool:
    """Whether one of `names` contains the request's `q`."""
    wanted = request.query.get("q", "").casefold()
    return any(wanted in name.casefold() for name in names)


def encode(key: SortKey) -> str:
    """A cursor: after the item with this key."""
    return base64.urlsafe_b64encode(msgspec.json.encode(key)).rstrip(b"=").decode()


def decode(cursor: str | None) -> SortKey | None:
    """The key that a cursor names; raises ProblemError 422."""
    if cursor is None:
        return None
    try:
        data = base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4))
        return msgspec.json.decode(data, type=tuple[float, str])
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise invalid("the cursor cannot be used", [Fault("?cursor", "is not one this API gave; begin with the first page")]) from error
