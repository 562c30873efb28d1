"""Python environments of their own for what does not fit beside our own packages, kept under build/ and made only once.

Client libraries pin versions that exclude each other (aiormq and AMQPStorm want different pamqp), and a third-party suite must not see
newer packages than it was pinned to: each gets a virtual environment. uv makes it in 1 CPU-s where venv and pip take 9 (measured); where uv
is not there, or cannot fetch, as where only pip.conf names the index, they do.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from support.processes import HANG_S
from support.ran import ran

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / "environments"
SOURCES = ROOT / "build" / "sources"


class PackagesUnreachableError(RuntimeError):
    """pip could not fetch or build what was asked for; the message carries pip's own words."""


def _pip(python: Path | str, *words: str, what: str) -> None:
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        raise PackagesUnreachableError(f"{what}: pip ended with {done.returncode}: {(done.stdout + done.stderr).strip()[-1500:]}")


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Whoever comes second, on another thread or in another process, waits until the first has made `folder`."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def environment(name: str, *requirements: str | Path) -> Path:
    """The Python of the environment `name`, with `requirements` (pinned words for pip, or source folders) installed.

    Made at the first call and whenever the requirements change. Raises PackagesUnreachableError.
    """
    folder = CACHE / name
    python = folder / "bin" / "python"
    stamp = folder / "requirements"
    wanted = "\n".join([sys.version, *map(str, requirements)])
    for library, version in (word.split("==") for word in map(str, requirements) if "==" in word):
        ran(library, version)
    with one_at_a_time(folder):
        if stamp.exists() and stamp.read_text() == wanted:
            return python
        shutil.rmtree(folder, ignore_errors=True)
        if not _made_by_uv(folder, requirements):
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=HANG_S)
            _pip(python, "install", *map(str, requirements), what=f"the environment {name} ({' '.join(map(str, requirements))})")
        stamp.write_text(wanted)
    return python


def _made_by_uv(folder: Path, requirements: Sequence[str | Path]) -> bool:
    uv = Path(sys.executable).with_name("uv")
    install = ["pip", "install", "--quiet", "--system-certs", "--compile-bytecode", "--python", str(folder / "bin" / "python")]
    for words in (["venv", "--quiet", "--python", sys.executable, str(folder)], [*install, *map(str, requirements)]):
        if not uv.exists() or subprocess.run([str(uv), *words], capture_output=True, check=False, timeout=600).returncode:
            return False
    return True


def source(project: str, version: str) -> Path:
    """The unpacked source distribution of `project` at exactly `version`, as PyPI has it. Raises PackagesUnreachableError."""
    folder = SOURCES / f"{project}-{version}"
    with one_at_a_time(folder):
        return folder if folder.exists() else _fetched(project, version, folder)


def _fetched(project: str, version: str, folder: Path) -> Path:
    scratch = SOURCES / f"{project}-{version}.{os.getpid()}"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        words = ["download", "--no-deps", "--no-binary", project, "--dest", str(scratch), f"{project}=={version}"]
        _pip(sys.executable, *words, what=f"the source distribution of {project} {version}")
        (archive,) = scratch.glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extraction_filter = getattr(tarfile, "data_filter", None)  # Debian's 3.11.2 has none yet
            packed.extractall(scratch)
        archive.unlink()
        (unpacked,) = scratch.iterdir()
        unpacked.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder
