"""Level keys: the things other than published topics whose limit can be changed live, as a client, a user, a consumer group or a queue.

A topic's own live change goes by its `TopicName`. Every other bucket is named by its level, the operation and the thing as text:

    ("produce", "client", "", "10.0.0.7")       all that this client publishes
    ("consume", "group", "", "billing")         all that this RocketMQ group is given
    ("consume", "topic", "amqp", "%2F/amq.default/jobs")     all deliveries from this queue
    ("requeue", "topic", "amqp", "%2F/amq.default/jobs")     all that consumers give back to it
    ("requeue", "group", "", "billing")         all that this RocketMQ group gives back

A client is one address, or an IPv6 network of a host or a site (`2001:db8::/64`), because a host may take any address of its network.
"""

from __future__ import annotations

from ipaddress import IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Final, NamedTuple

from limiter.operations import CONSUME, OF_TOPICS, PRODUCE, REQUEUE
from limiter.rules.patterns import IPV6_BITS, client_network

if TYPE_CHECKING:
    from collections.abc import Iterable

    from limiter.rules.live_change import Override
    from limiter.rules.subject import Subject


class LevelWord(NamedTuple):
    """A kind of keys, as the command line and the paths of the API have it."""

    parts: tuple[str, ...]  # keys of a match, which are given in this order
    operations: tuple[str, ...] = (PRODUCE, CONSUME)  # the first where nothing else is said
    example: str = "orders"
    sends: bool = False  # messages are published by it, not to it


LEVEL_WORDS: Final = {
    "client": LevelWord(("client",), OF_TOPICS, "10.0.0.7", sends=True),
    "user": LevelWord(("user",), OF_TOPICS, "shop", sends=True),
    "listener": LevelWord(("listener",), OF_TOPICS),
    "vhost": LevelWord(("vhost",), OF_TOPICS, "/"),
    "exchange": LevelWord(("vhost", "exchange"), (PRODUCE,), "/ orders"),
    "namespace": LevelWord(("namespace",)),
    "group": LevelWord(("group",), (CONSUME, PRODUCE, REQUEUE), "billing", sends=True),
    "queue": LevelWord(("vhost", "queue"), (CONSUME, REQUEUE), "/ jobs"),
}
LEAST_IPV6_PREFIX: Final = 48  # bits; a site's network (RFC 6177); a wider one is many clients, which a rule is for


class LevelKey(NamedTuple):
    """`protocol` is "" but at the level `topic`, where buckets are told apart by it; `thing` is as `Subject.thing` has it."""

    operation: str
    per: str
    protocol: str
    thing: str


def plain_client(text: str) -> str:
    """A client in the form in which buckets are named; raises ValueError for what is no address and no IPv6 network of one client."""
    if "/" not in text:
        address = ip_address(text)
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(address)
    network = ip_network(text)
    if network.num_addresses == 1:
        return str(network.network_address)
    if isinstance(network, IPv6Network) and network.prefixlen >= LEAST_IPV6_PREFIX:
        return str(network)
    raise ValueError(f"{text!r} is a network of many clients")


class LevelChanges:
    """The live changes of level keys that hold."""

    __slots__ = ("_prefixes", "changes", "levels")

    def __init__(self, changes: dict[LevelKey, Override]) -> None:
        self.changes = changes
        self.levels = sorted({(key.per) for key in changes})  # levels that a change is for
        self._prefixes = prefixes_of(changes)  # of IPv6 networks, the longest first

    def find(self, per: str, thing: str, subject: Subject) -> tuple[str, Override] | None:
        """The change for `thing` of a level, and the thing that it names; None: there is none."""
        protocol = subject.name.protocol if per == "topic" else ""
        change = self.changes.get(LevelKey(subject.operation, per, protocol, thing))
        if change is not None:
            return thing, change
        if per == "client" and self._prefixes and ":" in thing:
            for prefix in self._prefixes:
                network = client_network(thing, prefix)
                change = self.changes.get(LevelKey(subject.operation, per, protocol, network))
                if change is not None:
                    return network, change
        return None

    def __repr__(self) -> str:
        return f"<LevelChanges {len(self.changes)} of {', '.join(self.levels)}>"


def prefixes_of(keys: Iterable[LevelKey]) -> list[int]:
    """The lengths of the IPv6 networks among the clients, the longest first."""
    lengths = {int(key.thing.rpartition("/")[2]) for key in keys if key.per == "client" and "/" in key.thing}
    return sorted((length for length in lengths if length < IPV6_BITS), reverse=True)
