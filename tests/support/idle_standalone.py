"""A gateway of one process that is built and does not run: the tests take its turns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from admin.store.store import Store
from config import load
from gateway.standalone import Standalone

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
    file = directory / "sluice.yaml"
    file.write_text(CONFIGURATION + more)
    settings = load(file, {})
    store = Store.open(settings.gateway.state_directory, settings.rules)
    made = Standalone(settings, store, cast(Any, SimpleNamespace(dropped=0)))
    try:
        yield made
    finally:
        made.gateway.disk.close(1.0)
        made.gateway.sweeper.close()
        made.gateway.executor.close(5)
        store.close()
