"""Every input of the committed corpus, and every one that ever crashed, through its fuzz target (`run.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz.targets import TARGETS

HERE = Path(__file__).parent
INPUTS = sorted(path for folder in ("corpus", "crashes") for path in (HERE / folder).glob("*/*"))


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_has_a_corpus(name: str) -> None:
    assert any((HERE / "corpus" / name).iterdir())


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: str(path.relative_to(HERE)))
def test_replayed(path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes())
