"""What a running gateway does beside carrying messages: deadlines several times a second, bookkeeping once a second.

Each is a task of its own, so that one that waits (a broker that does not answer) keeps no other from its time.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

import trio

from gateway import log
from gateway.sweep import now_ns

if TYPE_CHECKING:
    from gateway.app import Gateway

TICK_S: Final = 0.25  # deadlines and heartbeats; heartbeats are at least 1 s apart
LAG_PROBE_S: Final = 0.05
FILLS_REST: Final = 20  # rest this many times as long as a write took: at most a twentieth of one core (a guess)
REDIAL_S: Final = 0.25  # how often it is asked whether an unreachable broker's next probe is due (`upstream.py`)


async def every_tick(gateway: Gateway) -> None:
    """Deadlines, heartbeats and the memory watermark."""
    shared = gateway.shared
    sweeper = gateway.sweeper
    while True:
        await trio.sleep(TICK_S)
        sweeper.tick(now_ns())
        held = sum(session.buffered() for session in sweeper.sessions.values())
        full = held >= gateway.settings.memory.high_watermark
        if full != shared.memory_full:
            shared.memory_full = full
            log.event(logging.WARNING if full else logging.INFO, "memory_watermark", full=full, held_bytes=held)
            sweeper.poke_all()
        gateway.event_loop.wake()


async def every_second(gateway: Gateway) -> None:
    """The access log's second, the topics' rates, limit events."""
    second = int(time.time())
    previous = now_ns()
    while True:
        await trio.sleep(max(0.0, second + 1 - time.time()))
        now = now_ns()
        try:
            close_second(gateway, second, max((now - previous) / 1e9, 1e-6), now)
        except Exception as error:  # a fault in bookkeeping must not take the data plane down
            log.failure("bookkeeping_failed", error)
        previous = now
        current = int(time.time())
        second = max(second + 1, current) if current >= second else current  # the wall clock may jump


def close_second(gateway: Gateway, second: int, elapsed_s: float, now: int) -> None:
    gateway.accounts.fold(now)
    gateway.accounts.tick(elapsed_s)
    gateway.limit_events.tick(now)
    for listener in gateway.listening.values():
        listener.refusals.tick(now)
    if gateway.access_log is not None:
        gateway.access_log.close_second(second)


async def keep_fills(gateway: Gateway) -> None:
    """Write the fill levels once a second, on a thread; less often where there are so many that it takes a noticeable part of that."""
    while True:
        started = trio.current_time()
        await trio.to_thread.run_sync(gateway.fills.save)
        await trio.sleep(max(1.0, FILLS_REST * (trio.current_time() - started)))


async def probe_lag(gateway: Gateway) -> None:
    """How late a timer comes is how long the loop kept trio waiting."""
    while True:
        due = trio.current_time() + LAG_PROBE_S
        await trio.sleep_until(due)
        gateway.lag_s = max(0.0, trio.current_time() - due)
        gateway.lag.observe(gateway.lag_s)


async def probe_brokers(gateway: Gateway) -> None:
    """Dial brokers that were unreachable."""
    while True:
        await trio.sleep(REDIAL_S)
        async with trio.open_nursery() as nursery:
            for listener in gateway.listening.values():
                nursery.start_soon(listener.probe)
