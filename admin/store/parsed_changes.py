"""Live changes as the limiter has them, kept beside their stored form: a change of one of thousands parses one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from admin.store.state import Edit, StoredOverride, live, put_or_drop
from limiter.rules.live_change import Override

K = TypeVar("K", bound=Hashable)


class ParsedChanges(Generic[K]):
    """The changes of one kind of key. A mapping it has been given, it knows again by identity: states are values, and never altered."""

    def __init__(self, key_of: Callable[[str], K]) -> None:
        self._key_of = key_of
        # Stored and parsed: those a change was planned on last, and as they are after it (which may be a preview only).
        self._known: tuple[tuple[Mapping[str, StoredOverride], dict[K, Override]], ...] = ()

    def of(self, stored: Mapping[str, StoredOverride]) -> dict[K, Override]:
        """All of `stored`, by key; not to be altered. Raises StateError, ValueError for what cannot be read."""
        for one, parsed in self._known:
            if one is stored:
                return parsed
        parsed = {self._key_of(target): live(change) for target, change in stored.items()}
        self._known = (*self._known[-1:], (stored, parsed))
        return parsed

    def follow(self, before: Mapping[str, StoredOverride], edits: Iterable[Edit], after: Mapping[str, StoredOverride]) -> None:
        """Know `after`, which is `before` with those of the `edits` that are of this kind. Raises as `of`."""
        parsed_before = self.of(before)
        parsed = dict(parsed_before)
        for target, change in edits:
            if target in before or target in after:
                assert change is None or isinstance(change, StoredOverride)
                put_or_drop(parsed, self._key_of(target), None if change is None else live(change))
        self._known = ((before, parsed_before), (after, parsed))
