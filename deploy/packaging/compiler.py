"""Whether extensions can be compiled here: asked by setup.py, and by the build backend before mypy is fetched."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path


def obstacle() -> str | None:
    """Why no C extension can be compiled here, or None."""
    compiler = shlex.split(os.environ.get("CC", "")) or shlex.split(sysconfig.get_config_var("CC") or "") or ["cc"]
    if shutil.which(compiler[0]) is None:
        compiler = ["cc"]
    if shutil.which(compiler[0]) is None:
        return "no C compiler"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return "no Python.h (on Debian: python3-dev)"
    return cannot_compile(compiler)


def cannot_compile(compiler: list[str]) -> str | None:
    """What `compiler` says of three lines, or None: it may be there without the C library's headers, or for another processor."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "try.c")
        source.write_text("#include <Python.h>\n#include <stdio.h>\nPyObject *try(void) { return PyLong_FromLong(1); }\n")
        words = [*compiler, "-shared", "-fPIC", f"-I{sysconfig.get_path('include')}", str(source), "-o", str(Path(folder, "try.so"))]
        tried = subprocess.run(words, capture_output=True, text=True, check=False)
    said = [line for line in tried.stderr.splitlines() if "error" in line] or tried.stderr.splitlines()
    return f"{shlex.join(compiler)} cannot compile: {said[0] if said else tried.returncode}" if tried.returncode else None
