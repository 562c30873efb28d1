"""Refusal of a pattern where a live change wants the name of one thing, with the command that does what was probably meant.

`limits set rocketmq 'order*'` would limit the one topic with that very name. A rule is for all that match: `sluice rules add`.
"""

from __future__ import annotations

import re
from ipaddress import ip_network
from typing import TYPE_CHECKING, Final

from admin.http.bodies import LIMITING
from common.shell_words import join_words
from limiter.protocols import AMQP, DEFAULT_EXCHANGE, PROTOCOL_NAMES
from limiter.rules.patterns import EXACT, name_pattern, name_text, routing_key_pattern

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admin.http.bodies import LimitBody
    from limiter.rules.rule_set import RuleSet
    from limiter.topics import TopicName

# Members of a change that `rules add` takes as options of the same meaning.
OPTIONS: Final = {name: f"--{name.replace('_', '-')}" for name in (*LIMITING, "mode")} | {"expires": "--for", "reason": "--reason"}
_UNNAMED: Final = re.compile(r"[^A-Za-z0-9._-]+")


def instead_of_pattern(rules: RuleSet, name: TopicName, body: LimitBody) -> str:
    """The sentence that refuses a change of `name`; "" where it is no pattern, or is the name of a group of topics (routing_key_words)."""
    topic, exchange, vhost = name_text(name.topic), name_text(name.exchange), name_text(name.vhost)
    amqp = name.protocol == AMQP.name
    patterns = [routing_key_pattern(topic) if amqp else name_pattern(topic), name_pattern(exchange), name_pattern(vhost)]
    if all(pattern.kind == EXACT for pattern in patterns) or is_group(rules, name):
        return ""
    match = {"topic": topic}
    if amqp:
        match = {"vhost": vhost, "exchange": exchange or DEFAULT_EXCHANGE, "routing_key": topic}
    pattern = next(text for text, pattern in zip((topic, exchange, vhost), patterns, strict=True) if pattern.kind != EXACT)
    command = add_command(pattern, {"protocol": name.protocol, **match}, "topic", "produce", body)
    return (
        f"{pattern!r} is a pattern, and a live change is for the one topic with this very name; "
        f"for every topic that matches, each by itself: {command}; for one topic that is called like this: --literal (?literal=1)"
    )


def is_group(rules: RuleSet, name: TopicName) -> bool:
    """Whether it names a group of topics that a rule keeps one bucket for."""
    text = name_text(name.topic)
    if not rules.groups_topics or not text.endswith(".#") or "*" in text:
        return False
    words = text.count(".")
    return any(rule.routing_key_words == words for rule in rules.rules)


def instead_of_pattern_of_level(word: str, names: Mapping[str, bytes], operation: str, per: str, body: LimitBody) -> str:
    """The sentence that refuses a change of a user, group, queue or their like whose name is a pattern; "" where it is none.

    `word`: the first of its path; `names`: the parts after it, which are fields of a rule's match.
    """
    match = {field: name_text(name) for field, name in names.items()}
    pattern = next((text for text in reversed(match.values()) if name_pattern(text).kind != EXACT), "")
    if not pattern:
        return ""
    if word in PROTOCOL_NAMES:
        match = {"protocol": word, **match}
    command = add_command(pattern, match, per, operation, body)
    return (
        f"{pattern!r} is a pattern, and a live change is for the one {'topic' if word in PROTOCOL_NAMES else word} with this very name; "
        f"for all that match, each by itself: {command}; for the one that is called like this: --literal (?literal=1)"
    )


def instead_of_network(client: str, operation: str, body: LimitBody | None) -> str:
    """The sentence that refuses a network of many clients; "" where it is none."""
    try:
        network = str(ip_network(client, strict=False))
    except ValueError:
        return ""
    each = add_command(network, {"client": network}, "client", operation, body)
    return (
        f"{network} is a network of many clients, and a live change is for one; for each client in it by itself: {each}; "
        "for all of them together the same with --per rule"
    )


def add_command(pattern: str, match: dict[str, str], per: str, operation: str, body: LimitBody | None) -> str:
    """The `sluice rules add` that gives what matches the limit of `body`."""
    words = ["sluice", "rules", "add", _UNNAMED.sub("-", pattern).strip("-.")[:60] or "live"]
    for field, value in match.items():
        words += ["--match", f"{field}={value}"]
    if operation != "produce":
        words += ["--match", f"operation={operation}"]
    words += ["--per", per]
    for member, option in OPTIONS.items():
        given = getattr(body, member, None)
        if isinstance(given, str):
            words += [option, given]
    return join_words(words)
