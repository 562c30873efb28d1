"""A gateway's settings on their way to its workers: as JSON, which is YAML, read there like a configuration file."""

from __future__ import annotations

import json
import os
from typing import Final, cast

from config.load import load
from config.settings import Settings

MIB: Final = 1 << 20
LEAST: Final = {"limit": 64 * MIB}  # bytes; what a setting of `memory` takes at least, if not 1 MiB


def describe(settings: Settings) -> str:
    """All that a worker needs of `settings`. The rules go separately (`workers.rules`)."""
    shown = settings.describe()
    for name in ("rules", "rules_file", "webhooks"):  # the parent alone posts to webhooks
        shown.pop(name, None)
    memory = settings.memory
    workers = settings.gateway.workers
    parts = {
        "high_watermark": memory.high_watermark, "delivery_watermark": memory.delivery_watermark, "target": memory.target,
        "limit": memory.limit,
    }  # fmt: skip
    shown["memory"] = {
        **cast("dict[str, object]", shown["memory"]),
        **{
            name: f"{max(size // workers, memory.per_connection, LEAST.get(name, MIB)) // 1024}KiB"
            for name, size in parts.items() if size is not None
        },
    }  # fmt: skip
    tracing = settings.tracing
    if tracing is not None:
        spans = max(1, tracing.max_per_second // settings.gateway.workers)
        whole = {"endpoint": tracing.endpoint, "max_per_second": spans}  # the URL itself, of which only a part is shown
        shown["tracing"] = {**cast("dict[str, object]", shown["tracing"]), **whole}
    if settings.fleet is not None:
        redis = cast("dict[str, object]", cast("dict[str, object]", shown["fleet"])["redis"])
        shown["fleet"] = {"redis": {**redis, "url": settings.fleet.redis.url}}  # the same
    return json.dumps(shown)


def settings_of(text: str) -> Settings:
    """The inverse of `describe`. Raises ConfigError. Files that it names are not looked at: the parent has done so, and they may hang."""
    descriptor = os.memfd_create("settings")
    with os.fdopen(descriptor, "wb", closefd=True) as file:
        file.write(text.encode())
        file.flush()
        return load(f"/proc/self/fd/{descriptor}", files=False)
