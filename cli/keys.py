"""Keys on the command line: what a live change can be for, as separate words, raw.

    rocketmq orders            amqp / orders order.created          a topic
    client 10.0.0.7            user shop           listener rabbit
    vhost /                    exchange / orders   namespace team-a
    group billing              queue / jobs                         what consumers get

Words beside a topic's are those of the API's paths (`limiter.rules.level_keys`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from cli.client import path
from cli.exits import CommandError
from cli.verb import with_options
from common.failures import USAGE
from limiter.operations import CONSUME, OPERATION_RECORDS, OPERATIONS, PRODUCE
from limiter.protocols import PROTOCOL_NAMES
from limiter.rules.level_keys import LEVEL_WORDS
from limiter.rules.match import MATCH_KEYS, SENDER_KEYS

OPERATION: Final = click.option(
    "--operation",
    type=click.Choice(OPERATIONS),
    help="What is published, what consumers get, or what they give back. Default: consume for a group or queue, else produce.",
)


def sender_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say whose messages are meant."""
    options = (
        click.option(f"--{name.replace('_', '-')}", metavar=key.metavar, help=f"For messages {key.sender}.")
        for name, key in SENDER_KEYS.items()
    )
    return with_options(command, *options)


def topic_path(words: tuple[str, ...]) -> str:
    """`rocketmq TOPIC` or `amqp VHOST EXCHANGE ROUTING_KEY`, raw, as the path of the key. Raises CommandError."""
    protocol, *rest = words
    names = PROTOCOL_NAMES.get(protocol)
    if names is None:
        raise CommandError(USAGE, f"{protocol}: no such protocol; say {' or '.join(PROTOCOL_NAMES)}")
    parts = names.topic_parts
    if len(rest) != len(parts) or any(part.empty is None and not word for part, word in zip(parts, rest, strict=True)):
        raise CommandError(USAGE, f"a key of {names.title} is {names.key_words}, such as: {' '.join([names.name, *names.example])}")
    return path("limits", protocol, *(word or part.empty or "" for part, word in zip(parts, rest, strict=True)))


def key_path(words: tuple[str, ...], operation: str | None) -> str:
    """Any key as its path. Raises CommandError for what is no key, with what would do."""
    word, *parts = words
    if word in PROTOCOL_NAMES:
        if operation in {None, PRODUCE}:
            return topic_path(words)
        if word == "rocketmq" and operation == CONSUME:
            return topic_path(words).replace("/limits/", f"/limits/{CONSUME}/", 1)
        if word == "rocketmq":
            raise CommandError(USAGE, f"RocketMQ has no --operation {operation}: what clients send back is published to %RETRY%GROUP")
        raise CommandError(USAGE, OPERATION_RECORDS[str(operation)].not_of)
    if word == "connection":
        raise CommandError(
            USAGE, "a connection is over before its limit could matter: close it (`sluice connections close`), or limit its client or user"
        )
    if word == "rule":
        raise CommandError(
            USAGE, "the limit of a rule is changed with `sluice rules set NAME`, a new one added with `sluice rules add NAME`"
        )
    if word not in LEVEL_WORDS:
        raise CommandError(USAGE, f"{word}: there are no such keys; say {', '.join([*PROTOCOL_NAMES, *LEVEL_WORDS])}")
    names, operations, example, _ = LEVEL_WORDS[word]
    if len(parts) != len(names) or not all(parts):
        wanted = " ".join([word, *(MATCH_KEYS[name].metavar for name in names)])
        raise CommandError(USAGE, f"a key of {word} is {wanted}, such as: {word} {example}")
    chosen = operation or operations[0]
    if chosen not in operations:
        raise CommandError(USAGE, f"{word} has no --operation {chosen}: {OPERATION_RECORDS[chosen].not_of}")
    return path("limits", *([] if chosen == PRODUCE else [chosen]), word, *parts)
