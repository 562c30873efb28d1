"""What a running gateway does beside carrying messages: deadlines several times a second, bookkeeping once a second.

Each is a task of its own, so that one that waits (for a broker that does not answer) keeps no other from its time. A round that fails is
a line in the log, never the end of the task or of the gateway (`SupervisedLoop`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, Protocol

import trio

from common import log
from common.supervised_loop import SupervisedLoop
from gateway.clock import now_ns
from gateway.lifecycle.scheduling import run_cooperatively, tick_time, wait_for_tick
from gateway.ports import RunningGateway

if TYPE_CHECKING:
    from gateway.broker_load.adaptive_caps import AdaptiveCaps
    from gateway.broker_load.lag_watch import LagWatch
    from gateway.lifecycle.disk_watch import DiskWatch
    from gateway.lifecycle.fill_levels import FillLevelsFile
    from gateway.listeners.listener import Listener
    from gateway.listeners.upstream import Upstream
    from gateway.telemetry.client_ranking import ClientRanking
    from gateway.telemetry.limit_events import LimitEvents
    from gateway.telemetry.refused_clients import RefusedClients
    from gateway.telemetry.span_export import SpanExport

LAG_PROBE_S: Final = 0.05  # seconds; between two looks at how late timers come while there is much traffic; TICK_S otherwise
MUCH_TURNS: Final = 500  # turns of sessions a second; with fewer, the probe itself would keep the process awake; a guess
FILLS_S: Final = 0.75  # seconds, whole ticks; from one write's beginning to the next: SIGKILL leaves a file at most 1 s old
FILLS_SOON_S: Final = 0.05  # seconds, between two writes when buckets run dry; a guess
FILLS_SOON_REST: Final = 200  # times the processor time of a write is rested before such a one: a flood of new names has no more; a guess
FILLS_REST: Final = 20  # times the processor time of a write is rested after it: at most a twentieth of one core; a guess
FILLS_WAIT: Final = 3  # times a write's whole time: a slow disk is not written to all the time; a guess
LAG_WATCH_S: Final = 1.0  # seconds, whole ticks; between two looks at the backlogs that limits follow
REMOVAL_RETRY_S: Final = 60.0  # seconds; before another attempt to write down what has expired; it does not hold meanwhile; a guess


class TickedGateway(RunningGateway, Protocol):
    """A running gateway, and what is brought up to date at each tick or second."""

    adaptive_caps: AdaptiveCaps
    disk_watch: DiskWatch
    limit_events: LimitEvents
    client_ranking: ClientRanking
    refused_clients: RefusedClients
    span_export: SpanExport | None

    def close_second(self, second: int, elapsed_s: float) -> Iterator[None]:
        """What else looks at the topics' rates of a second that is over, in slices."""

    def close_left_behind(self, now: int) -> Iterator[None]:
        """Close what is connected to an address that its broker has left, in slices."""


class ExpiringChanges(Protocol):
    """Live changes with an end: `admin.store.store.Store`."""

    def lapse(self) -> None: ...

    async def remove_expired(self) -> str: ...


async def every_tick(gateway: TickedGateway) -> None:
    """Deadlines, heartbeats, new names, the memory watermark and the state of the disk on which messages wait."""
    loop = SupervisedLoop("tick")
    while True:
        await wait_for_tick()
        with loop:
            tick(gateway)


def tick(gateway: TickedGateway) -> None:
    now = now_ns()
    gateway.judge.origins.tick(now)  # consumers use names, too, of which no rule may be
    gateway.sweeper.tick(now)
    gateway.adaptive_caps.tick(gateway.listening, now)
    if gateway.fleet is not None:
        gateway.fleet.watch(now)
    gateway.check_memory(now)
    gateway.disk_watch.look()
    if gateway.sweeper.waiting():
        gateway.event_loop.wake()


async def every_second(gateway: TickedGateway) -> None:
    """The access log's second, the topics' rates, limit events, and brokers that have moved."""
    loop = SupervisedLoop("second", "bookkeeping_failed")
    second = int(time.time())
    previous = now_ns()
    while True:
        await trio.sleep(max(0.0, second + 1 - time.time()))
        now = now_ns()
        with loop:
            await close_second(gateway, second, max((now - previous) / 1e9, 1e-6), now)
        previous = now
        current = int(time.time())
        second = max(second + 1, current) if current >= second else current  # the wall clock may jump


async def close_second(gateway: TickedGateway, second: int, elapsed_s: float, now: int) -> None:
    """Messages that pass during this work count for the next second; where their keys are not folded yet, for this one."""
    await run_cooperatively(gateway.accounts.slices(now))
    if gateway.access_log is not None:
        await run_cooperatively(gateway.access_log.slices(second))
    await run_cooperatively(gateway.accounts.tick(elapsed_s, now))
    await run_cooperatively(gateway.close_second(second, elapsed_s))
    gateway.refused_clients.tick(elapsed_s)
    gateway.client_ranking.tick(elapsed_s)
    gateway.limit_events.tick(now)
    if gateway.span_export is not None:
        gateway.span_export.tick(now)
    await run_cooperatively(gateway.close_left_behind(now))
    for listener in gateway.listening.values():
        listener.refusal_log.tick(now)
        news = listener.config.flow.busy_to_log(now)
        if news:
            log.event(logging.WARNING, "broker_busy", listener=listener.name, upstream=listener.upstreams.text, **news)


async def expire_changes(store: ExpiringChanges) -> None:
    """Live changes cease to hold at their end, TICK_S late at most, and are then removed from the state directory."""
    loop = SupervisedLoop("expiry")
    remove_at = 0.0
    while True:
        with loop:
            store.lapse()
            if trio.current_time() >= remove_at:
                problem = await store.remove_expired()
                if problem:
                    remove_at = trio.current_time() + REMOVAL_RETRY_S
                    remedy = "what expired does not hold, but is still on the disk"
                    log.event(logging.ERROR, "state_write_failed", err=problem, remedy=remedy)
        await wait_for_tick()


async def keep_fill_levels(fill_levels: FillLevelsFile) -> None:
    """Write the fill levels every FILLS_S and when a bucket runs dry, on a thread; less often where there are so many that it takes a
    noticeable part of that."""
    loop = SupervisedLoop("fill levels")
    while True:
        due = tick_time(FILLS_S)
        started = trio.current_time()
        fill_levels.wanted = trio.Event()
        took = 0.0
        with loop:
            took = await trio.to_thread.run_sync(measure_cpu, fill_levels.save)
        ended = trio.current_time()
        rested = max(started + FILLS_REST * took, ended + (FILLS_WAIT - 1) * (ended - started))
        regular = max(due, rested)
        with trio.move_on_at(regular):
            await fill_levels.wanted.wait()
        await trio.sleep_until(min(regular, max(rested, started + FILLS_SOON_REST * took, started + FILLS_SOON_S)))


def measure_cpu(work: Callable[[], None]) -> float:
    """Do `work`; the processor time that it took, in seconds. On a busy machine the clock has the time of others in it."""
    before = time.thread_time()
    work()
    return time.thread_time() - before


async def probe_lag(gateway: RunningGateway) -> None:
    """Measure how late a timer comes, which is how long the loop kept trio waiting. With little traffic this is done less often."""
    turned = gateway.sweeper.turned
    looked_at = trio.current_time()
    much = False
    while True:
        if much:
            due = trio.current_time() + LAG_PROBE_S
            await trio.sleep_until(due)
            late_s = trio.current_time() - due
        else:
            late_s = await wait_for_tick()
        now = trio.current_time()
        gateway.lag_s = max(0.0, late_s)
        gateway.lag.observe(gateway.lag_s)
        much = gateway.sweeper.turned - turned > MUCH_TURNS * (now - looked_at)
        turned = gateway.sweeper.turned
        looked_at = now


async def probe_brokers(listeners: Iterable[Listener]) -> None:
    """Ask brokers of which nothing is known, that could not be reached, or that were not heard of for a while, each in its own time.

    So readiness does not depend on a client's coming.
    """
    async with trio.open_nursery() as nursery:
        for listener in listeners:
            nursery.start_soon(probe_broker, listener)


async def probe_broker(listener: Listener, wanted: Callable[[], bool] | None = None) -> None:
    """Probe a listener's addresses, each in its own time, and those that a reload adds; where `wanted` is given, only while it is true: a
    broker that is gone for good is not dialled for ever.
    """
    probed: set[Upstream] = set()
    async with trio.open_nursery() as nursery:
        while True:
            for upstream in set(listener.upstreams.members) - probed:
                probed.add(upstream)
                nursery.start_soon(_probe_upstream, listener, upstream, wanted, probed)
            await wait_for_tick()


async def _probe_upstream(listener: Listener, upstream: Upstream, wanted: Callable[[], bool] | None, probed: set[Upstream]) -> None:
    """Ask at each tick whether the next probe is due (`upstream.py`), as long as the address is the listener's."""
    loop = SupervisedLoop(f"probe of {upstream.text}")
    while upstream in listener.upstreams.members:
        if wanted is None or wanted():
            with loop:
                await upstream.probe()
        await wait_for_tick()
    probed.discard(upstream)


async def watch_lag(lag_watch: LagWatch) -> None:
    """Set the rate of limits that follow a backlog; idle while no rule does."""
    loop = SupervisedLoop("backlogs")
    try:
        while True:
            await trio.sleep_until(tick_time(LAG_WATCH_S))
            if lag_watch.wanted():
                with loop:
                    await lag_watch.look_at_all()
    finally:
        lag_watch.close()
