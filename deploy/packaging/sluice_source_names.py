"""Lets tests, benchmarks and fuzzers run on the wheel that users get: `limiter.keys` is `sluice.limiter.keys`, the same module, not a copy.

`make install` puts this file into .venv, with a `.pth` that loads it (`python sluice_source_names.py`: into that Python's
environment). It is asked last, so a source tree on the path comes first. It is no part of the wheel.
"""

from __future__ import annotations

import importlib
import shutil
import sys
import sysconfig
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

PACKAGES = ("admin", "gateway", "limiter", "spark_jobs")


class _Alias(Loader):
    def __init__(self, real: ModuleSpec) -> None:
        self._real = real
        self._kept: dict[str, Any] = {}

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._real.name)
        self._kept = {name: value for name, value in vars(module).items() if name in {"__spec__", "__loader__", "__package__"}}
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It has run already. Importing has set what belongs to the alias; put back what belongs to the module."""
        vars(module).update(self._kept)

    def get_code(self, fullname: str) -> CodeType | None:
        """For `python -m gateway.cli.main`."""
        loader: Any = self._real.loader
        code: CodeType | None = loader.get_code(self._real.name)
        return code


class Finder(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in PACKAGES:
            return None
        try:
            real = find_spec(f"sluice.{fullname}")
        except ModuleNotFoundError:  # no sluice is installed
            return None
        if real is None:
            return None
        spec = ModuleSpec(fullname, _Alias(real), origin=real.origin, is_package=real.submodule_search_locations is not None)
        spec.has_location = real.has_location
        return spec


if __name__ == "__main__":
    site_packages = Path(sysconfig.get_path("purelib"))
    shutil.copy(__file__, site_packages)
    (site_packages / "sluice_source_names.pth").write_text("import sluice_source_names\n")
else:
    sys.meta_path.append(Finder())
