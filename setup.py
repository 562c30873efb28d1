"""Builds one package `sluice` of the sources, and compiles its hot modules with mypyc when that is possible.

Everything else about the package stands in pyproject.toml; how the sources become one package, in deploy/packaging/one_package.py.

`SLUICE_COMPILE=0` builds pure Python, `SLUICE_COMPILE=1` fails where compiling is impossible; unset, it compiles when mypyc and a C
compiler are there and work, and says so when not. The source runs the same either way (`sluice version` tells which one runs).
"""

from __future__ import annotations

import os
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
LAID_OUT = "build/one_package"  # what is built: the sources under `sluice`
LIBRARY = "sluice.native"  # all compiled modules in one library; a module of this name finds them there
NEEDED = ("mypyc", "librt", "mypy_extensions", "msgspec", "pamqp", "yaml-stubs")  # to compile: mypyc, and the types of what is imported
sys.path.insert(0, str(ROOT / "deploy" / "packaging"))  # a build in an environment of its own has not this folder on its path
import compiler  # noqa: E402
from git_version import FILE, read_version, stamp  # noqa: E402
from native import NativeLibrary  # noqa: E402
from one_package import lay_out  # noqa: E402


def hot_modules() -> list[str]:
    """The modules `[tool.sluice]` compiles, as paths relative to the root. `__init__` modules stay Python."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["sluice"]
    found = {str(path.relative_to(ROOT)) for pattern in listed["compiled"] for path in ROOT.glob(pattern)}
    unknown = set(listed["interpreted"]) - found
    if unknown:
        raise SystemExit(f"pyproject.toml, [tool.sluice] interpreted: {', '.join(sorted(unknown))}: no such module is compiled")
    return sorted(path for path in found - set(listed["interpreted"]) if not path.endswith("__init__.py"))


def missing_to_compile() -> str | None:
    """Why compiling is impossible here, or None."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    return compiler.obstacle() or (f"{', '.join(missing)} not installed" if missing else None)


class BuildNative(build_ext):
    """Compiles the hot modules. They share one library, so some of them are no use without the others: all, or pure Python."""

    def run(self) -> None:
        self.built: list[Path] = []
        for written in (*Path(self.build_lib).rglob("*.so"), Path(self.build_lib, *LIBRARY.split(".")).with_suffix(".py")):
            written.unlink(missing_ok=True)  # modules may not be compiled any more
        try:
            super().run()
        except (Exception, SystemExit) as error:  # mypyc ends with SystemExit, and has printed what is wrong
            if os.environ.get("SLUICE_COMPILE") == "1":
                raise
            print(f"sluice: building pure Python (compiling failed: {error})", file=sys.stderr)

    def build_extensions(self) -> None:
        library = NativeLibrary(LIBRARY, Path("build"), self.compiler, self.include_dirs)
        self.built = library.build([f"sluice/{path}" for path in hot_modules()], Path(LAID_OUT), Path(self.build_lib))

    def get_outputs(self) -> list[str]:
        return [str(path) for path in self.built]


class StampedSources(sdist):
    """A source distribution has no git: the version stands in it."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        place = Path(base_dir, FILE)
        stamped = stamp(place.read_text(), read_version(ROOT))
        place.unlink()  # it may be a hard link to the source
        place.write_text(stamped)


def extensions() -> list[Extension]:
    """What tells setuptools that something is compiled here; BuildNative does it."""
    wanted = os.environ.get("SLUICE_COMPILE", "")
    reason = "SLUICE_COMPILE=0" if wanted == "0" else missing_to_compile()
    if reason is None:
        return [Extension(f"{LIBRARY}__mypyc", [])]
    if wanted == "1":
        raise SystemExit(f"SLUICE_COMPILE=1, but compiling is impossible: {reason}")
    print(f"sluice: building pure Python ({reason})", file=sys.stderr)
    return []


os.chdir(ROOT)
os.umask(0o022)  # modes of files are in the wheel
lay_out(Path(LAID_OUT))
setup(
    packages=find_packages(LAID_OUT),
    package_dir={"": LAID_OUT},
    ext_modules=extensions(),
    cmdclass={"build_ext": BuildNative, "sdist": StampedSources},
    options={"egg_info": {"egg_base": "build"}},
)
