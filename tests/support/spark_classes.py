"""Java's archive of the classes that the quota job uses (class data sharing): with it a session of Spark starts in two thirds of the time.

`python -m support.spark_classes FILE` computes the quotas of a small day and keeps what Java has loaded by then; 100 MiB, 20 CPU-s.
Java takes the archive where it is from the same Java and the same jars, and else goes on without it, silently.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from spark_jobs.commands import compute
from spark_jobs.session import spark_session
from support.access_logs import SyntheticLog, bursts, steady
from support.java import tool

DATE = "2026-11-20"
RECORD = "-XX:+RecordDynamicDumpInfo -Xlog:disable"  # Java would name each of four thousand classes that it leaves out


def make(archive: Path) -> None:
    """Write `archive`; it is there whole, or not at all. Raises RuntimeError where Java could not."""
    draft = archive.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, spark_session("local[2]", conf={"spark.driver.extraJavaOptions": RECORD}) as spark:
        folder = Path(name)
        log = SyntheticLog(folder / "log", DATE, "g1")
        log.run({"orders": steady(100), "audit": bursts(5, 400, every=30)}, range(3540, 3660), seed=1, limit=300)
        log.write()
        code = compute(folder / "log", DATE, folder / "state", folder / "quotas.json", now="2026-11-21T01:00:00Z", min_active_days=1)
        assert code == 0, f"the quotas of a small day could not be computed: {code}"
        java = spark.sparkContext._jvm
        assert java is not None
        pid = str(java.java.lang.ProcessHandle.current().pid())
        command = [tool("jcmd", "openjdk-17-jdk-headless"), pid, "VM.cds", "dynamic_dump", str(draft)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode or not draft.exists():
            raise RuntimeError(f"Java wrote no archive of its classes: {(done.stdout + done.stderr)[-500:]}")
    draft.replace(archive)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
