"""Names as one types them: `/ orders order.created` are the words of `sluice limits get amqp / orders order.created`."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote

from common.shell_words import join_words, quote_word
from limiter.operations import HELD_OPERATIONS, PRODUCE
from limiter.protocols import PROTOCOL_NAMES
from limiter.rules.level_keys import LEVEL_WORDS
from limiter.topics import SEVERAL_PARTS, TopicName, parse_topic, parts_of_path

OTHER: Final = "__other__"  # the topics beyond those that are counted one by one


def quote_topic(protocol: object, text: object) -> str:
    """A topic's text as the words of a command, quoted where a shell wants it. A text that is no topic's stays as it is."""
    words = words_of(str(protocol), str(text))
    return str(text) if words is None else join_words(words)


def words_of(protocol: str, text: str) -> list[str] | None:
    """The words of a topic's text; None where it is no topic of that protocol."""
    if protocol not in PROTOCOL_NAMES or text == OTHER:
        return None
    try:
        name = parse_topic(protocol, text)
    except ValueError:
        return None
    return [_part(name, part.field) or part.empty or "" for part in PROTOCOL_NAMES[protocol].topic_parts]


def _part(name: TopicName, field: str) -> str:
    value = getattr(name, field)
    assert isinstance(value, bytes)
    return value.decode(errors="surrogateescape")


def describe_path(path: str) -> str:
    """`limits/amqp/%2F/orders/created`, as the history names a key, as `amqp / orders created`; `rules/a` as `rule a`. Else as it is."""
    kind, _, rest = path.removeprefix("/v1/").partition("/")
    if kind == "limits" and rest:
        word, _, name = rest.partition("/")
        if word in SEVERAL_PARTS:
            return f"{word} {quote_topic(word, name)}"
        words, operation = words_of_path(rest)
        return " ".join(filter(None, [join_words(words), operation]))
    if kind in {"rules", "live-rules"} and rest:
        return f"rule {quote_word(unquote(rest))}"
    return path


def words_of_path(path: str) -> tuple[list[str], str]:
    """The words of a key by the rest of its path (`client/10.0.0.7`), and the option that its operation needs; "" for none."""
    first, _, behind = path.partition("/")
    operation, path = (first, behind) if first in HELD_OPERATIONS else (PRODUCE, path)
    word, _, name = path.partition("/")
    default = LEVEL_WORDS[word].operations[0] if word in LEVEL_WORDS else PRODUCE
    words = [word, *(part.decode(errors="replace") for part in parts_of_path(name))]
    return words, "" if operation == default else f"--operation {operation}"


def topic_of(item: dict[str, Any]) -> str:
    """The name of an item with `protocol` and `topic`."""
    return quote_topic(item.get("protocol"), item.get("topic") or "")
