"""Marks in a chart: the changes of the last day, and which topics they touch.

The history is on the disk, and a chart is asked for every few seconds. So what is new in it is read once, and the last MOST changes of a
day are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Set
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from admin.store.level_targets import level_target
from admin.store.state import LIVE_RULES, QUOTAS, key_target, parse_time, rule_target
from limiter.operations import PRODUCE
from limiter.rules.explanation import asks_for
from limiter.rules.level_keys import LevelKey
from limiter.rules.subject import Subject
from limiter.topics import TopicName

if TYPE_CHECKING:
    from admin.ports import TopicPlace
    from admin.store.journal import Entry
    from admin.store.store import Store
    from limiter.rules.rule_set import RuleSet

MOST: Final = 500  # changes; kept for marks, and shown in one chart at most; more could not be told apart (guess)
WHAT: Final = 200  # characters; of the targets of one change (guess)


class Mark(msgspec.Struct, frozen=True):
    """A change of limits: when (seconds since 1970), by whom and why; `what`: its targets, as the history has them."""

    ts: int
    revision: int
    by: str
    reason: str
    what: str


class Marks:
    """The changes of the last day, the latest last."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._revision = -1  # up to which the history was read
        self._reading = trio.Lock()
        self._kept: deque[tuple[Mark, frozenset[str]]] = deque(maxlen=MOST)

    async def since(self, start: float, place: TopicPlace | None = None, name: TopicName | None = None) -> list[Mark]:
        """Changes from `start` on (seconds since 1970): those that touch a topic, or all of them."""
        async with self._reading:
            await self._read_on()
        kept = [item for item in self._kept if item[0].ts >= start]
        if place is None:
            return [mark for mark, _ in kept]
        added = {target for _, targets in kept for target in targets if target.startswith(LIVE_RULES)}
        touching = targets_of(self._store.rules(), place, name, added)
        return [mark for mark, targets in kept if targets & touching]

    async def _read_on(self) -> None:
        now = self._store.revision
        if now == self._revision:
            return
        put_back = now < self._revision  # the state directory, by hand
        first = max(1, now - MOST + 1) if put_back else max(1, self._revision + 1, now - MOST + 1)
        entries = await self._store.entries(range(first, now + 1))
        if put_back:
            self._kept.clear()
        self._revision = now
        for entry in entries:
            self._kept.append((mark_of(entry), frozenset(change.target for change in entry.changes)))

    def __repr__(self) -> str:
        return f"<Marks {len(self._kept)} up to revision {self._revision}>"


def mark_of(entry: Entry) -> Mark:
    what = ", ".join(change.target for change in entry.changes)
    return Mark(int(parse_time(entry.at)), entry.revision, entry.by, entry.reason, what if len(what) <= WHAT else what[: WHAT - 1] + "…")


def targets_of(rules: RuleSet, place: TopicPlace, name: TopicName | None, added: Set[str] = frozenset()) -> frozenset[str]:
    """What a change may name that touches this topic: its own key, its rules, the quotas where it has one. By the rules that hold now.

    `added`: targets of rules added live, of which those for one sender touch it, too.
    """
    _, text, operation = place
    if name is None:
        return frozenset([f"limits/{operation}/queue/{text}"])
    own = key_target(name) if operation == PRODUCE else level_target(LevelKey(operation, "topic", name.protocol, text))
    found = {own}
    subject = Subject(name, text, operation=operation)
    for effective in rules.matched(subject):
        found |= {rule_target(effective.rule.name), f"{LIVE_RULES}{effective.rule.name}"}
        if effective.origin.startswith("quota"):
            found.add(QUOTAS)
    for target in added - found:
        rule = rules.rule(target.removeprefix(LIVE_RULES))
        if rule is not None and asks_for(rule, subject):
            found.add(target)
    return frozenset(found)
