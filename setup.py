"""Compiles the hot modules with mypyc when that is possible; everything else about the package stands in pyproject.toml.

`SLUICE_COMPILE=0` builds pure Python, `SLUICE_COMPILE=1` fails where compiling is impossible; unset, it compiles when mypyc and a C
compiler are there and says so when they are not. The source runs the same either way (`sluice version` tells which one runs).
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

from setuptools import setup

ROOT = Path(__file__).parent


def hot_modules() -> list[str]:
    """The modules `[tool.sluice] compiled` names, as paths relative to the root. `__init__` modules stay Python."""
    globs = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["sluice"]["compiled"]
    found = {str(path.relative_to(ROOT)) for pattern in globs for path in ROOT.glob(pattern)}
    return sorted(path for path in found if not path.endswith("__init__.py"))


def obstacle() -> str | None:
    """Why compiling is impossible here, or None."""
    compiler = os.environ.get("CC", sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None and shutil.which("cc") is None:
        return "no C compiler"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return "no Python.h (on Debian: python3-dev)"
    try:
        import mypyc.build  # noqa: F401
    except ImportError:
        return "mypyc is not installed"
    return None


def extensions() -> list[Any]:
    wanted = os.environ.get("SLUICE_COMPILE", "")
    reason = "SLUICE_COMPILE=0" if wanted == "0" else obstacle()
    if reason is not None:
        if wanted == "1":
            raise SystemExit(f"SLUICE_COMPILE=1, but compiling is impossible: {reason}")
        print(f"sluice: building pure Python ({reason})", file=sys.stderr)
        return []
    from mypyc.build import mypycify

    # Level 3 makes the code larger, which then misses the instruction cache a third more often: nothing is gained (2026-11).
    built = mypycify([*hot_modules()], opt_level="2", group_name="sluice")
    for extension in built:
        # All modules are one library: without this the compiler must call its own functions through the linker's table and may inline none.
        extension.extra_compile_args = [*extension.extra_compile_args, "-fno-semantic-interposition"]  # mypycify gives all of them one list
    return list(built)


os.chdir(ROOT)
setup(ext_modules=extensions())
