"""Builds one package `sluice` of the sources, and compiles its hot modules with mypyc when that is possible.

Everything else about the package stands in pyproject.toml; how the sources become one package, in deploy/packaging/one_package.py.

`SLUICE_COMPILE=0` builds pure Python, `SLUICE_COMPILE=1` fails where compiling is impossible; unset, it compiles when mypyc and a C
compiler are there and work, and says so when not. The source runs the same either way (`sluice version` tells which one runs).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from setuptools import find_packages, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
LAID_OUT = "build/one_package"  # what is built: the sources under `sluice`
LIBRARY = "sluice.native"  # all compiled modules in one library; a module beside each loads it
NEEDED = ("mypyc", "librt", "mypy_extensions", "msgspec", "pamqp", "yaml-stubs")  # to compile: mypyc, and the types of what is imported
sys.path.insert(0, str(ROOT / "deploy" / "packaging"))  # a build in an environment of its own has not this folder on its path
from one_package import lay_out  # noqa: E402

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
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed"
    return cannot_compile(compiler if shutil.which(compiler) is not None else "cc")


def cannot_compile(compiler: str) -> str | None:
    """What `compiler` says of three lines, or None: it may be there without the C library's headers, or for another processor."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "try.c")
        source.write_text("#include <Python.h>\n#include <stdio.h>\nPyObject *try(void) { return PyLong_FromLong(1); }\n")
        words = [compiler, "-shared", "-fPIC", f"-I{sysconfig.get_path('include')}", str(source), "-o", str(Path(folder, "try.so"))]
        tried = subprocess.run(words, capture_output=True, text=True, check=False)
    said = [line for line in tried.stderr.splitlines() if "error" in line] or tried.stderr.splitlines()
    return f"{compiler} cannot compile: {said[0] if said else tried.returncode}" if tried.returncode else None


class AllOrNothing(build_ext):
    """Compiled modules share one library, so some of them are no use without the others: what fails is built as pure Python."""

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:
            if os.environ.get("SLUICE_COMPILE") == "1":
                raise
            print(f"sluice: building pure Python (compiling failed: {error})", file=sys.stderr)
            for library in Path(self.build_lib).rglob("*.so"):
                library.unlink()

    def get_outputs(self) -> list[str]:
        return [path for path in super().get_outputs() if Path(path).exists()]


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
    try:
        os.chdir(ROOT / LAID_OUT)  # modules are called by their paths from here, also in tracebacks
        built = mypycify([f"sluice/{path}" for path in hot_modules()], opt_level="2", group_name=LIBRARY, target_dir=str(ROOT / "build"))
    except SystemExit as error:  # mypyc has printed what is wrong
        if wanted == "1":
            raise
        print(f"sluice: building pure Python (mypyc ended with {error.code})", file=sys.stderr)
        return []
    finally:
        os.chdir(ROOT)
    for extension in built:
        for name in ("sources", "depends", "include_dirs"):  # from the root: the same wherever that is
            paths = [os.path.relpath(path) if Path(path).is_relative_to(ROOT) else path for path in getattr(extension, name)]
            setattr(extension, name, paths)
        # To look for what to warn of takes gcc 12 two thirds of its time, and in code that a program has written that helps nobody.
        extension.extra_compile_args = [*extension.extra_compile_args, "-Wno-all"]
        # Whose library and version this is must not depend on where it was built.
        extension.extra_compile_args = [*extension.extra_compile_args, f"-ffile-prefix-map={ROOT}=."]
        # All modules are one library: without this the compiler must call its own functions through the linker's table and may inline none.
        extension.extra_compile_args = [*extension.extra_compile_args, "-fno-semantic-interposition"]  # mypycify gives all of them one list
        if extension.name.endswith("__mypyc"):  # the library; the others only load it
            header = rarely_called()
            extension.extra_compile_args += ["-include", header]
            extension.depends = [*extension.depends, header]
    return list(built)


os.chdir(ROOT)
os.umask(0o022)  # modes of files are in the wheel
lay_out(Path(LAID_OUT))
setup(
    packages=find_packages(LAID_OUT),
    package_dir={"": LAID_OUT},
    ext_modules=extensions(),
    cmdclass={"build_ext": AllOrNothing},
    options={"egg_info": {"egg_base": "build"}},
)
