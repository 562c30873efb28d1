"""The entry point of the image sluice-quotas: a night; or, where Spark on Kubernetes starts the container, a driver or an executor.

    python3 -P -m sluice.spark_jobs.on_kubernetes --log /srv/access-log --state /srv/quota-state
    python3 -P -m sluice.spark_jobs.on_kubernetes driver --properties-file … local:///…/nightly.py --log …
    python3 -P -m sluice.spark_jobs.on_kubernetes executor

Spark gives the containers of its pods no command: it expects the image to know `driver` and `executor`, with everything else in variables,
as entrypoint.sh of its own image does.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from spark_jobs.errors import EnvironmentFaultError
from spark_jobs.session import find_java

DRIVER: Final = "driver"
EXECUTOR: Final = "executor"
BACKEND: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
BACKEND_OPTIONS: Final = {  # options of the executor, and the variable that Spark puts each into
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def argv(arguments: Sequence[str], environment: Mapping[str, str], *, spark: Path, java: Path) -> list[str]:
    """The program that the container becomes. `spark` and `java` are their homes. Raises KeyError for a variable that is not set."""
    if arguments[:1] == [DRIVER]:
        bound = f"spark.driver.bindAddress={environment['SPARK_DRIVER_BIND_ADDRESS']}"
        return [str(spark / "bin" / "spark-submit"), "--conf", bound, "--deploy-mode", "client", *arguments[1:]]
    if arguments[:1] == [EXECUTOR]:
        memory = environment["SPARK_EXECUTOR_MEMORY"]
        values = [word for option, name in BACKEND_OPTIONS.items() for word in (option, environment[name])]
        return [str(java / "bin" / "java"), *_java_options(environment), f"-Xms{memory}", f"-Xmx{memory}",
                "-cp", _class_path(environment, spark), BACKEND, *values]  # fmt: skip
    return [str(Path(sys.executable).parent / "sluice"), "quotas", "nightly", *arguments]


def _java_options(environment: Mapping[str, str]) -> list[str]:
    """Those of SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1 and so on."""
    numbers = sorted(int(found[1]) for name in environment if (found := re.fullmatch(r"SPARK_JAVA_OPT_(\d+)", name)))
    return [environment[f"SPARK_JAVA_OPT_{number}"] for number in numbers]


def _class_path(environment: Mapping[str, str], spark: Path) -> str:
    before = [environment.get("SPARK_CONF_DIR", ""), environment.get("HADOOP_CONF_DIR", "")]
    after = [environment.get("SPARK_EXTRA_CLASSPATH", ""), environment.get("SPARK_DIST_CLASSPATH", "")]
    return ":".join(filter(None, [*before, f"{spark}/jars/*", *after, str(Path.cwd())]))


def main(arguments: Sequence[str]) -> None:
    """Become that program. SystemExit, in one line, where it cannot."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        sys.exit("sluice: Spark is not installed: pip install 'sluice-gateway[spark]'")
    try:
        spark, java = Path(found.origin).parent, find_java(os.environ)
        words = argv(list(arguments), os.environ, spark=spark, java=java)
    except EnvironmentFaultError as error:
        sys.exit(f"sluice: {error}")
    except KeyError as missing:
        sys.exit(f"sluice: {missing} is not set: Spark on Kubernetes starts drivers and executors with it")
    ours = {"JAVA_HOME": str(java), "SPARK_HOME": str(spark), "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON") or sys.executable}
    os.execve(words[0], words, {**os.environ, **ours})  # noqa: S606  -- no shell


if __name__ == "__main__":
    main(sys.argv[1:])
