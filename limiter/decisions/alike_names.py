"""Alike names: of a client that has no new name left (`limiter.new_names`), found by look-ups instead of a walk over the rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from limiter.rules.patterns import name_text
from limiter.rules.system_topics import is_system_topic
from limiter.topics import SEVERAL_PARTS, WRITTEN_DEFAULT_EXCHANGE, path_segment

if TYPE_CHECKING:
    from limiter.buckets.ledger import Ledger
    from limiter.keys import Key, Origin
    from limiter.rules.rule_set import RuleSet

UNDECIDED: Final = -1
SYSTEM: Final = -2  # the broker's own topics, which no pattern is for
MAX_TOGETHER: Final = 64  # keys of an origin for names that are not told apart, beside one for each way in which rules hold; a guess


class AlikeNames:
    """The keys of an origin's names that are not told apart, by the patterns that they meet.

    Where a rule looks at exchanges or groups, all have one and the same.
    """

    __slots__ = ("_before", "_exchange", "_keys", "_several", "_vhost", "_vhost_segment", "exchange", "protocol", "vhost")

    def __init__(self, origin: Origin) -> None:
        self.protocol = origin.protocol
        self._several = origin.protocol in SEVERAL_PARTS
        self.vhost = origin.vhost if self._several else b""
        self._vhost = name_text(self.vhost)
        self._vhost_segment = path_segment(self.vhost)
        self.turn_to(b"")
        self._keys: dict[int, tuple[Key, str | None]] = {}  # and the rule that has topics' buckets, "": the level; None: topics have none

    def turn_to(self, exchange: bytes) -> None:
        """The names to come have this exchange."""
        self.exchange = exchange
        self._exchange = name_text(exchange)
        # What every topic's text begins with
        self._before = f"{self._vhost_segment}/{path_segment(exchange or WRITTEN_DEFAULT_EXCHANGE)}/" if self._several else ""

    def match_patterns(self, topic: str, raw: bytes, rules: RuleSet) -> int:
        """Which patterns `topic` meets, a bit for each; SYSTEM; UNDECIDED where that does not decide it."""
        patterns = rules.name_patterns()
        if not patterns.settled:
            return UNDECIDED
        if patterns.named and rules.names((self.protocol, self.vhost, self.exchange, raw), self._vhost, self._exchange, topic):
            return UNDECIDED
        return SYSTEM if is_system_topic(self.protocol, topic) else patterns.match_patterns(topic)

    def find(self, met: int, topic: str, raw: bytes, ledger: Ledger) -> Key | None:
        """The key of `topic`; None: nothing with its patterns was met before, or it has a bucket in use."""
        found = self._keys.get(met)
        if found is None:
            return None
        key, rule = found
        if rule is not None:
            text = self._before + path_segment(raw) if self._before else topic
            if ledger.get(("topic", rule, self.protocol, text)) is not None:
                return None
        return key

    def remember(self, met: int, key: Key, rule: str | None) -> None:
        if len(self._keys) < MAX_TOGETHER:
            self._keys[met] = (key, rule)

    def __repr__(self) -> str:
        return f"<AlikeNames {self._before!r} keys={len(self._keys)}>"
