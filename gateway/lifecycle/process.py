"""What a process does about itself at its start: descriptors, the garbage collector, signals, the first lines of its log."""

from __future__ import annotations

import gc
import logging
import resource
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final

import trio

from common import log
from config.lints import few_files
from config.tls_files import ending
from gateway.build import build
from gateway.lifecycle.reload import reload_on_hangup
from gateway.lifecycle.signals import first_stop
from gateway.listeners.factory import log_ending_certificates
from gateway.telemetry import status

if TYPE_CHECKING:
    from config import Settings
    from gateway.listeners.listener import Listener

# Defaults paused 195 ms at 4,000 connections (docs/design/reliability.md 1.2). A collection of the young takes 0.5 µs for each: of 50,000
# it was what a client felt most, 25 ms, once a minute (2026-11). The second number keeps the next ones as rare: after 2,500,000 more that
# have stayed.
GC_THRESHOLDS: Final = (5_000, 500, 1000)


def raise_descriptor_limit() -> None:
    """Use what the system allows: a proxied connection takes two descriptors, and the usual soft limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def freeze_heap() -> None:
    """What there is at the start stays until the end: the garbage collector need not look at it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def log_started(settings: Settings, listeners: Iterable[Listener], began: float, workers: int | None) -> None:
    """The lines of a gateway that serves from now on. `began` is monotonic seconds."""
    for listener in listeners:
        log.event(logging.INFO, "listening", **status.listening(listener))
    log_ending_certificates(ending(settings))
    for problem in few_files(settings):
        log.event(logging.WARNING, "few_open_files", err=problem.message, remedy=problem.remedy)
    log.event(logging.INFO, "started", after_ms=round((time.monotonic() - began) * 1e3), build=build().kind, workers=workers)


async def watch_signals(
    reload: Callable[[], Awaitable[object]],
    drain_requested: trio.Event,
    serving: trio.Event,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Drain at SIGTERM and SIGINT, reload at SIGHUP once `serving`. What other signals do: `signals.py`."""
    async with trio.open_nursery() as nursery:
        await nursery.start(reload_on_hangup, reload, serving)
        number = await first_stop(task_status=task_status)
        log.event(logging.INFO, "stopping", signal=number.name)
        drain_requested.set()
