"""A rule whose match is a whole name, where part of a name was probably meant: `--match topic=order` beside topics orders and order.eu.

Where the gateway has seen longer names and never this one, the command is refused with the one that was meant; `--literal` is for a name
that is to come. A name like which there is none is taken, and its author is told that no message of it has come.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import click

from cli.client import AdminClient
from cli.names import words_of
from common.shell_words import join_words
from limiter.rules.match import MATCH_KEYS
from limiter.topics import path_segment

# Keys of a match that a topic's name tells: which of its words, and how the name is written in the topic's text.
MATCHED_WHOLE: Final = {name: (-1, "{}") for name, key in MATCH_KEYS.items() if key.subject == "topic"} | {
    "exchange": (1, "/{}/"),
    "vhost": (0, "{}/"),
}
PATTERN: Final = "*?#["  # letters that make one
MAX_TOPICS: Final = 500  # looked at
MAX_SHOWN: Final = 3


class WholeName(NamedTuple):
    """A field of a match whose whole name has not come to the gateway since its start."""

    field: str
    name: str
    longer: list[str]  # names that have come and begin with it
    pattern: str  # for these and the name itself

    def unseen(self) -> str:
        return f"{self.field}={self.name} is a whole name, of which no message has come"

    def missed(self) -> str:
        """Which names it is not for."""
        some = ", ".join(self.longer[:MAX_SHOWN])
        return some + (f" and {len(self.longer) - MAX_SHOWN} more" if len(self.longer) > MAX_SHOWN else "")


def unseen_name(client: AdminClient, match: Mapping[str, str]) -> WholeName | None:
    """The first name of the match that is no pattern and has not come; None where all have, or all are patterns."""
    for field, (at, written) in MATCHED_WHOLE.items():
        name = match.get(field, "")
        if not name or any(letter in name for letter in PATTERN):
            continue
        of_parts = at >= 0  # topics of one word have no such part
        protocol = "amqp" if of_parts else match.get("protocol")
        segment = path_segment(name.encode(errors="surrogateescape")) if of_parts else name
        seen: set[str] = set()
        for text in dict.fromkeys((written.format(segment), segment)):  # itself first: there may be many that only contain it
            items = client.items("/v1/topics", {"q": text, **({"protocol": protocol} if protocol else {})}, most=MAX_TOPICS)
            words = (words_of(str(item.get("protocol")), str(item.get("topic"))) for item in items)
            seen.update(each[at] for each in words if each is not None and not (of_parts and len(each) == 1))
            if name in seen:
                break
        begins, pattern = (f"{name}.", f"{name}.#") if field == "routing_key" else (name, f"{name}*")
        if name not in seen:
            return WholeName(field, name, sorted(each for each in seen if each.startswith(begins)), pattern)
    return None


def command_with(found: WholeName) -> str:
    """The command that is being run, with the pattern in the place of the name."""
    context = click.get_current_context()
    words = ["sluice", *(context.command_path.split()[1:])]
    for parameter in context.command.get_params(context):
        value = context.params.get(str(parameter.name))
        if isinstance(parameter, click.Argument):
            words.append(str(value))
            continue
        if context.get_parameter_source(str(parameter.name)) is not click.core.ParameterSource.COMMANDLINE:
            continue
        assert isinstance(parameter, click.Option)
        for each in value if parameter.multiple and isinstance(value, tuple) else [value]:
            if parameter.is_flag:
                words += [parameter.opts[-1]] if parameter.is_bool_flag or each == parameter.flag_value else []
            else:
                words += [parameter.opts[-1], f"{found.field}={found.pattern}" if each == f"{found.field}={found.name}" else str(each)]
    return join_words(words)
