"""Live rules: whole rules that were added while the gateway runs, and their places among those of the file.

The file's rules are in file order. A live rule stands where its `position` says: first, last, before or after another rule. Without one it
takes the place of the file's rule of the same name, and is first where there is none. A rule whose neighbour is gone is first, too. Of
several in the same position the latest is first, and is nearest to its neighbour; of those that are last it is the very last.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from limiter.rules.rule_text import RuleFault, RuleTextError

if TYPE_CHECKING:
    from admin.store.state import StoredRule
    from limiter.rules.rule import Rule

FIRST: Final = "first"
LAST: Final = "last"
BEFORE: Final = "before "
AFTER: Final = "after "
MAX_LIVE_RULES: Final = 1000  # all rules are compiled at each change of one, some 20 ms then


class RuleTexts(Protocol):
    """Rules as text: `config.rule_texts`."""

    def read(self, name: str, text: Mapping[str, Any]) -> Rule:
        """The rule of that name; `text` is as in the rules file but for the name. Raises RuleTextError."""

    def show(self, rule: Rule) -> dict[str, Any]:
        """The rule as it would stand in the rules file."""


class NoTexts:
    """Of a store without live rules."""

    def read(self, name: str, text: Mapping[str, Any]) -> Rule:
        raise RuleTextError([RuleFault("", f"the rule {name!r} cannot be read: this process reads no rules")])

    def show(self, rule: Rule) -> dict[str, Any]:
        return {"name": rule.name}


def merge_rules(file_rules: tuple[Rule, ...], live: Mapping[str, Rule], stored: Mapping[str, StoredRule]) -> tuple[Rule, ...]:
    """All rules in the order in which they are tried."""
    if not live:
        return file_rules
    order = sorted(live, key=lambda name: stored[name].number)
    in_file = {rule.name for rule in file_rules}
    before: dict[str, list[str]] = {}
    after: dict[str, list[str]] = {}
    first: list[str] = []
    last: list[str] = []
    in_place: set[str] = set()
    for name in order:
        position = stored[name].position
        if not position and name in in_file:
            in_place.add(name)
        elif position == LAST:
            last.append(name)
        elif position.startswith(BEFORE):
            before.setdefault(position.removeprefix(BEFORE), []).append(name)
        elif position.startswith(AFTER):
            after.setdefault(position.removeprefix(AFTER), []).append(name)
        else:
            first.insert(0, name)
    hidden = {name for name in live if name not in in_place}
    kept = {rule.name: rule for rule in file_rules if rule.name not in hidden}
    placed: list[Rule] = []
    done: set[str] = set()

    def place(name: str) -> None:
        """A rule and its neighbours, and theirs. Not by recursion: a chain may be as long as there are rules."""
        waiting = [(name, False)]
        while waiting:
            at, neighbours_done = waiting.pop()
            if neighbours_done:
                placed.append(live[at] if at in live else kept[at])
            elif at not in done:
                done.add(at)
                waiting += [(each, False) for each in after.get(at, ())]
                waiting.append((at, True))
                waiting += [(each, False) for each in reversed(before.get(at, ()))]

    for name in [*first, *kept, *last]:
        place(name)
    lost = [name for name in reversed(order) if name not in done]  # their neighbours are gone, or are neighbours of each other
    found, placed = placed, []
    for name in lost:
        place(name)
    return (*placed, *found)
