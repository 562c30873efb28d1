"""What a topic's name alone decides about rules: which of their patterns it meets.

Two names of one sender that meet the same patterns, and that nothing names, are under the same rules. So names that are not told apart
(`limiter.new_names`) need no subject and no walk over the levels: this, and a look-up by its answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from limiter.rules.anchors import anchors_of
from limiter.rules.index import FieldIndex
from limiter.rules.match import SENDER_KEYS

if TYPE_CHECKING:
    from limiter.rules.matching import Matcher
    from limiter.rules.patterns import Pattern

SETTLED: Final = frozenset({"topic", "exchange", "vhost", *SENDER_KEYS})  # names have no other part that is looked at here
TRIED: Final = 8  # patterns; as many are compared one by one, of more those that the index finds; a guess


class NamePatterns:
    """The patterns of some rules for names of topics."""

    __slots__ = ("_index", "_patterns", "_tried", "by_exchange", "by_group", "named", "settled")

    def __init__(self, matchers: list[Matcher]) -> None:
        fields: set[str] = set().union(*(matcher.fields() for matcher in matchers))
        self.settled = fields.issubset(SETTLED)
        self.by_exchange = "exchange" in fields
        self.by_group = "group" in fields
        self.named = True  # something names topics: it must be asked, too
        self._patterns: list[Pattern] = []
        self._index = FieldIndex()
        self._tried: list[int] = []  # patterns that are compared with every name
        for matcher in matchers:
            pattern = matcher.pattern("topic")
            if pattern is not None:
                self._patterns.append(pattern)
        for at in range(len(self._patterns)):
            anchors = anchors_of("topic", self._patterns[at]) if len(self._patterns) > TRIED else []
            if anchors:
                _, kind, literal = anchors[0]
                self._index.add(at, kind, literal)
            else:
                self._tried.append(at)

    def match_patterns(self, topic: str) -> int:
        """The patterns that `topic` meets, a bit for each."""
        if not self._patterns:
            return 0
        found = self._tried
        if len(self._patterns) > len(found):
            found = list(found)
            self._index.find(topic, found)
        met = 0
        for at in found:
            if self._patterns[at].matches(topic):
                met |= 1 << at
        return met

    def __repr__(self) -> str:
        return f"<NamePatterns {len(self._patterns)}>"
