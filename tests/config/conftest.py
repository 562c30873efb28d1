"""A small good configuration, and a way to write files for one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from config import ConfigError, ConfigProblem, load

GOOD = """\
listeners:
  - {name: rabbit, protocol: amqp, bind: 127.0.0.1:5672, upstream: 127.0.0.1:5673}
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write sluice.yaml (and, by name, other files) and return its path."""

    def written(text: str | bytes = GOOD, **others: str) -> Path:
        path = tmp_path / "sluice.yaml"
        path.unlink(missing_ok=True)  # ext4 flushes a file that is truncated and written anew, which is 1 ms each time
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        for name, content in others.items():
            (tmp_path / f"{name}.yaml").write_text(content)
        return path

    return written


@pytest.fixture
def faults(write: Callable[..., Path]) -> Callable[..., list[ConfigProblem]]:
    """The problems of a configuration; the test fails where it has none."""

    def found(
        text: str | bytes, environ: dict[str, str] | None = None, flags: dict[str, str] | None = None, **others: str
    ) -> list[ConfigProblem]:
        with pytest.raises(ConfigError) as caught:
            load(write(text, **others), environ, flags)
        return caught.value.errors

    return found
