"""What the JVM says of a store that cannot be used becomes one line with the way out."""

from __future__ import annotations

import pytest

from spark_jobs.storage.failures import as_os_error, explained
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
    import re

    line = explained(chain, S3)
    assert re.search(found, line)
    assert "\n" not in line


def test_the_location_is_named() -> None:
    assert str(as_os_error(ValueError("no"), S3)) == "s3a://bucket/log: no"
