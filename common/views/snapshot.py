"""What `GET /v1/stream` sends once a second: the gateway at a glance."""

from typing import Annotated

from msgspec import UNSET, UnsetType

from common.views.limits import OverLimitView
from common.views.listeners import SeatsView
from common.views.status import EventLoopView, FleetView, MemoryLimitView, MemoryView
from common.views.topics import TopicView
from common.views.view import View, fact


class ListenerInShortView(View, frozen=True, kw_only=True):
    """A listener and its broker: what `GET /v1/listeners` has of them, in short."""

    name: str
    protocol: str = ""
    bind: str = ""
    upstream: str = ""
    upstream_reachable: bool | None = None
    upstream_error: str | None = None
    connections_active: int = 0
    broker_blocked_connections: int = 0
    broker_blocked_since: str | None = None
    broker_blocked_reason: str | None = None
    broker_busy: dict[str, int] = {}
    seats: SeatsView = SeatsView()


class OverheadView(View, frozen=True, kw_only=True):
    """What the gateway adds to messages in time, over the last ten seconds, in milliseconds."""

    p50: Annotated[float, fact("half of the batches took no longer", unit="ms")]
    p99: Annotated[float, fact("99 of 100 took no longer", unit="ms")]


class LiveChangeView(View, frozen=True, kw_only=True):
    """A live change of a limit or a rule."""

    target: str
    by: str
    at: str
    reason: str
    expires: str | None
    messages: str | None
    bytes: str | None


class LiveChangesView(View, frozen=True, kw_only=True):
    """Live changes that hold: those that end next first, then the latest without an end; at most 50 of them."""

    total: int = 0
    without_end: int = 0
    next_end: str | None = None
    items: list[LiveChangeView] = []


class QuotasView(View, frozen=True, kw_only=True):
    """The quotas in force."""

    date: str | None
    computed_at: str
    at: str
    by: str
    topics: Annotated[int, fact("that have one")]


class SnapshotView(View, frozen=True, kw_only=True):
    """The gateway at a glance: parts of its status, sums and rates over all topics, and the topics with most trouble, the worst first."""

    name: str = ""
    version: str = ""
    boot: str = ""
    uptime_seconds: float = 0.0
    ready: bool = False
    not_ready_because: list[str] = []
    draining: bool = False
    connections: int = 0
    revision: int = 0
    memory_full: bool = False
    event_loop: EventLoopView = EventLoopView()
    warnings: list[str] = []
    memory_limit: MemoryLimitView | None = None
    fleet: FleetView | None = None
    memory: MemoryView = MemoryView()
    totals: Annotated[dict[str, int], fact("of all topics, since the start")] = {}
    rates: Annotated[dict[str, float], fact("over all topics")] = {}
    topics_known: int = 0
    topics: list[TopicView] = []
    listeners: list[ListenerInShortView] = []
    over: Annotated[list[OverLimitView], fact("limits that are over now, those that refuse most first; at most 50")] = []
    over_total: Annotated[int, fact("how many there are")] = 0
    overhead_ms: Annotated[OverheadView | None, fact("null: there were no batches")] = None
    live_changes: LiveChangesView | UnsetType = UNSET
    quotas: QuotasView | UnsetType | None = UNSET
