"""Which topics the access log knows, so that a flood of invented names loses its own lines first.

A topic is known once lines of it were written in KNOWN_AFTER seconds; its rank says how many were known before it. While more lines wait
than the log has room for, known topics are kept, the longest known first, and of the others what there is room for (`thinning.py`).

The naive way keeps whoever comes first: then names that nobody uses any more keep every later topic out. Or whoever came last: then a
flood drives out what has steady traffic. So a name that is new is on probation, in two generations that a flood turns over quickly, and it
leaves no trace when it does not come again. Known ones that are idle make room for others when the table is full.

The writer's thread writes (`see`), the loop's reads (`rank`): one look-up, which the GIL makes whole.
"""

from __future__ import annotations

from typing import Final

from limiter.keys import Key

KNOWN_AFTER: Final = 3  # seconds with lines; a name that is made up comes once or twice (a guess)
MAX_KNOWN: Final = 50_000  # topics, at 150 bytes each; as many lines as may wait of others
MAX_ON_PROBATION: Final = 50_000  # names, of each generation
IDLE_S: Final = 300  # seconds without a line; after that a known topic makes room for another one (a guess)
LOOK_S: Final = 60  # seconds between two looks for idle ones: each takes some milliseconds of the writer's thread


def name_of(key: Key) -> int:
    """A number for the topic, as the log names it. Python's hashes of texts are salted: nobody can choose names that share one."""
    return hash((key.origin.protocol, key.text))


class KnownNames:
    """The table of known topics."""

    __slots__ = ("_before", "_generation", "_last_seen", "_looked_at", "_names", "_probation", "_ranks", "most")

    def __init__(self, most: int = MAX_KNOWN, generation: int = MAX_ON_PROBATION) -> None:
        self.most = most  # topics
        self._generation = generation  # names on probation
        self._ranks: dict[int, int] = {}  # a name -> how many were known before it
        self._names: list[int] = []  # by rank
        self._last_seen: list[int] = []  # by rank: the last second with a line
        self._probation: dict[int, tuple[int, int]] = {}  # a name -> the last second, and in how many it was seen
        self._before: dict[int, tuple[int, int]] = {}  # the generation before
        self._looked_at = 0

    def rank(self, name: int) -> int:
        """How many were known before it; `most` where it is not known."""
        return self._ranks.get(name, self.most)

    def see(self, key: Key, second: int) -> None:
        """A line of it is written for this second."""
        name = name_of(key)
        rank = self._ranks.get(name, self.most)
        if rank < self.most:
            self._last_seen[rank] = second
            return
        found = self._probation.get(name)
        if found is None:
            found = self._before.pop(name, (0, 0))
        if found[0] == second:  # of another client
            return
        seen = found[1] + 1
        if seen >= KNOWN_AFTER and self._has_room(second):
            self._probation.pop(name, None)
            self._names.append(name)
            self._last_seen.append(second)
            self._ranks[name] = len(self._names) - 1
            return
        if len(self._probation) >= self._generation:
            self._before, self._probation = self._probation, {}
        self._probation[name] = (second, seen)

    def _has_room(self, second: int) -> bool:
        """Whether another one may be known; where the table is full, after those that are idle were forgotten."""
        if len(self._names) < self.most:
            return True
        if abs(second - self._looked_at) < LOOK_S:
            return False
        self._looked_at = second
        kept = [rank for rank, last in enumerate(self._last_seen) if abs(second - last) < IDLE_S]
        names = [self._names[rank] for rank in kept]
        self._last_seen = [self._last_seen[rank] for rank in kept]
        self._names = names
        self._ranks = {name: rank for rank, name in enumerate(names)}
        return len(names) < self.most

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"<KnownNames {len(self._names)}, {len(self._probation)} on probation>"
