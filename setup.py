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
# What compiled code calls where something went wrong, or where an integer is beyond 62 bits.
RARE = (
    "CPy_AddTraceback", "CPy_TypeErrorTraceback", "CPy_AttributeError", "CPy_TypeError", "CPyError_OutOfMemory",
    "PyErr_SetString", "PyErr_SetNone", "PyErr_Format",
    "CPyTagged_IncRef", "CPyTagged_DecRef", "CPyTagged_XDecRef", "CPyTagged_IsEq_", "CPyTagged_IsLt_", "CPyTagged_FromInt64",
    "CPyTagged_Add_", "CPyTagged_Subtract_", "CPyTagged_Multiply_", "CPyTagged_FloorDivide_", "CPyTagged_Remainder_", "CPyLong_AsInt64_",
)  # fmt: skip


def hot_modules() -> list[str]:
    """The modules `[tool.sluice]` compiles, as paths relative to the root. `__init__` modules stay Python."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["sluice"]
    found = {str(path.relative_to(ROOT)) for pattern in listed["compiled"] for path in ROOT.glob(pattern)}
    unknown = set(listed["interpreted"]) - found
    if unknown:
        raise SystemExit(f"pyproject.toml, [tool.sluice] interpreted: {', '.join(sorted(unknown))}: no such module is compiled")
    return sorted(path for path in found - set(listed["interpreted"]) if not path.endswith("__init__.py"))


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


def rarely_called() -> str:
    """The path of a header that tells the compiler what is called rarely, so that it keeps the code around these calls out of the way.

    mypyc checks nearly every step for an error and has the handling of it in between: a third of the code that a message brings into the
    processor's cache is never run. With this AMQP's confirms cost 0.87 to 0.93 of what they did, all else the same or less (2026-11).
    """
    from mypyc.build import include_dir

    declared = (Path(include_dir()) / "CPy.h").read_text()
    known = [name for name in RARE if name.startswith("PyErr_") or f"{name}(" in declared]  # mypyc's may be called otherwise one day
    header = ROOT / "build" / "rarely_called.h"
    header.parent.mkdir(exist_ok=True)
    lines = ["#define PY_SSIZE_T_CLEAN", "#include <Python.h>", '#include "CPy.h"']
    lines += [f"__typeof__({name}) {name} __attribute__((cold));" for name in known]
    text = "\n".join(lines) + "\n"
    if not header.exists() or header.read_text() != text:  # what is newer is compiled again
        header.write_text(text)
    return str(header)


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
        if extension.name.endswith("__mypyc"):  # the library; the others only load it
            header = rarely_called()
            extension.extra_compile_args += ["-include", header]
            extension.depends = [*extension.depends, header]
    return list(built)


os.chdir(ROOT)
setup(ext_modules=extensions())
