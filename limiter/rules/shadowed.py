"""Shadowed rules: whether one match covers all messages of another; and matches that fit no message.

It serves warnings, so it is careful: True only where that is certain for all topics and senders. A field left out of a match fits any
value. A field that may be unknown of a message (user, group, namespace) covers only a match that names it too.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_network
from typing import TYPE_CHECKING

from limiter.protocols import DEAD_LETTER_PREFIX, DEFAULT_EXCHANGE, PROTOCOL_NAMES, RETRY_PREFIX, protocol_of_level
from limiter.rules.match import MATCH_KEYS
from limiter.rules.namespaces import namespace_of
from limiter.rules.patterns import EXACT, GLOB, WORDS, Pattern, name_pattern, routing_key_pattern, split_words
from limiter.rules.rows import NAME
from limiter.rules.system_topics import is_system_topic

if TYPE_CHECKING:
    from limiter.rules.match import Match


def covers(wide: Match, narrow: Match, per: str) -> bool:
    """Whether every message that a rule per `per` with `narrow` is for meets `wide` too."""
    protocol = protocol_of_level(per) or narrow.spoken()
    if wide.spoken() is not None and wide.spoken() != protocol:
        return False
    if not set(narrow.operations()) <= set(wide.operations()):
        return False
    if wide.client is not None and (narrow.client is None or not is_subnet(narrow.client, wide.client)):
        return False
    if wide.listeners() and not all(any_covers(wide.listeners(), name) for name in narrow.listeners() or (None,)):
        return False
    for name, key in MATCH_KEYS.items():
        if key.kind == NAME and key.subject not in {"topic", "exchange"} and getattr(wide, name) is not None:
            second = getattr(narrow, name)
            if not pattern_covers(pattern_of(getattr(wide, name)), None if second is None else pattern_of(second), known=key.always):
                return False
    return exchange_covers(wide, narrow) and topic_covers(wide, narrow, protocol)


def any_covers(wide: tuple[str, ...], name: str | None) -> bool:
    return any(pattern_covers(pattern_of(each), None if name is None else pattern_of(name), known=True) for each in wide)


@lru_cache(4096)  # thousands of rules are compared with one another
def pattern_of(text: str) -> Pattern:
    return name_pattern(text)


def exchange_covers(wide: Match, narrow: Match) -> bool:
    first, second = exchange_of(wide), exchange_of(narrow)
    return first is None or pattern_covers(first, second, known=True)


def topic_covers(wide: Match, narrow: Match, protocol: str | None) -> bool:
    first, second = topic_of(wide), topic_of(narrow)
    if second is not None and second.kind == EXACT and (first is None or first.kind != EXACT):
        protocols = PROTOCOL_NAMES if protocol is None else (protocol,)
        if any(is_system_topic(each, second.text) for each in protocols):
            return False  # nothing but its own name is for a system topic
    return first is None or pattern_covers(first, second, known=True)


def exchange_of(match: Match) -> Pattern | None:
    if match.queue is not None or match.exchange == DEFAULT_EXCHANGE:
        return pattern_of("")
    return None if match.exchange is None else pattern_of(match.exchange)


def topic_of(match: Match) -> Pattern | None:
    if match.routing_key is not None:
        return routing_key_pattern(match.routing_key)
    named = match.topic if match.queue is None else match.queue
    return None if named is None else pattern_of(named)


def pattern_covers(wide: Pattern, narrow: Pattern | None, *, known: bool) -> bool:
    """Whether `wide` matches all that `narrow` (None: any name, or none where it is not `known`) matches."""
    if matches_all(wide) and (known or narrow is not None):
        return True
    if narrow is None:
        return False
    if wide.kind == narrow.kind and wide.text == narrow.text:
        return True
    if narrow.kind == EXACT:
        return wide.matches(narrow.text)
    if wide.kind == GLOB and narrow.kind == GLOB:
        return wide.text.endswith("*") and literal(wide.text) == wide.text[:-1] and literal(narrow.text).startswith(wide.text[:-1])
    if wide.kind == WORDS and narrow.kind == WORDS:
        words, others = split_words(wide.text), split_words(narrow.text)
        first = words[:-1]
        return words[-1] == "#" and not {"*", "#"} & set(first) and others[: len(first)] == first
    return False


def matches_all(pattern: Pattern) -> bool:
    return pattern.text == ("*" if pattern.kind == GLOB else "#") and pattern.kind != EXACT


def literal(glob: str) -> str:
    """The beginning of every name that a glob matches."""
    ends = [at for at in map(glob.find, "*?[") if at >= 0]
    return glob[: min(ends)] if ends else glob


def is_subnet(narrow: str, wide: str) -> bool:
    """Whether all addresses of one network are of another."""
    inner, outer = ip_network(narrow), ip_network(wide)
    return inner.version == outer.version and int(inner[0]) >= int(outer[0]) and int(inner[-1]) <= int(outer[-1])


def find_contradiction(match: Match) -> tuple[str, str, str] | None:
    """Why a match fits no message: the field, the fault, the way out. None: it may fit one."""
    if match.client is not None:
        first = ip_network(match.client)[0]
        mapped = first.ipv4_mapped if isinstance(first, IPv6Address) else None
        if mapped is not None:
            return "client", "IPv4 addresses are compared as such, also on an IPv6 socket", f"write it as IPv4: {mapped}"
    topic = match.topic
    if topic is None:
        return None
    begins = literal(topic)
    names = PROTOCOL_NAMES.get(match.spoken() or "")
    if names is not None and begins != topic and begins.startswith(names.system_topics.prefixes):
        return "topic", f"a pattern is never for {names.title}'s system topics", "name each of them exactly"
    if match.namespace is not None:
        found = namespace_of(topic) if begins == topic else namespace_of(begins) if has_namespace(begins) else None
        if (begins == topic or found is not None) and (found is None or not name_pattern(match.namespace).matches(found)):
            actual = f"is in namespace {found}" if found is not None else "is in no namespace"
            return "namespace", f"{topic} {actual}, not in {match.namespace}", "remove namespace, or name topics of it"
    return None


def has_namespace(begins: str) -> bool:
    """Whether names that begin so have a namespace that is known by that."""
    return "%" in begins.removeprefix(RETRY_PREFIX).removeprefix(DEAD_LETTER_PREFIX)
