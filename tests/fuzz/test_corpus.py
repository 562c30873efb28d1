"""Every input of the committed corpus, and every one that ever crashed, through its fuzz target (`run.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz.targets import TARGETS

from support.cases import cases

HERE = Path(__file__).parent


def inputs(folder: str, name: str) -> list[Path]:
    return sorted((HERE / folder / name).glob("*"))


@pytest.mark.parametrize("name", TARGETS)
def test_every_input_is_replayed(name: str) -> None:
    assert inputs("corpus", name), "a target without a corpus"
    with cases() as case:
        for path in (*inputs("corpus", name), *inputs("crashes", name)):
            with case(path.relative_to(HERE)):
                TARGETS[name](path.read_bytes())


def test_every_folder_of_inputs_is_a_targets() -> None:
    assert {path.name for folder in ("corpus", "crashes") for path in (HERE / folder).glob("*/")} <= set(TARGETS)
