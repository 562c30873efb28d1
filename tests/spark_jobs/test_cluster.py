"""The job on a cluster: a master and two workers, with what `make spark-zip` builds and nothing else of ours."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from limiter.quota_snapshot import load
from spark_jobs.session import QUICK_START
from support.access_logs import SyntheticLog, sparse, steady
from support.spark_cluster import environment, running_cluster, submit

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What `make spark-zip` builds, by suffix."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, str(ROOT / "deploy" / "spark_zip.py"), str(folder)], check=True, capture_output=True)
    return {path.suffix: path for path in folder.iterdir()}


@pytest.mark.spark
def test_the_zip_is_enough_to_import_the_job_and_knows_its_version(built: dict[str, Path], tmp_path: Path) -> None:
    code = (
        "import spark_jobs.commands as commands, limiter.judge, spark_jobs.log.files, spark_jobs.state.state\n"
        "assert commands.__file__.startswith(sys.argv[1]), commands.__file__\n"
        "print(commands.code_version())"
    )
    words = [sys.executable, "-c", f"import sys; sys.path.insert(0, sys.argv[1]); {code}", str(built[".zip"])]
    done = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in built[".zip"].name
    assert done.stdout.strip()[0].isdigit()


@pytest.mark.spark
def test_equal_sources_are_equal_bytes(built: dict[str, Path], tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / "deploy" / "spark_zip.py"), str(tmp_path)], check=True, capture_output=True)
    for path in built.values():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()


@pytest.mark.spark
def test_the_zip_has_no_other_package_and_the_packages_of_the_workers_are_pinned(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built[".zip"]) as file:
        tops = {name.partition("/")[0].partition("-")[0] for name in file.namelist()}
    assert tops == {"common", "limiter", "spark_jobs", "sluice_gateway"}
    pinned = [line for line in built[".txt"].read_text().splitlines() if not line.startswith("#")]
    assert f"numpy=={metadata.version('numpy')}" in pinned
    assert f"pyarrow=={metadata.version('pyarrow')}" in pinned
    assert all(line.count("==") == 1 for line in pinned)


@pytest.mark.spark
@pytest.mark.long
def test_a_cluster_of_two_workers_computes_the_quotas(built: dict[str, Path], tmp_path: Path) -> None:
    for gateway in ("g1", "g2"):
        log = SyntheticLog(tmp_path / "log", "2026-11-20", gateway)
        log.run({"orders": steady(20), "rare": sparse(2, every=9)}, range(3570, 3630), seed=1)
        log.write()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    places = ["--log", f"file://{tmp_path}/log", "--state", f"file://{tmp_path}/state", "-o", f"file://{tmp_path}/q.json"]
    with running_cluster(tmp_path) as cluster:
        words = ["--master", cluster.master, "--deploy-mode", "client", "--py-files", str(built[".zip"]), "--executor-memory", "512m"]
        words += ["--driver-java-options", QUICK_START, "--conf", f"spark.executor.extraJavaOptions={QUICK_START}"]
        words += ["--conf", "spark.sql.shuffle.partitions=2"]
        done = submit(
            [*words, str(built[".py"]), "--date", "2026-11-20", "--min-active-days", "1", *places], cwd=elsewhere, env=environment()
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert [app["state"] for app in cluster.state()["completedapps"]] == ["FINISHED"]
        assert cluster.executors() == ["worker-0", "worker-1"]
    snapshot = load((tmp_path / "q.json").read_bytes())
    assert {quota.topic for quota in snapshot.quotas} == {"orders", "rare"}
    assert snapshot.code in built[".zip"].name
    assert list(elsewhere.iterdir()) == []
