"""One rule: its match, limit and action. `limiter.rules.rule_set` finds the rule that holds for a message.

Mistakes are found when the value is made, as a `RuleError` with the field and the way out; the settings add file, line and column. Nothing
here is used per message, except `Rule`'s fields when a message was refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from limiter.algorithms import ALGORITHMS, COUNTING, RATE_ALGORITHMS
from limiter.algorithms.setting_errors import (
    MAX_CONCURRENT,
    has_burst,
    in_flight_setting_error,
    lag_setting_error,
    setting_error,
)
from limiter.limits import SECOND, UNLIMITED, Limit, LimitChange, Rate, as_change, lesser, per_second
from limiter.operations import HELD_OPERATIONS, OF_TOPICS, OPERATION_RECORDS, OPERATIONS, PRODUCE, REQUEUE, WITH_BODIES
from limiter.protocols import PROTOCOL_NAMES, RETRY_PREFIX, protocol_of_level
from limiter.rules.actions import ACTION_RECORDS, ACTIONS, FALLBACKS, PATIENT
from limiter.rules.cost import Cost
from limiter.rules.patterns import IPV6_BITS, Addresses
from limiter.rules.rows import (
    CHOICE,
    CHOICES,
    DURATION,
    LISTENERS,
    NETWORK,
    SIZE,
    WEIGHT,
    WHOLE,
    WORDS,
    YES_NO,
    match_key,
    rows_of,
    rule_setting,
)

if TYPE_CHECKING:
    from limiter.protocols import ProtocolNames
    from limiter.quota_snapshot import Quota
    from limiter.rules.rows import MatchKey, RuleSetting

PROTOCOLS: Final = tuple(PROTOCOL_NAMES)
COMMON_LEVELS: Final = ("topic", "rule", "listener", "client", "user", "connection")  # that every protocol has
PER: Final = (*COMMON_LEVELS, *(per for names in PROTOCOL_NAMES.values() for per in names.levels))
MODES: Final = ("enforce", "shadow", "off")
SCOPES: Final = ("fleet", "gateway")
REPLIES: Final = ("flow_control", "system_busy")
SHARED_BY_FLEETS: Final = (*RATE_ALGORITHMS, *COUNTING)  # algorithms; each gateway asks its broker for a backlog, and follows it alone
IGNORE: Final = "ignore"
REFUSE: Final = "refuse"
COPIES: Final = ("count", IGNORE, REFUSE)
FIT: Final = 0  # what `Request.unfit` may be
TOO_LARGE: Final = 1  # larger than its rule's `max_message_size`
HAS_COPIES: Final = 2  # it names copies, and a rule has `copies: refuse`
NOT_YET: Final[dict[str, tuple[str, ...]]] = {}  # words of the contract that this version does not support: refused, never ignored

DEFAULT_OPEN_FOR_NS: Final = SECOND  # ns; an open breaker; docs/design/limiter.md 3
DEFAULT_MAX_DELAY_NS: Final = SECOND  # ns; docs/design/limiter.md 4
LEAST_PATIENT: Final = min(PROTOCOL_NAMES.values(), key=lambda names: names.max_delay_ns)  # bounds `max_delay` where any may match
MOST_PATIENT: Final = max(PROTOCOL_NAMES.values(), key=lambda names: names.max_delay_ns)
DEFAULT_IPV6_PREFIX: Final = 64  # bits; a host may take any address of its /64 (RFC 4291, 2.5.1; RFC 7934)
LEAST_RATE: Final = 1e-6  # per second, one in 11 days; of what is read to six places
MAX_WORDS: Final = 128  # words of a routing key, which has at most 255 bytes
MAX_WEIGHT: Final = 1000  # times the weight of other topics; for more there is `protected` (guess)
MIN_SPOOL_BYTES: Final = 1 << 20  # of a rule's own part of the spool; a batch has up to 256 KiB (guess)
MAX_MESSAGE_BYTES: Final = 1 << 30  # of `max_message_size`; RabbitMQ takes 512 MiB at most, RocketMQ less
MAX_OPEN_FOR_NS: Final = 3600 * SECOND  # ns; an open breaker; longer is a typing error (guess)
MAX_BACKOFF_NS: Final = 3600 * SECOND  # ns; longer than any consumer_timeout; a guess

TRIED_BY: Final = RATE_ALGORITHMS  # which a candidate may change


class RuleError(ValueError):
    """A fault of a rule: `field` as in `match.topic`, the message with the remedy."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


def check_choice(field: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise RuleError unless `value` is one of `choices`."""
    if value in choices:
        return
    if value in NOT_YET.get(field, ()):
        raise RuleError(field, f"{value!r} is not supported yet; this version has {', '.join(choices)}")
    near = get_close_matches(value, choices, 1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(choices)}"
    raise RuleError(field, f"{value!r} is unknown; {hint}")


@dataclass(frozen=True)
class Match:
    """Which messages a rule is for; a key left out (None) matches every message. Patterns: `limiter.rules.patterns`.

    A key that not every protocol has (`limiter.protocols`) implies its protocol. No `operation` means produce.
    """

    protocol: str | None = match_key(f"{' or '.join(PROTOCOLS)}.", kind=CHOICE, choices=PROTOCOLS)
    listener: str | tuple[str, ...] | None = match_key(
        "Name of a listener, exact or glob, or a list: any of them.", "rabbit", LISTENERS, sender="by this listener"
    )
    vhost: str | None = match_key("AMQP virtual host; exact or glob.", "/", metavar="VHOST", always=True)
    exchange: str | None = match_key(
        "AMQP exchange, exact or glob; amq.default is the default exchange.", "orders", metavar="EXCHANGE", always=True
    )
    routing_key: str | None = match_key(
        "AMQP routing key; exact, glob, or words with * (one) and # (any number).", "order.#", WORDS, subject="topic"
    )
    queue: str | None = match_key("AMQP queue published to through the default exchange.", "jobs", subject="topic", metavar="QUEUE")
    topic: str | None = match_key("RocketMQ topic; exact or glob, e.g. '%RETRY%*'.", "orders")
    group: str | None = match_key(
        "RocketMQ group, exact or glob: the producer's; for retries (%RETRY%GROUP) and pulls the consumer's.",
        "billing", sender="of this RocketMQ group", logged=True,
    )  # fmt: skip
    namespace: str | None = match_key("RocketMQ namespace, exact or glob: shop of shop%orders and of %RETRY%shop%billing.", "shop")
    user: str | None = match_key(
        "User, exact or glob. AMQP: as authenticated. RocketMQ: the ACL access key that the request claims; the gateway cannot verify it, "
        "so name client too where others could claim it.",
        "guest", sender="of this user", logged=True,
    )  # fmt: skip
    client: str | None = match_key(
        "Client address or network (CIDR).", "10.0.0.0/8", NETWORK, sender="from this client address", metavar="ADDRESS", logged=True
    )
    operation: str | tuple[str, ...] | None = match_key(
        "produce (the default): messages that clients publish; consume: deliveries, pulls and pops, which are held, never refused; "
        "requeue: what consumers give back (AMQP: basic.nack and basic.reject with requeue, basic.recover; RocketMQ: send-backs and "
        "changes of the invisible time), held as well; "
        "declare, bind, delete, purge, open, get (of an empty queue): methods of AMQP that are no messages, which wait for their turn; "
        "connect: AMQP connections, which wait as the action says and are then refused; of RocketMQ declare and delete (topics and "
        "groups), query (routes, searches, views) and admin (operators' commands). A list: they all share the rule's limit.",
        kind=CHOICES, choices=OPERATIONS,
    )  # fmt: skip

    def __post_init__(self) -> None:
        for name in self.given():
            check_key(name, getattr(self, name))
        self._check_one_protocol()
        if self.holds() and self.queue is not None and self.exchange not in {None, "", "amq.default"}:
            raise RuleError("match.exchange", "a delivery is known by its queue, wherever it was published; leave exchange out")
        if self.queue is not None and (self.routing_key is not None or self.exchange not in {None, "", "amq.default"}):
            raise RuleError("match.queue", "a queue is a routing key on the default exchange; name the queue, or exchange and routing_key")

    def _check_one_protocol(self) -> None:
        """Raise RuleError where no protocol, or not the one that is named, has all the fields that are given."""
        fields = self._fields_of_protocols()
        if self.protocol is not None:
            meant = PROTOCOL_NAMES[self.protocol]
        elif fields and not protocols_having(fields):
            meant = [names for names in PROTOCOL_NAMES.values() if any(name in names.match_fields for name in fields)][-1]
        else:
            return
        for name in fields:
            if name not in meant.match_fields:
                owner = protocols_having([name])[0]
                raise RuleError(f"match.{name}", f"{name} is {owner.title}'s; {meant.instead_of_field(name)}")

    def _fields_of_protocols(self) -> list[str]:
        """The names of the fields that are given and that not every protocol has."""
        return [name for name in self.given() if any(name in names.match_fields for names in PROTOCOL_NAMES.values())]

    def given(self) -> list[str]:
        """The names of the fields that are given."""
        return [name for name in MATCH_KEYS if getattr(self, name) is not None]

    def listeners(self) -> tuple[str, ...]:
        """The names and patterns of listeners, one of which a message comes by; empty: any."""
        if self.listener is None:
            return ()
        return (self.listener,) if isinstance(self.listener, str) else self.listener

    def operations(self) -> tuple[str, ...]:
        """What it is for."""
        if self.operation is None:
            return (PRODUCE,)
        return (self.operation,) if isinstance(self.operation, str) else self.operation

    def is_published(self) -> bool:
        """Whether it is for what is published, and nothing else."""
        return self.operations() == (PRODUCE,)

    def holds(self) -> bool:
        """Whether it is for anything that waits over its limit, whatever the action."""
        return any(each in HELD_OPERATIONS for each in self.operations())

    def text_of(self, name: str) -> str:
        """What a field that is given says, in words; of several listeners or operations all of them."""
        value = getattr(self, name)
        return ", ".join(value) if isinstance(value, tuple) else str(value)

    def spoken(self) -> str | None:
        """The protocol this match is for, named or implied; None: any."""
        if self.protocol is not None:
            return self.protocol
        fields = self._fields_of_protocols()
        having = protocols_having(fields) if fields else []
        return having[0].name if len(having) == 1 else None


MATCH_KEYS: Final[dict[str, MatchKey]] = rows_of(Match)
SENDER_KEYS: Final = {name: key for name, key in MATCH_KEYS.items() if key.sender}  # that say whose messages
OF_SENDERS: Final = dict.fromkeys(SENDER_KEYS, None)  # what a match is without, that says not whose


def check_key(name: str, value: Any) -> None:
    """Raise RuleError for a value that the key `name` of a match cannot have."""
    key = MATCH_KEYS[name]
    if key.choices:
        for each in value if isinstance(value, tuple) else (value,):
            check_choice(f"match.{name}", each, key.choices)
    elif key.kind == NETWORK:
        try:
            Addresses(value)
        except ValueError as error:
            raise RuleError(f"match.{name}", f"{error}; write an address or a network like {key.example}") from None


def protocols_having(fields: list[str]) -> list[ProtocolNames]:
    """The protocols whose match fields include all of `fields`."""
    return [names for names in PROTOCOL_NAMES.values() if all(name in names.match_fields for name in fields)]


@dataclass(frozen=True)
class Rule:
    """One rule: its match, the thing it keeps a bucket for (`per`), its limit, and the action for messages over it.

    `open_for_ns` is the breaker's time; None means the default: 1 s, but no breaker where the action holds messages, because it would turn
    a short wait into a refusal. What consumers get (`operation: consume`) is held whatever the action (with `close` AMQP's basic.get
    ends in a channel error), with no breaker by default. `candidate` is judged beside the limit and only counted
    (`limiter.buckets.candidate`): a change of the limit, what it does not name is as the limit has it. `weight` and `protected` say what
    part of a listener's cap a topic gets (`limiter.fair_share.shared_bucket`); a rule that says one of them, a `max_message_size` or
    `copies: refuse` needs no limit. `place` is where the rule stands (`limits.yaml:7`). Raises RuleError.
    """

    name: str
    match: Match = Match()
    per: str = rule_setting(
        CHOICE, "topic", "There is one bucket per this; exchange and vhost are AMQP's, group and namespace RocketMQ's.", choices=PER
    )
    limit: Limit = UNLIMITED
    algorithm: str = rule_setting(
        CHOICE,
        "token_bucket",
        "How the limit is kept. pacing: messages one interval apart, without a burst; warm_up: rising from a third of the limit after "
        "idleness; concurrency: a number of requests in flight; adaptive: as many as the broker's latency allows; lag: as fast as "
        "consumers keep up.",
        choices=tuple(ALGORITHMS),
    )
    open_for_ns: int | None = None
    action: str = rule_setting(
        CHOICE,
        "reject",
        "What happens to a message over the limit. block: the connection is not read until the message passes; close: the AMQP channel or "
        "the RocketMQ connection is closed (where consumers are limited: the channel of a basic.get); spool: it waits as long as it "
        "takes, on disk where memory would not do (of RocketMQ only one-way sends; others are refused).",
        choices=ACTIONS, live=True,
    )  # fmt: skip
    fallback: str = rule_setting(
        CHOICE, "delay", "What happens where reject has no answer (AMQP without confirms).", choices=FALLBACKS, live=True
    )
    reply: str = rule_setting(
        CHOICE, "flow_control", "The code that refuses RocketMQ clients: flow_control 215, system_busy 2.", choices=REPLIES, live=True
    )
    max_delay_ns: int = rule_setting(
        DURATION,
        DEFAULT_MAX_DELAY_NS,
        "With action delay: the longest time a message is held before it is refused. At most 2.5s, because RocketMQ's clients give up "
        "after 3s; at most 8s for rules of AMQP alone, because Java's NIO clients give up a write after 10s, Bunny after 30s.",
        key="max_delay", example="1s", least="1ms", most="8s", live=True,
    )  # fmt: skip
    spool_size: int | None = rule_setting(
        SIZE,
        None,
        "With action spool: bytes of files for this rule's messages; then its clients are not read. Workers have equal parts of it, of at "
        "least 1MiB. Default: spool.max_size.",
        example="1GiB", least="1MiB", most="1024GiB",
    )  # fmt: skip
    max_age_ns: int | None = rule_setting(
        DURATION,
        None,
        "With action spool: the longest time a message waits; then it is refused, or dropped where its channel has no confirms. Default: "
        "as long as it takes. Messages of a transaction wait on.",
        key="max_age", example="10min", least="1s", most="720h",
    )  # fmt: skip
    drop_expired: bool = rule_setting(
        YES_NO,
        False,
        "With action spool: a message waits no longer than its own AMQP property expiration says; then it is given up as for max_age. "
        "Leave it out where expiration is a delay, as with a queue that dead-letters what expires.",
    )
    max_message_size: int | None = rule_setting(
        SIZE,
        None,
        "The largest message, in bytes of its body; a larger one is refused, whatever the action. AMQP: its channel is closed (406, as by "
        "RabbitMQ); RocketMQ: MESSAGE_ILLEGAL. Default: the broker's own limit alone.",
        example="256KiB", least="1B", most="1GiB", alone=True,
    )  # fmt: skip
    copies: str = rule_setting(
        CHOICE,
        "count",
        "Copies that an AMQP publish names in its headers CC and BCC. count: each counts as one more message, for the topic that it goes "
        "to; ignore: not by this rule; refuse: a publish that names any is refused, whatever the action (406).",
        choices=COPIES, alone=True, idle=IGNORE,
    )  # fmt: skip
    cost: Cost | None = None
    backoff_ns: int | None = rule_setting(
        DURATION,
        None,
        "With operation requeue: the longest pause that a consumer in a loop makes beyond what the limit asks for. It doubles from 0.1s on "
        "each time that what is given back is over the limit and had been delivered before (of RocketMQ, where nobody says that, each "
        "time). Default: none.",
        key="backoff", example="30s", least="100ms", most="1h",
    )  # fmt: skip
    routing_key_words: int | None = rule_setting(
        WHOLE,
        None,
        "AMQP topics whose routing keys agree in this many first words share a bucket; for keys with ids in them.",
        example=2, least=1, most=MAX_WORDS,
    )  # fmt: skip
    ipv6_prefix: int | None = rule_setting(
        WHOLE,
        None,
        "With per: client: IPv6 addresses that agree in this many first bits are one client; default 64, because a host may take any of "
        "them. 128: each address is one.",
        example=64, least=1, most=IPV6_BITS,
    )  # fmt: skip
    scope: str | None = rule_setting(
        CHOICE,
        None,
        "Where gateways form a fleet: fleet, all of them share this rule's buckets; gateway, each has its own. Default: fleet, but "
        "gateway for per: connection, a listener's cap and algorithm: lag.",
        choices=SCOPES,
    )
    mode: str = rule_setting(CHOICE, "enforce", "enforce; shadow: evaluated and counted, never enforced; off.", choices=MODES, live=True)
    candidate: LimitChange | None = None
    weight: float = rule_setting(
        WEIGHT,
        1.0,
        "The topic's weight in a listener's cap (a rule with per: listener): when the cap binds, 3 gets three times what 1 gets.",
        most=MAX_WEIGHT, alone=True,
    )  # fmt: skip
    protected: bool = rule_setting(
        YES_NO, False, "When a listener's cap binds, the topic is served before all unprotected ones.", alone=True
    )
    ceiling: bool = rule_setting(
        YES_NO,
        False,
        "A roof over quotas: whichever rule holds for a topic, neither its published quota nor a raise within the day passes this rule's "
        "rates and bursts. A live change of the topic does.",
    )
    place: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            raise RuleError("name", "a rule needs a name; metrics, refusals and live changes call it by that")
        check_choices(self, RULE_SETTINGS)
        check_action(self.action, self.match.spoken())
        check_times(self.open_for_ns, self.max_delay_ns, self.match.spoken())
        spoken = PROTOCOL_NAMES.get(self.match.spoken() or "")
        if spoken is not None and self.per not in COMMON_LEVELS and self.per not in spoken.levels:
            raise RuleError("per", f"{spoken.title} has no {self.per}; say per: {spoken.per_instead.get(self.per, 'topic')}")
        operations = self.match.operations()
        if self.match.holds():
            check_consume(self.match, self.per, self.action, self.fallback)
            if self.routing_key_words is not None:
                raise RuleError("routing_key_words", "a delivery is known by its queue, not by words of a routing key; leave it out")
        for each in operations:
            if each not in WITH_BODIES:
                check_no_message(self, each)
        check_several(self)
        check_cost(self)
        check_backoff(self)
        if self.routing_key_words is not None:
            check_words(self.routing_key_words, self.per, spoken)
        check_reply(self.reply, self.match.spoken())
        nothing = self.limit.limits_nothing() and self.algorithm not in COUNTING  # `in_flight_setting_error` checks those
        if nothing and self.mode != "off" and not self.needs_no_limit():
            raise RuleError("limit", "limits neither messages nor bytes; give one of them, or mode: off to exempt the messages it matches")
        if self.candidate is not None:
            check_candidate(self.candidate, self.algorithm)
        unfit = setting_error(self.algorithm, self.limit, self.open_for_ns, self.candidate)
        if unfit is None and (self.mode != "off" or self.limit.concurrent is not None):
            unfit = in_flight_setting_error(self.algorithm, self.limit, published=self.match.is_published())
        if unfit is None:
            unfit = lag_setting_error(self.algorithm, self.limit, self.per, self.match.spoken(), published=self.match.is_published())
        if unfit is not None:
            raise RuleError(unfit[0], unfit[1])
        check_sharing(self)
        if self.ceiling:
            check_ceiling(self)
        check_spool(self.spool_size, self.max_age_ns)
        if PRODUCE not in operations:
            check_published(self)
        check_message_size(self.max_message_size)
        if self.ipv6_prefix is not None:
            check_prefix(self.ipv6_prefix, self.per)
        if self.scope == "fleet" and not self.is_fleets():
            what = "a listener's cap" if self.is_cap() else f"algorithm: {self.algorithm}"
            if self.per == "connection":
                what = "per: connection"
            raise RuleError(
                "scope", f"{what} is each gateway's own, a fleet shares limits of {', '.join(SHARED_BY_FLEETS)}; leave scope out"
            )

    def needs_no_limit(self) -> bool:
        """Whether it says something of its messages beside their limit."""
        return any(row.stands_alone(getattr(self, name)) for name, row in RULE_SETTINGS.items())

    def reason_against(self, size: int, copies: bool) -> int:  # noqa: FBT001  -- positional for speed
        """Why no wait lets a message of `size` bytes pass, with `copies` or without; FIT: none is needed, or one may."""
        if copies and self.copies == REFUSE:
            return HAS_COPIES
        return FIT if self.max_message_size is None or size <= self.max_message_size else TOO_LARGE

    def is_fleets(self) -> bool:
        """Whether a fleet of gateways shares its buckets. A connection is at one gateway; a cap is of the broker behind one listener."""
        return self.scope != "gateway" and self.algorithm in SHARED_BY_FLEETS and self.per != "connection" and not self.is_cap()

    def is_cap(self) -> bool:
        """Whether topics share its limit by weight: all that is published to a listener (`limiter.fair_share.shared_bucket`)."""
        return self.per == "listener" and self.match.is_published() and self.algorithm == "token_bucket"

    def weight_in_thousandths(self) -> int:
        return max(1, round(self.weight * 1000))

    def candidate_limit(self) -> Limit | None:
        """The whole limit that the candidate would make of this rule's; None: there is no candidate."""
        return None if self.candidate is None else self.candidate.over(self.limit)

    def client_bits(self) -> int:
        """How many leading bits of an IPv6 address make a client."""
        return DEFAULT_IPV6_PREFIX if self.ipv6_prefix is None else self.ipv6_prefix

    def breaker_ns(self) -> int:
        """How long the breaker stays open; 0: there is none."""
        if self.open_for_ns is not None:
            return self.open_for_ns
        patient = self.action in PATIENT or self.match.holds() or not has_burst(self.algorithm) or self.is_cap()
        patient = patient or self.algorithm in COUNTING  # the next answer may free a slot at once
        return 0 if patient else DEFAULT_OPEN_FOR_NS


RULE_SETTINGS: Final[dict[str, RuleSetting]] = rows_of(Rule)
LIVE_SETTINGS: Final = {name: row for name, row in RULE_SETTINGS.items() if row.live}


def check_choices(given: Rule | Override, rows: dict[str, RuleSetting]) -> None:
    """Raise RuleError for a word that its setting does not have."""
    for name, row in rows.items():
        value = getattr(given, name)
        if row.choices and value is not None:
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
    having = OPERATION_RECORDS[operation].protocols
    owner = "RabbitMQ" if having[0] == "amqp" else PROTOCOL_NAMES[having[0]].title
    spoken = rule.match.spoken()
    if spoken is not None and spoken not in having:
        own = ", ".join(name for name, record in OPERATION_RECORDS.items() if spoken in record.protocols)
        raise RuleError("match.operation", f"{operation} is {owner}'s; {PROTOCOL_NAMES[spoken].title} has {own}")
    if protocol_of_level(rule.per) not in {None, *having}:
        raise RuleError("per", f"{operation} is {owner}'s, which has no {rule.per}; say per: client, user, listener or rule")
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


def reply_of(protocol: str, reply: str) -> str:
    """`reply`, or the default where `protocol` gives no choice."""
    return REPLIES[0] if PROTOCOL_NAMES[protocol].refuses_with else reply


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


@dataclass(frozen=True)
class Override:
    """A live change of one topic's limit, or of one rule's. None keeps what the rule says.

    `expires_at` and `at` are seconds since 1970. Raises RuleError.
    """

    messages: Rate | None = None
    bytes: Rate | None = None
    messages_burst: int | None = None
    bytes_burst: int | None = None
    burst_ns: int | None = None
    concurrent: int | None = None
    action: str | None = None
    reply: str | None = None
    open_for_ns: int | None = None
    max_delay_ns: int | None = None
    mode: str | None = None
    fallback: str | None = None
    candidate: LimitChange | None = None  # an empty one: no candidate, even if the rule has one
    expires_at: float | None = None
    by: str = ""
    at: float = 0.0
    reason: str = ""

    def __post_init__(self) -> None:
        check_choices(self, LIVE_SETTINGS)
        if self.concurrent is not None and not 1 <= self.concurrent <= MAX_CONCURRENT:
            raise RuleError("concurrent", f"{self.concurrent} is outside 1 to {MAX_CONCURRENT}")
        check_times(
            self.open_for_ns, self.max_delay_ns, MOST_PATIENT.name
        )  # the rule or topic it is for may allow less: `RuleSet` checks that
        try:
            self.limit_over(UNLIMITED)
        except ValueError as error:
            raise RuleError("burst", str(error)) from None

    def limit_over(self, base: Limit) -> Limit:
        """The limit where this holds over `base`. A burst given as time replaces the rule's bursts given as tokens."""
        limit = LimitChange(self.messages, self.bytes, self.messages_burst, self.bytes_burst, self.burst_ns).over(base)
        return limit if self.concurrent is None else with_concurrent(limit, self.concurrent)

    def over(self, rule: Rule) -> Rule:
        """`rule` with this change."""
        algorithm, limit = following(rule.algorithm, self.limit_over(rule.limit))
        said = {name: value for name in (*LIVE_SETTINGS, "open_for_ns") if (value := getattr(self, name)) is not None}
        if limit.limits_nothing() and not rule.needs_no_limit():
            said["mode"] = "off"
        return replace(rule, limit=limit, algorithm=algorithm, candidate=self.candidate_over(rule), **said)

    def candidate_over(self, rule: Rule) -> LimitChange | None:
        """The candidate of `rule` with this change: this one's, else the rule's."""
        if self.candidate is None:
            return rule.candidate
        return None if self.candidate.is_empty() else self.candidate


def with_concurrent(limit: Limit, concurrent: int) -> Limit:
    """`limit` with another number of requests in flight; what `adaptive` says of them stays within it."""
    at_least = None if limit.at_least is None else min(limit.at_least, concurrent)
    start = None if limit.start is None else min(limit.start, concurrent)
    return replace(limit, concurrent=concurrent, at_least=at_least, start=start)


def following(algorithm: str, limit: Limit) -> tuple[str, Limit]:
    """Algorithm and limit of a rule whose limit was changed: below the slowest rate of its `lag` the limit holds as it is."""
    lag = limit.lag
    if lag is None or limit.messages is None or lag.slowest.per_second <= limit.messages.per_second:
        return algorithm, limit
    return "token_bucket", replace(limit, lag=None)


def fitting(change: Override, rule: Rule) -> Override:
    """`change` without settings that the rule's algorithm does not use: the file may have changed since it was made."""
    if change.concurrent is not None and rule.algorithm not in COUNTING:
        change = replace(change, concurrent=None)
    if has_burst(rule.algorithm):
        return change
    candidate = change.candidate
    if candidate is not None and not candidate.is_empty():
        candidate = replace(candidate, messages_burst=None, bytes_burst=None, burst_ns=None)
        candidate = None if candidate.is_empty() else candidate
    return replace(change, messages_burst=None, bytes_burst=None, burst_ns=None, open_for_ns=None, candidate=candidate)


def quota_over(rule: Rule, quota: Quota) -> Rule:
    """`rule` with the limit of a published quota: its rates and bursts where it names them, the rule's elsewhere."""
    if not has_burst(rule.algorithm):
        quota = replace(
            quota,
            messages=None if quota.messages is None else (quota.messages[0], 0),
            bytes=None if quota.bytes is None else (quota.bytes[0], 0),
        )
    tried = rule.candidate_limit()
    candidate = None if tried is None else as_change(quota_limit(tried, quota))  # a quota would hold over a promoted candidate too
    algorithm, limit = following(rule.algorithm, quota_limit(rule.limit, quota))
    cost = rule.cost if quota.messages is None else None  # a quota counts messages, as the log that it is computed from
    return replace(rule, limit=limit, algorithm=algorithm, candidate=candidate, cost=cost)


def under(rule: Rule, roof: Rule) -> Rule:
    """`rule`, which has a quota's limit, where nothing of it passes the limit of `roof`; itself where nothing does."""
    bursts = has_burst(rule.algorithm)
    tried = rule.candidate_limit()
    candidate = None if tried is None else as_change(lesser(tried, roof.limit, bursts=bursts))
    algorithm, limit = following(rule.algorithm, lesser(rule.limit, roof.limit, bursts=bursts))
    return rule if limit == rule.limit else replace(rule, limit=limit, algorithm=algorithm, candidate=candidate)


def quota_limit(limit: Limit, quota: Quota) -> Limit:
    if quota.messages is not None:
        rate, burst = quota.messages
        limit = replace(limit, messages=quota_rate(rate), messages_burst=burst or None)
    if quota.bytes is not None:
        rate, burst = quota.bytes
        limit = replace(limit, bytes=quota_rate(rate), bytes_burst=burst or None)
    return limit


def quota_rate(rate: float) -> Rate:
    """A published rate. Only 0 lets nothing pass: however small another is, it is no less than a rate can be."""
    return per_second(max(rate, LEAST_RATE) if rate > 0 else rate)
