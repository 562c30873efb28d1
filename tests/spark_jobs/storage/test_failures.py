"""What the JVM says of a store that cannot be used becomes one line with the way out."""

from __future__ import annotations

import re

import pytest

from spark_jobs.storage.failures import as_os_error, explain_spark_error, explain_store_error
from spark_jobs.storage.location import Location

S3 = Location.of("log", "s3a://bucket/log")


@pytest.mark.parametrize(
    ("chain", "found"),
    [
        (
            [("java.nio.file.AccessDeniedException", "bucket: org...NoAuthWithAWSException: No AWS Credentials provided")],
            "set AWS_ACCESS_KEY_ID",
        ),
        ([("java.nio.file.AccessDeniedException", "403 Forbidden\nat x"), ("S3Exception", "Status Code: 403")], "set AWS_ACCESS_KEY_ID"),
        ([("org.apache.hadoop.fs.s3a.UnknownStoreException", "`s3a://bucket/': Bucket does not exist")], "no such bucket; make it first"),
        ([("java.net.ConnectException", "Call From a to b:8020 failed on connection exception")], "it cannot be reached"),
        ([("java.io.IOException", "x"), ("java.net.UnknownHostException", "nowhere")], "the host is unknown"),
        ([("java.lang.RuntimeException", "ClassNotFoundException: Class o.a.h.fs.s3a.S3AFileSystem not found")], r"hadoop-aws:VERSION"),
        ([("java.lang.IllegalStateException", "something else\nat a.b.c")], "^something else$"),
    ],
)
def test_one_line_with_the_way_out(chain: list[tuple[str, str]], found: str) -> None:
    line = explain_store_error(chain, S3)
    assert re.search(found, line)
    assert "\n" not in line


def test_the_location_is_named() -> None:
    assert str(as_os_error(ValueError("no"), S3)) == "s3a://bucket/log: no"


def test_a_failed_task_is_told_by_its_store_or_in_sparks_own_words() -> None:
    task = "Job aborted due to stage failure: Task 0 in stage 5.0 failed 1 times: Lost task 0.0 in stage 5.0 (TID 5) (h executor driver): "
    local = Location.of("log", "/log")
    damaged = ValueError(f"{task}x.SparkException: Encountered error while reading file file:///a.parquet.\n\tat x")
    assert (
        str(explain_spark_error(damaged, [local, S3])) == "Spark: x.SparkException: Encountered error while reading file file:///a.parquet."
    )
    assert re.match(
        "s3a://bucket/log: credentials are missing or not enough .*AWS_ACCESS_KEY_ID",
        str(
            explain_spark_error(
                ValueError(f"{task}java.nio.file.AccessDeniedException: s3a://bucket/log/x: NoAuthWithAWSException"), [local, S3]
            )
        ),
    )


def test_what_a_python_worker_raised_is_told_whole() -> None:
    """findings.md 8, 7: "An exception was thrown from the Python worker:" and no more."""
    trace = (
        'Traceback (most recent call last):\n  File "worker.py", line 9, in main\n    process()\n  File "usage.py", line 3, in _topics\n'
        "    raise ValueError(name)\nValueError: a topic\nof two lines"
    )
    said = str(
        explain_spark_error(
            ValueError(f"An exception was thrown from the Python worker. Please see the stack trace below.\n{trace}\n\tat x.Y\n"), []
        )
    )
    assert said.splitlines()[0] == "a Python worker of Spark failed: of two lines"
    assert said.endswith(trace)
