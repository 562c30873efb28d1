"""The state of a gateway: of each of its processes, and as a whole. `GET /v1/status`."""

from typing import Annotated

from msgspec import UNSET, UnsetType

from common.views.spool import SpoolView
from common.views.view import View, add, add_counts, chained, fact, least, merge, merge_known, most


class EventLoopView(View, frozen=True, kw_only=True):
    """The loop that serves connections."""

    sweeps: Annotated[int, fact("since the start", add)] = 0
    submissions: Annotated[int, fact("of batches to the limiter, since the start", add)] = 0
    lag_ms: Annotated[float, fact("by which a turn came too late", most, "ms")] = 0.0


class LimiterView(View, frozen=True, kw_only=True):
    """Where batches are judged, and how many went which way, over all listeners. `inline` "always": there are no threads."""

    threads: Annotated[int, fact("of the limiter", add)] = 0
    inline: Annotated[str, fact("when a batch is judged on the event loop")] = ""
    batches: Annotated[dict[str, int], fact("by their way", add_counts)] = {}


class FleetMemberView(View, frozen=True, kw_only=True):
    """What one gateway of a fleet has told of its traffic."""

    name: str
    received_per_second: Annotated[int | float, fact("a mean over ten seconds", unit="messages/s")]
    forwarded_per_second: Annotated[int | float, fact("the same", unit="messages/s")]
    refused_per_second: Annotated[int | float, fact("the same", unit="messages/s")]
    bytes_per_second: Annotated[int | float, fact("the same", unit="bytes/s")]
    waiting: Annotated[int | float, fact("now", unit="messages")]
    connections: Annotated[int | float, fact("open now")]


class FleetView(View, frozen=True, kw_only=True):
    """The gateway's part in its fleet; over several processes, which are all members, the worst outage. Null: not known now."""

    name: str = ""
    redis: str = ""
    reachable: Annotated[bool, fact("whether Redis answers", least)] = True
    gateways: Annotated[int | None, fact("that share the limits")] = None
    members: Annotated[list[FleetMemberView] | None, fact("what each of them has told")] = None
    missing: Annotated[list[str] | None, fact("those that have told nothing lately")] = None
    sum: Annotated[dict[str, float] | None, fact("over all that have told")] = None
    reason: str | None = None
    detail: str | None = None
    outage_seconds: Annotated[float | None, fact("since Redis answered last", unit="seconds")] = None
    orphaned: Annotated[int, fact("limits that no gateway owns just now", add)] = 0
    asks: Annotated[int, fact("of parts of limits, since the start", add)] = 0
    put_off: Annotated[int, fact("asks that waited for the next one", add)] = 0
    failures: Annotated[int, fact("since the start", add)] = 0
    round_trip_ms: Annotated[float, fact("of the last ask", most, "ms")] = 0.0

    def weight(self) -> float:
        return self.outage_seconds or 0.0


class MemoryView(View, frozen=True, kw_only=True):
    """Bytes held for connections."""

    full: Annotated[bool, fact("whether more is held than `memory.high_watermark`", most)] = False
    held_bytes: Annotated[int, fact("", add, "bytes")] = 0
    high_watermark: Annotated[int | None, fact("", add, "bytes")] = None
    stopped_connections: Annotated[int, fact("that publish and are not read", add)] = 0
    delivery_bytes: Annotated[int, fact("that wait for clients", add, "bytes")] = 0


class MemoryLimitView(View, frozen=True, kw_only=True):
    """The size of the process, how large it may become, and the steps it takes on the way there. Of several, the one nearest its limit."""

    step: int = 0
    size_bytes: Annotated[int, fact("", unit="bytes")] = 0
    limit_bytes: Annotated[int | None, fact("", unit="bytes")] = None
    doing: str | None = None

    def weight(self) -> tuple[int, float]:
        return self.step, self.size_bytes / (self.limit_bytes or float("inf"))


class AccessLogView(View, frozen=True, kw_only=True):
    """The access log of each process; all are on one disk."""

    lost_lines: Annotated[int, fact("since the start", add)] = 0
    failed_writes: Annotated[int, fact("since the start", add)] = 0
    disk_low: Annotated[bool, fact("whether it is not written for want of room", most)] = False
    free_bytes: Annotated[int | None, fact("on its disk", least, "bytes")] = None


class LimitsInUseView(View, frozen=True, kw_only=True):
    """How full the limiter's tables are: keys, clients (`origins`) and limits (`levels`); the rest is counted since the start."""

    keys: Annotated[int, fact("", add)] = 0
    origins: Annotated[int, fact("", add)] = 0
    levels: Annotated[int, fact("", add)] = 0
    max_keys: Annotated[int, fact("", add)] = 0
    forgotten: Annotated[int, fact("", add)] = 0
    shelved: Annotated[int, fact("", add)] = 0
    overflowed: Annotated[int, fact("", add)] = 0


class WorkerView(View, frozen=True, kw_only=True):
    """One of several processes. Null: it has not reported yet."""

    worker: int
    pid: int | None = None
    lives: Annotated[int, fact("processes that have had its place, it included")] = 1
    serves: bool = False
    uptime_seconds: Annotated[float, fact("", unit="seconds")] = 0.0
    connections: int | None = None
    event_loop: EventLoopView | None = None
    limits: LimitsInUseView | None = None
    memory_full: bool | None = None
    memory: MemoryView | None = None
    warnings: list[str] | None = None


class StatusView(View, frozen=True, kw_only=True):
    """The gateway as a whole; of one process alone from `not_ready_because` on. Limits are added up where each process has its own."""

    name: str = ""
    version: str = ""
    build: Annotated[str, fact("compiled or pure")] = ""
    python: str = ""
    boot: Annotated[str, fact("another one after each start")] = ""
    pid: int = 0
    uptime_seconds: Annotated[float, fact("", unit="seconds")] = 0.0
    taken_over_at: Annotated[str | None, fact("when it took over from the process before it; null: it did not")] = None
    ready: bool = False
    draining: bool = False
    revision: Annotated[int, fact("of the live changes")] = 0
    config_last_reload_successful: bool = True
    needs_restart: Annotated[list[str], fact("settings of the last reload that a restart puts in force")] = []
    not_ready_because: Annotated[list[str], fact("why it does not serve", chained)] = []
    connections: Annotated[int, fact("open now", add)] = 0
    event_loop: Annotated[EventLoopView, fact("", merge)] = EventLoopView()
    limiter: Annotated[LimiterView, fact("", merge)] = LimiterView()
    fleet: Annotated[FleetView | None, fact("null: it shares its limits with no other gateway", merge_known)] = None
    memory_full: Annotated[bool, fact("", most)] = False
    memory: Annotated[MemoryView, fact("", merge)] = MemoryView()
    memory_limit: Annotated[MemoryLimitView | None, fact("", merge_known)] = None
    spool: Annotated[SpoolView | None, fact("", merge_known)] = None
    warnings: Annotated[list[str], fact("what an operator should look at although traffic is served", chained)] = []
    access_log: Annotated[AccessLogView | None, fact("null: it is off", merge_known)] = None
    limits: Annotated[LimitsInUseView, fact("", merge)] = LimitsInUseView()
    workers: list[WorkerView] | UnsetType = UNSET
    workers_replaced: int | UnsetType = UNSET
