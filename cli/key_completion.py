"""Completion in the shell from what the running gateway has seen: keys of topics, clients, users and so on, and its connections.

Strangers choose these names, and bash puts a completion on the command line as it is: the topic `orders;reboot` would be a command. So a
name that a shell does not take as it is is not offered.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from cli.client import AdminClient, token_for
from cli.exits import CommandError
from cli.output import clean
from common.shell_words import quote_word
from limiter.operations import CONSUME, PRODUCE
from limiter.protocols import AMQP, PROTOCOL_NAMES, ROCKETMQ
from limiter.rules.level_keys import LEVEL_WORDS
from limiter.topics import parts_of_path

PATIENCE_S: Final = 1.0  # seconds; a shell waits for no longer
MAX_TOPICS: Final = 500  # topics or connections; asked for


def complete_key(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The words that may come next: a protocol, or the next part of a topic. Nothing where no gateway answers."""
    given = [str(word) for word in context.params.get(parameter.name or "") or ()]
    if not given:
        return [CompletionItem(name) for name in PROTOCOL_NAMES if name.startswith(incomplete)]
    names = PROTOCOL_NAMES.get(given[0])
    if names is None or len(given) > len(names.topic_parts):
        return []
    return _next_words(topics(context, names.name), given, len(names.topic_parts), incomplete)


def complete_spooled(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The words that may come next of a topic whose messages may be spooled: of what waits in the spool first, then of all topics."""
    given = [str(word) for word in context.params.get(parameter.name or "") or ()]
    names = PROTOCOL_NAMES.get(given[0]) if given else None
    if names is None:
        return [CompletionItem(each.name) for each in PROTOCOL_NAMES.values() if each.spools and each.name.startswith(incomplete)]
    spooled = [str(item.get("topic")) for item in _items(context, "/v1/spool", {"protocol": names.name})]
    return _next_words([*spooled, *topics(context, names.name)], given, len(names.topic_parts), incomplete)


def _next_words(topics: list[str], given: list[str], parts: int, incomplete: str) -> list[CompletionItem]:
    """The words after `given` (a protocol, and the first parts of a topic) that begin so, of topics with so many parts."""
    found: dict[str, None] = {}
    for topic in topics:
        words = [part.decode(errors="replace") for part in parts_of_path(topic)] if parts > 1 else [topic]
        if len(given) <= len(words) == parts and words[: len(given) - 1] == given[1:]:
            found[words[len(given) - 1]] = None
    return _offer(found, incomplete)


def _offer(words: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Those of the gateway's words that begin so, and that a shell takes as they are and no command for an option."""
    begun = (word for word in words if word.startswith(incomplete))
    return [CompletionItem(word) for word in begun if quote_word(word) == word and word.isprintable() and not word.startswith("-")]


def complete_any_key(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The words that may come next of any key: a topic's, or those of a client, user, listener ..."""
    given = [str(word) for word in context.params.get(parameter.name or "") or ()]
    if not given:
        return [CompletionItem(word) for word in (*PROTOCOL_NAMES, *LEVEL_WORDS) if word.startswith(incomplete)]
    word, *parts = given
    if word in PROTOCOL_NAMES:
        return complete_key(context, parameter, incomplete)
    found = dict.fromkeys(key[len(parts)] for key in _keys(context, word) if len(key) > len(parts) and key[: len(parts)] == parts)
    return _offer(found, incomplete)


def complete_match(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """`FIELD=` for each key of a match; after that the words that it may have."""
    from limiter.rules.match import MATCH_KEYS

    name, equals, begun = incomplete.partition("=")
    if equals:
        choices = MATCH_KEYS[name].choices if name in MATCH_KEYS else ()
        return [CompletionItem(f"{name}={word}") for word in choices if word.startswith(begun)]
    return [CompletionItem(f"{each}=", help=key.doc) for each, key in MATCH_KEYS.items() if each.startswith(name)]


def complete_connection(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Numbers of connections, each with its client as the description."""
    return [
        CompletionItem(str(item["id"]), help=_describe(item))
        for item in _items(context, "/v1/connections", {})
        if str(item.get("id")).startswith(incomplete)
    ]


def _describe(item: dict[str, Any]) -> str:
    name = (item.get("client_properties") or {}).get("connection_name")
    return clean(" ".join(str(part) for part in (item.get("client"), name, item.get("user")) if part))


def _keys(context: click.Context, word: str) -> Iterator[list[str]]:
    """The keys of one kind, of which there is traffic, as the words after the first."""
    if word == "listener":
        yield from ([str(item.get("name"))] for item in _items(context, "/v1/listeners", {}))
    elif word in {"exchange", "queue"}:
        for item in _items(context, "/v1/topics", {"protocol": AMQP.name, "sort": "rate"}):
            vhost, exchange, *rest = [part.decode(errors="replace") for part in parts_of_path(str(item.get("topic")))] + [""]
            if word == "exchange" and item.get("operation") == PRODUCE:
                yield [vhost, exchange]
            elif word == "queue" and item.get("operation") == CONSUME:
                yield [vhost, rest[0]]
    elif word in {"namespace", "group"}:
        for item in _items(context, "/v1/topics", {"protocol": ROCKETMQ.name, "sort": "rate"}):
            namespace, percent, _ = str(item.get("topic")).partition("%")
            if word == "namespace" and percent and namespace:
                yield [namespace]
            elif word == "group" and item.get("group"):
                yield [str(item["group"])]
    else:  # a connection has one
        texts = (str(item.get(word) or "") for item in _items(context, "/v1/connections", {}))
        yield from ([text.rpartition(":")[0].strip("[]") if word == "client" else text] for text in texts if text)


def topics(context: click.Context, protocol: str) -> list[str]:
    return [str(item.get("topic")) for item in _items(context, "/v1/topics", {"protocol": protocol, "sort": "rate"})]


def _items(context: click.Context, target: str, query: dict[str, str]) -> list[dict[str, Any]]:
    """A list of the gateway's; empty where none answers."""
    url = context.params.get("admin") or os.environ.get("SLUICE_ADMIN") or "http://127.0.0.1:9180"
    file = context.params.get("token_file") or os.environ.get("SLUICE_TOKEN_FILE")
    try:
        client = AdminClient(url, token_for(url, Path(file) if file else None, os.environ), PATIENCE_S)
        return list(client.items(target, query, most=MAX_TOPICS))
    except CommandError:
        return []
