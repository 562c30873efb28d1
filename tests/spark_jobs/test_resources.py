"""A Spark that runs out of heap, disk or executors ends the command with one line that says what to give it, and leaves nothing behind.

Where Java ends with it, it is a program of its own: the session that other tests share must not.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.commands import compute
from support.access_logs import SyntheticLog, steady

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
DATE = "2026-11-20"

PROGRAM = """
import sys
from spark_jobs.session import spark_session
try:
    with spark_session(sys.argv[1], driver_memory="512m", conf=dict(each.split("=") for each in sys.argv[2].split(",") if each)) as spark:
        {work}
except OSError as error:
    print(f"sluice: {{error}}", file=sys.stderr)
    sys.exit(1)
"""
TOO_MUCH = 'spark.range(1).selectExpr("length(repeat(cast(id as string), 600000000))").collect()'  # one text larger than the heap
ON_DISK = """
        from pyspark import StorageLevel
        spark.range(4_000_000).selectExpr("uuid() as text").persist(StorageLevel.DISK_ONLY).count()
"""
KILLED = """
        import os
        def end(batches):
            os.kill(os.getppid(), 9) if os.environ.get("SPARK_EXECUTOR_ID") else None
            parent = int(open(f"/proc/{os.getppid()}/stat").read().split()[3])
            os.kill(parent, 9)
            yield from batches
        spark.range(10).mapInArrow(end, "id long").collect()
"""


def run(work: str, master: str = "local[1]", conf: str = "") -> tuple[int, list[str]]:
    """The exit code, and the lines on stderr."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(work=work), master, conf],
        capture_output=True, text=True, check=False, timeout=900, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stdout == ""
    return done.returncode, done.stderr.splitlines()


@pytest.mark.long
def test_too_little_heap_is_said_with_the_option_that_gives_more() -> None:
    code, lines = run(TOO_MUCH)
    assert (code, len(lines)) == (1, 1), lines
    assert "out of memory: Java's heap of 512m was too small" in lines[0]
    assert "--driver-memory 1024m" in lines[0]


@contextmanager
def small_disk(folder: Path, size: str = "20m") -> Iterator[None]:
    """A disk of that size at `folder`; skips the test where none can be mounted."""
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"needs the right to mount a small disk: {mounted.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.long
def test_a_full_disk_is_said_with_its_folder_and_the_option_for_another(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk"):
        code, lines = run(ON_DISK, conf=f"spark.local.dir={tmp_path / 'disk'}")
    assert (code, len(lines)) == (1, 1), lines
    assert f"no space left on a disk: free some for Spark's work files in {tmp_path / 'disk'}" in lines[0]
    assert "--conf spark.local.dir=/FOLDER" in lines[0]


@pytest.mark.long
def test_lost_executors_are_said_with_the_memory_that_they_may_have_lacked() -> None:
    code, lines = run(KILLED, "local-cluster[2,1,1024]", "spark.task.maxFailures=2")
    assert (code, len(lines)) == (1, 1), lines
    assert "executors of local-cluster[2,1,1024] were lost" in lines[-1]
    assert "--conf spark.executor.memory=4g" in lines[-1]


def test_a_heap_too_small_for_spark_itself_ends_compute_with_one_line_and_nothing_written(tmp_path: Path) -> None:
    log = SyntheticLog(tmp_path / "log", DATE)
    log.run({"orders": steady(5)}, range(10), seed=1)
    log.write()
    options = ["--log", "log", "--date", DATE, "--state", "state", "-o", "quotas.json", "--driver-memory", "256m", "--master", "local[1]"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "spark_jobs/nightly.py"), *options],
        capture_output=True, text=True, check=False, timeout=900, cwd=tmp_path,
    )  # fmt: skip
    lines = done.stderr.splitlines()
    assert done.returncode == 1, lines
    assert len(lines) == 2, lines
    assert "out of memory: Java's heap of 256m was too small; give it more: --driver-memory 512m" in lines[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log"]


def short_log(folder: Path) -> Path:
    log = SyntheticLog(folder / "log", DATE)
    log.run({f"orders-{at}": steady(5) for at in range(20)}, range(10), seed=1)
    log.write()
    return folder / "log"


@pytest.mark.long
def test_a_full_disk_under_the_state_ends_compute_with_one_line_and_nothing_half_written(tmp_path: Path) -> None:
    log = short_log(tmp_path)
    with small_disk(tmp_path / "disk", "64k"):
        fill(tmp_path / "disk" / "ballast")
        places = ["--log", str(log), "--state", str(tmp_path / "disk" / "state"), "-o", str(tmp_path / "quotas.json")]
        places += ["--min-active-days", "1", "--conf", "spark.ui.enabled=false"]  # with a setting of Spark it is never left out
        done = subprocess.run(
            [sys.executable, str(ROOT / "spark_jobs/nightly.py"), *places, "--date", DATE, "--master", "local[1]"],
            capture_output=True, text=True, check=False, timeout=900, cwd=tmp_path,
        )  # fmt: skip
        lines = done.stderr.splitlines()
        assert (done.returncode, len(lines)) == (1, 2), lines  # the first says that it begins
        assert "no space left" in lines[1].lower()
        assert "--state" in lines[1], "with the place that is full"
        assert not list((tmp_path / "disk").rglob("*manifest.json"))
        assert not (tmp_path / "quotas.json").exists()


def test_a_full_disk_under_the_output_ends_compute_with_one_line_and_leaves_what_was_there(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python writes it, so Java is none the worse, and that of all tests. The disk holds a file that is there, and no byte more."""
    log, output = short_log(tmp_path), tmp_path / "disk" / "quotas.json"
    with small_disk(tmp_path / "disk", "64k"):
        output.write_text("as it was")
        fill(tmp_path / "disk" / "ballast")
        assert compute(log, DATE, tmp_path / "state", output, min_active_days=1) == 1
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 2, lines
        assert "no space left" in lines[1].lower()
        assert str(output) in lines[1], "with the place that is full"
        assert (sorted(path.name for path in output.parent.rglob("*")), output.read_text()) == (["ballast", "quotas.json"], "as it was")


def fill(ballast: Path) -> None:
    """Take what is left of the disk."""
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            return
