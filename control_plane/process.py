"""The first lines of a process's log once it serves, and the signals that stop it or have it read its configuration again."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

import trio

from common import log
from config.lints import few_files
from config.tls_files import find_ending_certificates
from control_plane.reload import reload_on_hangup
from gateway.build import build
from gateway.lifecycle.signals import wait_for_stop
from gateway.listeners.factory import log_ending_certificates
from gateway.telemetry import status

if TYPE_CHECKING:
    from config import Settings
    from gateway.listeners.listener import Listener


def log_started(settings: Settings, listeners: Iterable[Listener], began: float, workers: int | None) -> None:
    """The lines of a gateway that serves from now on. `began` is monotonic seconds."""
    for listener in listeners:
        log.event(logging.INFO, "listening", **status.listening(listener))
    log_ending_certificates(find_ending_certificates(settings))
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
    """Drain at SIGTERM and SIGINT, reload at SIGHUP once `serving`. What other signals do: `gateway/lifecycle/signals.py`."""
    async with trio.open_nursery() as nursery:
        await nursery.start(reload_on_hangup, reload, serving)
        number = await wait_for_stop(task_status=task_status)
        log.event(logging.INFO, "stopping", signal=number.name)
        drain_requested.set()
