"""Lints that compare rules: rules that can never match or hold, and settings without effect. A warning is given only where certain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from config.problems import ConfigProblem
from limiter.protocols import protocol_of_level
from limiter.rules.index import RuleIndex
from limiter.rules.matching import Matcher
from limiter.rules.rule import Rule
from limiter.rules.shadowed import covers, find_contradiction

if TYPE_CHECKING:
    from config.settings import Settings
    from limiter.limits import Limit

NAMED: Final = 0  # a rule that names its key exactly comes before
PATTERN: Final = 1  # patterns, and those before
BARE: Final = 2  # rules for everything


def contradictions(settings: Settings) -> Iterator[ConfigProblem]:
    """Rules whose match fits no message."""
    for number, rule in enumerate(settings.rules):
        fault = find_contradiction(rule.match)
        if fault is not None:
            field, message, remedy = fault
            yield settings.make_problem(f"rules[{number}].match.{field}", f"{message}: the rule never matches", remedy)


def mismatched_listeners(settings: Settings) -> Iterator[ConfigProblem]:
    """A rule of one protocol for listeners that all speak another. Where no listener speaks it, `unheard_rules` warns."""
    spoken_here = {each.speaks.names.name for each in settings.listeners}
    for number, rule in enumerate(settings.rules):
        wanted = rule.match.listeners()
        spoken = rule.match.spoken() or protocol_of_level(rule.per)
        if not wanted or spoken not in spoken_here:
            continue
        named = [each for each in settings.listeners if any(is_named(each.name, name) for name in wanted)]
        opened = {each.speaks.names.name for each in settings.listeners if each.speaks.opens_listeners}  # by listeners yet to come
        if named and spoken not in opened and all(each.protocol != spoken for each in named):
            message = f"listener {named[0].name} speaks {named[0].protocol}, and the rule is for {spoken}: it never matches"
            yield settings.make_problem(
                f"rules[{number}].match.listener", message, f"name a listener that speaks {spoken}, or leave it out"
            )


def is_named(listener: str, wanted: str) -> bool:
    """Whether `wanted`, of a rule's match, names that listener."""
    return listener == wanted or fnmatchcase(listener, wanted)


def covered_rules(settings: Settings) -> Iterator[ConfigProblem]:
    """A rule that another of its level always precedes, and that is no ceiling, which holds quotas down all the same.

    Only rules that the index finds for a rule's own texts are compared with it: each with each, a thousand took 8 s.
    """
    matchers = [Matcher(rule.match, rule.per) for rule in settings.rules]
    ranks = list(map(standing, matchers))
    keys = [
        key_of(matcher, rule.per) if rank == NAMED else None for matcher, rule, rank in zip(matchers, settings.rules, ranks, strict=True)
    ]
    levels: dict[str, list[int]] = {}
    for number, rule in enumerate(settings.rules):
        levels.setdefault(rule.per, []).append(number)
    for numbers in levels.values():
        index = RuleIndex(numbers, matchers)
        for number in numbers:
            rule, own = settings.rules[number], ranks[number]
            if rule.ceiling and own != NAMED:
                continue
            rivals = (at for at in index.candidates_of(matchers[number].texts()) if keys[at] == keys[number])
            before = (settings.rules[at] for at in rivals if comes_first(at, ranks[at], number, own))
            first = next((other for other in before if hides(other, rule)), None)
            if first is not None:
                yield settings.make_problem(
                    f"rules[{number}].match", hidden_by(first, rule), "remove one of the two, or give this one another match or per"
                )


def standing(matcher: Matcher) -> int:
    if matcher.exact_topic is not None or matcher.exact_thing is not None:
        return NAMED
    return BARE if matcher.bare else PATTERN


def key_of(matcher: Matcher, per: str) -> object:
    """The key that a rule names exactly, whatever the virtual host: only rules of the same key can precede it."""
    if matcher.exact_topic is not None:
        return matcher.exact_topic[0], matcher.exact_topic[2:]
    exact = matcher.exact_thing or ""
    return exact.partition("/")[2] if per == "exchange" else exact


def comes_first(at: int, rank: int, number: int, own: int) -> bool:
    return rank < own or (rank == own and at < number)


def hides(first: Rule, rule: Rule) -> bool:
    return covers(first.match, rule.match, rule.per)


def hidden_by(first: Rule, rule: Rule) -> str:
    name = f'"{first.name}" ({first.place})'
    if replace(first.match, operation=None) == replace(rule.match, operation=None):
        return f"the rule never holds: {name} has the same match and comes first"
    return f"the rule never holds: {name} matches all that it matches and comes first"


def idle_candidates(settings: Settings) -> Iterator[ConfigProblem]:
    """A candidate that equals the limit, or that is never judged."""
    for number, rule in enumerate(settings.rules):
        limit = rule.candidate_limit()
        if limit is None:
            continue
        path = f"rules[{number}].candidate"
        if rule.mode == "off":
            yield settings.make_problem(path, "has no effect with mode: off, in which nothing is judged", "set mode: shadow, or remove it")
        elif shape(limit) == shape(rule.limit):
            yield settings.make_problem(path, "equals the limit: it would refuse the same messages", "give it another rate, or remove it")


def idle_ceilings(settings: Settings) -> Iterator[ConfigProblem]:
    """A ceiling that holds no quota down."""
    for number, rule in enumerate(settings.rules):
        path = f"rules[{number}].ceiling"
        if rule.ceiling and rule.mode != "enforce":
            yield settings.make_problem(path, f"has no effect with mode: {rule.mode}", "set mode: enforce, or remove it")
        elif rule.ceiling and standing(Matcher(rule.match, rule.per)) == NAMED:
            message = "has no effect: the rule names its topic, and so comes before the quota of it"
            yield settings.make_problem(path, message, "remove it, or match a pattern")


def surges_without_cap(settings: Settings) -> Iterator[ConfigProblem]:
    """Quotas that follow surges, with nothing behind them that says what the broker takes."""
    if settings.quotas.surge_raise == "on" and not any(map(bounds_listener, settings.rules)):
        message = "no rule is a cap, so nothing bounds all surges together"
        yield settings.make_problem("quotas.surge_raise", message, "add a rule with per: listener and what the broker takes")


def bounds_listener(rule: Rule) -> bool:
    """Whether all that is published to a listener has a limit that is enforced, of whatever kind."""
    return rule.per == "listener" and rule.match.is_published() and rule.mode == "enforce" and not rule.limit.limits_nothing()


def shape(limit: Limit) -> tuple[object, ...]:
    return limit.messages, limit.bytes, limit.messages_capacity(), limit.bytes_capacity()


def idle_weights(settings: Settings) -> Iterator[ConfigProblem]:
    """Shares of a listener's cap where no listener has one."""
    if any(rule.is_cap() and rule.mode != "off" and not rule.limit.limits_nothing() for rule in settings.rules):
        return
    for number, rule in enumerate(settings.rules):
        for field, given in (("weight", rule.weight != 1), ("protected", rule.protected)):
            if given:
                message = "has no effect: it is a topic's share of a listener's cap, and no rule caps a listener"
                yield settings.make_problem(f"rules[{number}].{field}", message, "add a rule with per: listener, or remove it")


def lifted_limits(settings: Settings) -> Iterator[ConfigProblem]:
    """Rules that need no limit and have none, and so exempt their topics from a general one: one rule of each level holds."""
    lifting = [(number, rule) for number, rule in enumerate(settings.rules) if lifts_limits(rule)]
    general = [rule for rule in settings.rules if lifting and is_general(rule)]
    for number, rule in lifting:
        for other in general:
            same_protocol = other.match.spoken() in {None, rule.match.spoken()}
            if same_protocol and other.match.operations() == rule.match.operations():
                message = f"has none, and its topics are no longer under rule {other.name} ({other.place}): of each level one rule holds"
                yield settings.make_problem(
                    f"rules[{number}].limit", message, "give it a limit of its own, or a very high one to have none"
                )
                break


def lifts_limits(rule: Rule) -> bool:
    return rule.mode != "off" and rule.limit.limits_nothing() and rule.needs_no_limit()


def is_general(rule: Rule) -> bool:
    return rule.per == "topic" and rule.mode != "off" and not rule.limit.limits_nothing() and Matcher(rule.match, "topic").bare


RULE_LINTS: Final = (
    contradictions, mismatched_listeners, covered_rules, idle_candidates, idle_ceilings, surges_without_cap, idle_weights, lifted_limits,
)  # fmt: skip
