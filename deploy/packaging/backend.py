"""The build backend: setuptools', which asks for mypyc and what it needs only where a C compiler is there and is wanted.

So `pip install` of the source distribution on a machine without a compiler fetches none of it. The list is `[tool.sluice] compilers`.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

from compiler import obstacle
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = (
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
)


def get_requires_for_build_wheel(config_settings: object = None) -> list[str]:
    """What must be installed besides `[build-system] requires`; nothing where pure Python is built (PEP 517)."""
    wanted = os.environ.get("SLUICE_COMPILE", "")
    if wanted == "0" or (wanted != "1" and obstacle() is not None):
        return []
    described = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
    return list(described["tool"]["sluice"]["compilers"])


get_requires_for_build_editable = get_requires_for_build_wheel


def get_requires_for_build_sdist(config_settings: object = None) -> list[str]:
    return []
