"""Topics that workers have reported, or that are left of those that have ended: which, and one of their numbers, in slices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from common.views.topics import TROUBLE
from gateway.counting.topic_index import TopicIndex
from gateway.telemetry import live_snapshot

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence

    from common.views.topics import TopicView
    from gateway.counting.accounts import Place
    from gateway.telemetry.live_snapshot import Moving

MAX_PER_SLICE: Final = 300  # topics; of which one number is read between two turns of the event loop; a guess
WEIGHTS: Final = {"moving": dict.fromkeys(("received_per_second", "forwarded_per_second", "waiting"), 1.0), "trouble": TROUBLE}


class TopicList(ABC):
    """Implements `gateway.data_plane.TopicSource` over items as `GET /v1/topics` has them."""

    sums: Mapping[str, int] = live_snapshot.NONE_FORGOTTEN  # sums over topics that are not among them any more

    @abstractmethod
    def items(self) -> Sequence[TopicView]: ...

    def topics(self, wanted: Collection[Place] | None = None) -> Iterator[list[TopicView]]:
        items, places = self.items(), None if wanted is None else frozenset(wanted)
        for first in range(0, len(items), MAX_PER_SLICE):
            some = items[first : first + MAX_PER_SLICE]
            yield list(some) if places is None else [item for item in some if item.key() in places]

    def topic_numbers(self, name: str, wanted: Sequence[Place] | None) -> Generator[None, None, dict[Place, float]]:
        weights = WEIGHTS.get(name, {name: 1.0})
        found: dict[Place, float] = {}
        for some in self.topics(wanted):
            for item in some:
                number = sum([getattr(item, each) * weight for each, weight in weights.items()], 0.0)
                if number:
                    found[item.key()] = number
            yield
        return found

    def gather_moving(self) -> Generator[None, None, Moving]:
        return live_snapshot.moving_items(self.items(), self.sums)


class ListedTopics:
    """All topics of several such lists, in the order of their names."""

    def __init__(self) -> None:
        self.index = TopicIndex()
        self._known: set[Place] = set()  # those in it

    def take(self, lists: Iterable[Sequence[TopicView]]) -> Generator[None, None, None]:
        """From now on these lists hold, which mostly have the same topics as those before. In steps of a few topics."""
        found: set[Place] = set()
        for items in lists:
            for first in range(0, len(items), MAX_PER_SLICE):
                found.update([item.key() for item in items[first : first + MAX_PER_SLICE]])
                yield
        for place in found ^ self._known:
            if (place in found) != (place in self._known):  # nobody else who takes lists has been here meanwhile
                self._known ^= {place}
                self.index.add(place) if place in found else self.index.remove(place)
            yield

    def __repr__(self) -> str:
        return f"<ListedTopics {len(self._known)}>"
