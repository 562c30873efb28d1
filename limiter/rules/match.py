"""Which messages a rule is for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from limiter.operations import HELD_OPERATIONS, OPERATION_RECORDS, OPERATIONS, PRODUCE
from limiter.protocols import PROTOCOL_NAMES
from limiter.rules.errors import RuleError, check_choice
from limiter.rules.patterns import Addresses
from limiter.rules.rows import CHOICE, CHOICES, LISTENERS, NETWORK, WORDS, match_key, rows_of

if TYPE_CHECKING:
    from limiter.protocols import ProtocolNames
    from limiter.rules.rows import MatchKey

PROTOCOLS: Final = tuple(PROTOCOL_NAMES)


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
        given = self.given()
        for name in given:
            check_key(name, getattr(self, name))
        self._check_one_protocol([name for name in given if name in FIELDS_OF_PROTOCOLS])
        if self.holds() and self.queue is not None and self.exchange not in {None, "", "amq.default"}:
            raise RuleError("match.exchange", "a delivery is known by its queue, wherever it was published; leave exchange out")
        if self.queue is not None and (self.routing_key is not None or self.exchange not in {None, "", "amq.default"}):
            raise RuleError("match.queue", "a queue is a routing key on the default exchange; name the queue, or exchange and routing_key")

    def _check_one_protocol(self, fields: list[str]) -> None:
        """Raise RuleError where no protocol, or not the one that is named, has all of `fields`, which are given, and the operations."""
        self._check_fields(fields)
        if self.operation is None:
            return  # what is published, which each protocol has
        spoken = self.spoken()
        for each in self.operations():
            if spoken not in {None, *OPERATION_RECORDS[each].protocols}:
                own = ", ".join(name for name, record in OPERATION_RECORDS.items() if spoken in record.protocols)
                raise RuleError("match.operation", f"{each} is {owner_of(each)}'s; {PROTOCOL_NAMES[str(spoken)].title} has {own}")

    def _check_fields(self, fields: list[str]) -> None:
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
        return not HELD_OPERATIONS.isdisjoint(self.operations())

    def text_of(self, name: str) -> str:
        """What a field that is given says, in words; of several listeners or operations all of them."""
        value = getattr(self, name)
        return ", ".join(value) if isinstance(value, tuple) else str(value)

    def spoken(self) -> str | None:
        """The protocol this match is for, named or implied; None: any."""
        if self.protocol is not None:
            return self.protocol
        fields = [name for name in self.given() if name in FIELDS_OF_PROTOCOLS]
        having = protocols_having(fields) if fields else []
        return having[0].name if len(having) == 1 else None


MATCH_KEYS: Final[dict[str, MatchKey]] = rows_of(Match)
FIELDS_OF_PROTOCOLS: Final = frozenset(field for names in PROTOCOL_NAMES.values() for field in names.match_fields)  # not of every one
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


def owner_of(operation: str) -> str:
    """Whose an operation of one protocol is."""
    (protocol,) = OPERATION_RECORDS[operation].protocols
    return "RabbitMQ" if protocol == "amqp" else PROTOCOL_NAMES[protocol].title


def protocols_having(fields: list[str]) -> list[ProtocolNames]:
    """The protocols whose match fields include all of `fields`."""
    return [names for names in PROTOCOL_NAMES.values() if all(name in names.match_fields for name in fields)]
