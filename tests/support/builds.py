"""Which build of the gateway is under test: the compiled wheel or the source tree."""

from __future__ import annotations

import importlib.util

NATIVE = (".so", ".pyd")


def build_of(module: str) -> tuple[str, str]:
    """("compiled" or "python", where it was found)."""
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        return "missing", ""
    return ("compiled" if found.origin.endswith(NATIVE) else "python"), found.origin
