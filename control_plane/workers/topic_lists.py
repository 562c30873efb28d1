"""Topics that a worker has reported, or that are left of those that have ended: which, and one of their numbers, in slices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.views.topics import TROUBLE
from gateway.telemetry import live_snapshot

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterator, Mapping, Sequence

    from common.views.topics import TopicView
    from gateway.counting.accounts import Place
    from gateway.telemetry.live_snapshot import Moving

MAX_PER_SLICE: Final = 300  # topics; of which one number is read between two turns of the event loop; a guess
WEIGHTS: Final = {"moving": dict.fromkeys(("received_per_second", "forwarded_per_second", "waiting"), 1.0), "trouble": TROUBLE}


class TopicList:
    """Implements `gateway.data_plane.TopicSource` over items as `GET /v1/topics` has them."""

    sums: Mapping[str, int] = live_snapshot.NONE_FORGOTTEN  # sums over topics that are not among them any more

    def items(self) -> Sequence[TopicView]:
        raise NotImplementedError

    def topics(self, wanted: Collection[Place] | None = None) -> Iterator[list[TopicView]]:
        items, places = self.items(), None if wanted is None else frozenset(wanted)
        for first in range(0, len(items), MAX_PER_SLICE):
            some = items[first : first + MAX_PER_SLICE]
            yield list(some) if places is None else [item for item in some if item.key() in places]

    def topic_places(self) -> Generator[None, None, list[Place]]:
        found: list[Place] = []
        for some in self.topics():
            found += [item.key() for item in some]
            yield
        return found

    def topic_numbers(self, name: str, wanted: Collection[Place] | None) -> Generator[None, None, dict[Place, float]]:
        weights = WEIGHTS.get(name, {name: 1.0})
        found: dict[Place, float] = {}
        for some in self.topics(wanted):
            for item in some:
                number = sum([getattr(item, each) * weight for each, weight in weights.items()], 0.0)
                if number:
                    found[item.key()] = number
            yield
        return found

    def moving(self) -> Generator[None, None, Moving]:
        return live_snapshot.moving_items(self.items(), self.sums)
