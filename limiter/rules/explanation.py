"""The explanation of a limit: per level, the rule that holds for a message, and the rules that do not, with the reasons.

`RuleSet` finds the rule that holds, fast, by look-ups made for that. An operator asks why, and why not another rule. So
here the rules of each level are walked one by one, by the order of `docs/design/contract.md` 3, and each that matches gets a standing:

    override of the key > of its group > rule that names the key exactly > quota (of the key, of its group) > pattern > bare rule

and in the file's order where two are alike. The first is the one that holds (a test compares it with `RuleSet`); each of the others is a
**loss**, with the one that precedes it as the reason. A rule that would match another sender (listener, client, user, group) is a **miss**,
with that sender as the reason. Rules for other topics, operations or protocols are left out.

Slow: some microseconds a rule, more for a pattern. It is called for operators only, never per message.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from limiter.limits import UNLIMITED
from limiter.protocols import protocol_of_level
from limiter.rules.live_change import apply_quota
from limiter.rules.match import OF_SENDERS, SENDER_KEYS
from limiter.rules.matching import Matcher, any_matches, group_text, pattern_of
from limiter.rules.patterns import Addresses, name_pattern
from limiter.rules.rows import LISTENERS, NETWORK
from limiter.rules.rule import Rule
from limiter.rules.rule_set import RAISED, SHADOW
from limiter.rules.shadowed import literal

if TYPE_CHECKING:
    from limiter.limits import Limit
    from limiter.quota_snapshot import Quota
    from limiter.rules.live_change import Override
    from limiter.rules.match import Match
    from limiter.rules.rule_set import Effective, RuleSet
    from limiter.rules.subject import Subject
    from limiter.topics import TopicName

MAX_SHOWN: Final = 20  # losses, and misses, listed per level; the rest is counted; one screen (guess)

NAMED: Final = 0  # standings of rules that match
PATTERN: Final = 1
BARE: Final = 2
APART: Final = 3  # does not match


class Loss:
    """An override, quota or rule (`origin` file or default) that matches and does not hold, and why."""

    __slots__ = ("limit", "origin", "place", "reason", "rule")

    def __init__(self, origin: str, rule: str, place: str, limit: Limit, reason: str) -> None:
        self.origin = origin
        self.rule = rule  # its name; of an override or a quota its topic or group
        self.place = place
        self.limit = limit
        self.reason = reason

    def __repr__(self) -> str:
        return f"<Loss {self.origin} {self.rule}: {self.reason}>"


class Miss:
    """A rule that would match another sender, and which."""

    __slots__ = ("place", "reason", "rule")

    def __init__(self, rule: str, place: str, reason: str) -> None:
        self.rule = rule
        self.place = place
        self.reason = reason

    def __repr__(self) -> str:
        return f"<Miss {self.rule}: {self.reason}>"


class Explanation:
    """One level. `rules` counts those for the message's protocol and operation, `more` those left out of the lists."""

    __slots__ = ("effective", "losses", "misses", "more", "per", "rules")

    def __init__(self, per: str, effective: Effective | None) -> None:
        self.per = per
        self.effective = effective  # the rule that holds; None: no rule does
        self.losses: list[Loss] = []
        self.misses: list[Miss] = []
        self.more = 0
        self.rules = 0

    def lose(self, loss: Loss) -> None:
        if len(self.losses) < MAX_SHOWN:
            self.losses.append(loss)
        else:
            self.more += 1

    def miss(self, miss: Miss) -> None:
        if len(self.misses) < MAX_SHOWN:
            self.misses.append(miss)
        else:
            self.more += 1

    def __repr__(self) -> str:
        return f"<Explanation {self.per} {self.effective} lost={len(self.losses)} missed={len(self.misses)}>"


def explain(rules: RuleSet, subject: Subject) -> list[Explanation]:
    """All levels that have a rule for the protocol and operation of `subject`, those with a rule that holds first, in the file's order."""
    holding = {effective.per: effective for effective in rules.matched(subject) if effective.origin != SHADOW}
    levels: dict[str, list[Rule]] = {}
    for rule in rules.rules:
        if is_for(rule, subject):
            levels.setdefault(rule.per, []).append(rule)
    for per in holding:
        levels.setdefault(per, [])
    found = [explain_level(rules, per, of_level, holding.get(per), subject) for per, of_level in levels.items()]
    return [each for each in found if each.effective is not None] + [each for each in found if each.effective is None]


def is_for(rule: Rule, subject: Subject) -> bool:
    """Whether `rule` is for the protocol and operation of `subject`."""
    protocol = protocol_of_level(rule.per) or rule.match.spoken()
    return protocol in {None, subject.name.protocol} and subject.operation in rule.match.operations()


def explain_level(rules: RuleSet, per: str, of_level: list[Rule], effective: Effective | None, subject: Subject) -> Explanation:
    found = Explanation(per, effective)
    found.rules = len(of_level)
    matching: list[tuple[int, int, Rule]] = []
    for at, rule in enumerate(of_level):
        standing = standing_of(rule, subject)
        if standing != APART:
            matching.append((standing, at, rule))
        else:
            asked = asks_for(rule, subject)
            if asked:
                found.miss(Miss(rule.name, rule.place, asked))
    matching.sort(key=order)
    base = matching[0][2] if matching else None
    if effective is not None:
        if per == "topic" and subject.operation == "produce":
            lose_changes(found, rules, effective, base, matching[0][0] if matching else BARE, subject)
        elif base is not None and effective.origin == "override":
            first = f"the live change of {per} {effective.thing} comes first; the rest is as here"
            found.lose(Loss(origin_of(matching[0][0]), base.name, base.place, base.limit, first))
        if base is not None:
            lose_file_limit(found, rules, base)
    for standing, _, rule in matching[1:]:
        assert base is not None
        found.lose(Loss(origin_of(standing), rule.name, rule.place, rule.limit, explain_precedence(matching[0][0], base, standing)))
    return found


def order(one: tuple[int, int, Rule]) -> tuple[int, int]:
    return one[0], one[1]


def origin_of(standing: int) -> str:
    return "file" if standing == NAMED else "default"


def explain_precedence(standing: int, winner: Rule, loser: int) -> str:
    """Why a rule of standing `loser` does not hold beside `winner`."""
    first = f"{winner.name} ({winner.place})" if winner.place else winner.name
    if standing == loser:
        same = ("names it exactly too and", "matches too and", "is for everything too and")[standing]
        return f"{first} {same} comes earlier in the file"
    if standing == NAMED:
        return f"{first} names it exactly, which comes first"
    return f"a rule for everything only holds where no pattern does, and {first} does"


def standing_of(rule: Rule, subject: Subject) -> int:
    """NAMED, PATTERN, BARE, or APART where the rule does not match."""
    match = rule.match
    named = match.topic if match.topic is not None else match.queue
    if named is not None and not subject.topic.startswith(literal(named)):
        return APART  # most rules, where there are thousands: compiling them would be a waste
    matcher = Matcher(match, rule.per)
    if not matcher.matches(subject):
        return APART
    if matcher.exact_topic is not None:
        return NAMED
    exact = matcher.exact_thing
    if exact is not None:
        thing = subject.thing(rule.per)
        in_any_vhost = rule.per == "exchange" and exact == "*" + thing[thing.index("/") :]
        return NAMED if exact == thing or in_any_vhost else APART
    return BARE if matcher.bare else PATTERN


def asks_for(rule: Rule, subject: Subject) -> str:
    """The sender that a rule asks for, where it would match but for that; "" where it would not match anyway."""
    asked = find_unmet(rule.match, subject, rule.per)
    if not asked:
        return ""
    return ", ".join(asked) if Matcher(replace(rule.match, **OF_SENDERS), "rule").matches(subject) else ""


def find_unmet(match: Match, subject: Subject, per: str) -> list[str]:
    """The conditions of `match` on the sender that `subject` does not meet, or is not known to meet."""
    found: list[str] = []
    for name, key in SENDER_KEYS.items():
        wanted = getattr(match, name)
        if wanted is None:
            continue
        given = subject.field(key.subject)
        if key.kind == LISTENERS:
            any_counts = given is None and per != "listener"  # an unknown listener may be any
            met = any_counts or bool(given and any_matches(tuple([name_pattern(each) for each in match.listeners()]), given))
        elif key.kind == NETWORK:
            met = given is not None and Addresses(wanted).matches(given)
        else:
            met = given is not None and pattern_of(name, wanted).matches(given)
        if not met:
            found.append(describe_condition(name, " or ".join(match.listeners()) if key.kind == LISTENERS else wanted, given))
    return found


def describe_condition(field: str, wanted: str, given: str | None) -> str:
    return f"is for {field} {wanted}, " + (f"and no {field} is given" if given is None else f"not {given}")


def lose_file_limit(found: Explanation, rules: RuleSet, base: Rule) -> None:
    """The file's own limit, where the rule is changed live."""
    change = rules.rule_overrides.get(base.name)
    if change is None:
        return
    for rule in rules.file_rules:
        if rule.name == base.name:
            who = f" by {change.by}" if change.by else ""
            found.lose(Loss("file", rule.name, rule.place, rule.limit, f"as the file has it; the rule is changed live{who}"))


def lose_changes(found: Explanation, rules: RuleSet, effective: Effective, base: Rule | None, standing: int, subject: Subject) -> None:
    """Add the live changes and quotas of a topic and its group that do not hold, and the rule beneath those that do."""
    name = subject.name
    group = None if base is None or base.routing_key_words is None else subject.group_of_topics(base.routing_key_words)
    own = rules.overrides.get(name)
    of_group = None if group is None or group == name else rules.overrides.get(group)
    if own is not None and of_group is not None and group is not None:
        found.lose(make_change_loss(group_text(group), of_group, "a live change of the key itself comes before one of its group"))
    quota = quota_of(rules, name, group)
    if effective.origin == "override" and quota is not None:
        found.lose(make_quota_loss(quota, "a live change comes before the published quota"))
    elif effective.origin == "file" and quota is not None and base is not None:
        found.lose(make_quota_loss(quota, f"{base.name} names it exactly, which comes before the published quota"))
    elif effective.origin == "default" and quota is not None and base is not None:
        found.lose(make_quota_loss(quota, f"{base.name} lets nothing pass, which no published quota opens"))
    elif effective.origin == RAISED and quota is not None:
        found.lose(make_quota_loss(quota, "as published; the demand of the last hour or of the last seconds has raised it"))
    for roof in effective.roofs:
        found.lose(
            Loss(
                origin_of(standing_of(roof, subject)), roof.name, roof.place, roof.limit, "is a ceiling, which holds the quota down to here"
            )
        )
    if base is not None and base not in effective.roofs and effective.origin in {"override", "quota", RAISED}:
        first = "the live change of this key" if own is not None else "the live change of its group"
        first = "the published quota" if effective.origin != "override" else first
        found.lose(Loss(origin_of(standing), base.name, base.place, base.limit, f"{first} comes first; the rest is as here"))


def quota_of(rules: RuleSet, name: TopicName, group: TopicName | None) -> Quota | None:
    quota = rules.quotas.get(name)
    return rules.quotas.get(group) if quota is None and group is not None else quota


def make_change_loss(name: str, change: Override, reason: str) -> Loss:
    return Loss("override", name, "", change.limit_over(UNLIMITED), reason)


def make_quota_loss(quota: Quota, reason: str) -> Loss:
    return Loss("quota", quota.topic, "", apply_quota(Rule("quota", mode="off"), quota).limit, reason)
