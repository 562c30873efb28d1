"""One rule: its match, limit and action. `limiter.rules.rule_set` finds the rule that holds for a message.

Mistakes are found when the value is made (`rule_checks.py`), as a `RuleError` with the field and the way out. Nothing here is used per
message, except `Rule`'s fields when a message was refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from limiter.algorithms import ALGORITHMS, COUNTING
from limiter.algorithms.setting_errors import has_burst
from limiter.limits import SECOND, UNLIMITED, Limit, LimitChange
from limiter.rules.actions import ACTIONS, FALLBACKS, PATIENT
from limiter.rules.cost import Cost
from limiter.rules.match import Match
from limiter.rules.patterns import IPV6_BITS
from limiter.rules.rows import CHOICE, DURATION, SIZE, WEIGHT, WHOLE, YES_NO, rows_of, rule_setting
from limiter.rules.rule_checks import check_rule
from limiter.rules.rule_words import COPIES, IGNORE, MAX_WEIGHT, MAX_WORDS, MODES, PER, REFUSE, REPLIES, SCOPES, SHARED_BY_FLEETS

if TYPE_CHECKING:
    from limiter.rules.rows import RuleSetting

FIT: Final = 0  # what `Request.unfit` may be
TOO_LARGE: Final = 1  # larger than its rule's `max_message_size`
HAS_COPIES: Final = 2  # it names copies, and a rule has `copies: refuse`
DEFAULT_OPEN_FOR_NS: Final = SECOND  # ns; an open breaker; docs/design/limiter.md 3
DEFAULT_MAX_DELAY_NS: Final = SECOND  # ns; docs/design/limiter.md 4
DEFAULT_IPV6_PREFIX: Final = 64  # bits; a host may take any address of its /64 (RFC 4291, 2.5.1; RFC 7934)


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
    match: Match = Match()  # noqa: RUF009  -- frozen
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
        check_rule(self, RULE_SETTINGS)

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
        return None if self.candidate is None else self.candidate.apply_to(self.limit)

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
