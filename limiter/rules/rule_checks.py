"""What a rule may say: which of its settings go together, and within which bounds. Each check raises RuleError."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from limiter.algorithms import COUNTING, RATE_ALGORITHMS
from limiter.algorithms.setting_errors import in_flight_setting_error, lag_setting_error, setting_error
from limiter.limits import SECOND
from limiter.operations import HELD_OPERATIONS, OF_TOPICS, OPERATION_RECORDS, PRODUCE, REQUEUE, WITH_BODIES
from limiter.protocols import PROTOCOL_NAMES, RETRY_PREFIX, protocol_of_level
from limiter.rules.actions import ACTION_RECORDS
from limiter.rules.errors import RuleError, check_choice
from limiter.rules.match import SENDER_KEYS, owner_of, protocols_having
from limiter.rules.patterns import IPV6_BITS
from limiter.rules.rule_words import COMMON_LEVELS, COPIES, MAX_WEIGHT, MAX_WORDS, REPLIES, SHARED_BY_FLEETS

if TYPE_CHECKING:
    from limiter.limits import LimitChange
    from limiter.protocols import ProtocolNames
    from limiter.rules.match import Match
    from limiter.rules.rows import RuleSetting
    from limiter.rules.rule import Rule

LEAST_PATIENT: Final = min(PROTOCOL_NAMES.values(), key=lambda names: names.max_delay_ns)  # bounds `max_delay` where any may match
MOST_PATIENT: Final = max(PROTOCOL_NAMES.values(), key=lambda names: names.max_delay_ns)
MIN_SPOOL_BYTES: Final = 1 << 20  # of a rule's own part of the spool; a batch has up to 256 KiB (guess)
MAX_MESSAGE_BYTES: Final = 1 << 30  # of `max_message_size`; RabbitMQ takes 512 MiB at most, RocketMQ less
MAX_OPEN_FOR_NS: Final = 3600 * SECOND  # ns; an open breaker; longer is a typing error (guess)
MAX_BACKOFF_NS: Final = 3600 * SECOND  # ns; longer than any consumer_timeout; a guess
TRIED_BY: Final = RATE_ALGORITHMS  # which a candidate may change


def check_rule(rule: Rule, rows: dict[str, RuleSetting]) -> None:
    """All of them. `rows`: the settings that are one word or number."""
    if not rule.name:
        raise RuleError("name", "a rule needs a name; metrics, refusals and live changes call it by that")
    check_choices(rule, rows)
    protocol = rule.match.spoken()
    check_action(rule.action, protocol)
    check_times(rule.open_for_ns, rule.max_delay_ns, protocol)
    spoken = PROTOCOL_NAMES.get(protocol or "")
    if spoken is not None and rule.per not in COMMON_LEVELS and rule.per not in spoken.levels:
        raise RuleError("per", f"{spoken.title} has no {rule.per}; say per: {spoken.per_instead.get(rule.per, 'topic')}")
    operations = rule.match.operations()
    if rule.match.holds():
        check_consume(rule.match, rule.per, rule.action, rule.fallback)
        if rule.routing_key_words is not None:
            raise RuleError("routing_key_words", "a delivery is known by its queue, not by words of a routing key; leave it out")
    for each in operations:
        if each not in WITH_BODIES:
            check_no_message(rule, each)
    check_several(rule)
    check_cost(rule)
    check_backoff(rule)
    if rule.routing_key_words is not None:
        check_words(rule.routing_key_words, rule.per, spoken)
    check_reply(rule.reply, protocol)
    nothing = rule.limit.limits_nothing() and rule.algorithm not in COUNTING  # `in_flight_setting_error` checks those
    if nothing and rule.mode != "off" and not rule.needs_no_limit():
        raise RuleError("limit", "limits neither messages nor bytes; give one of them, or mode: off to exempt the messages it matches")
    if rule.candidate is not None:
        check_candidate(rule.candidate, rule.algorithm)
    unfit = setting_error(rule.algorithm, rule.limit, rule.open_for_ns, rule.candidate)
    if unfit is None and (rule.mode != "off" or rule.limit.concurrent is not None):
        unfit = in_flight_setting_error(rule.algorithm, rule.limit, published=rule.match.is_published())
    if unfit is None:
        unfit = lag_setting_error(rule.algorithm, rule.limit, rule.per, protocol, published=rule.match.is_published())
    if unfit is not None:
        raise RuleError(unfit[0], unfit[1])
    check_sharing(rule)
    if rule.ceiling:
        check_ceiling(rule)
    check_spool(rule.spool_size, rule.max_age_ns)
    if PRODUCE not in operations:
        check_published(rule)
    check_message_size(rule.max_message_size)
    if rule.ipv6_prefix is not None:
        check_prefix(rule.ipv6_prefix, rule.per)
    if rule.scope == "fleet" and not rule.is_fleets():
        what = "a listener's cap" if rule.is_cap() else f"algorithm: {rule.algorithm}"
        if rule.per == "connection":
            what = "per: connection"
        raise RuleError("scope", f"{what} is each gateway's own, a fleet shares limits of {', '.join(SHARED_BY_FLEETS)}; leave scope out")


def check_choices(given: object, rows: dict[str, RuleSetting]) -> None:
    """Raise RuleError for a word that its setting does not have."""
    for name, row in rows.items():
        if row.choices and (value := getattr(given, name)) is not None:
            check_choice(row.key, value, row.choices)


def check_consume(match: Match, per: str, action: str, fallback: str) -> None:
    """Raise RuleError for settings that do not apply to consumers."""
    if match.exchange not in {None, "", "amq.default"}:
        raise RuleError("match.exchange", "a delivery is known by its queue, wherever it was published; say queue: NAME")
    if per == "exchange":
        raise RuleError("per", "a delivery is known by its queue, wherever it was published; say per: topic")
    closes = action == "close" and match.spoken() == "amqp"  # instead of an empty answer to basic.get
    for field, value in (("action", "" if closes else action), ("fallback", fallback)):
        if value and not ACTION_RECORDS[value].deliveries:
            raise RuleError(field, f"{value!r} is not for deliveries, which are only held until the limit lets them pass; leave it out")


def check_no_message(rule: Rule, operation: str) -> None:
    """Raise RuleError for settings that do not apply to what is no message. `reject` is what every rule has that says no action."""
    if protocol_of_level(rule.per) not in {None, *OPERATION_RECORDS[operation].protocols}:
        raise RuleError("per", f"{operation} is {owner_of(operation)}'s, which has no {rule.per}; say per: client, user, listener or rule")
    for field, value, fit in (("action", rule.action, ("delay", "reject")), ("fallback", rule.fallback, ("delay",))):
        if value not in fit:
            does = "waits" if operation in HELD_OPERATIONS else "waits or is refused"
            raise RuleError(field, f"{value!r} is not for operation: {operation}, where what is over the limit only {does}; leave it out")
    if rule.limit.bytes is not None and not any(each in WITH_BODIES for each in rule.match.operations()):
        raise RuleError("limit.bytes", f"with operation: {operation} nobody says how large anything is; limit messages")
    if operation in OF_TOPICS:
        if rule.match.topic is not None and not rule.match.topic.startswith((RETRY_PREFIX, "*")):
            raise RuleError("match.topic", f"what is given back goes to {RETRY_PREFIX}GROUP, whatever its topic was; say group: NAME")
        return
    for name in ("exchange", "routing_key", "queue"):
        if getattr(rule.match, name) is not None:
            raise RuleError(f"match.{name}", f"with operation: {operation} a limit is for who says it, not for what is named; leave it out")
    if rule.per == "topic":
        levels = "client, user, connection, listener or rule"
        raise RuleError("per", f"with operation: {operation} a limit is for who says it, not for a topic; say per: {levels}")


def check_several(rule: Rule) -> None:
    """Raise RuleError where what a rule keeps a bucket for does not have all of its operations."""
    operations = rule.match.operations()
    if len(set(operations)) < len(operations):
        raise RuleError("match.operation", f"{', '.join(operations)}: one of them is named twice; take one out")
    if len(operations) > 1 and rule.per in {"topic", "exchange"}:
        message = "several operations share one limit, and each knows topics by other names; say per: client, user, vhost, listener or rule"
        raise RuleError("per", message)


def check_cost(rule: Rule) -> None:
    """Raise RuleError for costs of what the rule does not count."""
    cost = rule.cost
    if cost is None:
        return
    operations = rule.match.operations()
    if rule.algorithm not in RATE_ALGORITHMS:
        raise RuleError("cost", f"is for limits that are rates, not for algorithm: {rule.algorithm}; leave it out")
    if rule.limit.messages is None and rule.mode != "off":
        raise RuleError("cost", "is counted in the limit's messages; give limit: {messages: ...}, or leave it out")
    if cost.step is not None and not any(each in WITH_BODIES for each in operations):
        raise RuleError("cost.step", f"{', '.join(operations)} has no body; leave it out, or add produce to match.operation")
    if cost.copy != 1 and (PRODUCE not in operations or rule.copies != COPIES[0]):
        raise RuleError("cost.copy", "is for copies that a rule of publishes counts; leave it out")
    for name, _ in cost.operations:
        if name not in operations:
            said = ", ".join((*operations, name))
            raise RuleError(f"cost.{name}", f"the rule is not for {name}; say match: {{operation: [{said}]}}, or leave it out")


def check_backoff(rule: Rule) -> None:
    if rule.backoff_ns is None:
        return
    if REQUEUE not in rule.match.operations():
        raise RuleError("backoff", "is for what consumers give back; say match: {operation: requeue}, or leave it out")
    if not 0 < rule.backoff_ns <= MAX_BACKOFF_NS:
        raise RuleError("backoff", f"{rule.backoff_ns / SECOND:g}s is outside 0s to {MAX_BACKOFF_NS // SECOND}s")


def check_candidate(candidate: LimitChange, algorithm: str) -> None:
    """Raise RuleError for a candidate that cannot be judged."""
    if candidate.is_empty():
        raise RuleError("candidate", "is empty; give messages, bytes or burst, e.g. {messages: 300/s}")
    if algorithm not in TRIED_BY:
        raise RuleError("candidate", f"is for limits that are rates, not for algorithm: {algorithm}; leave it out")


def check_sharing(rule: Rule) -> None:
    """Raise RuleError for settings that do not apply to a cap, or to a topic's share of one."""
    for field, given in (("weight", rule.weight != 1), ("protected", rule.protected)):
        if given and (rule.per != "topic" or not rule.match.is_published()):
            raise RuleError(field, "is a topic's share of a listener's cap on publishing; set it on a rule with per: topic")
    if not 0 < rule.weight <= MAX_WEIGHT:
        raise RuleError("weight", f"{rule.weight:g} is outside 0 to {MAX_WEIGHT}; 1 is the default, 3 gets three times that")
    if rule.is_cap() and rule.open_for_ns is not None and rule.open_for_ns > 0:
        raise RuleError("breaker.open_for", "would refuse all topics of the listener at once, which share its cap by weight; leave it out")
    if rule.limit.adapt is not None and not rule.is_cap():
        raise RuleError("adapt", "is for a listener's cap on publishing (per: listener, algorithm: token_bucket); leave it out")


def check_ceiling(rule: Rule) -> None:
    """Raise RuleError where there is no quota that `rule` could hold down, or nothing to hold it to."""
    if rule.per != "topic" or not rule.match.is_published():
        raise RuleError("ceiling", "is for published quotas, which are limits of topics that are published to; leave it out")
    for name in rule.match.given():
        if name in SENDER_KEYS:
            raise RuleError(
                "ceiling", f"is for whole topics, as quotas are, and match.{name} says whose messages; leave one of the two out"
            )
    if rule.cost is not None:
        raise RuleError("ceiling", "holds quotas, which count messages, not what they cost; leave cost out, or set it on a rule of its own")
    if rule.limit.messages is None and rule.limit.bytes is None:
        raise RuleError("ceiling", "holds quotas to the rates of the rule's limit; give messages or bytes")


def check_prefix(prefix: int, per: str) -> None:
    if per != "client":
        raise RuleError("ipv6_prefix", f"is for rules with per: client, and this rule's is {per}; say per: client")
    if not 1 <= prefix <= IPV6_BITS:
        raise RuleError("ipv6_prefix", f"{prefix} is outside 1 to {IPV6_BITS}; say 128 for one bucket per address")


def check_reply(reply: str | None, protocol: str | None) -> None:
    """Raise RuleError where `reply` chooses what `protocol` gives no choice of."""
    names = PROTOCOL_NAMES.get(protocol or "")
    if reply not in {None, REPLIES[0]} and names is not None and names.refuses_with:
        choosers = " and ".join(other.title for other in PROTOCOL_NAMES.values() if not other.refuses_with)
        raise RuleError("reply", f"{names.title} refuses with {names.refuses_with}; reply is {choosers}'s")


def check_words(words: int, per: str, names: ProtocolNames | None) -> None:
    if per != "topic":
        raise RuleError("routing_key_words", f"is for rules with per: topic, and this rule's is {per}; say per: topic")
    if names is None or "routing_key" not in names.match_fields:
        having = protocols_having(["routing_key"])[0]
        raise RuleError("routing_key_words", f"only {having.title} has routing keys; say match: {{protocol: {having.name}}}")
    if not 1 <= words <= MAX_WORDS:
        raise RuleError("routing_key_words", f"{words} is outside 1 to {MAX_WORDS}; a routing key has at most 255 bytes")


def check_action(action: str | None, protocol: str | None) -> None:
    """Raise RuleError where messages of `protocol` cannot wait as long as `action` lets them."""
    names = PROTOCOL_NAMES.get(protocol or "")
    if action == "spool" and names is not None and not names.spools:
        most = f"{names.max_delay_ns / SECOND:g}s"
        message = (
            f"{names.title}'s messages cannot be spooled: {names.max_delay_reason}; say delay, which holds them up to {most}, or reject"
        )
        raise RuleError("action", message)


def check_spool(size: int | None, max_age_ns: int | None) -> None:
    """Raise RuleError for bounds of a spool that are out of bounds."""
    if size is not None and size < MIN_SPOOL_BYTES:
        raise RuleError("spool_size", f"{size} bytes are too few for a file of the spool; say at least {MIN_SPOOL_BYTES >> 20}MiB")
    if max_age_ns is not None and max_age_ns <= 0:
        raise RuleError("max_age", "must be more than 0s; leave it out where messages may wait as long as it takes")


def check_published(rule: Rule) -> None:
    """Raise RuleError for what a rule of deliveries says of publishes."""
    for field, given in (("max_message_size", rule.max_message_size is not None), ("copies", rule.copies != COPIES[0])):
        if given:
            raise RuleError(field, "is for what is published; leave it out, or set it on a rule without an operation")


def check_message_size(size: int | None) -> None:
    """Raise RuleError for a size that no message has."""
    if size is not None and not 0 < size <= MAX_MESSAGE_BYTES:
        most = f"{MAX_MESSAGE_BYTES >> 30}GiB"
        raise RuleError("max_message_size", f"{size} bytes are outside 1B to {most}; leave it out where only the broker's own limit holds")


def check_times(open_for_ns: int | None, max_delay_ns: int | None, protocol: str | None) -> None:
    """Raise RuleError for times out of bounds, for rules that only `protocol` can match (None: any)."""
    if open_for_ns is not None and not 0 <= open_for_ns <= MAX_OPEN_FOR_NS:
        raise RuleError("breaker.open_for", f"{open_for_ns / SECOND:g}s is outside 0s to {MAX_OPEN_FOR_NS // SECOND}s")
    if max_delay_ns is None:
        return
    names = LEAST_PATIENT if protocol is None else PROTOCOL_NAMES[protocol]
    if not 0 < max_delay_ns <= names.max_delay_ns:
        most = f"{names.max_delay_ns / SECOND:g}s"
        remedy = f"set at most {most}"
        if protocol is None:
            remedy += f", or {MOST_PATIENT.max_delay_ns / SECOND:g}s with match: {{protocol: {MOST_PATIENT.name}}}"
        raise RuleError("max_delay", f"{max_delay_ns / SECOND:g}s is outside 0s to {most}: {names.max_delay_reason}; {remedy}")
