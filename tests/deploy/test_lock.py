"""The lock files: all that pyproject.toml asks for, at versions that it allows, with hashes, and nothing of where it comes from."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from support.cases import in_one_loop

ROOT = Path(__file__).parents[2]


def program() -> Any:
    """deploy/lock.py: without the source tree in the path `deploy` is the folder of these tests."""
    spec = importlib.util.spec_from_file_location("lock", ROOT / "deploy" / "lock.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


lock = program()
DESCRIBED = tomllib.loads((ROOT / "pyproject.toml").read_text())
BUILDING = [*DESCRIBED["build-system"]["requires"], *DESCRIBED["tool"]["sluice"]["compilers"]]
WANTED = sorted(
    {
        *BUILDING,
        *DESCRIBED["project"]["dependencies"],
        *(text for extra in DESCRIBED["project"]["optional-dependencies"].values() for text in extra),
    }
)
FILES = (lock.REQUIREMENTS, lock.TOOLS)


@in_one_loop
@pytest.mark.parametrize("text", WANTED)
def test_what_pyproject_asks_for_is_locked_within_its_range(text: str) -> None:
    wanted = Requirement(text)
    locked = lock.read(lock.REQUIREMENTS)
    assert lock.normal(wanted.name) in locked, "make lock"
    version = locked[lock.normal(wanted.name)].version
    assert wanted.specifier.contains(version, prereleases=True), f"{version} is locked: make lock"


@pytest.mark.parametrize("line", [line for line in (lock.HERE / "tools.in").read_text().splitlines() if not line.startswith("#")])
def test_tools_are_locked_within_their_ranges(line: str) -> None:
    wanted = Requirement(line)
    assert wanted.specifier.contains(lock.read(lock.TOOLS)[lock.normal(wanted.name)].version, prereleases=True)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_entry_has_hashes(file: Path) -> None:
    locked = lock.read(file)
    assert locked
    assert all(entry.hashes for entry in locked.values()), [entry.name for entry in locked.values() if not entry.hashes]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_no_index_is_named(file: Path) -> None:
    text = file.read_text()
    assert "://" not in text
    assert "index" not in text.partition("==")[0]


def test_entries_are_picked_with_all_their_hashes() -> None:
    entry = lock.read(lock.REQUIREMENTS)["setuptools"]
    assert entry.text.startswith(f"setuptools=={entry.version} \\\n    --hash=sha256:")
    assert entry.text.count("--hash=") == entry.hashes
    assert not entry.text.endswith("\\")


def test_a_part_has_all_that_it_needs_and_nothing_else() -> None:
    locked = lock.read(lock.REQUIREMENTS)
    assert lock.with_needed(locked, {"pyspark"}) == {"pyspark", "py4j"}
    assert lock.with_needed(locked, {"pytest-trio"}) >= {"pytest-trio", "trio", "attrs", "pytest", "iniconfig"}
    parts = [["redis", "zstd", "otel", "ship", "compact", "dev"], ["spark", "dev-spark"], ["dev-docs"]]  # the Makefile's
    asked = [[*BUILDING, *DESCRIBED["project"]["dependencies"]]]
    asked += [[text for extra in part for text in DESCRIBED["project"]["optional-dependencies"][extra]] for part in parts]
    needed = [lock.with_needed(locked, {lock.normal(Requirement(text).name) for text in texts}) for texts in asked]
    assert set().union(*needed) == locked.keys()
    assert not (needed[0] | needed[1]) & {"pyspark", "pandas", "duckdb", "sphinx", "docutils"}


def test_anything_else_in_a_lock_file_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "requirements.lock"
    file.write_text("# remark\ntrio==0.35.0 \\\n    --hash=sha256:" + "0" * 64 + "\nh11>=0.16\n")
    with pytest.raises(ValueError, match=r"requirements.lock:4: neither .* h11>=0.16; .*make lock"):
        lock.read(file)
