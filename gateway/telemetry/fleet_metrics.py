"""The metrics of a gateway's part in its fleet."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from gateway.telemetry import exposition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.fleet.fleet import Fleet
    from gateway.telemetry.exposition import Sample


def fleet_lines(fleet: Fleet, now: int) -> Iterator[str]:
    """Every metric of the fleet, as lines. Read now, rendered later."""
    name = (fleet.name,)
    values: dict[str, list[Sample]] = {
        "sluice_fleet_reachable": [(name, int(fleet.reachable()))],
        "sluice_fleet_gateways": [(name, fleet.lease.members)],
        "sluice_fleet_asks_total": [(name, fleet.asks)],
        "sluice_fleet_put_off_total": [(name, fleet.put_off)],
        "sluice_fleet_failures_total": [((fleet.name, reason), count) for reason, count in fleet.failures.items()],
        "sluice_fleet_orphaned_buckets": [(name, fleet.orphaned())],
        "sluice_fleet_outage_seconds_total": [(name, fleet.outage_ns(now) / 1e9)],
    }
    return chain(exposition.families(values), exposition.histogram("sluice_fleet_round_trip_seconds", (name, fleet.latency)))
