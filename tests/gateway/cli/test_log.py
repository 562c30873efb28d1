"""`sluice log` as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.cli.main import main
from support.log_files import NOON, log_file, log_text


def test_compact_says_what_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow")
    log_file(tmp_path)
    assert main(["log", "compact", str(tmp_path), "-o", "json"]) == 0
    told = capsys.readouterr()
    (row,) = json.loads(told.out)
    assert (row["hour"], row["gateway"], row["lines"], row["fault"]) == ("2026-11-21T12", "g1", 20, None)
    assert "1 hour compacted" in told.err
    assert main(["log", "compact", str(tmp_path)]) == 0
    assert capsys.readouterr().out == ""


def test_compact_ends_with_1_where_an_hour_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow")
    log_file(tmp_path)
    log_file(tmp_path, NOON + 3600, text=log_text(lines=400), form="jsonl.gz")
    assert main(["log", "compact", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert "dt=2026-11-21/hr=13 of g1 stays as it is" in told
    assert "1 hour compacted, 1 left as they are" in told


def test_without_its_library_compact_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.cli.log.find_spec", lambda _: None)
    assert main(["log", "compact", str(tmp_path)]) == 1
    assert "pip install 'sluice-gateway[compact]'" in capsys.readouterr().err


def test_no_directory_is_7(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "compact", str(tmp_path / "none")]) == 7
    assert "access_log.directory" in capsys.readouterr().err
    assert main(["log", "compact", str(tmp_path), "--settle", "soon"]) == 2
