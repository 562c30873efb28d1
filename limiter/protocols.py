"""Protocols as rules, quotas and the API know them: how each names its topics, and which words of a rule are its own.

One record per protocol whose messages are limited. The levels and match fields of rules, the texts of topics, the API's paths, the
command line's keys and the topics that the nightly job leaves out derive from it. To add a protocol, write its record and name it in
`PROTOCOL_NAMES`. A match field that no protocol has yet is also a row of `limiter.rules.match.Match`. How a protocol is spoken stands
in `gateway/protocols/`.

The nightly job imports this module, so it uses the standard library only, holds plain values and is never compiled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

RETRY_PREFIX: Final = "%RETRY%"  # of RocketMQ's topics for what a consumer group could not handle; the group's name follows
DEAD_LETTER_PREFIX: Final = "%DLQ%"  # of those for what it could not handle in the end
DEFAULT_EXCHANGE: Final = "amq.default"  # RabbitMQ's management API writes AMQP's default exchange (its name is empty) like this


@dataclass(frozen=True, slots=True)
class TopicPart:
    """One part of a topic's name."""

    word: str  # in the paths of the API and on the command line
    field: str  # of `limiter.topics.TopicName`
    empty: str | None = None  # how an empty one is written; None: it is never empty


@dataclass(frozen=True, slots=True)
class SystemTopics:
    """The broker's own topics. Only a rule that names one exactly limits it: a broad rule would break the broker's features."""

    names: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()

    def pattern(self, more_prefixes: tuple[str, ...] = ()) -> str:
        """A regular expression (Python's and Java's) that finds them in a topic's text, and topics with one of `more_prefixes`."""
        words = [rf"^{re.escape(name)}$" for name in sorted(self.names)]
        words += [rf"^{re.escape(prefix)}" for prefix in (*self.prefixes, *more_prefixes)]
        return "|".join([*words, *(rf"{re.escape(suffix)}$" for suffix in self.suffixes)])


@dataclass(frozen=True, slots=True)
class ProtocolNames:
    """What one protocol calls its topics, and what may be said of it in a rule."""

    name: str  # in rules, logs, metrics and paths
    title: str  # in messages to people
    topic_parts: tuple[TopicPart, ...]  # one: the topic's text is its name; several: each percent-encoded, `/` between
    example: tuple[str, ...]  # a topic, part by part
    topic_fields: tuple[str, ...]  # of `match`: what says which topics; a topic settles them
    sender_fields: tuple[str, ...] = ()  # of `match`: what says whose messages, beside those that every protocol has
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of `per`, beside those that every protocol has -> settled by it
    match_instead: Mapping[str, str] = field(default_factory=dict)  # another's match field -> what to use here
    per_instead: Mapping[str, str] = field(default_factory=dict)  # another's level -> which levels to use here
    backlog: str = ""  # of `lag`: the field that says whose backlog the limit follows; "": it has none
    max_delay_ns: int = 2_500_000_000  # nanoseconds; bounds `max_delay`; below what its clients wait for an answer
    max_delay_reason: str = ""
    refuses_with: str = ""  # its one way to refuse, where `reply` gives no choice; "": `reply` chooses
    refuses_all: bool = True  # every message can be refused with an answer; else `fallback` says what happens instead
    spools: bool = False  # its messages may wait longer than clients wait for an answer: `action: spool`
    spools_only: str = ""  # which of them, in words; the others are refused. "": all
    system_topics: SystemTopics = SystemTopics()
    no_quota_prefixes: tuple[str, ...] = ()  # of topics, or of any part after the first, that get no quota
    name_server: str = ""  # the protocol of listeners that lead its clients to listeners of this one; "": there is none

    @property
    def match_fields(self) -> tuple[str, ...]:
        return self.topic_fields + self.sender_fields

    @property
    def key_words(self) -> str:
        """A key as the command line takes it: `amqp VHOST EXCHANGE ROUTING_KEY`."""
        return " ".join([self.name, *(part.word.upper() for part in self.topic_parts)])

    @property
    def path(self) -> str:
        """A key as a template of the API's paths: `amqp/{vhost}/{exchange}/{routing_key}`."""
        return "/".join([self.name, *(f"{{{part.word}}}" for part in self.topic_parts)])

    def instead_of_field(self, name: str) -> str:
        return self.match_instead.get(name, f"{self.title} has none")

    def no_quota_pattern(self) -> str:
        """A regular expression (Python's and Java's) that finds the topics without a quota; "": all have one."""
        if len(self.topic_parts) == 1:
            return self.system_topics.pattern(self.no_quota_prefixes)
        return "|".join(f"/{re.escape(prefix)}" for prefix in self.no_quota_prefixes)

    def __repr__(self) -> str:
        return f"<ProtocolNames {self.name}>"


AMQP: Final = ProtocolNames(
    name="amqp",
    title="AMQP",
    topic_parts=(
        TopicPart("vhost", "vhost"),
        TopicPart("exchange", "exchange", empty=DEFAULT_EXCHANGE),
        TopicPart("routing_key", "topic", empty=""),
    ),
    example=("/", "amq.default", "orders"),  # a queue: works wherever it is pasted, no exchange has to be there
    topic_fields=("vhost", "exchange", "routing_key", "queue"),
    levels={"exchange": ("vhost", "exchange"), "vhost": ("vhost",)},
    match_instead={
        "topic": "AMQP's is routing_key (or queue)",
        "group": "AMQP publishers have none",
        "namespace": "AMQP's is vhost",
    },
    per_instead={"group": "user, client or topic", "namespace": "vhost, user or client"},
    backlog="queue",
    max_delay_ns=8_000_000_000,  # docs/design/amqp.md 1.5: Java's NIO clients give up a write after 10 s, Bunny after 30 s
    max_delay_reason="some AMQP clients give up a write after 10s (Java NIO) or 30s (Bunny)",
    refuses_with="basic.nack",
    refuses_all=False,  # a channel without confirms has no answer
    spools=True,
    no_quota_prefixes=("amq.gen-", "amq.rabbitmq.reply-to"),  # RabbitMQ's generated queue names live as long as one connection
)
ROCKETMQ: Final = ProtocolNames(
    name="rocketmq",
    title="RocketMQ",
    topic_parts=(TopicPart("topic", "topic"),),
    example=("orders",),
    topic_fields=("topic", "namespace"),
    sender_fields=("group",),
    levels={"group": ("group",), "namespace": ("namespace",)},
    match_instead={"routing_key": "RocketMQ's is topic", "queue": "RocketMQ's is topic"},
    per_instead={"exchange": "topic, client or rule", "vhost": "namespace, topic or client"},
    backlog="group",
    max_delay_ns=2_500_000_000,  # docs/design/limiter.md 4: RocketMQ's clients time out at 3 s
    max_delay_reason="RocketMQ's clients give up after 3s",
    spools=True,
    spools_only="one-way sends",
    # apache/rocketmq common/topic/TopicValidator.java and MixAll.java, as listed in docs/design/rocketmq.md 2.1. Retry and dead-letter
    # topics are not among them: they carry users' messages, and a storm of retries is just what a limit is for.
    system_topics=SystemTopics(
        names=frozenset(
            {
                "BenchmarkTest",
                "CHECKPOINT_TOPIC",
                "OFFSET_MOVED_EVENT",
                "RMQ_SYS_TRACE_TOPIC",
                "RMQ_SYS_TRANS_HALF_TOPIC",
                "RMQ_SYS_TRANS_OP_HALF_TOPIC",
                "SCHEDULE_TOPIC_XXXX",
                "SELF_TEST_TOPIC",
                "TBW102",
                "TRANS_CHECK_MAX_TIME_TOPIC",
            }
        ),
        prefixes=("rmq_sys_",),
        suffixes=("_REPLY_TOPIC",),  # <cluster>_REPLY_TOPIC carries the answers of request-reply
    ),
    # Retries and dead letters are storms by nature: a quota learned from a storm would welcome the next one. The other two are wider than
    # the broker's own names: no quota for what looks like one.
    no_quota_prefixes=(RETRY_PREFIX, DEAD_LETTER_PREFIX, "%SYS%", "RMQ_SYS_"),
    name_server="rocketmq-nameserver",
)

PROTOCOL_NAMES: Final[dict[str, ProtocolNames]] = {names.name: names for names in (AMQP, ROCKETMQ)}


PROTOCOL_OF_LEVEL: Final = {
    level: names.name
    for names in PROTOCOL_NAMES.values()
    for level in names.levels
    if sum(level in others.levels for others in PROTOCOL_NAMES.values()) == 1
}  # asked for once per limit while the judge's lock is held: looked up, not worked out


def protocol_of_level(per: str) -> str | None:
    """The protocol that alone has the level `per`; None: several have it. A rule of that level is for it, even without saying so."""
    return PROTOCOL_OF_LEVEL.get(per)


def spoken_behind(listener_protocol: str) -> str:
    """The protocol of the messages that come by listeners of `listener_protocol`, or by those that they open."""
    return next((names.name for names in PROTOCOL_NAMES.values() if names.name_server == listener_protocol), listener_protocol)
