"""Whole nights on HDFS and on S3, on YARN in both deploy modes, and what is said of a store that cannot be used (`make test-storage`)."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import urllib.request
from contextlib import ExitStack
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote
from xml.etree import ElementTree

import pytest

import spark_jobs
from cli.main import main
from limiter.quota_snapshot import load
from spark_jobs.commands import FAILED, OK, compute
from spark_jobs.session import QUICK_START
from spark_jobs.state.state import DayStates
from spark_jobs.storage.choice import storage_for
from spark_jobs.storage.hadoop import HadoopStorage
from spark_jobs.storage.location import Location
from support.access_logs import SyntheticLog, sparse, steady
from support.admin.admin_client import folder_in_memory
from support.admin.serving import serving
from support.examples import example
from support.java import POMS, jars
from support.pages import shown
from support.spark_cluster import environment, running_cluster, spark_home, submit
from support.stores import HadoopCluster, s3_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.storage, pytest.mark.slow]

ROOT = Path(spark_jobs.__path__[0]).parent
DATE = "2026-11-20"
# The server checks no signature, but shows to nobody without one what somebody with one has written.
SIGNED = {"Authorization": "AWS4-HMAC-SHA256 Credential=any/20261120/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=any"}
NOW = "2026-11-21T01:00:00Z"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small day of two gateways, with a line that a crash has torn."""
    folder = tmp_path_factory.mktemp("day") / "log"
    for gateway in ("g1", "g2"):
        day = SyntheticLog(folder, DATE, gateway)
        day.run({"orders": steady(20), "rare": sparse(2, every=9)}, range(3570, 3630), seed=1)
        day.write(torn='{"v":1,"ts":17635' if gateway == "g2" else "")
    return folder


def put(storage: HadoopStorage, folder: Path, root: Location) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            storage.write(root.child(path.relative_to(folder).as_posix()), path.read_bytes())


@pytest.mark.parametrize("store", ["hdfs", "s3a"])
def test_a_night_on_a_store_is_the_night_on_local_files(
    request: pytest.FixtureRequest, spark: SparkSession, log: Path, tmp_path: Path, store: str
) -> None:
    base = request.getfixturevalue("hadoop").url if store == "hdfs" else request.getfixturevalue("s3")
    root = Location.of("log", f"{base}/night {store}")
    storage = HadoopStorage(spark, root)
    put(storage, log, root.child("log"))
    assert compute(log, DATE, tmp_path / "state", tmp_path / "q.json", now=NOW, min_active_days="1") == OK
    for again in range(2):
        previous = str(root.child("q.json")) if again else None
        where = [str(root.child(name)) for name in ("log", "state", "q.json")]
        assert compute(where[0], DATE, where[1], where[2], now=NOW, previous=previous, min_active_days="1") == OK
        here, there = load((tmp_path / "q.json").read_bytes()), load(storage.read(root.child("q.json")))
        if not again:
            assert there.quotas == here.quotas
        assert [entry["path"] for entry in there.inputs] == [entry["path"] for entry in here.inputs]
        assert [entry["rows"] for entry in there.inputs] == [entry["rows"] for entry in here.inputs]
    assert all(str(entry["checksum"]).startswith("etag:" if store == "s3a" else "MD5") for entry in there.inputs)
    manifest = DayStates(root.child("state"), storage).read_manifest(DATE)
    assert manifest is not None
    assert manifest.corrupt == 1
    data = [entry.name for entry in storage.list(root.child("state", f"dt={DATE}")) if entry.is_folder]
    assert data == [manifest.data], "the data of the first run is gone"
    kept = [entry for entry in storage.files(root.child("state", "corrupt")) if entry.name.endswith(".json")]
    assert b'1,\\"ts\\":17635' in b"".join(storage.read(entry.location) for entry in kept)


@pytest.mark.parametrize("store", ["hdfs", "s3a"])
def test_nightly_on_a_store_publishes_once_and_show_finds_its_28_days(
    request: pytest.FixtureRequest, spark: SparkSession, log: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], store: str
) -> None:
    """The whole command against a live gateway: log, state, nights and report on the store, nothing of them here."""
    base = request.getfixturevalue("hadoop").url if store == "hdfs" else request.getfixturevalue("s3")
    root = Location.of("log", f"{base}/nightly {store}")
    storage = HadoopStorage(spark, root)
    put(storage, log, root.child("log"))
    state = root.child("state")
    night = state.child("nights", f"dt={DATE}")
    with folder_in_memory(tmp_path) as memory, serving(memory, "one") as served:
        words = ["--log", str(root.child("log")), "--state", str(state), "--date", DATE, "--set", "min_active_days=1", *served.options()]
        capfd.readouterr()
        assert main(["quotas", "nightly", *words, "--allow-partial"]) == OK
        said = capfd.readouterr().err
        assert "published at 1 gateway" in said
        assert f"report: {night.child('report.html').shown}" in said
        assert "On the last day, which they were learned from, tonight's quotas would have refused" in said
        live = served.ask(0, "GET", "/v1/quotas").json()
        assert [quota["topic"] for quota in live["quotas"]] == ["orders", "rare"]
        names = {entry.name for entry in storage.list(night)}
        assert names == {f"{name}.json" for name in ("begun", "previous", "quotas", "plan", "applied", "report")} | {
            "report.html",
            "report.md",
        }
        assert main(["quotas", "nightly", *words, "--allow-partial"]) == OK
        assert "nothing to do" in capfd.readouterr().err
        assert served.ask(0, "GET", "/v1/quotas").json() == live
        address = served.gateways[0].address
        asked = ["--admin", f"http://{address[0]}:{address[1]}", "--token-file", str(served.gateways[0].folder / "admin.token")]
        assert main(["quotas", "show", "orders", "--state", str(state), "-o", "json", *asked]) == OK
        assert len(json.loads(capfd.readouterr().out)["evidence"]["series"]) == 1


def test_missing_keys_are_one_line_and_nothing_is_written(
    spark: SparkSession, s3: str, log: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    del spark, s3
    assert compute(log, DATE, "s3a://keyless/state", tmp_path / "q.json", now=NOW, min_active_days="1") == FAILED
    told = [line for line in capfd.readouterr().err.splitlines() if line.startswith("sluice: ")]
    assert len(told) == 1
    assert "s3a://keyless/state" in told[0]
    assert "credentials are missing or not enough" in told[0]
    assert "AWS_ACCESS_KEY_ID" in told[0]
    assert not (tmp_path / "q.json").exists()


def test_a_bucket_that_is_not_there_is_one_line(spark: SparkSession, s3: str) -> None:
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    for name in ("endpoint", "endpoint.region", "path.style.access", "access.key", "secret.key"):
        configuration.set(f"fs.s3a.bucket.nobody.{name}", configuration.get(f"fs.s3a.bucket.{Location.of('log', s3).authority}.{name}"))
    root = Location.of("log", "s3a://nobody/log")
    with pytest.raises(OSError, match=r"^s3a://nobody/log.*: no such bucket; make it first") as caught:
        storage_for(root, spark).list(root)
    assert "\n" not in str(caught.value)


def test_an_s3_server_that_is_away_is_one_line(spark: SparkSession, s3: str) -> None:
    del s3
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    settings = {"endpoint": "http://127.0.0.1:1", "endpoint.region": "x", "path.style.access": "true", "access.key": "a", "secret.key": "b"}
    for name, value in settings.items():
        configuration.set(f"fs.s3a.bucket.away.{name}", value)
    root = Location.of("log", "s3a://away/log")
    with pytest.raises(OSError, match=r"^s3a://away/log: it cannot be reached") as caught:
        storage_for(root, spark).list(root)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_yarn_runs_the_zip_in_both_deploy_modes(spark: SparkSession, hadoop: HadoopCluster, log: Path, tmp_path: Path, mode: str) -> None:
    import deploy.spark_zip

    archive, program, _ = deploy.spark_zip.build(tmp_path / "dist")
    root = Location.of("log", f"{hadoop.url}/yarn-{mode}")
    storage = HadoopStorage(spark, root)
    put(storage, log, root.child("log"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    small = {
        "spark.yarn.jars": f"local:{spark_home()}/jars/*",
        "spark.yarn.appMasterEnv.PYSPARK_PYTHON": sys.executable,
        "spark.executorEnv.PYSPARK_PYTHON": sys.executable,
        "spark.executor.instances": "1",
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.yarn.am.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": QUICK_START,
        "spark.executor.extraJavaOptions": QUICK_START,
    }
    words = ["--master", "yarn", "--deploy-mode", mode, "--py-files", str(archive)]
    for name, value in small.items():
        words += ["--conf", f"{name}={value}"]
    places = ["--log", str(root.child("log")), "--state", str(root.child("state")), "-o", str(root.child("q.json"))]
    env = environment(HADOOP_CONF_DIR=str(hadoop.conf))
    done = submit([*words, str(program), "--date", DATE, "--min-active-days", "1", *places], cwd=elsewhere, env=env)
    assert done.returncode == 0, done.stderr[-4000:]
    assert {quota.topic for quota in load(storage.read(root.child("q.json"))).quotas} == {"orders", "rare"}


def test_the_pages_commands_on_s3(log: Path, tmp_path: Path) -> None:
    """`spark-submit` of docs/running-the-quota-job.md and the example of `sluice quotas nightly --help`, as they stand there.

    Keys, endpoint and hadoop-aws are where a cluster has them: in spark-defaults.conf. The cluster's address, the zip's version and the
    gateways' ports are the test's own.
    """
    import deploy.spark_zip

    archive, _, _ = deploy.spark_zip.build(tmp_path / "dist")
    nightly = example("s3a://bucket/log")
    command = shown("docs/running-the-quota-job.md", "spark-submit").text
    assert fnmatch(f"dist/{archive.name}", command.split()[command.split().index("--py-files") + 1])
    aws = ":".join(str(path) for path in sorted(jars("hadoop-aws").glob("*.jar")) if not path.name.startswith("hadoop-client"))
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, words in (
        ("spark-submit", [str(spark_home() / "bin" / "spark-submit")]),
        ("sluice", [sys.executable, "-m", "cli.main"]),
    ):
        (programs / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        (programs / name).chmod(0o755)
    with ExitStack() as stack:
        s3 = stack.enter_context(s3_server(tmp_path / "s3", "bucket"))
        for prefix in ("access-log", "log"):
            for path in log.rglob("*"):
                if path.is_file():
                    url = f"{s3}/bucket/{prefix}/{quote(path.relative_to(log).as_posix())}"
                    kind = {"Content-Type": "application/octet-stream"}  # urllib's own would be a form's, and the server keeps no form
                    urllib.request.urlopen(urllib.request.Request(url, path.read_bytes(), kind, method="PUT"), timeout=10).close()
        settings = {
            "spark.hadoop.fs.s3a.endpoint": s3, "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true", "spark.hadoop.fs.s3a.access.key": "any",
            "spark.hadoop.fs.s3a.secret.key": "any",
            "spark.driver.extraClassPath": aws, "spark.executor.extraClassPath": aws, "spark.executor.memory": "512m",
            "spark.sql.shuffle.partitions": "2",
        }  # fmt: skip
        (tmp_path / "conf").mkdir()
        (tmp_path / "conf" / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        env = environment(SPARK_CONF_DIR=str(tmp_path / "conf"), PATH=f"{programs}:{os.environ['PATH']}", PYTHONPATH=str(ROOT))
        env.pop("PYSPARK_SUBMIT_ARGS", None)
        cluster = stack.enter_context(running_cluster(tmp_path))
        script = command.replace("spark://host:7077", cluster.master).replace("--date", "--min-active-days 1 --date")
        done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        with urllib.request.urlopen(urllib.request.Request(f"{s3}/bucket/quotas.json", headers=SIGNED), timeout=10) as answer:
            assert {quota.topic for quota in load(answer.read()).quotas} == {"orders", "rare"}
        served = stack.enter_context(serving(tmp_path, "one", "two"))
        for gateway in served.gateways:
            token = (gateway.folder / "admin.token").read_text()
            (tmp_path / f"{gateway.gateway.name}.token").write_text(token)
        for port, gateway in zip((9181, 9182), served.gateways, strict=True):
            nightly = nightly.replace(f"127.0.0.1:{port}", f"127.0.0.1:{gateway.address[1]}")
        typed = f"{nightly} --date {DATE} --allow-partial --set min_active_days=1"  # of the log that there is
        done = subprocess.run(["bash", "-c", typed], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        assert "published at 2 gateways" in done.stderr


def test_the_jars_are_of_the_hadoop_in_pyspark() -> None:
    (jar,) = (spark_home() / "jars").glob("hadoop-client-api-*.jar")
    version = jar.stem.removeprefix("hadoop-client-api-")
    for name in ("hadoop-aws", "hadoop-cluster"):
        document = ElementTree.parse(POMS / f"{name}.pom.xml")
        space = "{http://maven.apache.org/POM/4.0.0}"
        found = [
            each.findtext(f"{space}version")
            for each in document.iter(f"{space}dependency")
            if each.findtext(f"{space}groupId") == "org.apache.hadoop"
        ]
        assert found == [version], f"{name}.pom.xml: pyspark brings Hadoop {version}"
