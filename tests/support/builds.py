"""Which build of the gateway is under test: the compiled wheel or the source tree."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from pathlib import Path
from typing import Final

NATIVE = (".so", ".pyd")
SOURCES: Final = Path(__file__).parents[2]


def build_of(module: str) -> tuple[str, str]:
    """("compiled" or "python", where it was found)."""
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        return "missing", ""
    return ("compiled" if found.origin.endswith(NATIVE) else "python"), found.origin


def from_the_source_tree(module: str) -> bool:
    package, _, _ = module.partition(".")
    return Path(build_of(module)[1]).is_relative_to(SOURCES / package)


def source_command() -> str:
    """The `sluice` of the source tree, as SLUICE_COMMAND has it; nothing needs to be installed but what it depends on."""
    return shlex.join(["env", f"PYTHONPATH={SOURCES}", sys.executable, "-m", "cli.main"])
