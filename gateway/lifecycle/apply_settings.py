"""Putting reloaded settings in force in a running gateway. Which these are stands in `config/reloading.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common import log
from gateway.counting.access_log import Rolling
from gateway.event_loop.memory_limit import find_limit
from gateway.listeners.factory import limits_of, take_entry
from gateway.transport.trusted_proxies import TrustedProxies

# Of the process's limit, at most: interpreter and heap take 50 MB, and what is read is held twice while it is put together. With a mark of
# 256 MiB in a control group of 192 MiB sixty clients that began frames of 16 MiB got the gateway killed within a second (2026-11).
HIGH_PERCENT: Final = 30
DELIVERY_PERCENT: Final = 20
TARGET_DIVISOR: Final = 2  # of the high watermark: what spooled messages may have of it in memory, one part in so many; a guess

if TYPE_CHECKING:
    from pathlib import Path

    from config import Settings
    from config.known_settings import ListenerSettings, LogSettings
    from gateway.listeners.listener import Listener
    from gateway.ports import RunningGateway


def apply_settings(gateway: RunningGateway) -> None:
    """Let the gateway's `settings` hold. On the loop's thread, in one piece."""
    settings = gateway.settings
    shared = gateway.shared
    gateway.executor.take_inline(settings.limiter.inline)
    shared.credit_initial = settings.credit.initial
    shared.credit_more_after = settings.credit.more_after
    shared.credit_bytes = settings.credit.bytes
    shared.hold_bytes = settings.memory.per_connection
    if shared.disk is not None:
        shared.disk.take_settings(*disk_settings_of(settings))
        gateway.sweeper.offer_room()
    gateway.memory.take_watermarks(*watermarks_of(settings))
    gateway.memory_limit.limit = memory_limit_of(settings)
    if gateway.access_log is not None:
        gateway.access_log.roll(rolling_of(settings))
    if shared.spans is not None and settings.tracing is not None:
        shared.spans.take_settings(settings.tracing.sampling_ratio, settings.tracing.max_per_second)
    apply_listeners(gateway.listening, settings)


def apply_listeners(listening: dict[str, Listener], settings: Settings) -> None:
    """The same of the listeners, which the parent of several workers has, too: it asks their brokers for backlogs."""
    for entry in settings.listeners:
        apply_entry(listening[entry.name], entry)


def apply_entry(listener: Listener, entry: ListenerSettings) -> None:
    """What a reload changes of a listener, but for its TLS (`factory.apply_tls`)."""
    take_entry(listener.config, entry)
    listener.trusted_proxies = TrustedProxies(entry.trusted_proxies)
    listener.admission.take_limits(limits_of(entry))
    if [upstream.address for upstream in listener.upstreams.members] != list(entry.upstreams):
        listener.upstreams.move(entry.upstreams, listener.upstreams.tls)


def memory_limit_of(settings: Settings) -> int:
    """How large this process may become, in bytes."""
    found = find_limit(settings.gateway.workers)
    return found if settings.memory.limit is None else min(found, settings.memory.limit)


def watermarks_of(settings: Settings) -> tuple[int, int]:
    """`high_watermark` and `delivery_watermark` in bytes: as set, or what the process's limit leaves for them."""
    limit, memory = memory_limit_of(settings), settings.memory
    return min(memory.high_watermark, limit * HIGH_PERCENT // 100), min(memory.delivery_watermark, limit * DELIVERY_PERCENT // 100)


def disk_directory(settings: Settings) -> Path:
    return settings.spool.directory or settings.gateway.state_directory / "spool"


def disk_settings_of(settings: Settings) -> tuple[int, int, int, int]:
    """What `WaitingDisk.take_settings` takes."""
    mark = settings.disk.low_watermark
    # Half of the watermark at most: where all of it were the spool's, no publisher would be read, and nothing ever written to make room.
    target = min(settings.memory.target, watermarks_of(settings)[0] // TARGET_DIVISOR)
    return settings.spool.max_size // settings.gateway.workers, target, mark.size, mark.share


def rolling_of(settings: Settings, *, tidy: bool = True) -> Rolling:
    """When files of the access log are closed, and when none is written."""
    assert settings.access_log is not None
    every, size = settings.access_log.roll_every_ns // 1_000_000_000, settings.access_log.roll_size
    mark = settings.disk.low_watermark
    return Rolling(every, size, mark.size, mark.share, tidy=tidy)


def apply_log(handler: log.QueueHandler, before: LogSettings, after: LogSettings) -> None:
    """The log's own settings. A level that was set live stays."""
    if before.format != after.format:
        handler.take_form(after.format)
    if before.level != after.level and log.level_of(handler) == before.level:
        log.set_level(handler, after.level)
