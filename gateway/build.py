"""Which build of the product runs: its version, and whether the hot modules are compiled."""

from __future__ import annotations

import platform
from functools import cache
from importlib import metadata
from typing import NamedTuple

from limiter import judge


class Build(NamedTuple):
    version: str
    kind: str  # "compiled" or "pure Python"
    python: str


@cache
def build() -> Build:
    try:
        version = metadata.version("sluice-gateway")
    except metadata.PackageNotFoundError:  # run from a source tree that was never installed
        version = "0+source"
    kind = "pure Python" if (judge.__file__ or "").endswith(".py") else "compiled"
    return Build(version, kind, platform.python_version())
