"""Lets tests, benchmarks and fuzzers run on the wheel that users get: `limiter.keys` is `sluice.limiter.keys`, the same module, not a copy.

`make install` puts this file into .venv, with a `.pth` that loads it (`python sluice_source_names.py`: into that Python's
environment). A source tree on the path comes first. It is no part of the wheel. Every start in .venv runs it, so it imports little.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import CodeType, ModuleType
from typing import Any

PACKAGES = ("admin", "cli", "common", "config", "control_plane", "gateway", "limiter", "spark_jobs")


class _Alias:
    def __init__(self, real: ModuleSpec) -> None:
        self._real = real
        self._kept: dict[str, Any] = {}

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._real.name)
        self._kept = {name: value for name, value in vars(module).items() if name in {"__spec__", "__loader__", "__package__"}}
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It has run already. Importing has set what belongs to the alias; put back what belongs to the module.

        Modules that it has imported get their aliases now. Were they made later, importing would bind them in their package, over a
        function of that name which the package has taken from them (`config.schema`).
        """
        vars(module).update(self._kept)
        for name, loaded in list(sys.modules.items()):
            if name.startswith(f"{self._real.name}."):
                sys.modules.setdefault(name.removeprefix("sluice."), loaded)

    def get_code(self, fullname: str) -> CodeType | None:
        """For `python -m cli.main`."""
        loader: Any = self._real.loader
        code: CodeType | None = loader.get_code(self._real.name)
        return code


def _is_nowhere_else(package: str) -> bool:
    """A folder without `__init__.py`, as tests/gateway is, does not count: Python would prefer a package to it, too."""
    elsewhere = PathFinder.find_spec(package)
    return elsewhere is None or elsewhere.loader is None or elsewhere.origin is None


def _is_ours(package: str) -> bool:
    return package in sys.modules and sys.modules[package].__name__ == f"sluice.{package}"


class Finder:
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        top, _, below = fullname.partition(".")
        if top not in PACKAGES or not (_is_ours(top) if below else _is_nowhere_else(top)):
            return None
        try:
            real = find_spec(f"sluice.{fullname}")
        except ModuleNotFoundError:  # no sluice is installed
            return None
        if real is None:
            return None
        loader: Any = _Alias(real)
        spec = ModuleSpec(fullname, loader, origin=real.origin, is_package=real.submodule_search_locations is not None)
        spec.has_location = real.has_location
        return spec


if __name__ == "__main__":
    import shutil
    import sysconfig
    from pathlib import Path

    site_packages = Path(sysconfig.get_path("purelib"))
    shutil.copy(__file__, site_packages)
    (site_packages / "sluice_source_names.pth").write_text("import sluice_source_names\n")
else:
    sys.meta_path.insert(0, Finder())  # before who finds tests/gateway
