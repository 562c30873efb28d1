"""What ended Spark is one line that says what to give it."""

from __future__ import annotations

import pytest

from spark_jobs.faults import Ended, explain_fault, list_causes

HERE = Ended("local[2]", local=True, heap="1024m", work_folder="/tmp/work")
CLUSTER = Ended("spark://host:7077", local=False, heap="1g", work_folder="")

KNOWN = [
    (HERE._replace(java=3), "Connection refused", "--driver-memory 2048m"),
    (HERE, "java.lang.OutOfMemoryError: Java heap space", "--driver-memory 2048m"),
    (HERE._replace(java=-9), "Connection refused", "Java was killed"),
    (HERE._replace(java=1), "Connection refused", "Java ended by itself with 1"),
    (HERE, "java.io.IOException: No space left on device", "Spark's work files in /tmp/work"),
    (HERE, "[Errno 28] No space left on device: '/state/x'", "--conf spark.local.dir=/FOLDER"),
    (HERE, "is bigger than spark.driver.maxResultSize (1024.0 MiB)", "--conf spark.driver.maxResultSize=4g"),
    (HERE, "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", "--master local[1]"),
    (CLUSTER, "java.lang.OutOfMemoryError: Java heap space", "--conf spark.executor.memory=4g"),
    (CLUSTER, "Task 0 failed 4 times: ExecutorLostFailure (executor 1 exited)", "executors of spark://host:7077 were lost"),
    (CLUSTER, "All masters are unresponsive! Giving up.", "the cluster at spark://host:7077"),
]


@pytest.mark.parametrize(("ended", "text", "way_out"), KNOWN)
def test_each_fault_says_the_way_out_in_one_line(ended: Ended, text: str, way_out: str) -> None:
    line = explain_fault(RuntimeError(f"{text}\n\tat org.apache.spark.Something(Thing.scala:7)"), ended)
    assert line is not None
    assert way_out in line
    assert "\n" not in line


def test_another_error_is_left_as_it_is() -> None:
    assert explain_fault(RuntimeError("[PATH_NOT_FOUND] no such path"), HERE) is None


def test_the_error_behind_the_error_is_found() -> None:
    try:
        try:
            raise RuntimeError("java.lang.OutOfMemoryError")
        except RuntimeError:
            raise OSError("Connection refused")  # noqa: B904 - raised while the other was handled, as in a finally
    except OSError as caught:
        error = caught
    assert [type(each) for each in list_causes(error)] == [OSError, RuntimeError]
    assert "--driver-memory" in str(explain_fault(error, HERE))
