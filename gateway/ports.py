"""A running gateway, as the rooms beneath it see it: what status, metrics, drain and the periodic tasks read and touch.

`gateway/app.py` provides it, and none of those rooms imports `app.py`: each names the port instead. Here stands what all of them share. A
room that needs more of a gateway, of its own kind, extends the port beside its own code (`lifecycle/drain.py`: the fill levels).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from common import log
    from config import Settings
    from gateway.counting.access_log import AccessLog
    from gateway.counting.accounts import Accounts
    from gateway.counting.histogram import Histogram
    from gateway.event_loop.event_loop import EventLoop
    from gateway.event_loop.memory_limit import MemoryLimit
    from gateway.event_loop.memory_watermark import MemoryWatermark
    from gateway.event_loop.sweeper import Sweeper
    from gateway.fleet.fleet import Fleet
    from gateway.listeners.broker_listeners import BrokerListeners
    from gateway.listeners.listener import Listener
    from gateway.remote_admin import RemoteAdmin
    from gateway.session.shared import Shared
    from gateway.waiting.disk.waiting_disk import WaitingDisk
    from limiter.executor import Executor
    from limiter.judge import Judge
    from limiter.rules.rule_set import RuleSet


class RuleSource(Protocol):
    """Where the rules in force come from: the store of a gateway alone, what the parent has sent to a worker."""

    @property
    def revision(self) -> int: ...

    def rules(self) -> RuleSet:
        """All rules as they hold now. The same object until something changes."""


class RunningGateway(Protocol):
    """What every room may see of a running gateway."""

    settings: Settings
    boot: str  # tells this run from others of the same name
    started: float  # seconds, monotonic
    took_over_at: float | None  # Unix time, in seconds; None: no process was before it
    draining: bool
    judge: Judge
    executor: Executor
    shared: Shared
    accounts: Accounts
    access_log: AccessLog | None
    sweeper: Sweeper
    event_loop: EventLoop
    disk: WaitingDisk
    memory: MemoryWatermark
    memory_limit: MemoryLimit
    listening: dict[str, Listener]  # by name; those of a name server's brokers too
    brokers: dict[str, BrokerListeners]  # by name server listener
    fleet: Fleet | None
    remote_admin: RemoteAdmin | None  # None in a worker: checks refuse it there
    log_handler: log.QueueHandler
    lag_s: float  # how late the last timer of the event loop came
    lag: Histogram
    overhead: Histogram
    blocked_ns: dict[str, int]  # by stage: time without credit, of sessions that are over

    @property
    def rule_source(self) -> RuleSource: ...

    def check_memory(self, now: int) -> None:
        """Sum up what is kept, and act on it. On each tick."""

    def explain_unready(self) -> list[str]:
        """Why the gateway is not ready to serve; empty when it is."""
