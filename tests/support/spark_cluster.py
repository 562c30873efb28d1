"""A standalone Spark cluster of a master and two workers on this machine, from pyspark's own classes; it ends with the block."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from spark_jobs.session import QUICK_START, find_java
from support.processes import LOOPBACK, Process, free_ports

WORKERS = 2
READY_S = 60.0  # seconds for three JVMs on a busy machine


def spark_home() -> Path:
    import pyspark

    return Path(next(iter(pyspark.__path__)))


def environment(**more: str) -> dict[str, str]:
    """As a stranger has it: no path of ours; only the interpreter, its packages and a Java."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))}
    return kept | {
        "JAVA_HOME": str(find_java(os.environ)),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": LOOPBACK,
        **more,
    }


class Cluster(NamedTuple):
    """`master` as `--master` wants it; `work` holds a folder per worker with what its executors left."""

    master: str
    page: str
    work: Path

    def state(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.page}/json/", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def has_an_application(self) -> bool:
        try:
            return bool(self.state()["activeapps"])
        except (OSError, ValueError):  # the master is not there yet, or begins with a page in HTML
            return False

    def executors(self) -> list[str]:
        """Workers that ran an executor."""
        return sorted({path.parents[1].name for path in self.work.glob("worker-*/app-*/*")})


def submit(words: Sequence[str], *, cwd: Path, env: Mapping[str, str], within: float = 300) -> subprocess.CompletedProcess[str]:
    command = [str(spark_home() / "bin" / "spark-submit"), *words]
    return subprocess.run(command, cwd=cwd, env=dict(env), capture_output=True, text=True, timeout=within, check=False)


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """Yields once both workers are registered."""
    port, page, *pages = free_ports(2 + WORKERS)
    env = environment(SPARK_DAEMON_MEMORY="256m", SPARK_DAEMON_JAVA_OPTS=QUICK_START, SPARK_LOCAL_DIRS=str(folder / "local"))
    start = str(spark_home() / "bin" / "spark-class")
    of_master = ["--host", LOOPBACK, "--port", str(port), "--webui-port", str(page)]
    cluster = Cluster(f"spark://{LOOPBACK}:{port}", f"http://{LOOPBACK}:{page}", folder / "work")
    with ExitStack() as stack:
        master = [start, "org.apache.spark.deploy.master.Master", *of_master]
        processes = [stack.enter_context(Process(master, log=folder / "master.log", env=env, cwd=folder))]
        for number, of_worker in enumerate(pages):
            worker = [start, "org.apache.spark.deploy.worker.Worker", "--host", LOOPBACK, "--webui-port", str(of_worker), "--cores", "1"]
            worker += ["--memory", "1g", "--work-dir", str(cluster.work / f"worker-{number}"), cluster.master]
            processes.append(stack.enter_context(Process(worker, log=folder / f"worker-{number}.log", env=env, cwd=folder)))

        def registered() -> bool:
            assert all(process.alive() for process in processes), [process.output()[-1000:] for process in processes]
            try:
                return int(cluster.state()["aliveworkers"]) == WORKERS
            except (OSError, ValueError):  # not there yet, or a page in HTML: the master begins with those
                return False

        processes[0].wait_until(registered, within=READY_S, what="both workers register")
        yield cluster
