"""What the parent of several workers shows of all of them: the state as a whole, connections, and the metrics that are its own.

The counterpart of `telemetry/status.py`, which shows one process. Each worker answers with its own `telemetry/status.py` and
`telemetry/metrics.py`; `summing.py` and `scrapes.py` add those answers up, and here the sums are put together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from common import log
from gateway.clock import now_ns
from gateway.telemetry import collector, exposition, status
from gateway.workers import summing

if TYPE_CHECKING:
    from config import Settings
    from gateway.lifecycle.log_keeping import LogKeeping
    from gateway.lifecycle.reload import Reloads
    from gateway.ports import RuleSource
    from gateway.workers.child import Child
    from limiter.judge import Judge
    from limiter.leases.owner import LeaseOwner

DESCRIBE_S: Final = 1.0  # seconds; until a worker has described a slice of its connections; it takes milliseconds; a guess


class Parent(Protocol):
    """The parent, as far as it is shown: `workers.parent.Parent`."""

    settings: Settings
    log_keeping: LogKeeping
    boot: str
    began: float  # seconds, monotonic
    draining: bool
    took_over_at: float | None  # Unix time, in seconds
    reloads: Reloads
    judge: Judge
    owner: LeaseOwner
    children: dict[int, Child]
    replaced: int
    request_numbers: Iterator[int]

    @property
    def store(self) -> RuleSource: ...

    def serving(self) -> list[Child]: ...

    def views(self, name: str) -> list[Any]: ...

    def ready(self) -> list[str]: ...

    def warnings(self) -> list[str]: ...


def summed_status(parent: Parent) -> dict[str, object]:
    """`GET /v1/status`."""
    views: list[dict[str, Any]] = parent.views("status")
    loops = [each["event_loop"] for each in views]
    return {
        **status.identity(parent.settings.gateway.name, parent.boot, parent.began),
        "ready": not parent.ready(),
        "not_ready_because": parent.ready(),
        "draining": parent.draining,
        "taken_over_at": None if parent.took_over_at is None else log.moment(parent.took_over_at),
        "connections": sum(each["connections"] for each in views),
        "revision": parent.store.revision,
        "config_last_reload_successful": parent.reloads.last.ok,
        "needs_restart": parent.reloads.last.needs_restart,
        "event_loop": {
            "sweeps": sum(each["sweeps"] for each in loops),
            "submissions": sum(each["submissions"] for each in loops),
            "lag_ms": max((each["lag_ms"] for each in loops), default=0.0),
        },
        "limiter": reduce(summing.add, [each["limiter"] for each in views if "limiter" in each], {}),
        "fleet": None,
        "memory_full": any(each["memory_full"] for each in views),
        "memory_limit": max((each["memory_limit"] for each in views if "memory_limit" in each), key=nearest_its_limit, default=None),
        "spool": summing.spools(each["spool"] for each in views if "spool" in each) or None,
        "warnings": parent.warnings(),
        "access_log": None if parent.settings.access_log is None else summing.logs([each["access_log"] for each in views]),
        "limits": {
            **parent.judge.usage(),
            **{name: sum(each["limits"][name] for each in views) for name in ("keys", "origins")},
        },
        "workers": [parent.children[place].describe() for place in sorted(parent.children)],
        "workers_replaced": parent.replaced,
    }


def nearest_its_limit(memory: dict[str, Any]) -> tuple[int, float]:
    """What sorts the workers' memory: the one that takes most steps last."""
    return memory["step"], memory["size_bytes"] / (memory["limit_bytes"] or float("inf"))


async def describe_connections(parent: Parent, numbers: Sequence[int]) -> list[dict[str, object]]:
    """Those of the connections that are still open, in the same order; the workers are asked slice by slice, side by side.

    A worker that does not answer within DESCRIBE_S is not asked again: of its other connections only number, protocol and worker are known.
    """
    found: dict[int, dict[str, object]] = {}

    async def ask(child: Child) -> None:
        known = child.connections()
        asked = [number for number in numbers if number in known]
        for first in range(0, len(asked), status.MAX_CONNECTIONS_PER_SLICE):
            with trio.move_on_after(DESCRIBE_S) as late:
                described = await child.describe_connections(
                    next(parent.request_numbers), asked[first : first + status.MAX_CONNECTIONS_PER_SLICE]
                )
                found.update((each["id"], each) for each in described)
            if late.cancelled_caught:
                found.update((number, {"id": number, "protocol": known[number], "worker": child.worker}) for number in asked[first:])
                return

    async with trio.open_nursery() as nursery:
        for child in parent.serving():
            nursery.start_soon(ask, child)
    return [found[number] for number in numbers if number in found]


def metric_lines(parent: Parent) -> Iterator[str]:
    """What the parent alone knows of `/metrics`."""
    asked = {"full": parent.owner.granted, "short": parent.owner.refused}
    return exposition.families({
        "sluice_workers": [((), len(parent.serving()))],
        "sluice_workers_replaced_total": [((), parent.replaced)],
        "sluice_slices_total": [((result,), count) for result, count in asked.items()],
        "sluice_limit_rate": collector.rate_samples(parent.store.rules()),
        "sluice_candidate_messages_total": collector.candidate_samples(parent.judge.candidates(now_ns())),
        "sluice_config_last_reload_successful": [((), parent.reloads.last.ok)],
        "sluice_config_last_reload_timestamp_seconds": [((), parent.reloads.last.at)],
        "sluice_config_version": [((), parent.store.revision)],
        **parent.log_keeping.samples(),
    })  # fmt: skip
