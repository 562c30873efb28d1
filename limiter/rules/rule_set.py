"""Rules: the limit that holds for a message at each level.

A level is the kind of thing that a rule keeps a bucket for (`per:`). A message must pass one rule of each level. Within a level the first
of these that exists holds (`docs/design/contract.md` 3):

1. the live override of that exact thing, or else of   (origin "override"; `limiter.rules.level_keys` for what is not published
   the group it is in (`routing_key_words`)             to a topic)
2. a rule that names the key exactly, in file order    (origin "file")
3. the published quota of that topic, or else of its   (level `topic` only; origin "quota", or "quota+hour" where it is
   group                                                raised in this hour: `limiter.rules.hourly_raise`)
4. the first rule whose pattern matches, in file order (origin "default")

A quota passes no rule with `ceiling: true` that its topic meets, whichever rule would hold without it, nor opens a rule of 0/s that would.

Overrides and quotas change the limit of the rule that would hold otherwise, and keep the rest of it (action, breaker, mode, ...). Quotas
are for `operation: produce` only. An override gives its thing one bucket, whatever rules its messages would meet. A rule changed live keeps
its place, so a default changed live leaves overrides alone. An override of a topic takes it out of its group, but for what waits already.
A group has the words that its topics share and a last word `#` as its name; a key that is spelt like that itself (`order.eu.#` of
routing_key_words: 2) is in the group and cannot be changed alone.

In file order a rule for everything would hide each rule after it, as `{protocol: rocketmq}` hides `topic: '%RETRY%*'` in the contract's own
example. Hence a **bare** rule, whose match names only protocol, listener and operation, holds when no pattern of the level matches,
wherever it stands in the file; several bare ones are in file order again.

A rule "names the key exactly" where it names the topic (AMQP: exchange and routing key, or the queue; the virtual host may be left out), or
exactly the listener, client, user, virtual host, exchange, group or namespace that its level is for.

Finding the rules of a new key costs one look-up for all exact rules and one comparison per pattern that may match (`limiter.rules.index`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Final, TypeVar

from limiter.limits import Limit, as_change
from limiter.operations import PRODUCE
from limiter.protocols import PROTOCOL_NAMES
from limiter.rules.errors import RuleError
from limiter.rules.index import RuleIndex
from limiter.rules.level_keys import LevelChanges, LevelKey
from limiter.rules.live_change import Override, apply_quota, fit_to, lower_to_roof
from limiter.rules.match import Match
from limiter.rules.matching import Matcher, group_text
from limiter.rules.name_patterns import NamePatterns
from limiter.rules.rule import Rule
from limiter.rules.rule_checks import LEAST_PATIENT, TRIED_BY, check_action, check_reply, check_times
from limiter.rules.rule_words import reply_of
from limiter.rules.sender import Sender
from limiter.rules.subject import Subject

if TYPE_CHECKING:
    from limiter.quota_snapshot import Quota
    from limiter.rules.hourly_raise import HourlyRaise
    from limiter.topics import TopicName

T = TypeVar("T")

__all__ = ["Effective", "Identity", "LevelKey", "Match", "Override", "Rule", "RuleError", "RuleSet"]

# Names one bucket: (per, the rule where it has buckets of its own or "", protocol of a topic or "", the thing). Independent of the
# limit, so that a change of the limit finds the bucket again; independent of the listener, so that RocketMQ's ordinary and VIP port share.
Identity = tuple[str, str, str, str]

SHADOW: Final = "quota-shadow"  # origin of a quota that is only tried, and what tells its buckets from those enforced
RAISED: Final = "quota+hour"  # the origin of a published quota that is raised in this hour
UNRULED: Final = Rule("unruled", mode="off")  # overrides and quotas change this where no rule matches
GENERATIONS: Final = count(1)


class Effective:
    """The rule that holds for a message at one level, with the limit as it is now."""

    __slots__ = ("at", "by", "expires_at", "identity", "origin", "own_candidate", "per", "reason", "roofs", "rule", "ruled", "thing")

    def __init__(
        self, per: str, thing: str, identity: Identity, origin: str, rule: Rule, ruled: Rule, change: Override | None,
        roofs: tuple[Rule, ...] = (),
    ) -> None:  # fmt: skip
        self.per = per
        self.thing = thing  # the thing that its bucket is for, as text
        self.identity = identity
        self.origin = origin  # override | file | quota | quota+hour | default; quota-shadow beside one of them
        self.rule = rule
        self.ruled = ruled  # the rule without what holds over it: a quota, or the live change of the thing itself
        self.roofs = roofs  # ceilings that hold the quota below what was published, or raised
        self.by = "" if change is None else change.by  # the author of the live change, of this topic's limit or the rule's
        self.at = 0.0 if change is None else change.at  # when, seconds since 1970
        self.reason = "" if change is None else change.reason
        self.expires_at = None if change is None else change.expires_at
        self.own_candidate = origin == "override" and change is not None and change.candidate is not None  # not the rule's

    @property
    def limit(self) -> Limit:
        return self.rule.limit

    @property
    def place(self) -> str:
        """Where the rule stands: `limits.yaml:7`."""
        return self.rule.place

    def candidate_limit(self) -> Limit | None:
        """The candidate as it was set, for the rule or for the thing itself; None: there is none. `rule` has the one that is judged."""
        if self.rule.candidate is None:
            return None
        return self.rule.candidate_limit() if self.own_candidate else self.ruled.candidate_limit()

    def __repr__(self) -> str:
        return f"<Effective {self.per} {self.thing!r} {self.origin} {self.rule.name}>"


def with_quota(rule: Rule, quota: Quota) -> Rule:
    changed = apply_quota(rule, quota)
    return replace(changed, mode="enforce") if rule is UNRULED else changed


def unruled(per: str, operation: str) -> Rule:
    """The rule that a live change of a thing of the level `per` changes where no rule is for it: like UNRULED, of that level."""
    return replace(UNRULED, per=per, match=Match() if operation == PRODUCE else Match(operation=operation))


def with_level_override(rule: Rule, override: Override, protocol: str) -> Rule:
    """`rule` with the live change of a thing that is no published topic. What does not fit the rule, as the file has it by now, or the
    message's protocol is left out: of the change its rates hold in any case."""
    names = PROTOCOL_NAMES[protocol]
    if override.reply is not None and names.refuses_with:
        override = replace(override, reply=None)
    try:
        changed = with_override(rule, override, protocol)
    except RuleError:
        changed = with_override(rule, Override(messages=override.messages, bytes=override.bytes), protocol)
    enforceable = rule.name == UNRULED.name and override.mode is None and not changed.limit.limits_nothing()
    return replace(changed, mode="enforce") if enforceable else changed


def with_override(rule: Rule, override: Override, protocol: str) -> Rule:
    """`rule` with the live change of a topic of `protocol`."""
    if override.candidate is not None and rule.algorithm not in TRIED_BY:  # the file has changed since
        override = replace(override, candidate=None)
    override = fit_to(override, rule)
    if override.max_delay_ns is not None and override.max_delay_ns > LEAST_PATIENT.max_delay_ns:  # more than a rule of any protocol may say
        rule_of_protocol = replace(rule, match=replace(rule.match, protocol=protocol), reply=reply_of(protocol, rule.reply))
        changed = override.over(rule_of_protocol)
    else:
        changed = override.over(rule)
    tried = rule.candidate_limit()
    if tried is not None and override.candidate is None:  # the change would hold over a promoted candidate too
        changed = replace(changed, candidate=as_change(override.limit_over(tried)))
    enforceable = rule is UNRULED and override.mode is None and not changed.limit.limits_nothing()
    return replace(changed, mode="enforce") if enforceable else changed


def change_of(subject: Subject, group: TopicName | None, changes: Mapping[TopicName, T]) -> tuple[T | None, bool]:
    """The change of a topic, or else of its group; and whether it is the topic's own."""
    own = None if subject.grouped else changes.get(subject.name)
    if group is None or (own is not None and subject.name != group):
        return own, True
    return changes.get(group), False


class LevelRules:
    """The rules of one level, in the order in which they hold."""

    __slots__ = ("any_vhost", "bare", "exact", "index", "named", "patterns", "per")

    def __init__(self, per: str) -> None:
        self.per = per
        self.exact: dict[tuple[str, str, str, str], tuple[int, ...]] = {}  # by topic
        self.any_vhost = False  # some of `exact` leave the virtual host out
        self.named: dict[str, tuple[int, ...]] = {}  # by the thing of the level
        self.patterns: list[int] = []
        self.index = RuleIndex([], [])  # of `patterns`; made when all are known
        self.bare: list[int] = []

    def add(self, at: int, matcher: Matcher) -> None:
        if matcher.exact_topic is not None:
            self.exact[matcher.exact_topic] = (*self.exact.get(matcher.exact_topic, ()), at)
            self.any_vhost = self.any_vhost or matcher.exact_topic[1] == "*"
        elif matcher.exact_thing is not None:
            self.named[matcher.exact_thing] = (*self.named.get(matcher.exact_thing, ()), at)
        elif matcher.bare:
            self.bare.append(at)
        else:
            self.patterns.append(at)

    def list_naming(self, subject: Subject, thing: str) -> list[int]:
        """The rules that name `subject` exactly, in file order."""
        protocol = subject.name.protocol
        found = list(self.exact.get((protocol, subject.vhost, subject.exchange, subject.topic), ()))
        if self.any_vhost:
            found += self.exact.get((protocol, "*", subject.exchange, subject.topic), ())
        if self.named:
            found += self.named.get(thing, ())
            if self.per == "exchange":
                found += self.named.get("*" + thing[thing.index("/") :], ())
        return sorted(found)


class RuleSet:
    """All rules, live changes and quotas at one moment; immutable. Swapped as a whole by `Judge.replace`.

    `rules` are the file's. `rule_overrides` change a rule by name (of a rule no longer in the file: ignored). `now_s` is the wall clock:
    what has expired by then does not hold; the caller builds a new set at `next_expiry`. `like` is the set before this one: where
    the file's rules are the very same, they are not compiled again. `hourly` raises quotas; None: they hold as published. Raises RuleError.
    """

    __slots__ = (
        "_has_ceilings", "_index", "_levels", "_matchers", "_name_patterns", "_unruled", "by_connection", "file_rules", "follows",
        "generation", "groups_topics", "has_candidates", "hourly", "level_changes", "next_expiry", "operations", "overrides", "quotas",
        "revision", "rule_overrides", "rules", "shadow_quotas",
    )  # fmt: skip

    def __init__(
        self,
        rules: tuple[Rule, ...] = (),
        rule_overrides: Mapping[str, Override] | None = None,
        overrides: Mapping[TopicName, Override] | None = None,
        quotas: Mapping[TopicName, Quota] | None = None,
        revision: int = 0,
        now_s: float = 0.0,
        like: RuleSet | None = None,
        shadow_quotas: Mapping[TopicName, Quota] | None = None,
        hourly: HourlyRaise | None = None,
        level_overrides: Mapping[LevelKey, Override] | None = None,
    ) -> None:
        self.generation: int = next(GENERATIONS)
        self.hourly = hourly
        self.revision = revision
        self.quotas: Mapping[TopicName, Quota] = {} if quotas is None else quotas
        self.shadow_quotas: Mapping[TopicName, Quota] = {} if shadow_quotas is None else shadow_quotas  # tried beside what holds
        self.overrides: dict[TopicName, Override] = {} if overrides is None else dict(overrides)
        ended: list[TopicName] = []
        self.rule_overrides: dict[str, Override] = {}
        self.next_expiry: float | None = None  # seconds since 1970
        for topic, change in self.overrides.items():
            if change.action is not None or change.reply is not None or change.open_for_ns is not None or change.max_delay_ns is not None:
                check_action(change.action, topic.protocol)
                check_reply(change.reply, topic.protocol)
                check_times(change.open_for_ns, change.max_delay_ns, topic.protocol)
            if change.expires_at is not None and not self._still_holds(change, now_s):
                ended.append(topic)
        for topic in ended:
            del self.overrides[topic]
        for name, change in ({} if rule_overrides is None else rule_overrides).items():
            if self._still_holds(change, now_s):
                self.rule_overrides[name] = change
        given = {} if level_overrides is None else level_overrides
        levels = {key: change for key, change in given.items() if self._still_holds(change, now_s)}
        self.level_changes: LevelChanges | None = LevelChanges(levels) if levels else None  # of what is not published to a topic
        self._name_patterns: NamePatterns | None = None  # made when asked for
        self._unruled: dict[tuple[str, str], Rule] = {}  # by level and operation; made when asked for
        self.file_rules = rules  # as the file has them
        self.rules: tuple[Rule, ...] = tuple(  # as they hold, live changes included
            self.rule_overrides[rule.name].over(rule) if rule.name in self.rule_overrides else rule for rule in rules
        )
        self.groups_topics = any(rule.routing_key_words is not None for rule in self.rules)
        self.follows = any(rule.algorithm == "lag" and rule.mode != "off" for rule in self.rules)
        self.operations = frozenset(each for rule in self.rules for each in rule.match.operations())
        self.by_connection = any(rule.per == "connection" and rule.mode != "off" for rule in self.rules)
        self.has_candidates = any(rule.candidate is not None for rule in self.rules) or any(
            change.candidate is not None for change in (*self.overrides.values(), *levels.values())
        )
        self._has_ceilings = any(rule.ceiling for rule in self.rules)
        self._index: dict[str, int] = {}
        self._matchers: list[Matcher] = []
        self._levels: dict[str, LevelRules] = {}
        if like is not None and like.file_rules is rules:  # no live change changes which messages a rule is for
            self._index = like._index
            self._matchers = like._matchers
            self._levels = dict(like._levels)
        else:
            self._compile()
        if self.overrides or self.quotas or self.shadow_quotas:
            self._levels.setdefault("topic", LevelRules("topic"))
        if self.level_changes is not None:
            for per in self.level_changes.levels:
                self._levels.setdefault(per, LevelRules(per))

    def raised_by(self, hourly: HourlyRaise | None) -> RuleSet:
        """The same with its quotas raised by `hourly`. What has expired since holds on."""
        return RuleSet(
            self.file_rules, self.rule_overrides, self.overrides, self.quotas, self.revision,
            like=self, shadow_quotas=self.shadow_quotas, hourly=hourly, level_overrides=self.level_overrides,
        )  # fmt: skip

    def groups_as(self, before: RuleSet) -> bool:
        """Whether the same topics are in the same groups as under `before`, as where quotas are raised; False where that is not known."""
        same = self.file_rules is before.file_rules and self.quotas is before.quotas
        return same and self.overrides == before.overrides and self.rule_overrides == before.rule_overrides

    def _compile(self) -> None:
        for at, rule in enumerate(self.rules):
            if rule.name in self._index:
                first = self.rules[self._index[rule.name]].place or f"rule number {self._index[rule.name] + 1}"
                raise RuleError("name", f"{rule.name!r} is taken by {first}; each rule needs a name of its own")
            self._index[rule.name] = at
            matcher = Matcher(rule.match, rule.per)
            self._matchers.append(matcher)
            self._levels.setdefault(rule.per, LevelRules(rule.per)).add(at, matcher)
        for level in self._levels.values():
            level.index = RuleIndex(level.patterns, self._matchers)

    def _still_holds(self, change: Override, now_s: float) -> bool:
        expiry = change.expires_at
        if expiry is None:
            return True
        if expiry <= now_s:
            return False
        if self.next_expiry is None or expiry < self.next_expiry:
            self.next_expiry = expiry
        return True

    def may_limit(self, operation: str) -> bool:
        """Whether anything here may be for `operation`: where it is not, keys of it need not be asked for."""
        return operation in self.operations or self.level_changes is not None

    @property
    def level_overrides(self) -> dict[LevelKey, Override]:
        """The live changes of things that are no published topics."""
        return {} if self.level_changes is None else self.level_changes.changes

    def rule(self, name: str) -> Rule | None:
        """The rule of that name, with its live change."""
        at = self._index.get(name)
        return None if at is None else self.rules[at]

    def effective(
        self,
        name: TopicName,
        listener: str | None = None,
        client: str | None = None,
        user: str | None = None,
        group: bytes | None = None,
        operation: str = "produce",
        connection: int = 0,
    ) -> list[Effective]:
        """The rules that hold for a topic, one per level; works for topics never seen.

        Without `listener`, rules of any listener count; without `client`, `user` or `group`, rules that name one do not.
        """
        return self.matched(Subject(name, name.text(), Sender(listener, client, user), group, operation, connection))

    def group_of(self, subject: Subject) -> str | None:
        """The group of topics that `subject` shares a bucket with (`routing_key_words`); None: its topic has a bucket of its own."""
        if self.groups_topics:
            for effective in self.matched(subject):
                if effective.per == "topic" and effective.thing != subject.text:
                    return effective.thing
        return None

    def alike(self, subject: Subject) -> tuple[tuple[object, ...], tuple[object, ...], Identity | None] | None:
        """What names must have in common with that of `subject` for the same to hold for them: the rules, and the things of the levels
        above topics; the rules alone; and which bucket its topic would have. None where something names it.
        """
        name = subject.name
        if name in self.overrides or name in self.quotas or name in self.shadow_quotas:
            return None
        found: list[object] = [subject.operation]
        things: list[object] = []
        own: Identity | None = None
        for level in self._levels.values():
            per = level.per
            thing = subject.thing(per)
            at = self._find_first(level.list_naming(subject, thing), subject)
            if at >= 0 and per == "topic":
                return None
            if at < 0:
                at = self._find_first(level.index.candidates(subject), subject)
                if at < 0:
                    at = self._find_first(level.bare, subject)
            found.append(at)
            if per == "topic":
                if self.level_changes is not None and self.level_changes.find(per, thing, subject) is not None:
                    return None
                own = (per, self.rules[at].name if at >= 0 and self._matchers[at].narrows else "", name.protocol, thing)
            else:
                things.append(thing)
        return (*found, *things), tuple(found), own

    def name_patterns(self) -> NamePatterns:
        """What the names of topics that nothing names decide."""
        found = self._name_patterns
        if found is None:
            found = NamePatterns([matcher for matcher in self._matchers if not matcher.bare and matcher.exact_topic is None])
            found.by_exchange = found.by_exchange or "exchange" in self._levels
            found.by_group = found.by_group or "group" in self._levels
            if self.groups_topics or self.level_changes is not None or "namespace" in self._levels:
                found.settled = False
            exact = any(level.exact for level in self._levels.values())
            found.named = bool(exact or self.overrides or self.quotas or self.shadow_quotas)
            self._name_patterns = found
        return found

    def names(self, name: tuple[str, bytes, bytes, bytes], vhost: str, exchange: str, topic: str) -> bool:
        """Whether a rule, a live change or a quota names the topic `name`; the others are its parts as text."""
        if name in self.overrides or name in self.quotas or name in self.shadow_quotas:
            return True
        for level in self._levels.values():
            if level.exact and (
                (name[0], vhost, exchange, topic) in level.exact or (level.any_vhost and (name[0], "*", exchange, topic) in level.exact)
            ):
                return True
        return False

    def matched(self, subject: Subject) -> list[Effective]:
        """The rules that hold for `subject`, at most one per level, levels in the order in which the file names them first."""
        found = []
        for level in self._levels.values():
            effective = self._match_level(level, subject)
            if effective is not None:
                found.append(effective)
        if self.shadow_quotas:
            tried = self._match_tried_quota(subject)
            if tried is not None:
                found.append(tried)
        return found

    def _match_tried_quota(self, subject: Subject) -> Effective | None:
        """The quota of the topic that is only tried, as a level of its own in shadow mode; None where, published, it would not hold."""
        level = self._levels["topic"]
        if subject.operation != "produce" or self._find_naming(level, subject, subject.text) >= 0:
            return None
        at = self._find_first(level.index.candidates(subject), subject)
        if at < 0:
            at = self._find_first(level.bare, subject)
        rule = UNRULED if at < 0 else self.rules[at]
        group = None if rule.routing_key_words is None else subject.group_of_topics(rule.routing_key_words)
        quota, alone = change_of(subject, group, self.shadow_quotas)
        override, _ = change_of(subject, group, self.overrides)
        if quota is None or override is not None or rule.algorithm not in TRIED_BY or (rule.mode == "off" and rule is not UNRULED):
            return None
        thing = subject.text if alone or group is None else group_text(group)
        tried, roofs = self._lower_to_roofs(level, with_quota(replace(rule, candidate=None), quota), subject)
        rule = replace(tried, mode="shadow")
        return Effective("topic", thing, ("topic", SHADOW, subject.name.protocol, thing), SHADOW, rule, rule, None, roofs)

    def _lower_to_roofs(self, level: LevelRules, rule: Rule, subject: Subject) -> tuple[Rule, tuple[Rule, ...]]:
        """`rule`, which has a quota's limit, below all ceilings that `subject` meets, and those that lower it."""
        roofs: list[Rule] = []
        if self._has_ceilings:
            for at in (*level.index.candidates(subject), *level.bare):
                roof = self.rules[at]
                if roof.ceiling and roof.mode == "enforce" and self._matchers[at].matches(subject):
                    lowered = lower_to_roof(rule, roof)
                    if lowered is not rule:
                        roofs.append(roof)
                        rule = lowered
        return rule, tuple(roofs)

    def _match_level(self, level: LevelRules, subject: Subject) -> Effective | None:
        per = level.per
        thing = subject.thing(per)
        at = self._find_naming(level, subject, thing)
        origin = "file"
        if at < 0:
            origin = "default"
            at = self._find_first(level.index.candidates(subject), subject)
            if at < 0:
                at = self._find_first(level.bare, subject)
        rule = ruled = UNRULED if at < 0 else self.rules[at]
        change = None if at < 0 else self.rule_overrides.get(rule.name)
        own_buckets = rule.name if per == "rule" or (at >= 0 and self._matchers[at].narrows) else ""
        words = rule.routing_key_words
        group = None if words is None else subject.group_of_topics(words)
        alone = False  # a change of this very topic holds
        roofs: tuple[Rule, ...] = ()
        if per == "topic" and subject.operation == "produce":
            override, override_of_topic = change_of(subject, group, self.overrides)
            rate_set = override is not None and (override.messages is not None or override.bytes is not None)
            if origin == "default":
                quota, of_topic = change_of(subject, group, self.quotas)
                if quota is not None and not (rule.mode == "enforce" and rule.limit.is_shut()):  # a person has closed it
                    origin, change, alone = "quota", None, of_topic
                    if self.hourly is not None and not rate_set:  # a rate that a person has set stands, and so does its burst
                        raised = self.hourly.raise_quota(quota, subject.text if of_topic or group is None else group_text(group))
                        if raised is not None:
                            quota, origin = raised, RAISED
                    rule, roofs = self._lower_to_roofs(level, with_quota(rule, quota), subject)
            if override is not None:
                rule, origin, change = with_override(rule, override, subject.name.protocol), "override", override
                alone, roofs = override_of_topic, ()
        if per == "client" and at >= 0:
            thing = self._matchers[at].client_network(thing, rule.client_bits())
            if self._matchers[at].cuts(rule.client_bits()):
                own_buckets = rule.name
        if self.level_changes is not None:
            found = self.level_changes.find(per, subject.thing(per), subject)
            if found is not None:
                thing, change = found
                origin, alone = "override", True
                rule = with_level_override(self._unruled_of(per, subject.operation) if at < 0 else rule, change, subject.name.protocol)
        if alone:  # changes of one thing for two operations are two limits; no rule has such a name
            own_buckets = "" if subject.operation == PRODUCE else f"({subject.operation})"
        elif words is not None:
            own_buckets = rule.name
            if group is not None:
                thing = group_text(group)
        if rule is UNRULED:
            return None
        identity = (per, own_buckets, subject.name.protocol if per == "topic" else "", thing)
        return Effective(per, thing, identity, origin, rule, ruled, change, roofs)

    def _unruled_of(self, per: str, operation: str) -> Rule:
        rule = self._unruled.get((per, operation))
        if rule is None:
            rule = self._unruled[(per, operation)] = unruled(per, operation)
        return rule

    def _find_naming(self, level: LevelRules, subject: Subject, thing: str) -> int:
        """The first rule that names `subject` exactly, or -1."""
        found = level.list_naming(subject, thing)
        if subject.grouped:
            found = [at for at in found if self._matchers[at].exact_topic is None or self.rules[at].routing_key_words is not None]
        return self._find_first(found, subject)

    def _find_first(self, candidates: list[int], subject: Subject) -> int:
        """The first of `candidates` that matches, or -1."""
        for at in candidates:
            if self._matchers[at].matches(subject):
                return at
        return -1

    def __repr__(self) -> str:
        return (
            f"<RuleSet revision={self.revision} rules={len(self.rules)} overrides={len(self.overrides)} "
            f"rule_overrides={len(self.rule_overrides)} quotas={len(self.quotas)}>"
        )
