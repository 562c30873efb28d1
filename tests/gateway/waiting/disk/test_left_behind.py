"""What processes that are gone have left: deleted, but for the files of a build that was never released."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from gateway.waiting.disk.left_behind import clear_left_behind
from gateway.waiting.disk.waiting_disk import LOCK


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """A spool's directory with what three processes have left."""
    for own, names in (("12-0123abcd", ("1", "2")), ("13-0123abcd", ("1.durable", "1.removed", "2")), ("14-0123abcd", ("3.removed",))):
        folder = tmp_path / "spool" / own
        folder.mkdir(parents=True)
        for name in (LOCK, *names):
            (folder / name).write_bytes(b"12345")
    return tmp_path / "spool"


def names_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_folders_with_files_of_a_build_that_was_never_released_are_left_alone_and_told(spool: Path) -> None:
    found = clear_left_behind(spool)
    assert (found.files, found.size, found.faults) == (2, 10, {})
    assert [folder.name for folder in found.kept] == names_in(spool) == ["13-0123abcd", "14-0123abcd"]
    assert names_in(spool / "13-0123abcd") == ["1.durable", "1.removed", "2", LOCK]


def test_what_a_living_process_has_is_not_looked_at(spool: Path) -> None:
    with (spool / "12-0123abcd" / LOCK).open("r+") as one, (spool / "13-0123abcd" / LOCK).open("r+") as other:
        fcntl.flock(one, fcntl.LOCK_EX)
        fcntl.flock(other, fcntl.LOCK_EX)
        found = clear_left_behind(spool)
    assert (found.files, [folder.name for folder in found.kept], found.faults) == (0, ["14-0123abcd"], {})
    assert names_in(spool / "12-0123abcd") == ["1", "2", LOCK]


def test_what_cannot_be_looked_at_is_told_with_the_reason_and_the_rest_is_deleted(spool: Path) -> None:
    barred = spool / "11-0123abcd"
    (barred / LOCK).mkdir(parents=True)
    found = clear_left_behind(spool)
    assert list(found.faults) == [barred]
    assert "Is a directory" in found.faults[barred]
    assert found.files == 2
    (spool / "file").touch()
    assert "Not a directory" in str(clear_left_behind(spool / "file").faults)
    assert clear_left_behind(spool / "nothing").faults == {}
