"""Which build of the product runs: its version, and whether the hot modules are compiled."""

from __future__ import annotations

import platform
from functools import cache
from typing import Final, NamedTuple

from limiter import judge

VERSION: Final = "0.2.0"  # pyproject.toml reads it here; asking importlib.metadata for it costs a running gateway 2 MB


class Build(NamedTuple):
    version: str
    kind: str  # "compiled" or "pure Python"
    python: str


@cache
def build() -> Build:
    kind = "pure Python" if (judge.__file__ or "").endswith(".py") else "compiled"
    return Build(VERSION, kind, platform.python_version())
