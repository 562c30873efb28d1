"""The rule index: finds the rules that may match a name without comparing all of them.

A new key is compared with patterns until one matches. Compared one after the other, a thousand patterns cost a millisecond for each new
name, and a client can make up names without end. But nearly every pattern holds something literal, and a name without it cannot match: a
topic that does not begin with `order.` is not for `order.*.created`. So each pattern is filed under one such **anchor**:

=========  =============================================  ==================================================
EXACT      the whole name                                 `orders`, a user, a virtual host
PREFIX     how it begins                                  `order.eu` of `order.eu.#`; `%RETRY%` of `%RETRY%*`
SUFFIX     how it ends                                    `.created` of `*.created`
WORD       a word of it (AMQP patterns)                   `eu` of `*.eu.#`
GRAM       three characters somewhere in it (globs)       `foo` of `*foobar*`
NETWORK    the network an address is in                   10.1.0.0/16
=========  =============================================  ==================================================

the one of its anchors that the fewest other patterns have. A name has few anchors (a prefix for each length that some rule has, its
words, ...). The rules filed under those, and rules without any anchor, are its `candidates`: the only ones that can match, in file order.
They are then compared in full, so the index can only err by naming too many, and its answer is that of a scan.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from limiter.rules.anchors import EXACT, GRAM, NETWORK, PREFIX, SUFFIX, WORD, Anchor, grams, network_text

if TYPE_CHECKING:
    from limiter.rules.matching import Matcher
    from limiter.rules.subject import Subject


class FieldIndex:
    """The rules that are filed under anchors of one field, by kind and literal."""

    __slots__ = ("by_kind", "lengths")

    def __init__(self) -> None:
        self.by_kind: dict[str, dict[str, list[int]]] = {}
        self.lengths: dict[str, list[int]] = {}  # PREFIX, SUFFIX: of their literals; NETWORK: of IPv4's prefixes, and of IPv6's + 1000

    def add(self, at: int, kind: str, literal: str) -> None:
        self.by_kind.setdefault(kind, {}).setdefault(literal, []).append(at)
        length = len(literal)
        if kind == NETWORK:
            version, prefix, _ = literal.split("/")
            length = int(prefix) + (1000 if version == "6" else 0)
        lengths = self.lengths.setdefault(kind, [])
        if length not in lengths:  # at most 255, or 162 of networks
            lengths.append(length)

    def find(self, name: str, found: list[int]) -> None:
        """Add to `found` the rules that are filed under an anchor of `name`."""
        for kind, filed in self.by_kind.items():
            for literal in self._literals(kind, name):
                rules = filed.get(literal)
                if rules is not None:
                    found += rules

    def _literals(self, kind: str, name: str) -> set[str]:
        if kind == EXACT:
            return {name}
        if kind == PREFIX:
            return {name[:length] for length in self.lengths[kind] if length <= len(name)}
        if kind == SUFFIX:
            return {name[len(name) - length :] for length in self.lengths[kind] if length <= len(name)}
        if kind == WORD:
            return set(name.split("."))
        if kind == GRAM:
            return set(grams(name))
        try:
            address = ip_address(name.partition("%")[0])
        except ValueError:
            return set()
        offset, bits = (0, int(address)) if address.version == 4 else (1000, int(address))
        return {
            network_text(address.version, length - offset, bits)
            for length in self.lengths[kind]
            if 0 <= length - offset <= address.max_prefixlen
        }

    def __repr__(self) -> str:
        return f"<FieldIndex {', '.join(f'{len(filed)} by {kind}' for kind, filed in self.by_kind.items())}>"


class RuleIndex:
    """Rules filed under an anchor that a subject must have to match them. `numbers` are positions in `matchers`, ascending."""

    __slots__ = ("_always", "_fields")

    def __init__(self, numbers: list[int], matchers: list[Matcher]) -> None:
        self._fields: dict[str, FieldIndex] = {}
        self._always: list[int] = []  # rules without an anchor
        shared: dict[Anchor, int] = {}
        for at in numbers:
            for anchor in matchers[at].anchors():
                shared[anchor] = shared.get(anchor, 0) + 1
        for at in numbers:
            best: Anchor | None = None
            fewest = 0
            for anchor in matchers[at].anchors():
                if best is None or shared[anchor] < fewest:
                    best, fewest = anchor, shared[anchor]
            if best is None:
                self._always.append(at)
            else:
                self._fields.setdefault(best[0], FieldIndex()).add(at, best[1], best[2])

    def candidates(self, subject: Subject) -> list[int]:
        """The rules that can match `subject`, in file order."""
        return self.candidates_of({field: subject.field(field) for field in self._fields})

    def candidates_of(self, names: dict[str, str | None]) -> list[int]:
        """The rules that can match where a field has the name that `names` gives it, in file order."""
        if not self._fields:
            return self._always
        found = list(self._always)
        for field, index in self._fields.items():
            name = names.get(field)
            if name is not None:
                index.find(name, found)
        found.sort()
        return found

    def __repr__(self) -> str:
        return f"<RuleIndex {self._fields} and {len(self._always)} asked always>"
