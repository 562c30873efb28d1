"""What a wheel is compiled for: an environment of each interpreter with what builds sluice, and how to compile for arm64."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final

from sources import ROOT, RefusedError

# What builds sluice and compiles it, with all they need themselves.
BUILDERS: Final = (
    "setuptools", "wheel", "packaging", "mypy", "mypy-extensions", "ast-serialize", "librt", "pathspec", "typing-extensions",
    "msgspec", "pamqp", "types-pyyaml",
)  # fmt: skip
ARM64: Final = "aarch64-linux-gnu"  # as Debian and gcc call it


def locked(*names: str) -> str:
    """The entries of deploy/requirements.lock for pip, with their hashes."""
    spec = spec_from_file_location("lock", ROOT / "deploy" / "lock.py")
    if spec is None or spec.loader is None:
        raise RefusedError("deploy/lock.py is not there")
    program: Any = module_from_spec(spec)
    spec.loader.exec_module(program)
    entries = program.read(program.REQUIREMENTS)
    return "".join(f"{entries[name].text}\n" for name in names)


def said(*words: str) -> str:
    """What a command prints. Raises RefusedError with its last words where it fails or is not there."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError as error:
        raise RefusedError(f"{words[0]}: {error.strerror}: name an interpreter by its path, or one that is on the PATH") from None
    if done.returncode:
        raise RefusedError(f"{' '.join(words[:4])} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-1500:]}")
    return done.stdout.strip()


def builder(python: str, folder: Path) -> str:
    """The Python of an environment of `python` in `folder`, with what builds sluice by the hashes of the lock.

    The one that runs this has it. For another one the environment is made at the first call, from the package index, and whenever the lock
    or the interpreter has changed. Raises RefusedError: it is no Python of 3.11 or newer, has no headers, or pip could not.
    """
    if python == sys.executable:
        return python
    asked = "import sys, sysconfig; print(sys.implementation.cache_tag, sysconfig.get_path('include'), sys.version)"
    tag, headers, release = said(python, "-c", asked).split(maxsplit=2)
    if tuple(map(int, release.split(".")[:2])) < (3, 11):
        raise RefusedError(f"{python} is Python {release.split()[0]}: sluice needs 3.11 or newer")
    if not Path(headers, "Python.h").exists():
        raise RefusedError(
            f"{python} has no Python.h in {headers}: install its headers (on Debian python3-dev), or name another interpreter"
        )
    wanted = locked(*BUILDERS)
    stamp = hashlib.sha256(f"{python} {release}\n{wanted}".encode()).hexdigest()
    place = folder / f"builders-{tag}"
    if not (place / "stamp").exists() or (place / "stamp").read_text() != stamp:
        shutil.rmtree(place, ignore_errors=True)
        said(python, "-m", "venv", str(place))
        (place / "builders.txt").write_text(wanted)
        pip = [str(place / "bin/python"), "-m", "pip", "--disable-pip-version-check", "--quiet"]
        said(*pip, "install", "--no-deps", "--require-hashes", "--only-binary", ":all:", "-r", str(place / "builders.txt"))
        (place / "stamp").write_text(stamp)
    return str(place / "bin/python")


def for_arm64(root: Path, work: Path) -> Mapping[str, str]:
    """What makes the Python that runs this compile for arm64's one of the same version, which is unpacked in `root` (arm64.sh).

    The compiler, its options and the name of what it makes are those of arm64's Python, as its own build has left them; mypyc's C is the
    same for both. Raises RefusedError: the interpreters differ, or there is no such compiler.
    """
    number = f"{sys.version_info.major}.{sys.version_info.minor}"
    described = root / f"usr/lib/python{number}/_sysconfigdata__{ARM64}.py"
    headers = root / f"usr/include/{ARM64}/python{number}"
    if not described.exists() or not headers.exists():
        raise RefusedError(
            f"{root} has no Python {number} for arm64: Debian 12 has 3.11, run this with Debian's python3.11 (PYTHON=/usr/bin/python3.11)"
        )
    if shutil.which(f"{ARM64}-gcc") is None:
        raise RefusedError(f"{ARM64}-gcc is not there: on Debian, install gcc-{ARM64} and libc6-dev-arm64-cross")
    (work / "described").mkdir(parents=True)
    shutil.copy(described, work / "described")
    shutil.copytree(headers, work / "include" / ARM64 / f"python{number}")  # alone: the C library's headers are the compiler's own
    return {
        "PYTHONPATH": str(work / "described"),
        "_PYTHON_SYSCONFIGDATA_NAME": f"_sysconfigdata__{ARM64}",
        "_PYTHON_HOST_PLATFORM": "linux-aarch64",
        "CPATH": str(work / "include"),
        "CC": f"{ARM64}-gcc",
    }
