"""The Spark session: finds Java, sets what the job relies on, says what is missing.

What the job relies on: the time zone is UTC, overflow and bad casts raise (ANSI), Python workers run the interpreter the driver
runs. Functions that run on the workers are shipped by value, so `spark_jobs` need not be installed there; numpy and pyarrow must
be.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_jobs.errors import EnvironmentFaultError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA: Final = 17  # Spark 4 is compiled for it
PLACES: Final = ("/usr/lib/jvm", "/opt/java", "/Library/Java/JavaVirtualMachines")  # Debian and Fedora; container images; macOS
INSTALL_JAVA: Final = "install one (Debian, Ubuntu: apt-get install openjdk-17-jre-headless) or point JAVA_HOME to it"
INSTALL_SPARK: Final = "install the extra: pip install 'sluice-gateway[spark]'"

QUICK_START: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # the light compiler and the light collector

LOG4J: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss} spark %p %c{1}: %m%n%ex
"""


def java_version(home: Path) -> int | None:
    """The feature release (17, 21, …) of the Java at `home`, or None where none runs."""
    binary = home / "bin" / "java"
    if not os.access(binary, os.X_OK):
        return None
    try:
        done = subprocess.run([str(binary), "-version"], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found.group(1)) if found else None


def find_java(environment: Mapping[str, str], places: tuple[str, ...] = PLACES) -> Path:
    """The home of a Java that Spark runs on: JAVA_HOME, then PATH, then the usual places, oldest fit release first.

    Raises EnvironmentFaultError, which lists what was found and says what to install.
    """
    candidates: list[Path] = []
    if environment.get("JAVA_HOME"):
        candidates.append(Path(environment["JAVA_HOME"]))
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path is not None:
        candidates.append(Path(on_path).resolve().parents[1])
    seen: list[str] = []
    for home in candidates:
        version = java_version(home)
        if version is not None and version >= OLDEST_JAVA:
            return home
        seen.append(f"{home} ({'not a Java' if version is None else f'Java {version}'})")
    installed = []
    for place in places:
        for home in sorted(Path(place).glob("*")):
            for root in (home, home / "Contents" / "Home"):
                version = java_version(root)
                if version is not None and version >= OLDEST_JAVA:
                    installed.append((version, root))
                elif version is not None:
                    seen.append(f"{root} (Java {version})")
    if installed:
        return min(installed)[1]
    looked = f"; looked at {', '.join(dict.fromkeys(seen))}" if seen else ""
    raise EnvironmentFaultError(f"Spark needs Java {OLDEST_JAVA} or newer and found none{looked}: {INSTALL_JAVA}")


def local_cores(master: str) -> int | None:
    """How many cores a local master uses; None for a cluster."""
    found = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", master)
    if found is None:
        return None
    cores = found.group(1)
    if cores is None:
        return 1
    return len(os.sched_getaffinity(0)) if cores == "*" else int(cores)


@contextmanager
def spark_session(master: str | None, *, small: bool = False) -> Iterator[SparkSession]:
    """A session that ends with the block; a session that is already there is used and left open.

    `master` None leaves the choice to spark-submit. `small` work on a local master gets a Java that starts faster and runs slower:
    most of a small night is compiling (50 CPU-s without, 30 with it, 80,000 lines, 2026-11). Raises EnvironmentFaultError.
    """
    try:
        import numpy  # noqa: F401 - the workers need it: say so before they fail
        import pyarrow  # noqa: F401
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise EnvironmentFaultError(f"{error.name} is not installed: {INSTALL_SPARK}") from error
    active = SparkSession.getActiveSession()
    if active is not None:
        _require(active)
        yield active
        return
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # set by spark-submit for the driver it starts
    if not submitted:
        os.environ["JAVA_HOME"] = str(find_java(os.environ))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise workers start the first python3 on PATH
    with tempfile.TemporaryDirectory(prefix="sluice-spark-") as scratch:
        session = _build(None if submitted and master is None else master or "local[*]", Path(scratch), QUICK_START if small else "")
        try:
            yield session
        finally:
            session.stop()


def _build(master: str | None, scratch: Path, java_options: str) -> SparkSession:
    from pyspark.sql import SparkSession

    quiet = scratch / "log4j2.properties"
    quiet.write_text(LOG4J)
    builder = (
        SparkSession.builder.appName("sluice-quotas")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.ansi.enabled", "true")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
    )
    local = master is not None and local_cores(master) is not None
    own_java = f"-Dlog4j2.configurationFile=file:{quiet} {java_options if local else ''}"
    builder = builder.config("spark.driver.extraJavaOptions", own_java)
    if master is not None:
        builder = builder.master(master)
    if local:
        builder = (
            builder.config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.local.dir", str(scratch / "local"))
        )
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    cores = local_cores(str(session.sparkContext.master))
    if cores is not None:
        # 200 shuffle partitions for some 10,000 rows would be 200 tasks of nothing, and planning every stage anew (adaptive execution)
        # cost a small night 40 of 65 CPU-s (2026-11). A cluster keeps its own settings.
        session.conf.set("spark.sql.shuffle.partitions", str(cores))
        session.conf.set("spark.sql.adaptive.enabled", "false")
    _require(session)
    return session


def _require(session: SparkSession) -> None:
    """Set what the results rely on, whoever made the session."""
    ship_by_value()
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)  # the exception says the same, without pages of JSON
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.ansi.enabled", "true")


def ship_by_value() -> None:
    """Let pyspark send our functions to the workers whole, not as names to import."""
    from pyspark import cloudpickle

    import spark_jobs

    cloudpickle.register_pickle_by_value(spark_jobs)  # type: ignore[no-untyped-call]  # its annotations are missing
