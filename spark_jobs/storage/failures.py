"""Errors of the JVM about a store that cannot be used, as one line with the way out."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable
from typing import Any, Final

from spark_jobs.storage.location import SCHEMES, Location

# Hadoop's settings for the small reads and writes of the driver: a mute host is given up after 23 s (HDFS) or 68 s (S3) (measured
# 2026-11). A value that a person sets stays. Reading and writing by Spark itself keeps Hadoop's patience.
BRIEF: Final = {
    "fs.s3a.attempts.maximum": "1",  # the AWS client's own tries; the next one repeats them:
    "fs.s3a.retry.limit": "2",
    "fs.s3a.retry.interval": "500ms",
    "fs.s3a.connection.establish.timeout": "15s",  # S3A takes no less
    "fs.s3a.connection.timeout": "20s",
    "fs.s3a.connection.request.timeout": "20s",
    "ipc.client.connect.max.retries": "3",  # connection refused: one second apart
    "ipc.client.connect.max.retries.on.timeouts": "1",
    "ipc.client.connect.timeout": "10000",  # milliseconds
    "ipc.client.rpc-timeout.ms": "20000",
    "ipc.ping.interval": "20000",
    "dfs.client.failover.max.attempts": "6",  # name nodes in turn
}

CREDENTIALS: Final = {
    "s3a": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for the driver and the workers, or --conf spark.hadoop.fs.s3a.access.key and "
    ".secret.key, or --conf spark.hadoop.fs.s3a.aws.credentials.provider",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS, or --conf spark.hadoop.fs.gs.auth.type",
    "hdfs": "set HADOOP_USER_NAME, or log in with kinit",
}
_NO_CREDENTIALS: Final = re.compile(
    "NoAuthWithAWS|NoAwsCredentials|CredentialInitialization|Unable to load credentials|AccessDenied|AccessControlException"
    "|Permission denied|InvalidAccessKeyId|SignatureDoesNotMatch|Status Code: 40[13]\\b"
)
_NO_LIBRARY: Final = re.compile(r"No FileSystem for scheme|ClassNotFoundException|NoClassDefFoundError")
_NO_BUCKET: Final = re.compile(r"UnknownStoreException|NoSuchBucket|bucket does not exist", re.IGNORECASE)
_TASK: Final = re.compile(r"^Job aborted due to stage failure: .*? \(TID \d+\) \(.*?\): ")  # the name of the task is of no use
_RAISED: Final = re.compile(
    r"^Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*\S.*(?:\n(?!\tat |Driver stacktrace|Caused by).+)*", re.MULTILINE
)
MAX_TRACE_CHARS: Final = 8000  # characters at the end of a Python worker's traceback (a guess: a hundred lines)
_NO_HOST: Final = re.compile(r"UnknownHostException")
_AWAY: Final = re.compile(
    r"ConnectException|ConnectTimeout|SocketTimeout|NoRouteToHost|Connection refused|Unable to execute HTTP request"
    r"|ApiCallTimeout|SafeModeException"
)


def list_jvm_causes(error: BaseException) -> list[tuple[str, str]]:
    """(class, message) of an error of the JVM and its causes, outermost first; of any other error: its own."""
    java: Any = getattr(error, "java_exception", None)
    if java is None:
        return [(type(error).__name__, str(error))]
    found: list[tuple[str, str]] = []
    while java is not None and len(found) < 20:  # a cause that names itself would never end
        found.append((str(java.getClass().getName()), str(java.getMessage() or "")))
        java = java.getCause()
    return found


def as_os_error(error: BaseException, location: Location | None) -> OSError:
    """The error of a call on `location` as OSError of one line."""
    chain = list_jvm_causes(error)
    shown = str(location) if location is not None else ""
    if any(name.endswith("FileNotFoundException") for name, _ in chain) and not _NO_BUCKET.search(str(chain)):
        return FileNotFoundError(errno.ENOENT, "no such file", shown)
    return OSError(f"{shown}: {explain_store_error(chain, location)}" if shown else explain_store_error(chain, location))


def explain_store_error(chain: list[tuple[str, str]], location: Location | None) -> str:
    """The fault and the way out, in one line; the outermost message where the fault is not known here, or there is no location."""
    text = "\n".join(f"{name}: {message}" for name, message in chain)
    first = next((line.strip() for _, message in chain for line in message.splitlines() if line.strip()), chain[0][0])
    first = _TASK.sub("", first)
    if location is None:
        return first[:500]
    scheme = location.scheme
    if _NO_LIBRARY.search(text):
        library = SCHEMES.get(scheme)
        advice = f"--conf spark.jars.packages={library}:VERSION" if library else "add the connector's jar with --conf spark.jars.packages"
        if library is not None and library.startswith("org.apache.hadoop:"):
            advice += " (VERSION: that of the Hadoop in Spark's jars folder)"
        return f"Spark has no library for {scheme}:// ({first[:120]}); {advice}"
    if _NO_BUCKET.search(text):
        return "no such bucket; make it first, or mend the URL"
    if _NO_HOST.search(text):
        return f"the host is unknown ({first[:200]}); mend the URL or the endpoint (--conf spark.hadoop.fs.{scheme}.endpoint)"
    if _AWAY.search(text):
        return f"it cannot be reached ({first[:200]}); is it up, and are host, port or endpoint right?"
    if _NO_CREDENTIALS.search(text):
        advice = CREDENTIALS.get(scheme, "give the driver and the workers an account that may read and write there")
        return f"credentials are missing or not enough ({first[:200]}); {advice}"
    return first[:500]


def explain_spark_error(error: BaseException, places: Iterable[Location]) -> OSError:
    """An error of a Spark job on `places`, as OSError of one line: the fault of the store that it names, else Spark's own words. The
    error of a Python worker is told whole, its last line first: it is a fault of ours, and a report of it needs all of it."""
    chain = list_jvm_causes(error)
    raised = next((found for _, message in chain if (found := _RAISED.search(message))), None)
    if raised is not None:
        trace = raised[0].strip()
        return OSError(f"a Python worker of Spark failed: {trace.splitlines()[-1]}\n{trace[-MAX_TRACE_CHARS:]}")
    text = "\n".join(message for _, message in chain)
    for place in places:
        if not place.is_local and (place.authority or place.path) in text:
            return OSError(f"{place}: {explain_store_error(chain, place)}")
    return OSError(f"Spark: {explain_store_error(chain, None)}")
