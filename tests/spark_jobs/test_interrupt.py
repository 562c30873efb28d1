"""Ctrl-C, or SIGTERM, while quotas are computed: one line, exit 130, and nothing left behind.

Each case has a Java of its own. `make test` has each signal, and an interrupt before there is a session and in one; `make test-long` the
others.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.access_logs import SyntheticLog, steady

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
DAY = "2026-11-20"
PATIENCE_S = 600.0


def processes_of(folder: Path) -> list[str]:
    """Command lines in which `folder` is named."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it has ended meanwhile
        if str(folder) in words:
            found.append(words)
    return found


@pytest.mark.parametrize(
    ("reached", "number"),
    [
        pytest.param("log4j2.properties", signal.SIGINT, marks=pytest.mark.long), ("connection", signal.SIGINT),
        pytest.param("local/blockmgr-*", signal.SIGINT, marks=pytest.mark.long), ("local/blockmgr-*", signal.SIGTERM),
    ],
    ids=["java starts", "java answers", "session", "session, SIGTERM"],
)  # fmt: skip
def test_an_interrupt_ends_java_and_says_one_line(tmp_path: Path, reached: str, number: signal.Signals) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    log = SyntheticLog(tmp_path / "log", DAY)
    log.run({"orders": steady(100)}, seconds=range(600), seed=1)
    log.write()
    words = ["quotas", "compute", "--log", "log", "--date", DAY, "--state", "state", "-o", "quotas.json", "--master", "local[1]"]
    words += ["--conf", "spark.ui.enabled=false"]  # with a setting of Spark it is never left out
    started = subprocess.Popen(
        [sys.executable, "-m", "cli", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(scratch)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with started:
        end = time.monotonic() + PATIENCE_S
        while not list(scratch.glob(f"sluice-spark-*/{reached}")):
            assert time.monotonic() < end, f"{reached} never came"
            assert started.poll() is None, "it ended before it could be interrupted"
            time.sleep(0.02)
        started.send_signal(number)
        _, said = started.communicate(timeout=PATIENCE_S)
    begun, *last = said.splitlines()
    assert (started.returncode, last) == (130, ["sluice: interrupted; no quotas were written"])
    assert begun.startswith(DAY)
    assert processes_of(scratch) == []
    assert list(scratch.iterdir()) == []
    assert not (tmp_path / "quotas.json").exists()
