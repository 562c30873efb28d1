"""Which build of the product runs: its version, the commit it was made of, and whether the hot modules are compiled."""

from __future__ import annotations

import platform
from functools import cache
from typing import Final, NamedTuple

from limiter import topics

# The release that the work leads to. A build has its own version and commit here, which deploy/packaging/git_version.py writes; the running
# gateway does not ask importlib.metadata, which costs 2 MB.
VERSION: Final = "0.3.0"
TAG: Final = ""  # the newest release among the commits
COMMITS: Final = ""  # number of commits since that tag, or, without one, of all
COMMIT: Final = ""


class Build(NamedTuple):
    version: str
    kind: str  # "compiled" or "pure Python"
    python: str


@cache
def build() -> Build:
    kind = "pure Python" if (topics.__file__ or "").endswith(".py") else "compiled"
    return Build(VERSION, kind, platform.python_version())


COMPILED: Final = build().kind == "compiled"
