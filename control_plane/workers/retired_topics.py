"""What the workers counted of topics that they do not show any more: of those that have ended, and of those that have forgotten some.

`GET /v1/topics` adds it to what the living workers show, so no count falls while one of them still knows the topic. A topic that none of
them knows is forgotten here, too: after FORGET_AFTER, for the clients of a worker that has ended come back to another one. Its counts stay
in the sums over all topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.views.view import merge
from control_plane.workers.topic_lists import TopicList
from gateway.counting.accounts import FORGET_AFTER
from gateway.telemetry.live_snapshot import COUNTS

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from common.views.topics import TopicView

FORGET_AFTER_S: Final = FORGET_AFTER / 1e9  # seconds
MAX_PER_SLICE: Final = 1000  # topics; looked at between two turns of the event loop: 0.5 ms; a guess


class RetiredTopics(TopicList):
    """Topics as `GET /v1/topics` shows them, without rates and with nothing that waits."""

    def __init__(self) -> None:
        self.sums: dict[str, int] = dict.fromkeys(COUNTS, 0)  # of those that are forgotten
        self._items: dict[tuple[str, str, str], TopicView] = {}
        self._since: dict[tuple[str, str, str], float] = {}  # seconds, monotonic: when a worker ended that knew it

    def add_ended(self, view: Sequence[TopicView], now_s: float) -> None:
        """All topics of a worker that has ended."""
        self._add(view, now_s)

    def add_forgotten(self, items: list[TopicView]) -> None:
        """Topics that a living worker has forgotten."""
        self._add(items, float("-inf"))

    def _add(self, items: Sequence[TopicView], now_s: float) -> None:
        for item in items:
            place, left = item.key(), item.strip_rates()
            known = self._items.get(place)
            self._items[place] = left if known is None else merge(known, left)
            self._since[place] = max(now_s, self._since.get(place, now_s))

    def items(self) -> list[TopicView]:
        return list(self._items.values())

    def forget(self, living: Iterable[list[TopicView]], now_s: float) -> Generator[None, None, None]:
        """Forget, in slices, what none of the `living` views shows."""
        if not self._items:
            return
        known: set[tuple[str, str, str]] = set()
        for view in living:
            for first in range(0, len(view), MAX_PER_SLICE):
                known.update([item.key() for item in view[first : first + MAX_PER_SLICE]])
                yield
        gone = [place for place, since in self._since.items() if now_s - since >= FORGET_AFTER_S and place not in known]
        for first in range(0, len(gone), MAX_PER_SLICE):
            for place in gone[first : first + MAX_PER_SLICE]:
                item = self._items.pop(place)
                del self._since[place]
                for name in COUNTS:
                    self.sums[name] += getattr(item, name)
            yield

    def __repr__(self) -> str:
        return f"<RetiredTopics {len(self._items)}>"
