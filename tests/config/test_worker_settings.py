"""A gateway's settings on their way to its workers: parts of its memory, and none below what the setting takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from config import load
from config.worker_settings import describe, settings_of

MIB = 1 << 20


@pytest.mark.parametrize(
    ("memory", "name", "part"),
    [
        ("{limit: 1GiB}", "limit", 512 * MIB),
        ("{limit: 64MiB}", "limit", 64 * MIB),
        ("{target: 32MiB}", "target", 16 * MIB),
        ("{target: 1MiB, per_connection: 16KiB}", "target", MIB),
        ("{high_watermark: 1MiB, per_connection: 16KiB}", "high_watermark", MIB),
        ("{delivery_watermark: 1MiB, per_connection: 16KiB}", "delivery_watermark", MIB),
    ],
)
def test_a_worker_has_its_part_of_the_memory(tmp_path: Path, memory: str, name: str, part: int) -> None:
    file = tmp_path / "sluice.yaml"
    file.write_text(
        "listeners: [{name: rabbit, protocol: amqp, bind: 127.0.0.1:1, upstream: 127.0.0.1:2}]\n"
        f"gateway: {{workers: 2}}\nmemory: {memory}\n"
    )  # fmt: skip
    assert getattr(settings_of(describe(load(str(file)))).memory, name) == part
