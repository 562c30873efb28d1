"""The Spark session: finds Java, sets the options that the job relies on, reports missing programs.

The job relies on these: the time zone is UTC, overflow and bad casts raise (ANSI), Python workers run the interpreter the driver
runs. Functions that run on the workers are shipped by value, so `spark_jobs` need not be installed there; numpy and pyarrow must
be.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pwd
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from spark_jobs.errors import EnvironmentFaultError
from spark_jobs.faults import Ended, SparkFaultError, explain_fault, is_of_spark, list_causes
from spark_jobs.sizing import GB, read_machine_memory, size_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIN_JAVA: Final = 17  # feature release; Spark 4 is compiled for it
JAVA_FOLDERS: Final = ("/usr/lib/jvm", "/opt/java", "/Library/Java/JavaVirtualMachines")  # Debian and Fedora; container images; macOS
INSTALL_JAVA: Final = "install one (Debian, Ubuntu: apt-get install openjdk-17-jre-headless) or point JAVA_HOME to it"
NAME_IT: Final = (
    "for a unit with DynamicUser=yes install what gives it one (Debian, Ubuntu: apt-get install libnss-systemd); else add it to /etc/passwd"
)
INSTALL_SPARK: Final = "install the extra: pip install 'sluice-gateway[spark]'"

QUICK_START: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # the light compiler and the light collector
# A batch job waits for no pause; G1 works beside it on cores it needs itself. Of a small heap one thread is enough, and the others of the
# parallel collector only wait for each other. Without MetaspaceSize Java collects the whole heap several times while it loads Spark.
# Most methods that Java finds hot at Spark's start are not hot for long: with its thresholds doubled its compilers took 6.6 CPU-s instead
# of 10 for a session and two queries (2026-11), and the rest no more.
LONG_RUN: Final = "-XX:+UseParallelGC -XX:MetaspaceSize=256m -XX:CompileThresholdScaling=2"
SMALL_HEAP: Final = "-XX:+UseSerialGC -XX:MetaspaceSize=256m -XX:CompileThresholdScaling=2"
SMALL_HEAP_BYTES: Final = 2 * GB  # the largest heap with SMALL_HEAP: a guess between this and MAX_HEAP, a large night
LAUNCHER: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # options of the Java that puts the command of the other one together
# Out of memory it ends at once, with code 3, and says so where we leave it out (NOISE): see `faults.py`.
END_WITHOUT_MEMORY: Final = "-XX:+ExitOnOutOfMemoryError -XX:+DisplayVMOutputToStderr"

LOOPBACK: Final = "127.0.0.1"  # address of a local master, which talks to its own processes only
GRACE_S: Final = 3.0  # seconds; for Java to stop its context and remove its files; it takes about 0.5 s (measured 2026-11)
NOISE: Final = (
    b"WARNING: Using incubator modules",
    b"Setting default log level to",
    b"To adjust logging level use",
    b"WARNING: package sun.",
    b"Terminating due to java.lang.OutOfMemoryError",
)

LOG4J: Final = """\
rootLogger.level = off
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss} spark %p %c{1}: %m%n%ex
"""


def java_version(home: Path) -> int | None:
    """The feature release (17, 21, …) of the Java at `home`, or None where none runs. Most say it in a file, which starts no Java."""
    binary = home / "bin" / "java"
    if not os.access(binary, os.X_OK):
        return None
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if said := re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', (home / "release").read_text(), re.MULTILINE):
            return int(said.group(1))
    try:
        done = subprocess.run([str(binary), "-version"], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found.group(1)) if found else None


def find_java(environment: Mapping[str, str], folders: tuple[str, ...] = JAVA_FOLDERS) -> Path:
    """The home of a Java that Spark runs on: JAVA_HOME, then PATH, then the usual places, oldest fit release first.

    Raises EnvironmentFaultError, which lists the found ones and says what to install.
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
        if version is not None and version >= MIN_JAVA:
            return home
        seen.append(f"{home} ({'not a Java' if version is None else f'Java {version}'})")
    installed = []
    for folder in folders:
        for home in sorted(Path(folder).glob("*")):
            for root in (home, home / "Contents" / "Home"):
                version = java_version(root)
                if version is not None and version >= MIN_JAVA:
                    installed.append((version, root))
                elif version is not None:
                    seen.append(f"{root} (Java {version})")
    if installed:
        return min(installed)[1]
    looked = f"; looked at {', '.join(dict.fromkeys(seen))}" if seen else ""
    raise EnvironmentFaultError(f"Spark needs Java {MIN_JAVA} or newer and found none{looked}: {INSTALL_JAVA}")


def require_a_name(uid: int) -> None:
    """Raise EnvironmentFaultError where the user `uid` has no name: Spark then ends at its start, with Java's stack trace."""
    try:
        pwd.getpwuid(uid)
    except KeyError:
        raise EnvironmentFaultError(f"Spark needs a user that has a name, and {uid} has none on this machine: {NAME_IT}") from None


def require_an_address(master: str) -> None:
    """Raise EnvironmentFaultError where this machine's name has no address, which the workers of a cluster ask the driver for.

    Spark would end at its start, with Java's stack trace and no word of what to do.
    """
    if local_cores(master) is not None or os.environ.get("SPARK_LOCAL_IP"):
        return
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError as error:
        raise EnvironmentFaultError(
            f"this machine's name, {name}, has no address ({error.strerror}), and the workers of {master} reach the driver by it: "
            "set SPARK_LOCAL_IP to an address of this machine that they reach, or add the name to /etc/hosts"
        ) from None


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
def spark_session(
    master: str | None, *, log_bytes: int = 0, driver_memory: str | None = None, conf: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session that ends with the block; a session that is already there is used and left open.

    `master` None leaves the choice to spark-submit. On a local master heap, partitions and Java's options follow `log_bytes`, the size of
    the lines to read (`sizing.py`): small work gets a Java that starts faster and runs slower, for most of a small night is compiling (50
    CPU-s without, 30 with it, 80,000 lines, 2026-11). `driver_memory` (`4g`) and `conf`, settings of Spark, come before these.
    Raises EnvironmentFaultError; SparkFaultError where Spark ends in the block for want of memory, disk or executors.
    """
    conf = dict(conf or {})
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
    if driver_memory is not None:
        if submitted:
            raise EnvironmentFaultError("--driver-memory comes too late, Java runs already: give it to spark-submit, before the program")
        conf["spark.driver.memory"] = driver_memory
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise workers start the first python3 on PATH
    with tempfile.TemporaryDirectory(prefix="sluice-spark-", ignore_cleanup_errors=True) as scratch:
        chosen = None if submitted and master is None else master or "local[*]"
        settings = _settings(chosen, Path(scratch), log_bytes, conf)
        if submitted:
            with _explain_faults(settings, None):
                session = _build(settings)
                try:
                    yield session
                finally:
                    session.stop()
        else:
            require_a_name(os.getuid())
            require_an_address(settings["spark.master"])
            os.environ["JAVA_HOME"] = str(find_java(os.environ))
            with OwnJava(settings, Path(scratch)) as java, _explain_faults(settings, java):
                session = _build(settings)
                try:
                    yield session
                finally:
                    if not java.interrupted and java.wait_for_end() is None:
                        session.stop()


@contextmanager
def _explain_faults(settings: Mapping[str, str], java: OwnJava | None) -> Iterator[None]:
    """Turn the errors of a Spark that cannot go on into SparkFaultError."""
    try:
        yield
    except Exception as error:
        if java is not None and java.interrupted:  # we ended it ourselves
            raise
        code = java.wait_for_end(GRACE_S) if java is not None and lost_touch(error) else None
        if code is None and not is_of_spark(error):
            raise
        master = settings.get("spark.master", "the cluster")
        local = local_cores(master) is not None
        folder = os.environ.get("SPARK_LOCAL_DIRS") or settings.get("spark.local.dir", "")
        line = explain_fault(error, Ended(master, local, settings.get("spark.driver.memory", "1g"), folder if local else "", code))
        if line is None:
            raise
        raise SparkFaultError(f"Spark: {line}") from error


def lost_touch(error: BaseException) -> bool:
    """Whether the way to Java broke, or Spark is gone from under it."""
    names = {type(each).__name__ for each in list_causes(error)}
    return bool(names & {"Py4JNetworkError", "ConnectionRefusedError", "ConnectionResetError", "BrokenPipeError", "Py4JError"})


class OwnJava:
    """The Java process of a session, ours from its first moment to its last: an interrupt never leaves it behind.

    pyspark would start it too, but keeps its pid until it answers, and its SIGINT handler calls a Java that is busy
    with another call. So we start it in a process group of its own, on SIGINT end it first and then raise KeyboardInterrupt, and pyspark
    finds it as it finds spark-submit's. Its stderr is passed on to ours, but for NOISE, and ends with an interrupt.
    """

    def __init__(self, settings: Mapping[str, str], scratch: Path) -> None:
        self._settings = settings
        self._scratch = scratch
        self._process: subprocess.Popen[bytes] | None = None
        self._pump: threading.Thread | None = None
        self._before: Any = None  # the handler of SIGINT before us
        self._starting = False
        self._hears = threading.current_thread() is threading.main_thread()  # signals are the main thread's
        self.interrupted = False

    def __enter__(self) -> OwnJava:
        try:
            if self._hears:
                self._before = signal.signal(signal.SIGINT, self._interrupt)
            self._start()
        except BaseException:
            self._end()
            logging.disable(logging.NOTSET)
            raise
        return self

    def wait_for_end(self, wait_s: float = 0.0) -> int | None:
        """The exit code of Java, which may take `wait_s` to end; None while it runs."""
        if self._process is None:
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(wait_s)
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self._end()
        logging.disable(logging.NOTSET)
        if self.interrupted and not isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt from None  # raised in a finaliser it would have been lost

    def _start(self) -> None:
        from pyspark import SparkContext
        from pyspark.find_spark_home import _find_spark_home
        from pyspark.serializers import UTF8Deserializer, read_int

        connection_file = self._scratch / "connection"
        command = [str(Path(_find_spark_home()) / "bin" / "spark-submit")]
        for name, value in self._settings.items():
            command += ["--conf", f"{name}={value}"]
        command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        environment = {**os.environ, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection_file)}
        environment.setdefault("SPARK_LAUNCHER_OPTS", LAUNCHER)
        if local_cores(self._settings.get("spark.master", "")) is not None:  # else Spark ends where the machine's name has no address
            environment.setdefault("SPARK_LOCAL_IP", LOOPBACK)
        self._starting = True
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # Java ends when it closes
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        self._starting = False
        if self.interrupted:
            raise KeyboardInterrupt
        self._pump = threading.Thread(target=self._pass_on, args=(self._process.stderr,), daemon=True)
        self._pump.start()
        while not connection_file.exists():
            if self._process.poll() is not None:
                raise EnvironmentFaultError(f"Java ended with {self._process.returncode} before Spark was ready; its messages are above")
            time.sleep(0.05)
        with connection_file.open("rb") as file:
            port: int = read_int(file)  # type: ignore[no-untyped-call]  # its annotations are missing
            secret: str = UTF8Deserializer().loads(file)  # type: ignore[no-untyped-call]
        os.environ |= {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
        try:
            SparkContext._ensure_initialized()
        finally:  # processes that we start are not in this session
            del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]

    def _interrupt(self, number: int, frame: object) -> None:
        del number, frame
        self.interrupted = True
        silence()
        self._signal(signal.SIGTERM)
        if not self._starting:
            raise KeyboardInterrupt

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _end(self) -> None:
        """End Java: with SIGTERM, then after GRACE_S with SIGKILL. pyspark forgets it."""
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        if self._hears:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not stop us from ending it
        gateway = SparkContext._gateway
        if gateway is not None and not self.interrupted:
            gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = None
        if self._process is not None:
            self._signal(signal.SIGTERM)
            try:
                self._process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
                self._process.wait()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # the rest of its group
            if self._process.stdin is not None:
                self._process.stdin.close()
        if self._pump is not None:
            self._pump.join(GRACE_S)
        if self._hears:
            signal.signal(signal.SIGINT, self._before)

    def _pass_on(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                if not self.interrupted and not line.startswith(NOISE):
                    sys.stderr.write(line.decode(errors="replace"))
                    sys.stderr.flush()

    def __repr__(self) -> str:
        state = "not started" if self._process is None else "running" if self._process.poll() is None else "ended"
        return f"<OwnJava {state} pid={self._process.pid if self._process is not None else None}>"


def silence() -> None:
    """Suppress the messages about a Java that we ended: py4j's log and exceptions of finalisers."""
    logging.disable(logging.CRITICAL)  # py4j logs an interrupted call with the root logger
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    sys.unraisablehook = lambda _: None


def _settings(master: str | None, scratch: Path, log_bytes: int, conf: Mapping[str, str]) -> dict[str, str]:
    """The settings that Spark starts with; `conf` comes before ours."""
    quiet = scratch / "log4j2.properties"
    quiet.write_text(LOG4J)
    cores = local_cores(master) if master is not None else None
    size = size_session(log_bytes, read_machine_memory(), cores or 1)
    java_options = ""
    if cores is not None:  # however it ends, it leaves no file in /tmp
        chosen = QUICK_START if size.quick else SMALL_HEAP if size.heap <= SMALL_HEAP_BYTES else LONG_RUN
        java_options = f"{chosen} {END_WITHOUT_MEMORY} -Djava.io.tmpdir={scratch} -XX:-UsePerfData"
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        # Workers are started with `python -m`, which puts the caller's folder first on sys.path: a profile.py there would end the job.
        "spark.executorEnv.PYTHONSAFEPATH": "1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{quiet} {java_options}".strip(),
    }
    if master is not None:
        settings["spark.master"] = master
    if cores is not None:
        # 200 shuffle partitions for some 10,000 rows would be 200 tasks of nothing, and planning every stage anew (adaptive execution)
        # cost a small night 40 of 65 CPU-s (2026-11). A cluster keeps its own settings.
        settings |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK, "spark.local.dir": str(scratch / "local")}
        settings |= size.settings()
        # The files of a local log are listed in no time; by default more than 32 are listed by a job of a task each.
        settings["spark.sql.sources.parallelPartitionDiscovery.threshold"] = "100000"
    if "spark.driver.extraJavaOptions" in conf:
        conf = {
            **conf,
            "spark.driver.extraJavaOptions": f"{settings['spark.driver.extraJavaOptions']} {conf['spark.driver.extraJavaOptions']}",
        }
    return settings | dict(conf)


def _build(settings: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("sluice-quotas")
    for name, value in settings.items():
        builder = builder.config(name, value)
    ours = signal.getsignal(signal.SIGINT)
    session = builder.getOrCreate()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, ours)  # pyspark's own handler calls Java from within the interrupted call
    session.sparkContext.setLogLevel(settings.get("spark.log.level", "OFF"))  # an exception says why a job ended, and once is enough
    _require(session)
    return session


def _require(session: SparkSession) -> None:
    """Set the options that the results rely on, on any session."""
    ship_by_value()
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)  # the exception says the same, without pages of JSON
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.ansi.enabled", "true")


def ship_by_value() -> None:
    """Let pyspark send our functions to the workers whole, not as names to import."""
    from pyspark import cloudpickle

    import spark_jobs

    cloudpickle.register_pickle_by_value(spark_jobs)  # type: ignore[no-untyped-call]  # its annotations are missing
