"""Topics that a worker has reported, or that are left of those that have ended: which, and one of their numbers, in slices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.views.topics import TROUBLE

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterator, Sequence

    from common.views.topics import TopicView
    from gateway.counting.accounts import Place

MAX_PER_SLICE: Final = 300  # topics; of which one number is read between two turns of the event loop; a guess
WEIGHTS: Final = {"moving": dict.fromkeys(("received_per_second", "forwarded_per_second", "waiting"), 1.0), "trouble": TROUBLE}


def in_slices(items: Sequence[TopicView], wanted: Collection[Place] | None) -> Iterator[list[TopicView]]:
    """The topics, or those `wanted` of them."""
    places = None if wanted is None else frozenset(wanted)
    for first in range(0, len(items), MAX_PER_SLICE):
        some = items[first : first + MAX_PER_SLICE]
        yield list(some) if places is None else [item for item in some if item.key() in places]


def topic_places(items: Sequence[TopicView]) -> Generator[None, None, list[Place]]:
    """Which they are."""
    found: list[Place] = []
    for first in range(0, len(items), MAX_PER_SLICE):
        found += [item.key() for item in items[first : first + MAX_PER_SLICE]]
        yield
    return found


def topic_numbers(items: Sequence[TopicView], name: str, wanted: Collection[Place] | None) -> Generator[None, None, dict[Place, float]]:
    """One of the numbers of those of which it is not 0 (`admin.ports.Gateway.topic_numbers`)."""
    weights = WEIGHTS.get(name, {name: 1.0})
    places = None if wanted is None else frozenset(wanted)
    found: dict[Place, float] = {}
    for first in range(0, len(items), MAX_PER_SLICE):
        for item in items[first : first + MAX_PER_SLICE]:
            number = sum([getattr(item, each) * weight for each, weight in weights.items()], 0.0)
            if number and (places is None or item.key() in places):
                found[item.key()] = number
        yield
    return found
