"""What a container of the image sluice-quotas becomes: by its arguments, and by the variables that Spark on Kubernetes sets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs.on_kubernetes import BACKEND, argv

SPARK, JAVA = Path("/spark"), Path("/java")
OF_AN_EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "4096m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.5",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "night-exec-3",
    "SPARK_JAVA_OPT_10": "-Dlast=1",
    "SPARK_JAVA_OPT_2": "-Dfirst=1 2",
    "SPARK_CONF_DIR": "/opt/spark/conf",
}


def test_options_are_those_of_a_night() -> None:
    words = argv(["--log", "/srv/access-log"], {}, spark=SPARK, java=JAVA)
    assert words[1:] == ["quotas", "nightly", "--log", "/srv/access-log"]
    assert Path(words[0]) == Path(sys.executable).parent / "sluice"


def test_a_driver_is_submitted_in_its_own_pod() -> None:
    variables = {"SPARK_DRIVER_BIND_ADDRESS": "10.0.0.4"}
    words = argv(["driver", "--properties-file", "p", "local:///night.py", "--log", "l"], variables, spark=SPARK, java=JAVA)
    assert words[:5] == ["/spark/bin/spark-submit", "--conf", "spark.driver.bindAddress=10.0.0.4", "--deploy-mode", "client"]
    assert words[5:] == ["--properties-file", "p", "local:///night.py", "--log", "l"]


def test_an_executor_gets_what_spark_puts_into_its_variables() -> None:
    words = argv(["executor"], OF_AN_EXECUTOR, spark=SPARK, java=JAVA)
    assert words[:5] == ["/java/bin/java", "-Dfirst=1 2", "-Dlast=1", "-Xms4096m", "-Xmx4096m"], "options in the order of their numbers"
    assert words[5:8] == ["-cp", f"/opt/spark/conf:/spark/jars/*:{Path.cwd()}", BACKEND]
    given = dict(zip(words[8::2], words[9::2], strict=True))
    assert given == {
        "--driver-url": "spark://CoarseGrainedScheduler@driver:7078",
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.5",
        "--resourceProfileId": "0",
        "--podName": "night-exec-3",
    }


@pytest.mark.spark
def test_a_variable_that_is_missing_is_named() -> None:
    command = [sys.executable, "-m", "spark_jobs.on_kubernetes", "driver"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SPARK")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=clean)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "sluice: 'SPARK_DRIVER_BIND_ADDRESS' is not set: Spark on Kubernetes starts drivers and executors with it\n"
