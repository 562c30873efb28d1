"""What a dry run says of a rule for one client, user or group on one topic: whether it is the one that holds there, and what held before.

Of a level one rule holds. So a limit for one client on one topic takes the place of the client's own, and may open what was closed; and a
live change of the client stands above every rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from limiter.protocols import PROTOCOL_NAMES
from limiter.rules.matching import Matcher
from limiter.rules.sender import Sender
from limiter.rules.subject import Subject
from limiter.topics import TopicName
from limiter.units import format_limit

if TYPE_CHECKING:
    from limiter.limits import Limit
    from limiter.rules.rule import Rule
    from limiter.rules.rule_set import Effective, RuleSet

SENDERS: Final = ("client", "user", "group")  # levels


def remarks_on_rule(before: RuleSet, after: RuleSet, rule: Rule) -> list[str]:
    """A sentence where another limit holds in the place of `rule`, or where `rule` takes the place of a lower one; else none."""
    subject = only_subject(rule)
    if subject is None or rule.mode != "enforce":
        return []
    thing = subject.thing(rule.per)
    now, then = holding_of(before, rule.per, subject), holding_of(after, rule.per, subject)
    if then is None or then.rule.name != rule.name or then.origin == "override":
        return [f"the rule has no effect on {rule.per} {thing}: {described(then)} holds there"]
    if now is not None and now.rule.mode == "enforce" and lets_more_pass(rule.limit, now.rule.limit):
        return [f"the limit is higher than that of now: {described(now)} holds for {rule.per} {thing} there, and the rule takes its place"]
    return []


def only_subject(rule: Rule) -> Subject | None:
    """The one sender and topic that the rule is for; None: it is for several."""
    match, matcher = rule.match, Matcher(rule.match, rule.per)
    if rule.per not in SENDERS or matcher.exact_topic is None or matcher.exact_thing is None:
        return None
    protocol, vhost, exchange, topic = matcher.exact_topic
    if vhost == "*" or not {*match.given()} <= {"protocol", "operation", rule.per, *PROTOCOL_NAMES[protocol].topic_fields}:
        return None
    name = TopicName(protocol, vhost.encode(), exchange.encode(), topic.encode())
    thing = matcher.exact_thing
    group = thing.encode() if rule.per == "group" else None
    sender = Sender() if group else Sender(**{rule.per: thing})
    return Subject(name, name.text(), sender, group, match.operations()[0])


def holding_of(rules: RuleSet, per: str, subject: Subject) -> Effective | None:
    return next((each for each in rules.matched(subject) if each.per == per and each.rule.mode != "off"), None)


def lets_more_pass(limit: Limit, other: Limit) -> bool:
    pairs = [(limit.messages, other.messages), (limit.bytes, other.bytes)]
    if any(theirs is not None and (mine is None or mine.per_second > theirs.per_second) for mine, theirs in pairs):
        return True
    return other.concurrent is not None and (limit.concurrent is None or limit.concurrent > other.concurrent)


def described(effective: Effective | None) -> str:
    """`5/s (rule each)`."""
    if effective is None:
        return "none"
    where = "a live change" if effective.origin == "override" else f"rule {effective.rule.name}"
    return f"{format_limit(effective.rule.limit, ' and ')} ({where})"
