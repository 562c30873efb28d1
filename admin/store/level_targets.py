"""Targets of live changes of what is not published to a topic: their paths below /v1/, and the keys that the limiter knows them by.

    limits/client/10.0.0.7                     what this client publishes
    limits/consume/queue/%2F/jobs              the deliveries of this queue
    limits/consume/group/billing               what this consumer group is given
    limits/requeue/queue/%2F/jobs              what consumers give back to this queue

Each part is percent-encoded. `PARTS` says which words there are.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from limiter.operations import CONSUME, PRODUCE
from limiter.operations import OF_TOPICS as OPERATIONS
from limiter.protocols import AMQP, DEFAULT_EXCHANGE, PROTOCOL_NAMES, ROCKETMQ, protocol_of_level
from limiter.rules.level_keys import LEVEL_WORDS, LevelKey, plain_client
from limiter.rules.sender import ANYBODY, Sender
from limiter.rules.subject import Subject
from limiter.topics import TopicName, amqp_topic, parse_topic, parts_of_path, path_segment, rocketmq_topic

PARTS: Final[dict[str, dict[str, tuple[str, ...]]]] = {  # operation -> first word of the path -> the names of the parts after it
    operation: {
        **({ROCKETMQ.name: ("topic",)} if operation == CONSUME else {}),
        **{word: each.parts for word, each in LEVEL_WORDS.items() if operation in each.operations},
    }
    for operation in OPERATIONS
}
OF_TOPICS: Final = {"queue": AMQP.name, ROCKETMQ.name: ROCKETMQ.name}  # words of the level `topic`, and their protocols


def first_words(operation: str) -> list[str]:
    """With which the path of a key begins."""
    return ["limits"] if operation == PRODUCE else ["limits", operation]


def operation_of(word: str) -> str:
    """The operation of a key whose path has `word` behind `limits`."""
    return word if word in PARTS and word != PRODUCE else PRODUCE


def template(operation: str, word: str) -> str:
    """`limits/consume/queue/{vhost}/{queue}`."""
    return "/".join([*first_words(operation), word, *(f"{{{part}}}" for part in PARTS[operation][word])])


def is_level_target(target: str) -> bool:
    """Whether it is one of those here, and not a published topic's (`limits/amqp/…`), a rule's or a quota's."""
    group, _, rest = target.partition("/")
    return group == "limits" and rest.partition("/")[0] not in PROTOCOL_NAMES


def level_key(operation: str, word: str, parts: list[bytes]) -> LevelKey:
    """The key of what a path names. Raises ValueError, with a sentence for people, where there can be none."""
    names = PARTS[operation][word]
    if len(parts) != len(names):
        raise ValueError(f"a {word} is {' '.join(name.upper() for name in names)}")
    for name, part in zip(names, parts, strict=True):
        if not part:
            raise ValueError(f"the {name} is empty; there is none without a name")
    if word == "queue":
        return LevelKey(operation, "topic", AMQP.name, amqp_topic(parts[0], b"", parts[1]).text())
    if word == ROCKETMQ.name:
        return LevelKey(operation, "topic", ROCKETMQ.name, rocketmq_topic(parts[0]).text())
    if word == "vhost":
        return LevelKey(operation, word, "", quote(parts[0], safe=""))
    if word == "exchange":
        return LevelKey(operation, word, "", f"{quote(parts[0], safe='')}/{quote(parts[1], safe='')}")
    try:
        text = parts[0].decode()
    except UnicodeDecodeError:
        raise ValueError(f"the {word} is not UTF-8; only one with a name in UTF-8 can be changed live") from None
    return LevelKey(operation, word, "", plain_client(text) if word == "client" else text)


def parts_of(key: LevelKey) -> tuple[str, list[bytes]]:
    """The word and the parts of a key's path: the inverse of `level_key`."""
    if key.per == "topic":
        name = parse_topic(key.protocol, key.thing)
        return ("queue", [name.vhost, name.topic]) if key.protocol == AMQP.name else (ROCKETMQ.name, [name.topic])
    if key.per in {"vhost", "exchange"}:
        return key.per, [unquote_to_bytes(part) for part in key.thing.split("/")]
    return key.per, [key.thing.encode()]


def level_target(key: LevelKey) -> str:
    """The target of a key; also its path below /v1/."""
    word, parts = parts_of(key)
    return "/".join([*first_words(key.operation), word, *map(path_segment, parts)])


@lru_cache(maxsize=65536)  # all of them are asked for at each change of one
def level_key_of(target: str) -> LevelKey:
    """The inverse of `level_target`; raises ValueError or KeyError."""
    _, *rest = target.split("/")
    if not rest:
        raise ValueError(f"{target!r} is not the path of a limit")
    operation = operation_of(rest[0])
    word, *parts = rest if operation == PRODUCE else rest[1:]
    return level_key(operation, word, parts_of_path("/".join(parts)))


def words_of(key: LevelKey) -> str:
    """The key as people write it: `client 10.0.0.7`, `queue / jobs`."""
    word, parts = parts_of(key)
    return " ".join([word, *(part.decode(errors="backslashreplace") for part in parts)])


def subjects_of(key: LevelKey) -> list[Subject]:
    """Messages of no topic, one for each protocol that has the level, which meet the key and no rule that asks for more than it says."""
    protocol = key.protocol or protocol_of_level(key.per)
    return [_subject(key, each) for each in ([protocol] if protocol else list(PROTOCOL_NAMES))]


def _subject(key: LevelKey, protocol: str) -> Subject:
    _, parts = parts_of(key)
    name = TopicName(protocol, b"", b"", b"")
    if key.per == "topic":
        name = parse_topic(protocol, key.thing)
    elif key.per == "vhost":
        name = TopicName(protocol, parts[0], b"", b"")
    elif key.per == "exchange":
        name = amqp_topic(parts[0], DEFAULT_EXCHANGE.encode() if parts[1] == b"" else parts[1], b"")
    elif key.per == "namespace":
        name = rocketmq_topic(parts[0] + b"%")
    text = key.thing
    client = text.partition("/")[0] if key.per == "client" else None
    group = text.encode() if key.per == "group" else None
    sender = Sender(**{key.per: client or text}) if key.per in Sender._fields else ANYBODY
    return Subject(name, name.text(), sender, group, key.operation)
