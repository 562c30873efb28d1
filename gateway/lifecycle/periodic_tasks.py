"""What a running gateway does beside carrying messages: deadlines several times a second, bookkeeping once a second.

Each is a task of its own, so that one that waits (a broker that does not answer) keeps no other from its time; and a round that fails is
a line in the log, never the end of the task or of the gateway (`Rounds`).

Each time the process wakes costs 100 to 400 µs of processor, cold caches and trio's own turn included, whatever is done then. So tasks
that look around a few times a second do it at the same moments, the whole multiples of TICK_S: one waking serves them all. One timer does,
too (`tick_comes`): each sleep of trio's ends as a cancelled one, with an exception. With both an idle gateway runs a third fewer
instructions (2026-11).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Final

import trio

from gateway import log
from gateway.clock import now_ns

if TYPE_CHECKING:
    from gateway.app import Gateway
    from gateway.listeners.listener import Listener

TICK_S: Final = 0.25  # deadlines and heartbeats; heartbeats are at least 1 s apart
LAG_PROBE_S: Final = 0.05  # between two looks at how late timers come, while there is much traffic; otherwise TICK_S
MUCH: Final = 500  # turns of sessions a second; with fewer the probe would be what keeps the process awake (a guess)
FILLS_S: Final = 0.75  # whole ticks, from one write's beginning to the next: what a SIGKILL leaves is at most 1 s old, the write included
FILLS_REST: Final = 20  # rest this many times as long as a write took: at most a twentieth of one core (a guess)
REMOVAL_RETRY_S: Final = 60.0  # between attempts to write down what has expired, where that fails (a guess; it does not hold meanwhile)
FAULT_EVERY_S: Final = 10.0  # between log lines of a task that fails in every round (a guess)


def next_tick(wait_s: float = TICK_S) -> float:
    """The whole multiple of TICK_S, in trio's time, that comes in `wait_s` (at least TICK_S) or up to one tick before that."""
    return ((trio.current_time() + wait_s) // TICK_S) * TICK_S


class Ticker:
    """Who waits for the next tick. One of them sleeps until then and wakes the others; if it is cancelled, the next one sleeps."""

    def __init__(self) -> None:
        self._others = trio.lowlevel.ParkingLot()
        self._asleep = False
        self._late_s = 0.0  # how late the last tick came for who slept until it

    async def wait(self) -> float:
        due = next_tick()
        while trio.current_time() < due:
            if self._asleep:
                await self._others.park()
                continue
            self._asleep = True
            try:
                await trio.sleep_until(due)
                self._late_s = trio.current_time() - due
            finally:
                self._asleep = False
                self._others.unpark_all()
        return self._late_s


_ticker: Final[trio.lowlevel.RunVar[Ticker]] = trio.lowlevel.RunVar("ticker")


async def tick_comes() -> float:
    """Wait for the next tick, with all others who do; returns how late it came, in seconds, without what the others did then."""
    try:
        ticker = _ticker.get()
    except LookupError:
        ticker = Ticker()
        _ticker.set(ticker)
    return await ticker.wait()


class Rounds:
    """The rounds of one task, as a context manager: a fault ends its round and is logged, at most once in FAULT_EVERY_S; the next comes."""

    def __init__(self, task: str, event: str = "housekeeping_failed") -> None:
        self.task = task
        self.event = event
        self.failed = 0  # rounds, since the last line
        self._said_at = -FAULT_EVERY_S

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if not isinstance(error, Exception):  # None, or cancelled
            return False
        self.fail(error)
        return True

    def fail(self, error: Exception) -> None:
        self.failed += 1
        now = time.monotonic()
        if now - self._said_at >= FAULT_EVERY_S:
            log.failure(self.event, error, task=self.task, rounds=self.failed)
            self._said_at = now
            self.failed = 0

    def __repr__(self) -> str:
        return f"<Rounds {self.task} failed={self.failed}>"


async def every_tick(gateway: Gateway) -> None:
    """Deadlines, heartbeats and the memory watermark."""
    rounds = Rounds("tick")
    while True:
        await tick_comes()
        with rounds:
            tick(gateway)


def tick(gateway: Gateway) -> None:
    now = now_ns()
    gateway.sweeper.tick(now)
    gateway.caps.tick(gateway.listening, now)
    if gateway.fleet is not None:
        gateway.fleet.watch(now)
    memory = gateway.memory
    if memory.check(gateway.sweeper, now):
        log.event(logging.WARNING if memory.full else logging.INFO, "memory_watermark", **memory.describe())
    if gateway.sweeper.waiting():
        gateway.event_loop.wake()


async def every_second(gateway: Gateway) -> None:
    """The access log's second, the topics' rates, limit events."""
    rounds = Rounds("second", "bookkeeping_failed")
    second = int(time.time())
    previous = now_ns()
    while True:
        await trio.sleep(max(0.0, second + 1 - time.time()))
        now = now_ns()
        with rounds:
            await close_second(gateway, second, max((now - previous) / 1e9, 1e-6), now)
        previous = now
        current = int(time.time())
        second = max(second + 1, current) if current >= second else current  # the wall clock may jump


async def close_second(gateway: Gateway, second: int, elapsed_s: float, now: int) -> None:
    """The messages that pass while it is worked on are the next second's, where their keys were not yet folded this one's."""
    await in_turns(gateway.accounts.slices(now))
    if gateway.access_log is not None:
        gateway.access_log.close_second(second)
    await in_turns(gateway.accounts.tick(elapsed_s))
    gateway.refused_clients.tick(elapsed_s)
    gateway.limit_events.tick(now)
    for listener in gateway.listening.values():
        listener.refusals.tick(now)
        news = listener.config.flow.busy_news(now)
        if news:
            log.event(logging.WARNING, "broker_busy", listener=listener.name, upstream=listener.upstream.text, **news)


async def in_turns(slices: Iterator[None]) -> None:
    """Do all slices of a piece of work, with a turn of the event loop after each."""
    for _ in slices:
        await trio.lowlevel.checkpoint()


async def joined(slices: Iterator[list[dict[str, object]]]) -> list[dict[str, object]]:
    """A list that is told in slices, with a turn of the event loop after each."""
    found: list[dict[str, object]] = []
    for part in slices:
        found += part
        await trio.lowlevel.checkpoint()
    return found


async def expire_changes(gateway: Gateway) -> None:
    """Live changes with an end: they cease to hold when it has come, TICK_S late at most, and are then removed from the state directory."""
    rounds = Rounds("expiry")
    store = gateway.store
    remove_at = 0.0
    while True:
        with rounds:
            store.lapse()
            if trio.current_time() >= remove_at:
                problem = await store.remove_expired()
                if problem:
                    remove_at = trio.current_time() + REMOVAL_RETRY_S
                    remedy = "what expired does not hold, but is still on the disk"
                    log.event(logging.ERROR, "state_write_failed", err=problem, remedy=remedy)
        await tick_comes()


async def keep_fills(gateway: Gateway) -> None:
    """Write the fill levels every FILLS_S, on a thread; less often where there are so many that it takes a noticeable part of that."""
    rounds = Rounds("fill levels")
    while True:
        due = next_tick(FILLS_S)
        started = trio.current_time()
        with rounds:
            await trio.to_thread.run_sync(gateway.fills.save)
        await trio.sleep_until(max(due, started + FILLS_REST * (trio.current_time() - started)))


async def probe_lag(gateway: Gateway) -> None:
    """How late a timer comes is how long the loop kept trio waiting. Where little happens it is looked for less often."""
    turned = gateway.sweeper.turned
    looked_at = trio.current_time()
    much = False
    while True:
        if much:
            due = trio.current_time() + LAG_PROBE_S
            await trio.sleep_until(due)
            late_s = trio.current_time() - due
        else:
            late_s = await tick_comes()
        now = trio.current_time()
        gateway.lag_s = max(0.0, late_s)
        gateway.lag.observe(gateway.lag_s)
        much = gateway.sweeper.turned - turned > MUCH * (now - looked_at)
        turned = gateway.sweeper.turned
        looked_at = now


async def probe_brokers(gateway: Gateway) -> None:
    """Dial brokers that were never dialled or could not be reached, look for those nobody uses, each in its own time: readiness waits for
    no client.
    """
    async with trio.open_nursery() as nursery:
        for listener in gateway.configured():
            nursery.start_soon(probe_broker, listener)


async def probe_broker(listener: Listener, wanted: Callable[[], bool] | None = None) -> None:
    """Probe a listener's broker, where `wanted` is given only while it is true: nobody asks for ever after a broker that is gone for good.

    Asks each TICK_S whether the next probe is due (`upstream.py`).
    """
    rounds = Rounds(f"probe of {listener.upstream.text}")
    while True:
        if wanted is None or wanted():
            with rounds:
                await listener.upstream.probe(in_use=listener.active > 0)
        await tick_comes()
