"""The rules in force: those of the file, what was changed live, and the quotas, made into one `RuleSet`; and plans of changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

from admin.store.changes import Plan
from admin.store.level_targets import is_level_target, level_key_of, subjects_of
from admin.store.live_rules import MAX_LIVE_RULES, RuleTexts, merge_rules
from admin.store.parsed_changes import ParsedChanges
from admin.store.snapshots import Publication
from admin.store.state import (
    LIVE_RULES,
    QUOTAS,
    SHADOW,
    Edit,
    State,
    Stored,
    StoredOverride,
    StoredRule,
    end_of,
    has_expired,
    key_of,
    live,
    rule_target,
)
from limiter.rules.live_change import fit_to
from limiter.rules.rule_checks import TRIED_BY
from limiter.rules.rule_set import RuleError, RuleSet, unruled
from limiter.rules.rule_text import RuleTextError

if TYPE_CHECKING:
    from limiter.quota_snapshot import Quota
    from limiter.rules.hourly_raise import HourlyRaise
    from limiter.rules.rule_set import Override, Rule
    from limiter.topics import TopicName

MAX_KEYS: Final = 20_000  # live changes of keys; the whole state is written at each change, about 3 MB then
MAX_TARGETS_SAID: Final = 10  # targets of one change that a line names; a guess


def same(one: list[tuple[str, StoredRule]], other: list[tuple[str, StoredRule]]) -> bool:
    """Whether these are the very same live rules. Cheap: it is asked several times a second."""
    return len(one) == len(other) and all(a is b for (_, a), (_, b) in zip(one, other, strict=True))


class RulesInForce:
    """`rules` are in force: made of a state, and of what is no state: the file's rules, quotas, and what raises them.

    A state is a value, and what was parsed of one is known again; so each method gets it.
    """

    def __init__(self, file_rules: tuple[Rule, ...], rule_texts: RuleTexts, wall_clock: Callable[[], float]) -> None:
        """Without a state yet: `build` one, and assign it. Raises RuleError for `file_rules`."""
        self.file_rules = file_rules  # as they stand in the configuration, without live changes
        self.rule_texts = rule_texts
        self.rules = RuleSet(file_rules)
        self.quotas: Mapping[TopicName, Quota] = {}
        self.shadow_quotas: Mapping[TopicName, Quota] = {}  # those that are only tried
        self.hourly: HourlyRaise | None = None
        self._wall_clock = wall_clock
        self._live: dict[str, tuple[StoredRule, Rule]] = {}  # by name: each live rule as stored, and as read
        self._live_end: tuple[RuleSet | None, float] = (None, math.inf)  # of which rules, and the first end of one that was added live
        self._keys = ParsedChanges(key_of)
        self._levels = ParsedChanges(level_key_of)
        # Rules of the file and live ones, and the whole that they make.
        self._merged: tuple[tuple[Rule, ...], list[tuple[str, StoredRule]], tuple[Rule, ...]] = ((), [], ())

    def next_expiry(self, state: State) -> float | None:
        """When (seconds since 1970) the first live change in the current rules expires."""
        if self._live_end[0] is not self.rules:  # of another state there are others
            now = self._wall_clock()
            ends = [end for end in map(end_of, state.live_rules.values()) if end is not None and end > now]
            self._live_end = (self.rules, min(ends, default=math.inf))
        first = min(self._live_end[1], math.inf if self.rules.next_expiry is None else self.rules.next_expiry)
        return None if first == math.inf else first

    def first_end(self, state: State) -> float:
        """When (seconds since 1970) the first live change ends, whether or not it holds; infinity where none does."""
        parsed = (*self._keys.of(state.keys).values(), *self._levels.of(state.levels).values())
        ends = [change.expires_at for change in parsed if change.expires_at is not None]
        ends += [end for stored in chain[Stored](state.rules.values(), state.live_rules.values()) if (end := end_of(stored)) is not None]
        return min(ends, default=math.inf)

    def with_live_rules(self, state: State, file_rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
        """`file_rules` and the rules added live, in the order in which they would be tried. On any thread."""
        now = self._wall_clock()
        live = {name: stored for name, stored in state.live_rules.items() if not has_expired(stored, now)}
        return merge_rules(file_rules, {name: self._rule_of(name, stored) for name, stored in live.items()}, live)

    def all_rules(self, state: State, like: RuleSet | None = None) -> tuple[Rule, ...]:
        """The rules of the file and those added live, in the order in which they are tried. The same object until one of them changes."""
        now = self._wall_clock()
        live = [(name, rule) for name, rule in state.live_rules.items() if not has_expired(rule, now)]
        rules, earlier, found = self._merged
        if rules is not self.file_rules or not same(earlier, live):
            read = {name: self._rule_of(name, stored) for name, stored in live}
            found = merge_rules(self.file_rules, read, dict(live))
            if like is not None and found == like.file_rules:
                found = like.file_rules  # which are compiled
            self._merged = (self.file_rules, live, found)
        return found

    def _rule_of(self, name: str, stored: StoredRule) -> Rule:
        """A live rule as the limiter's; raises RuleError."""
        known = self._live.get(name)
        if known is None or known[0] is not stored:
            try:
                known = self._live[name] = (stored, self.rule_texts.read(name, stored.rule))
            except RuleTextError as error:
                raise RuleError("", f"the live rule {name!r} cannot be used: {error}") from error
        return known[1]

    def unfit(self, state: State) -> dict[str, str]:
        """Live changes of rules that have not ended but do not hold, by the rule's name, and why: the rule is gone, or has changed."""
        changed = self._changed_rules(state)
        known = {rule.name: rule for rule in self.all_rules(state)} if changed else {}
        reasons: dict[str, str] = {}
        for name, stored in changed.items():
            rule = known.get(name)
            if rule is None:
                reasons[name] = "no rule of the configuration has this name"
                continue
            try:
                live(stored).over(rule)
            except ValueError as error:
                reasons[name] = str(error)
        return reasons

    def _changed_rules(self, state: State) -> dict[str, StoredOverride]:
        now = self._wall_clock()
        return {name: stored for name, stored in state.rules.items() if state.holding(rule_target(name), now) is not None}

    def build(
        self,
        state: State,
        like: RuleSet | None = None,
        quotas: Mapping[TopicName, Quota] | None = None,
        shadow: Mapping[TopicName, Quota] | None = None,
    ) -> RuleSet:
        """All rules as they hold now with `state`, which puts nothing in force. Raises RuleError."""
        rules = self.all_rules(state, like)
        unfit = self.unfit(state)
        return RuleSet(
            rules,
            {name: live(stored) for name, stored in self._changed_rules(state).items() if name not in unfit},
            self._keys.of(state.keys),
            self.quotas if quotas is None else quotas,
            state.revision,
            self._wall_clock(),
            self.rules if like is None else like,
            self.shadow_quotas if shadow is None else shadow,
            self.hourly,
            self._levels.of(state.levels),
        )

    def plan(self, before: State, edits: Sequence[Edit], published: Publication | None = None, *, restoring: bool = False) -> Plan:
        """The plan of `edits`, which changes nothing. Raises RuleError where the limiter would refuse them.

        `published` must be given with an edit of `quotas` or `quotas/shadow` that publishes one. `restoring` what was there once, a
        change of a rule may be unfit by now.
        """
        state = before.changed(edits)
        if len(state.live_rules) > MAX_LIVE_RULES:
            raise RuleError("name", f"there are {MAX_LIVE_RULES} live rules already; put some into the rules file and remove them here")
        if len(state.keys) + len(state.levels) > MAX_KEYS:
            raise RuleError("limits", f"there are {MAX_KEYS} live changes of keys already; publish quotas, or write rules, instead")
        self._keys.follow(before.keys, edits, state.keys)
        self._levels.follow(before.levels, edits, state.levels)
        unfit = self.unfit(state)
        for target, after in edits:
            name = target.removeprefix("rules/")
            if target.startswith("rules/") and after is not None and name in unfit and not restoring:
                self._say_unfit(before, name, live(after) if isinstance(after, StoredOverride) else None)
        in_force, tried = self.quotas, self.shadow_quotas
        for target, after in edits:
            if target in (QUOTAS, SHADOW):
                assert after is None or published is not None
                by_topic = {} if after is None or published is None else published.by_topic
                in_force, tried = (by_topic, tried) if target == QUOTAS else (in_force, by_topic)
        rules = self.build(state, None, in_force, tried)
        for target, after in edits:
            if after is None or target.startswith(("rules/", QUOTAS, LIVE_RULES)):
                continue
            if not is_level_target(target):
                _check_holds(rules, target)
            elif not restoring:
                _check_level_holds(rules, target)
        return Plan(state, before.changes(edits), rules)

    def _say_unfit(self, state: State, name: str, change: Override | None) -> None:
        """Raise RuleError that names the part of the change that does not fit its rule."""
        for rule in self.all_rules(state):
            if rule.name == name and change is not None:
                change.over(rule)
        raise RuleError("name", f"no rule of the configuration is called {name!r}")

    def warn_of_changes_without_a_mode(self, state: State) -> list[str]:
        """A warning of changes that a version before stored without a mode, if there are any.

        Each keeps its rule's, so that an upgrade refuses nothing that passed before.
        """
        if all(rule.mode == "enforce" for rule in self.rules.rules):
            return []
        found = []
        for target, stored in (*state.keys.items(), *state.levels.items()):
            if stored.mode is None and (stored.messages or stored.bytes or stored.concurrent):
                if is_level_target(target):
                    holding = [each for subject in subjects_of(level_key_of(target)) for each in self.rules.matched(subject)]
                else:
                    holding = self.rules.effective(key_of(target))
                if any(each.origin == "override" and each.rule.mode != "enforce" for each in holding):
                    found.append(target)
        if not found:
            return []
        which = ", ".join(found[:MAX_TARGETS_SAID])
        why = "a version before stored them without a mode, so they have their rules', which is not enforce; set them anew to enforce them"
        return [f"{len(found)} live changes of limits are not enforced ({which}): {why}"]

    def __repr__(self) -> str:
        return f"<RulesInForce {self.rules!r}>"


def _check_holds(rules: RuleSet, target: str) -> None:
    """A change of a key must have something to change. Raises RuleError."""
    for effective in rules.effective(key_of(target)):
        if effective.origin == "override" and effective.limit.limits_nothing():
            raise RuleError("messages", "no rule and no quota limits this key yet; give a rate of messages or bytes too")
        if effective.origin == "override" and effective.rule.algorithm not in TRIED_BY and effective.own_candidate:
            raise RuleError("candidate", f"is for limits that are rates, not for algorithm: {effective.rule.algorithm}; leave it out")
        change = rules.overrides.get(key_of(target))
        if effective.origin == "override" and change is not None and fit_to(change, effective.rule) != change:
            change.over(effective.rule)  # raises RuleError for the part that does not fit


def _check_level_holds(rules: RuleSet, target: str) -> None:
    """A live change of a client, a group, ... must fit the rules of its level, and one of them must limit it. Raises RuleError."""
    key = level_key_of(target)
    change = rules.level_overrides.get(key)
    if change is None:  # has expired
        return
    found = {each.rule.name: each for subject in subjects_of(key) for each in rules.matched(subject) if each.per == key.per}
    for effective in found.values():
        if effective.limit.limits_nothing():
            raise RuleError("messages", "no rule limits this yet; give a rate of messages or bytes too")
    change.over(unruled(key.per, key.operation))
    for rule in rules.rules:
        if rule.name in found and fit_to(change, rule) != change:
            change.over(rule)  # raises RuleError for the part that does not fit
