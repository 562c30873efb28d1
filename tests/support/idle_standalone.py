"""Gateways that are built and do not run: the tests take their turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from admin.store.store import Store
from common import log
from config import load
from control_plane.standalone import Standalone
from control_plane.workers.child import Child
from control_plane.workers.parent import Parent
from gateway import systemd
from gateway.workers.wire import WorkerReady

CONFIGURATION = """\
gateway: {name: one, state_directory: state}
listeners: [{name: here, protocol: amqp, bind: "127.0.0.1:0", upstream: "127.0.0.1:1"}]
rules: [{name: all, limit: {messages: 100/s}}]
access_log: off
limiter: {threads: 0}
"""


@contextmanager
def idle_standalone(directory: Path, more: str = "") -> Iterator[Standalone]:
    """One with CONFIGURATION, and `more` lines of it."""
    with idle(written(directory, CONFIGURATION + more)) as made:
        yield made


def written(directory: Path, configuration: str) -> Path:
    file = directory / "sluice.yaml"
    file.write_text(configuration)
    return file


@contextmanager
def idle(file: Path, clock: Callable[[], float] = time.time, handler: log.QueueHandler | None = None) -> Iterator[Standalone]:
    """One with this configuration."""
    settings = load(file, {})
    store = Store.open(settings.gateway.state_directory, settings.rules, clock)
    made = Standalone(settings, store, handler or cast(Any, SimpleNamespace(dropped=0)))
    store.enforce = made.enforce  # as the admin API does
    try:
        yield made
    finally:
        made.gateway.disk.close(1.0)
        made.gateway.sweeper.close()
        made.gateway.executor.close(5)
        store.close()


@contextmanager
def idle_parent(file: Path) -> Iterator[Parent]:
    """A parent with this configuration; its workers 1 and 2, which are no processes, are ready."""
    settings = load(file, {})
    store = Store.open(settings.gateway.state_directory, settings.rules)
    handler = log.QueueHandler(StringIO(), "json", {})
    made = Parent(settings, store, handler, systemd.Inheritance([]))
    for worker in (1, 2):
        child = made.children[worker] = Child(worker, 0, made.judge, made.owner)
        child.begun, child._told = True, store.rules()
        child.take(WorkerReady(4711))
    try:
        yield made
    finally:
        store.close()
        handler.close()
