"""What a scrape tells of a fleet."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from gateway.telemetry import exposition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.fleet.fleet import Fleet


def fleet_lines(fleet: Fleet, now: int) -> Iterator[str]:
    """Of this gateway's part in it. Read now, rendered later."""
    family = exposition.family
    labels = (("fleet", fleet.name),)
    seconds = fleet.outage_ns(now) / 1e9
    reasons = [((*labels, ("reason", reason)), count) for reason, count in fleet.failures.items()]
    gateways = [(labels, fleet.lease.members)]
    parts = [
        family("sluice_fleet_reachable", "gauge", "1 while Redis answers, 0 in an outage.", [(labels, int(fleet.reachable()))]),
        family("sluice_fleet_gateways", "gauge", "Gateways of the fleet, this one included, as Redis said last.", gateways),
        family("sluice_fleet_asks_total", "counter", "Slices of buckets that Redis was asked for, and answered.", [(labels, fleet.asks)]),
        family("sluice_fleet_put_off_total", "counter", "Asks that waited for a later round.", [(labels, fleet.put_off)]),
        family("sluice_fleet_failures_total", "counter", "Rounds that Redis did not answer, by reason.", reasons),
        family("sluice_fleet_orphaned_buckets", "gauge", "Buckets in use that go on with their last share.", [(labels, fleet.orphaned())]),
        family("sluice_fleet_outage_seconds_total", "counter", "How long this gateway was without Redis.", [(labels, seconds)]),
        exposition.histogram("sluice_fleet_round_trip_seconds", "Round trips to Redis that were answered.", (labels, fleet.latency)),
    ]
    return chain.from_iterable(parts)
