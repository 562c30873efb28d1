"""The snapshot of `GET /v1/stream`: the gateway at a glance, made once a second for all readers.

Sums over all topics and the topics with most trouble now. With 10,000 topics a description of each, every second, would cost the messages
some 40 ms; so only those that move are looked at, in slices, and only those that are shown are described.
"""

from __future__ import annotations

from heapq import nlargest
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from common.views.snapshot import SnapshotView
from common.views.status import StatusView
from gateway.clock import now_ns
from gateway.counting.topic_numbers import Trouble, Worst
from gateway.telemetry import glance

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Mapping, Sequence

    from common.views.limits import OverLimitView
    from common.views.listeners import ListenerView
    from common.views.snapshot import OverheadView
    from common.views.topics import TopicView
    from gateway.counting.accounts import Place
    from gateway.telemetry.ports import ObservedGateway

MAX_TOPICS: Final = 200  # topics; in a snapshot; a guess
SLICE_TOPICS: Final = 200  # topics; summed between two turns of the event loop: 0.2 ms
COUNTS: Final = ("received", "forwarded", "refused", "delayed", "dropped", "abandoned", "bypassed", "shadow_refused", "waiting", "bytes")
NONE_FORGOTTEN: Final[Mapping[str, int]] = MappingProxyType(dict.fromkeys(COUNTS, 0))
RATES: Final = ("received_per_second", "forwarded_per_second", "refused_per_second", "bytes_per_second")
STATUS: Final = tuple(name for name in SnapshotView.__struct_fields__ if name in StatusView.__struct_fields__)


class Moving(NamedTuple):
    """Topics of one process, or of those that have ended."""

    counts: dict[str, int]  # COUNTS, over all topics that it ever had
    rates: list[float]  # RATES, over all topics
    troubles: dict[Place, Trouble]  # of those with something going on, or of the worst of them
    known: Collection[Place]


def gather_moving(gateway: ObservedGateway) -> Generator[None, None, Moving]:
    """Of a gateway's accounts, in slices."""
    accounts = gateway.accounts
    yield from accounts.slices(now_ns())
    active = accounts.active_topics()
    worst_of = Worst(MAX_TOPICS)
    for first in range(0, len(active), SLICE_TOPICS):
        worst_of.add(active[first : first + SLICE_TOPICS])
        yield
    rates = [worst_of.received, worst_of.forwarded, worst_of.refused, worst_of.bytes]
    return Moving({name: getattr(accounts.everything, name) for name in COUNTS}, rates, worst_of.list_troubles(), accounts.topics.keys())


def moving_items(items: Sequence[TopicView], forgotten: Mapping[str, int] = NONE_FORGOTTEN) -> Generator[None, None, Moving]:
    """Of topics as `GET /v1/topics` has them, and the sums over those that are not among them any more, in slices."""
    counts = dict(forgotten)
    rates = [0.0] * len(RATES)
    troubles: dict[Place, Trouble] = {}
    known: set[Place] = set()
    for first in range(0, len(items), SLICE_TOPICS):
        for topic in items[first : first + SLICE_TOPICS]:
            place = topic.key()
            known.add(place)
            for name in COUNTS:
                counts[name] += getattr(topic, name)
            trouble = topic.refused_per_second, float(topic.waiting), topic.received_per_second
            if any(trouble):
                troubles[place] = trouble
            if topic.forwarded_per_second or any(trouble):  # a backlog may pass when nothing comes
                rates = [one + getattr(topic, name) for one, name in zip(rates, RATES, strict=True)]
        yield
    return Moving(counts, rates, troubles, known)


def join(parts: list[Moving]) -> Moving:
    """Several as one."""
    if len(parts) == 1:
        return parts[0]
    counts = dict.fromkeys(COUNTS, 0)
    rates = [0.0] * len(RATES)
    troubles: dict[Place, Trouble] = {}
    known: set[Place] = set()
    for part in parts:
        known.update(part.known)
        for name in COUNTS:
            counts[name] += part.counts[name]
        rates = [one + other for one, other in zip(rates, part.rates, strict=True)]
        for place, (refused, waiting, received) in part.troubles.items():
            before = troubles.get(place, (0.0, 0.0, 0.0))
            troubles[place] = before[0] + refused, before[1] + waiting, before[2] + received
    return Moving(counts, rates, troubles, known)


def rank_worst(found: Moving) -> list[Place]:
    """The topics that a snapshot shows, the worst first: by what is refused a second, then what waits, then what is received a second."""
    troubles = found.troubles
    return nlargest(MAX_TOPICS, troubles, key=lambda place: troubles[place])


def assemble(
    status: StatusView,
    found: Moving,
    topics: list[TopicView],
    listeners: list[ListenerView],
    over: list[OverLimitView],
    overhead: OverheadView | None,
) -> SnapshotView:
    """A snapshot, with the `topics` that are the worst."""
    return SnapshotView(
        **{name: getattr(status, name) for name in STATUS},
        totals=found.counts,
        rates={name: round(rate, 3) for name, rate in zip(RATES, found.rates, strict=True)},
        topics_known=len(found.known),
        topics=topics,
        listeners=glance.shorten(listeners),
        over=glance.over_limits(over),
        over_total=len(over),
        overhead_ms=overhead,
    )
