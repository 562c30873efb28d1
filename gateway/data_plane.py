"""What carries traffic, as its control plane sees it: four doors, `report`, `describe`, `act` and `enforce`.

There are two: the gateway of this process (`LocalPlane`), and a worker behind its socket (`control_plane/workers/child.py`), at whose
other end is a `LocalPlane` again. So each view is made in one place (`telemetry/views.py`), wherever clients are served.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from common import log
from gateway.clock import now_ns
from gateway.lifecycle.scheduling import collect_cooperatively, run_cooperatively
from gateway.telemetry import collector, live_snapshot, status
from gateway.telemetry.views import COUNTED, VIEWS
from limiter.limits import Rate

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterator, Sequence

    from common.views.connections import ConnectionView
    from common.views.topics import TopicView
    from gateway.app import Gateway
    from gateway.counting.accounts import Place
    from gateway.telemetry.live_snapshot import Moving
    from limiter.rules.rule_set import RuleSet


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What goes to a data plane, or comes from one. Between processes its name goes before its fields."""


class Close(Message, frozen=True):
    """Close a connection in the way of its protocol."""

    connection: int
    reason: str  # may be ""


class LogLevel(Message, frozen=True):
    """Write lines of this level and above."""

    level: str


class StandStill(Message, frozen=True):
    """Accept nobody and read no client while it is open whether the next process serves; or go on, as it does not."""

    yes: bool


class Drain(Message, frozen=True):
    """Stop gracefully."""

    handed_over: bool = False  # the next process serves on the same sockets: `drain.hold` does not count


class FollowBacklog(Message, frozen=True):
    """The limit of this bucket follows a backlog, and lets `amount` messages per `per_ns` pass from now on."""

    identity: tuple[str, str, str, str]
    amount: int
    per_ns: int


AnyCommand: TypeAlias = Close | LogLevel | StandStill | Drain | FollowBacklog


class TopicSource(Protocol):
    """What has counted the messages of topics: a data plane, or those that have ended."""

    def topics(self, wanted: Collection[Place] | None) -> Iterator[list[TopicView]]:
        """All topics, or those `wanted` of them in their order, in slices."""

    def topic_numbers(self, name: str, wanted: Sequence[Place] | None) -> Generator[None, None, dict[Place, float]]:
        """One of the numbers of the topics of which it is not 0 (`admin.ports.OperatedGateway.topic_numbers`), in slices."""

    def gather_moving(self) -> Generator[None, None, Moving]:
        """Sums over all topics, and those that move, in slices."""


class DataPlane(TopicSource, Protocol):
    """One process that serves clients."""

    worker: int  # its place, from 1; 0: this process

    @property
    def name(self) -> str:
        """The process: its place and how many were there before it; "": this one."""

    @property
    def serves(self) -> bool: ...

    async def report(self, views: Collection[str]) -> None:
        """Bring these views of its state up to date. The caller bounds its time; what is not reported stays as it was."""

    def view(self, name: str) -> Any:
        """A view (`telemetry.views.VIEWS`) as it was reported last; None: not yet."""

    def rows(self, name: str) -> Iterator[list[Any]]:
        """A view that is a list (`View.rows`), in slices."""

    async def describe(self, connections: Sequence[int]) -> list[ConnectionView]:
        """Those of the connections that are its own and still open, as `GET /v1/connections` has them. Raises trio.TooSlowError."""

    def metric_lines(self) -> Iterator[str]:
        """What it has of `/metrics`, as lines. All values are read before the first line is asked for."""

    def act(self, command: AnyCommand) -> None: ...

    def enforce(self, rules: RuleSet) -> None:
        """Put `rules` in force for the next batch; `in_force` says when that is."""

    async def in_force(self) -> None:
        """Wait until what was enforced last holds."""

    def take_faults(self) -> list[str]:
        """Why it could not put a reload in force that others have, since the last call."""


class LocalPlane:
    """The gateway of this process. Its views are of now, whenever they are looked at."""

    name = ""
    serves = True

    def __init__(self, gateway: Gateway, worker: int = 0) -> None:
        """`worker`: the place of this process among several; what is one process's alone is told apart by it."""
        self.gateway = gateway
        self.worker = worker

    async def report(self, views: Collection[str]) -> None:
        """Fold most of the accounts in slices, for views that show topics: little is left to fold in one piece."""
        if not COUNTED.isdisjoint(views):
            await run_cooperatively(self.gateway.accounts.slices(now_ns()))

    def view(self, name: str) -> Any:
        found = VIEWS[name].of(self.gateway)
        if name == "listeners" and self.worker:  # each worker has its own part of a cap
            return [replace(each, caps=[replace(cap, worker=self.worker) for cap in each.caps]) for each in found]
        return found

    def rows(self, name: str) -> Iterator[list[Any]]:
        rows = VIEWS[name].rows
        assert rows is not None
        return rows(self.gateway)

    async def describe(self, connections: Sequence[int]) -> list[ConnectionView]:
        return self._mark_own(await collect_cooperatively(status.connections(self.gateway, connections)))

    def describe_connections(self, connections: Sequence[int]) -> list[ConnectionView]:
        """Of a slice, at once."""
        return self._mark_own(list(chain.from_iterable(status.connections(self.gateway, connections))))

    def _mark_own(self, items: list[ConnectionView]) -> list[ConnectionView]:
        """Items of which each says whose it is, where there are several processes."""
        return [replace(each, worker=self.worker) for each in items] if self.worker else items

    def topics(self, wanted: Collection[Place] | None) -> Iterator[list[TopicView]]:
        known = self.gateway.accounts.topics
        return status.topics(self.gateway, None if wanted is None else [known[place] for place in wanted if place in known])

    def topic_numbers(self, name: str, wanted: Sequence[Place] | None) -> Generator[None, None, dict[Place, float]]:
        return status.topic_numbers(self.gateway, name, wanted)

    def gather_moving(self) -> Generator[None, None, Moving]:
        return live_snapshot.gather_moving(self.gateway)

    def metric_lines(self) -> Iterator[str]:
        return collector.metric_lines(self.gateway)

    def act(self, command: AnyCommand) -> None:
        gateway = self.gateway
        match command:
            case Close(connection, reason):
                gateway.close_connection(connection, reason)
            case LogLevel(level):
                log.set_level(gateway.log_handler, level)
            case StandStill(yes):
                gateway.stand_still() if yes else gateway.go_on()
            case Drain(handed_over):
                gateway.hand_over() if handed_over else gateway.drain_requested.set()
            case FollowBacklog(identity, amount, per_ns):
                gateway.judge.set_rate(identity, Rate(amount, per_ns), now_ns())

    def enforce(self, rules: RuleSet) -> None:
        self.gateway.enforce(rules)

    async def in_force(self) -> None:
        """It holds from the next batch on."""

    def take_faults(self) -> list[str]:
        return []  # the reload itself fails

    def __repr__(self) -> str:
        return f"<LocalPlane {self.worker}>"
