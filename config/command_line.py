"""A configuration given on the command line instead of in a file: one listener, and a limit for each of its topics."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from common.records import dataclass
from config.document import Mapping, Scalar, Sequence
from config.known_settings import ListenerSettings
from config.listener_protocols import LISTENER_PROTOCOLS
from config.problems import Problems, SourceLocation
from config.sections import OneOrMore, settings_of

NAME: Final = "command line"  # stands for the file's name
RULE: Final = "every-topic"  # name of the one rule
UPSTREAM: Final = settings_of(ListenerSettings)["upstream"][1].kind


@dataclass(frozen=True, slots=True)
class CommandLine:
    """`sluice run --protocol ... --bind ... --upstream ... --limit ...`. Relative paths start from `directory`."""

    protocol: str
    bind: str
    upstreams: tuple[str, ...]  # as typed; each may be several with commas
    limits: tuple[str, ...]  # as typed: 500/s, 5MiB/s, or both with a comma
    directory: Path

    def tree(self, problems: Problems) -> Mapping:
        """The configuration as if it had been read from a file. Its values name their flags as the places they were written at."""
        listener = Mapping(SourceLocation(NAME))
        for key, flag, text in (
            ("name", "--protocol", self.protocol),
            ("protocol", "--protocol", self.protocol),
            ("bind", "--bind", every_address(self.bind)),
        ):
            _put(listener, key, flag, text)
        location = SourceLocation("flag --upstream")
        assert isinstance(UPSTREAM, OneOrMore)
        listener.put("upstream", location, UPSTREAM.node(",".join(self.upstreams), location))
        tree = Mapping(SourceLocation(NAME))
        tree.put("listeners", SourceLocation(NAME), _listed(listener))
        if self.limits:
            tree.put("rules", SourceLocation("flag --limit"), _listed(self._rule(problems)))
        return tree

    def _rule(self, problems: Problems) -> Mapping:
        location = SourceLocation("flag --limit")
        speaks = LISTENER_PROTOCOLS.get(self.protocol)
        match, limit, rule = Mapping(location), Mapping(location), Mapping(location)
        _put(match, "protocol", "--limit", speaks.names.name if speaks is not None else self.protocol)
        for text in (each.strip() for given in self.limits for each in given.split(",")):
            key = dimension_of(text)
            if key in limit.entries:
                problems.add(location, f"limit.{key}", "given twice", "give one rate of messages, one of bytes, or both: 500/s,5MiB/s")
            _put(limit, key, "--limit", text)
        _put(rule, "name", "--limit", RULE)
        rule.put("match", location, match)
        _put(rule, "per", "--limit", "topic")
        rule.put("limit", location, limit)
        return rule


def every_address(bind: str) -> str:
    """`:5672` as `0.0.0.0:5672`, all IPv4 addresses of this host; anything else as it is."""
    return f"0.0.0.0{bind}" if bind.startswith(":") and ":" not in bind[1:] else bind  # noqa: S104  -- it was asked for


def dimension_of(text: str) -> str:
    """`bytes` for `5MiB/s`, or what is meant as such; else `messages`."""
    return "bytes" if "b" in text.partition("/")[0].lower() else "messages"


def _put(mapping: Mapping, key: str, flag: str, text: str) -> None:
    location = SourceLocation(f"flag {flag}")
    mapping.put(key, location, Scalar(text, location))


def _listed(item: Mapping) -> Sequence:
    found = Sequence(item.location)
    found.items.append(item)
    return found
