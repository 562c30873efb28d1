"""Rows: what is known of a key of a rule's `match`, and of a setting of a rule, beside its type.

Each field of `limiter.rules.match.Match` is made by `match_key()`. From these rows follow how a rule is matched, covered and explained, the
rules file with its schema and reference, the options of `sluice limits get` and `why`, and the parameters of the API. Settings of `Rule`
that are one word or number are made by `rule_setting()`: the rules file, what the API takes and shows, and the options of
`sluice rules add` follow.

Plain values, never compiled, as `limiter/protocols.py`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Final

NAME: Final = "name"  # how a key is written and compared: exact, or a glob
WORDS: Final = "words"  # words as of AMQP's routing keys, else as a name
LISTENERS: Final = "listeners"  # one name or several; a message whose listener is not known meets all
NETWORK: Final = "network"  # an address, or a network
CHOICE: Final = "choice"  # one of some words
CHOICES: Final = "choices"  # one or several of some words

DURATION: Final = "duration"  # of settings: in ns
SIZE: Final = "size"  # in bytes
WHOLE: Final = "whole"
YES_NO: Final = "yes or no"
WEIGHT: Final = "weight"  # a number above 0


@dataclass(frozen=True, slots=True)
class MatchKey:
    """One key of `match`. `subject`: the field of `limiter.rules.subject.Subject` that it is compared with."""

    doc: str
    example: str = ""
    kind: str = NAME
    subject: str = ""  # "": its own name
    choices: tuple[str, ...] = ()
    sender: str = ""  # it says whose messages: the end of "for messages …". "": it says which messages
    metavar: str = "NAME"  # on the command line
    always: bool = False  # known of each message
    logged: bool = False  # in the access log

    def name_after(self, field: str) -> MatchKey:
        return dataclasses.replace(self, subject=self.subject or field)


def match_key(doc: str, example: str = "", kind: str = NAME, **more: Any) -> Any:
    """A field of `Match`."""
    return field(default=None, metadata={"row": MatchKey(doc, example, kind, **more)})


@dataclass(frozen=True, slots=True)
class RuleSetting:
    """One setting of a rule. `key`: its name in the file and the API."""

    key: str
    kind: str
    default: Any
    doc: str
    choices: tuple[str, ...] = ()
    example: Any = ""
    least: Any = ""  # as people write it, as `example` and `most`
    most: Any = ""
    live: bool = False  # a live change of a limit may have it, too
    alone: bool = False  # a rule that gives it needs no limit, but with the value `idle`
    idle: Any = None

    def name_after(self, field: str) -> RuleSetting:
        return dataclasses.replace(self, key=self.key or field)

    def stands_alone(self, value: Any) -> bool:
        """Whether a rule that gives it `value` needs no limit."""
        return self.alone and value not in (None, self.default, self.idle)

    @property
    def json_type(self) -> type:
        """Of its value in JSON."""
        return {WHOLE: int, YES_NO: bool, WEIGHT: float}.get(self.kind, str)


def rule_setting(kind: str, default: Any, doc: str, *, key: str = "", **more: Any) -> Any:
    """A field of `Rule`. Without `key` the file has its own name."""
    return field(default=default, metadata={"row": RuleSetting(key, kind, default, doc, **more)})


def rows_of(kind: type[Any]) -> dict[str, Any]:
    """The rows of `Match` or `Rule`, by the names of their fields."""
    return {each.name: each.metadata["row"].name_after(each.name) for each in dataclasses.fields(kind) if "row" in each.metadata}
