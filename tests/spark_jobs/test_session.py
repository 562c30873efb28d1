"""Finding Java, and saying what to install where there is none."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from spark_jobs.days import Day
from spark_jobs.errors import EnvironmentFaultError
from spark_jobs.log.usage import SUMS, TopicRows, make_quota_filter
from spark_jobs.session import find_java, java_version, local_cores, require_a_name, ship_by_value, spark_session


def fake_java(home: Path, version: str) -> Path:
    binary = home / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    binary.chmod(0o755)
    return home


@pytest.mark.parametrize(("text", "release"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8), ("25-ea", 25)])
def test_the_release_is_read_from_what_java_says(tmp_path: Path, text: str, release: int) -> None:
    assert java_version(fake_java(tmp_path / "jvm", text)) == release


def test_the_release_is_read_from_the_file_of_java_where_there_is_one(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jvm", "11.0.2")
    (home / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="21.0.5"\n')
    assert java_version(home) == 21
    (home / "release").write_text("nothing of use\n")
    assert java_version(home) == 11


def test_java_home_comes_first_then_path(tmp_path: Path) -> None:
    named, on_path = fake_java(tmp_path / "named", "21.0.1"), fake_java(tmp_path / "on_path", "17.0.1")
    environment = {"JAVA_HOME": str(named), "PATH": f"/usr/bin:{on_path}/bin"}
    assert find_java(environment, ()) == named
    assert find_java({"PATH": f"{on_path}/bin"}, ()) == on_path


def test_a_java_too_old_is_passed_over_for_the_oldest_fit_one_in_the_usual_places(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    fake_java(tmp_path / "jvm" / "java-21", "21.0.1")
    fit = fake_java(tmp_path / "jvm" / "zulu-17", "17.0.9")
    assert find_java({"JAVA_HOME": str(old), "PATH": ""}, (str(tmp_path / "jvm"),)) == fit


def test_without_java_the_error_says_what_was_found_and_what_to_install(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    with pytest.raises(EnvironmentFaultError) as caught:
        find_java({"JAVA_HOME": str(old), "PATH": ""}, (str(tmp_path / "none"),))
    assert f"{old} (Java 11)" in str(caught.value)
    assert "apt-get install openjdk-17-jre-headless" in str(caught.value)


@pytest.mark.parametrize(
    ("master", "cores"), [("local", 1), ("local[3]", 3), ("local[2,4]", 2), ("spark://host:7077", None), ("yarn", None)]
)
def test_local_masters_are_known_by_their_cores(master: str, cores: int | None) -> None:
    assert local_cores(master) == cores


_NUMBERS = [(name, pa.int64()) for name in ("second", *SUMS)]
_USAGE = pa.schema([("protocol", pa.string()), ("topic", pa.string()), *_NUMBERS, ("gateway", pa.string())])

ON_A_WORKER = """
import sys
for ours in ("spark_jobs", "limiter", "gateway", "admin"):
    sys.modules[ours] = None  # importing it fails
import pyarrow
from pyspark import cloudpickle
make, batch = cloudpickle.loads(sys.stdin.buffer.read())
for made in make(iter([batch])):
    print(*made.column("total").to_pylist())
"""


def test_functions_that_run_on_the_workers_need_nothing_of_ours_there(tmp_path: Path) -> None:
    ship_by_value()
    day = Day("2026-11-20")
    row = {"protocol": "rocketmq", "topic": "orders", "second": day.start + 5, **dict.fromkeys(SUMS, 0), "passed": 9, "passed_bytes": 90}
    batch = pa.RecordBatch.from_pylist([{**row, "gateway": None}], _USAGE)
    shipped = cloudpickle.dumps((TopicRows(day, np.ones(day.seconds, np.bool_), (), 10_000, make_quota_filter()), batch))  # type: ignore[no-untyped-call]
    done = subprocess.run([sys.executable, "-c", ON_A_WORKER], input=shipped, cwd=tmp_path, capture_output=True, check=False)
    assert (done.stdout.decode().split(), done.stderr.decode()) == (["9", "90"], "")


TWICE = """
from spark_jobs.session import spark_session
for _ in range(2):
    with spark_session("local[1]") as session:
        print(session.range(7).count())
"""


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.slow
def test_a_session_ends_with_its_java_and_another_may_follow_without_a_word_on_stderr() -> None:
    done = subprocess.run([sys.executable, "-c", TWICE], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["7", "7"], "")


def test_a_user_without_a_name_is_told_what_gives_it_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of a unit with DynamicUser= is, where systemd's names are not installed. Java would end with a stack trace."""
    named = {each.pw_uid for each in pwd.getpwall()}
    nameless = next(uid for uid in range(61_184, 65_520) if uid not in named)  # systemd's range for such users
    require_a_name(os.getuid())
    monkeypatch.setattr(os, "getuid", lambda: nameless)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)  # other tests have one in this process, which would be used
    with (
        pytest.raises(EnvironmentFaultError, match=f"{nameless} has none on this machine: .*apt-get install libnss-systemd"),
        spark_session("local[1]"),
    ):
        pass


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.namespaces
@pytest.mark.slow
def test_spark_starts_on_a_machine_whose_name_has_no_address() -> None:
    program = "from spark_jobs.session import spark_session\nwith spark_session('local[1]') as spark: print(spark.range(7).count())"
    named = ["unshare", "--uts", "sh", "-c", 'hostname no-address.invalid && exec "$@"', "sh", sys.executable, "-c", program]
    done = subprocess.run(named, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False, timeout=900)
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr


@pytest.mark.namespaces
@pytest.mark.slow
def test_a_clusters_driver_whose_name_has_no_address_says_so_before_java_starts() -> None:
    program = "from spark_jobs.session import spark_session\nwith spark_session('spark://127.0.0.1:1'): pass"
    named = ["unshare", "--uts", "sh", "-c", 'hostname no-address.invalid && exec "$@"', "sh", sys.executable, "-c", program]
    clean = {name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_IP"}
    done = subprocess.run(named, cwd=Path(__file__).parents[2], env=clean, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "this machine's name, no-address.invalid, has no address (Name or service not known)" in last
    assert "spark://127.0.0.1:1" in last
    assert "set SPARK_LOCAL_IP" in last
    assert "java.net" not in done.stderr
