"""Containers that are empty for as long as nothing goes into them: until then all their owners share one.

An empty list or dictionary takes 64 bytes, a set 224. A connection has fifty of them, for what hardly ever happens to it: a third of what
an idle one kept (2026-11). So an attribute begins as one of these, which nobody may fill, and whoever adds the first thing gives
it one of its own::

    self.abandoned = added(self.abandoned, part)
    self.parked = put(self.parked, number, channel)

Taking out, emptying and looking need no care. Not for what a message goes through: there a list of one's own costs less than the question.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

K = TypeVar("K")
T = TypeVar("T")

NO_ITEMS: Final[list[Any]] = []
NO_ENTRIES: Final[dict[Any, Any]] = {}
NO_MEMBERS: Final[set[Any]] = set()


def added(items: list[T], item: T) -> list[T]:
    """`items` with `item` at its end: a list of one's own from the first on."""
    if not items:
        return [item]
    items.append(item)
    return items


def put(entries: dict[K, T], key: K, value: T) -> dict[K, T]:
    """`entries` with `value` for `key`: a dictionary of one's own from the first on."""
    if not entries:
        return {key: value}
    entries[key] = value
    return entries
