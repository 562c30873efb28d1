"""What the topics' metrics say of limits: the limit in force for each topic shown, and what became of messages under each rule.

A topic is remembered by its first sender, and its limit is what the rules in force say for that sender. So a live change, a quota or a
reload shows at the next scrape, whether a message has come since or not.

Counts by rule go on when the rule is gone, since what passed under it stays passed. Rules can be added and removed live without end, so
of those that are gone only the last MAX_GONE_RULES have series of their own; what the others counted moves to `__other__`. The counts of a
rule that is in force are never moved, so none of its counters goes back, and neither does `__other__`.

The limits are looked up while the lines are written, a piece at a time: 500 topics take milliseconds after the rules have changed. What was
found is kept until they change again.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import TYPE_CHECKING, Final

from gateway.counting.accounts import MAX_TOPICS_SHOWN, OTHER, Place
from gateway.telemetry.exposition import Sample, escape, heading
from gateway.telemetry.metrics import METRICS
from limiter.decisions.origins import subject_of
from limiter.rules.rule_set import UNRULED
from limiter.rules.subject import Subject
from limiter.topics import parse_topic

if TYPE_CHECKING:
    from limiter.keys import Key, Tally
    from limiter.limits import Limit
    from limiter.rules.rule_set import RuleSet

MAX_GONE_RULES: Final = 100  # rules; that are not in force any more and have series of their own (a guess)

PASSED: Final = "passed"
REFUSED: Final = "refused"
DROPPED: Final = "dropped"
DELAYED: Final = "delayed"
SHADOW: Final = "shadow_refused"
ALWAYS_THERE: Final = frozenset({UNRULED.name, OTHER})  # no rules, so never gone
RESULTS: Final = (PASSED, REFUSED, DROPPED, DELAYED, SHADOW)


def rates(limit: Limit) -> Iterator[tuple[str, float]]:
    """A limit's rates by their dimension, per second."""
    for dimension, rate in (("messages", limit.messages), ("bytes", limit.bytes)):
        if rate is not None:
            yield dimension, rate.per_second


class TopicLimits:
    """The topics shown, as the rules see them, and counts of messages by rule."""

    def __init__(self, shown: Container[Place]) -> None:
        """`shown`: the topics with series of their own, as they are at each time (`Accounts.shown`)."""
        self._shown = shown
        self._subjects: dict[Place, Subject] = {}  # of these; others are forgotten from time to time
        self._rules: RuleSet | None = None  # that `_found` was looked up in
        self._found: dict[Place, list[tuple[str, float, str]]] = {}  # dimension, per second, origin
        self._counts: dict[str, dict[str, int]] = {}  # by rule and result
        self._gone: dict[str, None] = {}  # rules that are not in force and have counted nothing since, the longest gone first

    def add(self, key: Key, tally: Tally) -> None:
        """An observer of `Accounts`: what one key counted since it was folded last."""
        place = (key.origin.protocol, key.text, key.operation)
        if place not in self._subjects and place in self._shown:
            if len(self._subjects) >= 2 * MAX_TOPICS_SHOWN:
                self._forget_subjects()
            self._subjects[place] = subject_of(key)
        for bucket in key.buckets:
            counts = self._of(bucket.rule.name)
            counts[PASSED] += tally.messages - tally.bypassed
            if bucket.rule.mode == "shadow":
                counts[SHADOW] += tally.shadow_refused
        if tally.refused_by is not None:
            counts = self._of(tally.refused_by.rule.name)
            counts[REFUSED] += tally.refused
            counts[DROPPED] += tally.dropped
            counts[DELAYED] += tally.delayed

    def _forget_subjects(self) -> None:
        """Forget the topics that are not shown any more."""
        for place in [each for each in self._subjects if each not in self._shown]:
            del self._subjects[place]
            self._found.pop(place, None)

    def _of(self, rule: str) -> dict[str, int]:
        counts = self._counts.get(rule)
        if counts is None:
            counts = self._counts[rule] = dict.fromkeys(RESULTS, 0)
        self._gone.pop(rule, None)
        return counts

    def rule_samples(self, rules: RuleSet) -> list[Sample]:
        """Messages by rule and result: of every rule in force, from 0 on, and of those that were: the last each, the others in one."""
        in_force = {rule.name for rule in rules.rules}
        for rule in rules.rules:
            self._of(rule.name)
        for name in self._counts:
            if name not in in_force and name not in ALWAYS_THERE:
                self._gone.setdefault(name)
        for name in list(self._gone)[: max(0, len(self._gone) - MAX_GONE_RULES)]:
            counts = self._counts.pop(name)
            others = self._of(OTHER)
            for result, count in counts.items():
                others[result] += count
            del self._gone[name]
        return [((rule, result), count) for rule, counts in self._counts.items() for result, count in counts.items()]

    def lines(self, rules: RuleSet) -> Iterator[str]:
        """`sluice_topic_limit`, under `rules`."""
        if rules is not self._rules:
            self._rules, self._found = rules, {}
        self._forget_subjects()
        return self._lines(rules, self._found, list(self._subjects.items()))

    @staticmethod
    def _lines(rules: RuleSet, found: dict[Place, list[tuple[str, float, str]]], subjects: list[tuple[Place, Subject]]) -> Iterator[str]:
        metric = METRICS["sluice_topic_limit"]
        yield heading(metric)
        for place, subject in subjects:
            limits = found.get(place)
            if limits is None:
                limits = found[place] = list(limits_of(rules, subject))
            protocol, topic, operation = place
            for dimension, rate, origin in limits:
                number = str(int(rate)) if rate == int(rate) else repr(rate)
                labels = f'protocol="{protocol}",topic="{escape(topic)}",operation="{operation}",dimension="{dimension}",origin="{origin}"'
                yield f"{metric.name}{{{labels}}} {number}\n"

    def __repr__(self) -> str:
        return f"<TopicLimits of {len(self._subjects)} topics, {len(self._counts)} rules>"


def messages_limit(rules: RuleSet, place: Place) -> float | None:
    """The limit that is enforced for a topic, whoever sends to it: messages per second. None: there is none."""
    protocol, text, operation = place
    try:
        name = parse_topic(protocol, text)
    except ValueError:  # __other__, the sum of those that are not counted one by one
        return None
    limits = limits_of(rules, Subject(name, text, operation=operation))
    return next((rate for dimension, rate, _ in limits if dimension == "messages"), None)


def limits_of(rules: RuleSet, subject: Subject) -> Iterator[tuple[str, float, str]]:
    """The limit that is enforced for a topic: dimension, rate per second, origin."""
    for effective in rules.matched(subject):
        if effective.per == "topic" and effective.rule.mode == "enforce":
            for dimension, rate in rates(effective.limit):
                yield dimension, rate, effective.origin
            return
