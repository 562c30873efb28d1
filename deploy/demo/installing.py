"""What the demo does not wait for: `make install` beside the story, which plays from the source tree until then."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable

from story import ROOT, SLUICE, say  # isort: skip  -- sets the path to the tests' support
from support.processes import Process

LOG = ROOT / "build" / "demo-install.log"


class Installing:
    """`make install` as a process of lower priority; none, where all is installed. `command`: how `sluice` is called meanwhile."""

    def __init__(self, make: str, spark: str) -> None:
        """`spark`: the target that installs Spark's packages."""
        self._spark = spark
        self._make = [make, "--no-print-directory", "-C", str(ROOT)]
        self._environment = {
            name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL"}
        }  # of the make around us
        self._process: Process | None = None
        self.command = SLUICE
        if not self._is_made("install"):
            LOG.parent.mkdir(exist_ok=True)
            LOG.unlink(missing_ok=True)
            self._process = Process(["nice", "-n", "5", *self._make, spark, "install"], log=LOG, env=self._environment)
            self.command = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "cli.main"]

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.alive()

    def _is_made(self, target: str) -> bool:
        return subprocess.run([*self._make, "-q", target], env=self._environment, capture_output=True, check=False).returncode == 0

    def wait_for_spark(self) -> None:
        """Until Spark can start."""
        self._wait(lambda: self._is_made(self._spark), "Spark's packages are still being installed")

    def finish(self) -> None:
        """Until the product is installed, and say so."""
        if self._process is None:
            return
        self._wait(
            lambda: self._process is None or self._process.popen.poll() == 0,
            "The compiled build is still being made (Ctrl+C leaves it to `make install`)",
        )
        done = subprocess.run([*SLUICE, "version"], capture_output=True, text=True, check=True)
        say(f"\nInstalled meanwhile, as {SLUICE[0]}: " + ", ".join(" ".join(line.split()) for line in done.stdout.splitlines()[:2]))

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        began, told = time.monotonic(), -30.0
        while not done():
            if self._process is not None and self._process.popen.poll():
                raise RuntimeError(
                    f"`make install` ended with {self._process.popen.returncode}; {LOG} ends with:\n{self._process.output()[-2000:]}"
                )
            if (waited := time.monotonic() - began) >= told + 30:
                told = waited
                say(f"{what} ({waited:.0f} s) ...")
            time.sleep(1)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
