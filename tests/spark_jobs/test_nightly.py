"""nightly.py under the real spark-submit, from somewhere else, with nothing of ours installed for the workers."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from limiter.quota_snapshot import load
from spark_jobs.nightly import arguments
from spark_jobs.parameters import Parameters
from spark_jobs.session import QUICK_START, find_java
from support.access_logs import SyntheticLog, sparse, steady

ROOT = Path(__file__).resolve().parents[2]


def test_every_parameter_is_an_option() -> None:
    named = ["--log", "l", "--date", "d", "--state", "s", "-o", "o"]
    options = vars(arguments().parse_args([*named, "--target-refused-ppm", "300", "--time-zone", "Asia/Tokyo"]))
    for name in (
        "log",
        "date",
        "state",
        "output",
        "master",
        "previous",
        "now",
        "pins",
        "exclude",
        "allow_partial",
        "driver_memory",
        "conf",
    ):
        options.pop(name)
    assert Parameters.of(options) == Parameters(target_refused_ppm=300, time_zone="Asia/Tokyo")


@pytest.mark.spark
@pytest.mark.long
def test_spark_submit_runs_it_from_an_archive_in_a_folder_with_a_module_of_pythons_name(tmp_path: Path) -> None:
    """Workers put the caller's folder on sys.path: a profile.py there ended the job, because Python's own cProfile imports `profile`."""
    log = SyntheticLog(tmp_path / "log", "2026-11-20")
    log.run({"orders": steady(20), "rare": sparse(2, every=9)}, range(30), seed=1)
    log.write()
    archive, script, elsewhere = tmp_path / "sluice.zip", tmp_path / "job" / "nightly.py", tmp_path / "elsewhere"
    with zipfile.ZipFile(archive, "w") as file:
        for package in ("common", "limiter", "spark_jobs"):
            for path in (ROOT / package).rglob("*.py"):
                file.write(path, path.relative_to(ROOT))
    elsewhere.mkdir()
    (elsewhere / "profile.py").write_text("raise ImportError('the profile.py of the folder that the job was started in')")
    script.parent.mkdir()
    script.write_bytes((ROOT / "spark_jobs" / "nightly.py").read_bytes())
    submit = Path(sys.executable).parent / "spark-submit"
    options = ["--log", str(tmp_path / "log"), "--date", "2026-11-20", "--state", str(tmp_path / "state"), "-o", str(tmp_path / "q.json")]
    spark = ["--master", "local[2]", "--driver-java-options", QUICK_START, "--conf", "spark.ui.enabled=false", "--py-files", str(archive)]
    done = subprocess.run(
        [str(submit), *spark, str(script), *options, "--min-active-days", "1"],
        cwd=elsewhere,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": "", "JAVA_HOME": str(find_java(os.environ))},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    quotas = {quota.topic: quota for quota in load((tmp_path / "q.json").read_bytes()).quotas}
    assert quotas["rare"].messages is not None
    assert set(quotas) == {"orders", "rare"}
