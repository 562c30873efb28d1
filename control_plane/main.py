"""The process: `sluice run`. Composes one gateway, or the parent of several workers, and says how it ended."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Final

import trio

from common import log
from gateway import systemd
from gateway.lifecycle.process import raise_descriptor_limit
from gateway.lifecycle.signals import Signals
from gateway.lifecycle.watchdog import Watchdog

if TYPE_CHECKING:
    from admin.store.store import Store
    from config import Settings
    from control_plane.control_plane import FirstSteps
    from control_plane.takeover import Takeover


INVALID: Final = 3  # exit code of a configuration that cannot be run here (`docs/design/contract.md` 2)


def compose(
    settings: Settings,
    store: Store,
    handler: log.QueueHandler,
    inheritance: systemd.Inheritance,
    signals: Signals,
    takeover: Takeover | None,
    first_steps: FirstSteps,
) -> Callable[[], Awaitable[None]]:
    """What runs the gateway: it alone, or the parent of its workers."""
    if settings.gateway.workers == 1:
        from control_plane.standalone import Standalone

        return Standalone(settings, store, handler, inheritance, takeover, first_steps).serve
    from control_plane.workers.parent import Parent

    parent = signals.group = Parent(settings, store, handler, inheritance, takeover, first_steps)
    return parent.run


def run(settings: Settings, first_steps: FirstSteps) -> int:
    """Run a gateway until it is told to stop; the process's exit code. `first_steps` are told to the person at the terminal."""
    from admin.authentication.auth import TokenError
    from admin.store.clock_steps import since_boot
    from admin.store.store import Store, StoreError
    from config.rule_texts import RuleTexts
    from config.tracing_packages import OTEL_EXTRA, missing_package
    from control_plane.takeover import Takeover, TakeoverError, must_take_over
    from gateway.event_loop.memory_limit import require_sizes

    handler = log.start(settings.log.level, settings.log.format)
    inheritance = systemd.inherit()
    raise_descriptor_limit()
    missing = "" if settings.tracing is None else missing_package()
    if missing:
        log.event(logging.CRITICAL, "cannot_start", err=f"tracing needs the Python package {missing}: {OTEL_EXTRA}")
        handler.close()
        return INVALID
    try:
        require_sizes()
        with Signals(handler, starting=True) as signals:
            place = settings.gateway
            takeover = None if place.takeover is None else Takeover.begin(place.takeover, place.state_directory, place.workers)
            if takeover is None:
                must_take_over(place.takeover)
            else:
                inheritance = takeover.inheritance
            store = Store.open(
                place.state_directory,
                settings.rules,
                time.time,
                rule_texts=RuleTexts(),
                steady=since_boot,
                observing=takeover is not None,
            )
            with Watchdog(place.watchdog_ns, handler) as watchdog:
                trio.run(watchdog.run_watched, compose(settings, store, handler, inheritance, signals, takeover, first_steps))
    except (OSError, StoreError, TakeoverError) as error:
        log.event(logging.CRITICAL, "cannot_start", err=str(error))
        return 1
    except BaseExceptionGroup as group:  # out of the nursery: an address is taken, a token file is empty
        expected, rest = group.split((OSError, StoreError, TakeoverError, TokenError))
        if expected is None or rest is not None:
            raise
        for leaf in leaves(expected):
            log.event(logging.CRITICAL, "cannot_start", err=str(leaf))
        return 1
    finally:
        handler.close()
    return 0


def leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """The exceptions in a group of groups."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error
