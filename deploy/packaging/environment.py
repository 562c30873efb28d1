"""A Python environment of sluice's own, as a folder: what the Debian package and the container image have under /usr/lib/sluice.

The dependencies are those of the environment that runs this, file by file: pip has installed them by the hashes of the lock, and that they
are the locked versions is checked. So nothing is fetched.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Collection, Iterable
from importlib import metadata
from pathlib import Path
from typing import Final

from dependencies import dependencies
from sources import RefusedError

PREFIX: Final = "/usr/lib/sluice"
EXTRAS: Final = ("zstd", "redis")  # small, and what a gateway may want: 8 MB
COMMAND: Final = """#!{python}
import sys

from sluice.cli.main import main

sys.exit(main())
"""


def environment(folder: Path, wheel: Path, interpreter: str, prefix: str = PREFIX, extras: Collection[str] = EXTRAS) -> Path:
    """Lay out, in the new `folder`, what is to stand in `prefix`. `interpreter`: of the machine it will run on, as /usr/bin/python3.11.

    Raises ValueError where the wheel or a dependency is not for that Python.
    """
    version = Path(interpreter).name.removeprefix("python")
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if version != here:
        raise ValueError(f"dependencies of Python {here} do not run on {interpreter}: run this by that version")
    tag = f"cp{version.replace('.', '')}"
    if not wheel.name.endswith("-none-any.whl") and f"-{tag}-" not in wheel.name:
        raise ValueError(f"{wheel.name} is for another Python than {version}")
    site = folder / "lib" / f"python{version}" / "site-packages"
    site.mkdir(parents=True)
    for each in dependencies(extras):
        _copy(each.name, site)
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)
    programs = folder / "bin"
    programs.mkdir()
    up = "../" * len(Path(f"{prefix}/bin").relative_to("/usr").parts)
    (programs / "python3").symlink_to(up + interpreter.removeprefix("/usr/"))  # of the machine that gets it, not of this one
    (programs / "sluice").write_text(COMMAND.format(python=f"{prefix}/bin/python3"))
    (folder / "pyvenv.cfg").write_text(f"home = {Path(interpreter).parent}\ninclude-system-site-packages = false\nversion = {version}\n")
    repaired = {path.stem for path in site.glob("*.libs")}  # auditwheel has moved their segments about: stripped, they no longer load
    _strip(path for path in site.rglob("*.so*") if path.relative_to(site).parts[0].removesuffix(".libs") not in repaired)
    for path in folder.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)  # Spark has programs of its own
    return folder


def _copy(name: str, site: Path) -> None:
    distribution = metadata.distribution(name)
    base = Path(str(distribution.locate_file("")))
    for file in distribution.files or []:
        source = Path(str(file.locate()))
        if ".." in file.parts or "__pycache__" in file.parts or file.name in {"RECORD", "direct_url.json"} or "tests" in file.parts:
            continue  # commands of others, what this machine has compiled, and what names it
        target = site / source.relative_to(base)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def _strip(libraries: Iterable[Path]) -> None:
    found = [str(path) for path in libraries]
    if found and shutil.which("strip") is None:
        raise RefusedError("there is no `strip` (Debian: binutils), and without it the files would differ from another machine's")
    if found:
        subprocess.run(["strip", "--strip-unneeded", "--remove-section=.comment", "--remove-section=.note", *found], check=True)
