"""`sluice log` as a user calls it."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from cli.main import main
from support.log_files import NOON, log_file, log_text
from support.processes import HANG_S, Process


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How much nicer `compact` would be: it must not be so to the test run."""
    asked: list[int] = []
    monkeypatch.setattr(os, "nice", asked.append)
    return asked


def test_compact_lets_everybody_else_go_first(tmp_path: Path, asked: list[int]) -> None:
    pytest.importorskip("pyarrow")
    log_file(tmp_path)
    assert main(["log", "compact", str(tmp_path)]) == 0
    assert asked == [19]


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
    monkeypatch.setattr("cli.log.find_spec", lambda _: None)
    assert main(["log", "compact", str(tmp_path)]) == 1
    assert "pip install 'sluice-gateway[compact]'" in capsys.readouterr().err


def test_no_directory_is_7(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "compact", str(tmp_path / "none")]) == 7
    assert "access_log.directory" in capsys.readouterr().err
    assert main(["log", "compact", str(tmp_path), "--settle", "soon"]) == 2


def test_ship_says_what_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, target = tmp_path / "log", tmp_path / "target"
    log_file(log)
    (log / "dt=2026-11-21" / "hr=12" / "core.1234").touch()
    assert main(["log", "ship", str(log), "--to", str(target), "-o", "json"]) == 0
    told = capsys.readouterr()
    (row,) = json.loads(told.out)
    assert (row["gateway"], row["files"], row["already_there"]) == ("g1", 1, 0)
    assert f"1 file shipped to file://{target}" in told.err
    assert "1 file no gateway has written, not shipped: " in told.err
    assert main(["log", "ship", str(log), "--to", str(target)]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--to", "ftp://x"], 2, "unknown scheme ftp"),
        (["--to", "hdfs://n/x"], 2, "write webhdfs://n:9870/x"),
        (["--to", "LOG/copy"], 2, "is the log itself"),
        (["--to", "webhdfs://127.0.0.1:1/x"], 4, "look at the network"),
        (["--to", "LOG/../file/x"], 1, "Not a directory"),
        ([], 2, "--to"),
    ],
)
def test_ships_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str) -> None:
    log_file(tmp_path / "log")
    (tmp_path / "file").touch()
    words = [word.replace("LOG", str(tmp_path / "log")) for word in arguments]
    assert main(["log", "ship", str(tmp_path / "log"), *words]) == code
    assert said in capsys.readouterr().err


def test_a_faulty_hour_is_1_and_no_directory_7(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log_file(tmp_path / "log", text="no gzip", form="jsonl.gz")
    assert main(["log", "ship", str(tmp_path / "log"), "--to", str(tmp_path / "target")]) == 1
    assert "dt=2026-11-21/hr=12 of g1 is not shipped" in capsys.readouterr().err
    assert main(["log", "ship", str(tmp_path / "none"), "--to", str(tmp_path / "target")]) == 7


def test_s3_without_its_library_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "common.log_files.s3", raising=False)
    monkeypatch.setitem(sys.modules, "boto3", None)
    assert main(["log", "ship", str(tmp_path), "--to", "s3://bucket/x"]) == 1
    assert "needs the Python package boto3: pip install 'sluice-gateway[ship]'" in capsys.readouterr().err


def test_rounds_go_on_after_a_fault_and_end_with_sigterm(tmp_path: Path) -> None:
    """As a sidecar runs it: the target is away at first."""
    log, target = tmp_path / "log", tmp_path / "target"
    log_file(log)
    target.touch()  # no folder
    process = Process(
        [sys.executable, "-m", "cli.main", "log", "ship", str(log), "--to", str(target), "--every", "50ms"],
        log=tmp_path / "stderr", env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    process.wait_until(lambda: "look at that disk or mount" in (tmp_path / "stderr").read_text(), within=20, what="a fault")
    target.unlink()
    process.wait_until(lambda: "1 file shipped to" in (tmp_path / "stderr").read_text(), within=20, what="a good round")
    process.popen.send_signal(signal.SIGTERM)
    assert process.popen.wait(HANG_S) == 0
    assert (target / "manifest").is_dir()
