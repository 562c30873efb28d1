"""`bench/admin_load.py` ends, with figures or with an error that says why. With one program not built it hung for good (2026-11-26)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import keeping
import pytest

LOAD = keeping.HERE / "load"


def script(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_make_builds_every_load_program() -> None:
    done = subprocess.run(["make", "-n", "-B", "-C", str(LOAD)], capture_output=True, text=True, check=True)
    assert {word for word in done.stdout.split() if word.endswith(".c")} == {source.name for source in LOAD.glob("*.c")}


def test_a_program_that_is_not_built_is_named_with_the_command_that_builds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "BIN", tmp_path)
    with pytest.raises(SystemExit, match="crowd is not there: run `make -C bench/load`"):
        keeping.run(["crowd", "1"], 1)


@pytest.mark.parametrize("text", ["exec sleep 600", "echo ready; exec sleep 600", "exit 3", "echo ready; read line; exit 3"])
def test_a_program_without_a_result_ends_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(keeping, "BIN", tmp_path)
    monkeypatch.setattr(keeping, "PATIENCE_S", 0.2)
    script(tmp_path, "crowd", text)
    with pytest.raises(SystemExit, match="`crowd 1` ended without a result"):
        keeping.run(["crowd", "1"], 0.1)


def test_what_was_started_is_ended_whatever_happens() -> None:
    with pytest.raises(SystemExit), subprocess.Popen(["sleep", "600"]) as process, keeping.ended(process):
        raise SystemExit("an error")
    assert process.returncode is not None


def measured(*words: str) -> subprocess.CompletedProcess[str]:
    subprocess.run(["make", "-s", "-C", str(LOAD)], check=True)
    done = subprocess.run(
        [sys.executable, str(keeping.HERE / "admin_load.py"), "--rounds", "1", "--seconds", "1", "--topics", "300", *words],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.bench
@pytest.mark.long
@pytest.mark.parametrize("rate", ["0", "300"])
def test_it_prints_figures_of_each_kind_of_turn_and_says_what_it_does(tmp_path: Path, rate: str) -> None:
    done = measured("--rate", rate, "--results", str(tmp_path))
    assert [line.split()[0] for line in done.stdout.splitlines()[:4]] == ["without", "again", "with", "beside"]
    assert "topics known: 301" in done.stdout or "topics known: 302" in done.stdout
    assert done.stdout.count("'topics 200'") == 2, "not on both gateways"
    assert "with / beside:" in done.stdout
    assert "round 1 of 1" in done.stderr
    assert (tmp_path / "admin-load.json").is_file()


@pytest.mark.bench
@pytest.mark.long
def test_an_attack_is_beside_half_of_the_messages_that_pass(tmp_path: Path) -> None:
    done = measured("--load", "attack", "--attackers", "127.0.0.3", "--results", str(tmp_path))
    found = re.search(r"messages: (\d+) a second; (\d+) without load", done.stderr)
    assert found is not None, done.stderr
    assert abs(int(found[1]) - int(found[2]) / 2) <= 1, "each is rounded by itself"
    assert "messages' p99 under attack" in done.stdout
    assert re.search(r"^/livez meanwhile: \d+ of \d+ within 0.5 s", done.stdout, re.M)
    assert re.search(r"^/v1/status meanwhile: \d+ of \d+ within 1.0 s", done.stdout, re.M)
    assert len(re.findall(r"'attacking connections': [1-9]\d+", done.stdout)) == 2, "not on both gateways"


@pytest.mark.bench
def test_an_open_page_is_searched_and_its_processor_time_taken(tmp_path: Path) -> None:
    done = measured("--load", "page", "--rate", "300", "--idle", "1", "--results", str(tmp_path))
    assert re.search(r"^an open page: -?[\d.]+% of a core, at most 2% wanted: (NOT )?held$", done.stdout, re.M), done.stdout
    told = r"^/v1/topics\?\S*?(q=|sort=rate|sort=name)\S* meanwhile: \d+ of (\d+) within 0.1 s, p50 [\d.]+ s, p99"
    kinds = re.findall(told, done.stdout, re.M)
    assert {kind for kind, _ in kinds} == {"q=", "sort=rate", "sort=name"}, done.stdout
    assert all(int(asked) > 0 for _, asked in kinds)
    kept = json.loads((tmp_path / "admin-page.json").read_text())["found"]
    assert all(seconds < float("inf") for took in kept["took"].values() for seconds in took), "each was answered with 200"
    assert set(kept["idle"]) == {"alone", "with a page"}
