"""The base of views. A field says once what it means, in which unit, how the values of several processes become one, and its column.

From that follow the sums over workers (`merge`), the schemas of OpenAPI, and the columns of CSV, of the terminal and of
`docs/reading-the-tables.md` (`columns.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, reduce
from itertools import chain
from typing import Any, Final, NamedTuple, Self, TypeVar, get_type_hints

import msgspec

Law = Callable[[Any, Any], Any]  # the values of two processes -> that of both


class Fact(NamedTuple):
    """What is known of a field beside its type."""

    words: str  # its meaning, as people read it
    law: Law
    unit: str  # what its number counts: messages, messages/s, bytes, seconds, share ...; "": it has none
    title: str  # of its column for programs; "": its own name
    short: str  # of its column on a terminal; "": the same
    rank: int  # 0 is the name of a line; the higher, the sooner its column makes room
    pressing: int | None  # its rank where one of its cells is not 0; None: as ever
    quiet: bool  # a terminal shows no 0, so that a column of nothing but that is left out


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What one process shows, or several together."""

    def key(self) -> object:
        """What it is about: of a list the items with the same key become one."""
        return None

    def weight(self) -> Any:
        """Of two processes' views the heavier one is the first (`first`)."""
        return 0

    def settled(self) -> Self:
        """After a merge: what a law for each field alone cannot say."""
        return self


ViewT = TypeVar("ViewT", bound=View)

# ---- laws -------------------------------------------------------------------------------------------------------------


def first(one: Any, other: Any) -> Any:
    """The first that is known."""
    return other if one is None else one


def add(one: Any, other: Any) -> Any:
    """The sum; None counts nothing."""
    if one is None or other is None:
        return first(one, other)
    return round(one + other, 3) if isinstance(one, float) or isinstance(other, float) else one + other


def most(one: Any, other: Any) -> Any:
    """The largest; of yes and no, yes."""
    return first(one, other) if one is None or other is None else max(one, other)


def least(one: Any, other: Any) -> Any:
    """The smallest; of yes and no, no."""
    return first(one, other) if one is None or other is None else min(one, other)


def least_known(one: Any, other: Any) -> Any:
    """No where one says no; unknown where one does not know."""
    return False if one is False or other is False else None if one is None or other is None else one


def add_counts(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Counts by name."""
    return {name: add(one.get(name), other.get(name)) for name in (*one, *(name for name in other if name not in one))}


def join(one: Sequence[Any], other: Sequence[Any]) -> list[Any]:
    """All of both, each once, in their order."""
    return [*one, *(each for each in other if each not in one)]


def chained(one: Sequence[Any], other: Sequence[Any]) -> list[Any]:
    """All of both."""
    return [*one, *other]


def merge(one: ViewT, other: ViewT) -> ViewT:
    """The views of two processes as one."""
    if other.weight() > one.weight():
        one, other = other, one
    kind = type(one)
    return kind(**{name: fact.law(getattr(one, name), getattr(other, name)) for name, fact in facts(kind).items()}).settled()


def merge_known(one: ViewT | None, other: ViewT | None) -> ViewT | None:
    """Those of two processes of which perhaps only one has any."""
    return other if one is None else one if other is None else merge(one, other)


def merge_lists(one: Sequence[ViewT], other: Sequence[ViewT]) -> list[ViewT]:
    """The lists of two processes as one."""
    return merge_all([one, other])


def merge_all(lists: Iterable[Iterable[ViewT]]) -> list[ViewT]:
    """One view of all that have the same key, in the order in which they come."""
    found: dict[object, ViewT] = {}
    for view in chain.from_iterable(lists):
        key = view.key()
        known = found.get(key)
        found[key] = view if known is None else merge(known, view)
    return list(found.values())


def merge_processes(kind: type[ViewT], views: Iterable[ViewT]) -> ViewT:
    """One view of what each process shows of itself; of none, its defaults."""
    found = list(views)
    return reduce(merge, found) if found else kind()


# ---- fields -----------------------------------------------------------------------------------------------------------


def fact(
    words: str = "",
    law: Law = first,
    unit: str = "",
    *,
    title: str = "",
    short: str = "",
    rank: int = 50,
    pressing: int | None = None,
    quiet: bool = False,
) -> msgspec.Meta:
    """What `Annotated` says of a field. `law`: of values that are the same in each process, the first."""
    return msgspec.Meta(description=words or None, extra={"fact": Fact(words, law, unit, title, short, rank, pressing, quiet)})


UNSAID: Final = Fact("", first, "", "", "", 50, None, quiet=False)


@cache
def facts(kind: type[View]) -> dict[str, Fact]:
    """Each field of a view, in their order."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: fact_of(hints[name]) for name in kind.__struct_fields__}


def fact_of(hint: Any) -> Fact:
    """What the annotation of a field says."""
    said = [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, msgspec.Meta)]
    found = next((each.extra["fact"] for each in said if each.extra and "fact" in each.extra), UNSAID)
    assert isinstance(found, Fact)
    return found
