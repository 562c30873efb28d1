"""Keys on the command line: what a live change can be for, as separate words, raw.

    rocketmq orders            amqp / orders order.created          a topic
    client 10.0.0.7            user shop           listener rabbit
    vhost /                    exchange / orders   namespace team-a
    group billing              queue / jobs                         what consumers get

Words beside a topic's are in the API's paths too (`admin.store.level_targets`).
"""

from __future__ import annotations

from typing import Final

import click

from cli.client import path
from cli.exits import CommandError
from common.failures import USAGE
from limiter.protocols import OPERATIONS, PROTOCOL_NAMES

CONSUME: Final = "consume"
OF_LEVELS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {  # word -> the parts after it; its operations, the default first
    "client": (("ADDRESS",), ("produce", CONSUME)),
    "user": (("NAME",), ("produce", CONSUME)),
    "listener": (("NAME",), ("produce", CONSUME)),
    "vhost": (("VHOST",), ("produce", CONSUME)),
    "exchange": (("VHOST", "EXCHANGE"), ("produce",)),
    "namespace": (("NAME",), ("produce", CONSUME)),
    "group": (("NAME",), (CONSUME, "produce")),
    "queue": (("VHOST", "QUEUE"), (CONSUME,)),
}
EXAMPLES: Final = {"client": "10.0.0.7", "vhost": "/", "exchange": "/ orders", "queue": "/ jobs", "group": "billing", "user": "shop"}
OPERATION: Final = click.option(
    "--operation",
    type=click.Choice(OPERATIONS),
    help="What is published, or what consumers get. Default: consume for a group or queue, else produce.",
)


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
        if operation != CONSUME:
            return topic_path(words)
        if word == "rocketmq":
            return topic_path(words).replace("/limits/", f"/limits/{CONSUME}/", 1)
        raise CommandError(USAGE, "a delivery is known by its queue, wherever it was published; say queue VHOST QUEUE")
    if word == "connection":
        raise CommandError(
            USAGE, "a connection is over before its limit could matter: close it (`sluice connections close`), or limit its client or user"
        )
    if word == "rule":
        raise CommandError(
            USAGE, "the limit of a rule is changed with `sluice rules set NAME`, a new one added with `sluice rules add NAME`"
        )
    if word not in OF_LEVELS:
        raise CommandError(USAGE, f"{word}: there are no such keys; say {', '.join([*PROTOCOL_NAMES, *OF_LEVELS])}")
    names, operations = OF_LEVELS[word]
    if len(parts) != len(names) or not all(parts):
        raise CommandError(USAGE, f"a key of {word} is {' '.join((word, *names))}, such as: {word} {EXAMPLES.get(word, 'orders')}")
    chosen = operation or operations[0]
    if chosen not in operations:
        raise CommandError(USAGE, f"{word} has no --operation {chosen}: {NOT_OF[chosen]}")
    return path("limits", *([CONSUME] if chosen == CONSUME else []), word, *parts)


NOT_OF: Final = {
    CONSUME: "a delivery is known by its queue, wherever it was published; say queue VHOST QUEUE",
    "produce": "a queue is published to through an exchange; say amqp VHOST amq.default QUEUE for the default one",
}
