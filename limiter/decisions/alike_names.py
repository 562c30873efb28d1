"""Alike names: of a client that has no new name left (`limiter.new_names`), found by look-ups instead of a walk over the rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from limiter.rules.system_topics import is_system_topic
from limiter.topics import SEVERAL_PARTS, TopicName, path_segment

if TYPE_CHECKING:
    from limiter.buckets.ledger import Ledger
    from limiter.keys import Key
    from limiter.rules.rule_set import RuleSet

MAX_TOGETHER: Final = 64  # keys of an origin for names that are not told apart, beside one for each way in which rules hold; a guess


class AlikeNames:
    """The keys of an origin's names that are not told apart, all with one exchange or group, by the patterns that they meet."""

    __slots__ = ("_before", "_exchange", "_keys", "_vhost", "exchange", "protocol", "vhost")

    def __init__(self, name: TopicName, vhost: str, exchange: str) -> None:
        self.protocol = name.protocol
        self.vhost = name.vhost
        self.exchange = name.exchange
        self._vhost = vhost  # as text
        self._exchange = exchange
        text = name.text()
        self._before = text[: text.rindex("/") + 1] if name.protocol in SEVERAL_PARTS else ""  # what every topic's text begins with
        self._keys: dict[int, tuple[Key, str | None]] = {}  # and the rule that has topics' buckets, "": the level; None: topics have none

    def met_by(self, topic: str, raw: bytes, rules: RuleSet) -> int:
        """Which patterns `topic` meets, a bit for each; -1 where that does not decide it."""
        patterns = rules.name_patterns()
        if not patterns.settled or is_system_topic(self.protocol, topic):
            return -1
        if patterns.named and rules.names((self.protocol, self.vhost, self.exchange, raw), self._vhost, self._exchange, topic):
            return -1
        return patterns.met_by(topic)

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
