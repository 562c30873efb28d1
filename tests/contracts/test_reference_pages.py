"""The references in `docs/reference/`, the OpenAPI document and the schemas are what the code says now."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from gateway.close_causes import COMMON
from gateway.protocols import PROTOCOLS
from gateway.telemetry.metrics import METRICS
from support.log_calls import LOG_EVENTS

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
HINT = "it is not what the code says: run `make docs`, look at the difference, and commit it"


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("references", REFERENCE / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["references"] = module
    spec.loader.exec_module(module)
    return module


FILES = loaded().FILES


@pytest.mark.parametrize("path", FILES)
def test_a_generated_file_is_what_the_code_says(path: str) -> None:
    assert (ROOT / path).read_text() == FILES[path](), f"{path}: {HINT}"


def test_every_page_is_generated() -> None:
    assert {f"docs/reference/{page.name}" for page in REFERENCE.glob("*.md")} == {
        path for path in FILES if path.startswith("docs/reference/")
    }


@pytest.mark.parametrize("path", [path for path in FILES if path.endswith(".md")])
def test_lines_of_prose_are_short(path: str) -> None:
    lines = (ROOT / path).read_text().splitlines()
    assert [line for line in lines if len(line) > 160 and not line.startswith("|")] == []
    assert any(line.startswith(("| --- ", "|---|")) for line in lines)


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("metrics.md", METRICS),
        ("log-events.md", LOG_EVENTS),
        ("close-causes.md", {*COMMON, *(cause for protocol in PROTOCOLS.values() for cause in protocol.close_causes)}),
    ],
)
def test_every_name_has_a_row(page: str, names: set[str]) -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", (REFERENCE / page).read_text(), re.MULTILINE)) >= set(names)
