"""What watches over fuzzing of the compiled build: whatever an input does to the process, it is told, and the input is kept."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz import blind
from fuzz.targets import TARGETS

from support.processes import wait_until

SEED = 5


def job(name: str, folder: Path, seconds: int = 120) -> blind.Job:
    """`seconds` are the most; a fault ends it. The inputs are those around one that has the mark."""
    (folder / "found" / name).mkdir(parents=True)
    (folder / "found" / name / "seed").write_bytes(b"hello, world!" * 3)
    return blind.Job(name, seconds, folder / "found", folder / "crashes", SEED, 5.0, 300, "fuzz.planted", "")


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("raises", "broke a promise"),
        ("crashes", "ended with SIGSEGV"),
        ("hangs", "took longer than 5 s"),
        ("grows", "grew above 300 MiB"),
    ],
)
def test_a_planted_fault_is_found_and_its_input_kept(name: str, fault: str, tmp_path: Path) -> None:
    executions, told = blind.run(job(name, tmp_path))
    assert fault in told
    assert executions >= 1
    (kept,) = (tmp_path / "crashes" / name).iterdir()
    assert b"!" in kept.read_bytes()
    assert str(kept) in told


def test_the_stack_is_told(tmp_path: Path) -> None:
    assert "an exclamation mark" in blind.run(job("raises", tmp_path))[1]
    assert "in crashes" in blind.run(job("crashes", tmp_path))[1]
    assert "in hangs" in blind.run(job("hangs", tmp_path))[1]


def test_without_a_fault_nothing_is_kept(tmp_path: Path) -> None:
    executions, told = blind.run(job("unharmed", tmp_path, seconds=1))
    assert told == ""
    assert executions >= blind.SPAN
    assert not (tmp_path / "crashes").exists()


ATHERIS = """
import os
from contextlib import nullcontext

def instrument_imports(include):
    return nullcontext()

def Setup(argv, target, **_):
    global one
    one = target

def Fuzz():
    for number in range(3):
        one(bytes([number]) * 100)
    print("stat::number_of_executed_units: 3", flush=True)
    assert os.listdir(os.environ["TMPDIR"])
    os._exit(0)
"""


def test_a_guided_run_leaves_no_folder_behind(tmp_path: Path) -> None:
    """921 were in memory: each input had a folder for its spool, and atheris ends its process without Python's end."""
    for name in ("modules", "memory"):
        (tmp_path / name).mkdir()
    (tmp_path / "modules/atheris.py").write_text(ATHERIS)
    places = ["--found", str(tmp_path / "found"), "--crashes", str(tmp_path / "crashes")]
    done = subprocess.run(
        [sys.executable, str(Path(blind.__file__).with_name("run.py")), "--seconds", "1", *places, "rocketmq_talk"],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "modules"), "TMPDIR": str(tmp_path / "memory")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^rocketmq_talk +ok +3 executions", done.stdout), done.stdout
    assert list((tmp_path / "memory").iterdir()) == []


def test_time_that_others_had_is_no_time_of_the_input() -> None:
    """On a busy machine, at nice 19, an input of 4 ms passed for one that hangs: the process had not run for ten seconds."""
    processor = min(os.sched_getaffinity(0))
    spin = [sys.executable, "-c", f"import os\nos.sched_setaffinity(0, [{processor}])\nwhile True: pass"]
    with subprocess.Popen(spin) as one, subprocess.Popen(spin) as other:
        try:
            wait_until(lambda: blind.starved_s(one.pid) > 0.3 and blind.starved_s(other.pid) > 0.3, within=60, what="both to wait")
        finally:
            one.kill()
            other.kill()
    assert blind.starved_s(one.pid) == 0.0, "it is gone"


def test_the_other_build_is_not_fuzzed_by_mistake(tmp_path: Path) -> None:
    executions, told = blind.run(job("unharmed", tmp_path)._replace(build="quantum"))
    assert executions == 0
    assert "the quantum build is to be fuzzed" in told


def test_every_target_can_be_asked_for() -> None:
    for name in TARGETS:
        assert TARGETS[name].__name__ == name
