"""The snapshot of `GET /v1/stream`: the gateway at a glance, made once a second for all readers.

Sums over all topics and the topics with most trouble now. With 10,000 topics a description of each, every second, would cost the messages
some 40 ms; so topics are summed in slices, and only those that are shown are described.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from heapq import nlargest
from typing import TYPE_CHECKING, Any, Final

from gateway.clock import now_ns
from gateway.counting.accounts import TopicTotals
from gateway.telemetry import glance, status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.telemetry.ports import Gateway

JSONObject = dict[str, Any]

MAX_TOPICS: Final = 200  # topics; in a snapshot; a guess
SLICE_TOPICS: Final = 200  # topics; summed between two turns of the event loop: 0.2 ms
COUNTS: Final = ("received", "forwarded", "refused", "delayed", "dropped", "abandoned", "bypassed", "shadow_refused", "waiting", "bytes")
RATES: Final = ("received_per_second", "forwarded_per_second", "refused_per_second", "bytes_per_second")
STATUS: Final = (
    "name", "version", "boot", "uptime_seconds", "ready", "not_ready_because", "draining", "connections", "revision", "memory_full",
    "event_loop", "warnings", "memory_limit", "fleet",
)  # fmt: skip


def trouble(topic: Mapping[str, Any]) -> tuple[float, float, float]:
    """How far up a topic stands: refused a second, then waiting, then received a second."""
    return topic["refused_per_second"], topic["waiting"], topic["received_per_second"]


def worst(topics: Iterable[JSONObject]) -> list[JSONObject]:
    """The topics that a snapshot shows, the worst first; those with nothing going on are left out."""
    return nlargest(MAX_TOPICS, (topic for topic in topics if any(trouble(topic))), key=trouble)


def assembled(found: JSONObject, totals: JSONObject, rates: JSONObject, topics: list[JSONObject], known: int) -> JSONObject:
    """A snapshot. `found` is the status, `known` the number of all topics."""
    of_status: JSONObject = {name: found[name] for name in (*STATUS, "memory") if name in found}
    return of_status | {"totals": totals, "rates": rates, "topics_known": known, "topics": topics}


def snapshot(gateway: Gateway) -> Generator[None, None, JSONObject]:
    """Of a gateway that is one process, in slices."""
    yield from gateway.accounts.slices(now_ns())
    everything = list(gateway.accounts.topics.values())
    sums = TopicTotals("", "")
    sums.include(gateway.accounts.forgotten)  # as of now: what is forgotten between two slices is in `everything`
    rates = [0.0] * len(RATES)
    moving: list[TopicTotals] = []
    for first in range(0, len(everything), SLICE_TOPICS):
        part = everything[first : first + SLICE_TOPICS]
        sums.merge(part)
        for totals in part:
            if totals.moving or totals.waiting:
                moving.append(totals)
                rates = [one + other for one, other in zip(rates, totals.rates, strict=True)]
        yield
    shown = nlargest(MAX_TOPICS, moving, key=lambda totals: (totals.rates[2], totals.waiting, totals.rates[0]))
    described: list[JSONObject] = []
    for some in status.topics(gateway, shown):
        described += some
        yield
    of_all = {name: getattr(sums, name) for name in COUNTS}
    of_rates = dict(zip(RATES, (round(rate, 3) for rate in rates), strict=True))
    found = assembled(status.status(gateway), of_all, of_rates, worst(described), len(everything))
    yield
    return {
        **found,
        "listeners": glance.in_short(status.listeners(gateway)),
        "over": glance.over_limits(gateway.limit_events.over()),
    }


def summed(
    found: JSONObject,
    views: list[list[JSONObject]],
    add_up: Callable[[list[list[JSONObject]]], list[JSONObject]],
    forgotten: Mapping[str, int],
) -> Generator[None, None, JSONObject]:
    """Of several processes, in slices, from what each has reported last, and the sums over topics that are in no view any more.

    `add_up` makes one list of topics out of several.
    """
    totals = dict(forgotten)
    rates = dict.fromkeys(RATES, 0.0)
    moving: set[tuple[str, str, str]] = set()
    known: set[tuple[str, str, str]] = set()
    for view in views:
        for first in range(0, len(view), SLICE_TOPICS):
            for topic in view[first : first + SLICE_TOPICS]:
                place = topic["protocol"], topic["topic"], topic["operation"]
                known.add(place)
                for name in COUNTS:
                    totals[name] += topic[name]
                if any(trouble(topic)):
                    moving.add(place)
                    for name in RATES:
                        rates[name] += topic[name]
            yield
    active = [[topic for topic in view if (topic["protocol"], topic["topic"], topic["operation"]) in moving] for view in views]
    return assembled(found, totals, {name: round(rate, 3) for name, rate in rates.items()}, worst(add_up(active)), len(known))
