"""What is also written in C (`deploy/packaging/native.py`), as the Python beside it: what the C is held to."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def python_twin(path: str) -> ModuleType:
    """The module at `path`, of the source tree, as Python, whatever build is installed."""
    spec = spec_from_file_location(path.removesuffix(".py").replace("/", "_"), ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
