"""Versions with a section of their own in CHANGELOG.md: their sources out of git, and a state directory that each has left.

The samples are in tests/contracts/data/states/VERSION. Whoever gives a version its section makes its sample, from the working tree, and
adds the version to RELEASED once it has a tag:

    PYTHONPATH=.:tests .venv/bin/python -m support.released VERSION
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import yaml

from gateway.build import VERSION
from support.brokers.stand_ins import rocketmq
from support.environments import ROOT
from support.gateways import command, run_here
from support.processes import HANG_S, LOOPBACK, Process, free_ports
from support.rocketmq.frames import send

RELEASED: Final = {  # version -> its last commit, or its tag
    "0.1.0": "4760841a3a72",
    "0.2.0": "2fad0fd252a5",
}
COMING: Final = re.sub(r"\.?(dev|post|\+).*", "", VERSION)  # the release that this build leads to, or comes from
SAMPLES: Final = ROOT / "tests" / "contracts" / "data" / "states"
REASONS: Final = ("a first limit", "more of it", "a rule's change", "learned")  # of the changes in a sample, in their order
QUOTAS: Final = {
    "version": 1,
    "computed_at": "2026-11-21T01:00:00Z",
    "code": "0.1.0",
    "inputs": [],
    "parameters": {},
    "quotas": [{"protocol": "rocketmq", "topic": "learned", "messages": {"rate": 55, "burst": 110}, "evidence": {}}],
}
CHANGES: Final = (
    ("limits", "set", "rocketmq", "orders", "--messages", "77/s", "--reason", REASONS[0]),
    ("limits", "set", "rocketmq", "orders", "--messages", "78/s", "--reason", REASONS[1]),
    ("rules", "set", "all", "--messages", "99/s", "--reason", REASONS[2]),
    ("quotas", "apply", "quotas.json", "--reason", REASONS[3]),
)


def sources(version: str, folder: Path) -> Path:
    """The sources of a version in the new `folder`, out of git. Its `sluice version` says it, whatever is installed."""
    folder.mkdir(parents=True)
    words = ["git", "-C", str(ROOT), "archive", RELEASED[version]]
    packed = subprocess.run(words, check=False, capture_output=True)
    assert packed.returncode == 0, f"{version} is not in this checkout (a shallow clone? git fetch --unshallow): {packed.stderr.decode()}"
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed.stdout, check=True)
    about = folder / f"sluice_gateway-{version}.dist-info" / "METADATA"
    about.parent.mkdir()
    about.write_text(f"Metadata-Version: 2.1\nName: sluice-gateway\nVersion: {version}\n")
    return folder


def by_sources(folder: Path) -> list[str]:
    """The `sluice` of a source tree, run by this interpreter. Until 0.2.0 the command line was a part of the gateway."""
    module = "cli.main" if (folder / "cli").is_dir() else "gateway.cli.main"
    return ["env", f"PYTHONPATH={folder}", "PYTHONDONTWRITEBYTECODE=1", sys.executable, "-m", module]


class OldGateway:
    """A `sluice` of whichever version, with state/ in `folder`: a configuration that all versions take. A context manager."""

    def __init__(self, folder: Path, command: Sequence[str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.command = command
        self.port, self._admin_port = free_ports(2)
        self._broker = rocketmq()
        self._process: Process | None = None
        self.last: subprocess.CompletedProcess[str] | None = None  # of what a verb said

    def __enter__(self) -> OldGateway:
        self._broker.__enter__()
        listener = {"name": "rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:{self.port}", "upstream": self._broker.address}
        configuration = {
            "version": 1,
            "gateway": {"name": "sample", "state_directory": "state"},
            "listeners": [listener],
            "admin": {"bind": f"{LOOPBACK}:{self._admin_port}"},
            "rules": [{"name": "all", "per": "topic", "limit": {"messages": "100/s"}}],
        }
        (self.folder / "sluice.yaml").write_text(yaml.safe_dump(configuration))
        (self.folder / "quotas.json").write_text(json.dumps(QUOTAS))
        log = self.folder / f"log-{self.port}"
        self._process = Process([*self.command, "run", "-c", "sluice.yaml"], log=log, cwd=self.folder)
        try:
            self._process.wait_until(lambda: self.said("health") is not None, within=60, what="the gateway")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        try:
            self._process.stop()
        finally:
            self._broker.__exit__(None, None, None)

    def log(self) -> str:
        assert self._process is not None
        return self._process.output()

    def said(self, *words: str) -> str | None:
        """What a verb prints as JSON; None where it fails. Those of this version run in this process."""
        environment = {"SLUICE_ADMIN": f"http://{LOOPBACK}:{self._admin_port}", "SLUICE_TOKEN_FILE": "state/admin.token"}
        if self.command == command():
            done = run_here(words, environment, self.folder)
        else:
            done = subprocess.run(
                [*self.command, *words], cwd=self.folder, env=os.environ | environment, capture_output=True, text=True, check=False,
                timeout=HANG_S,
            )  # fmt: skip
        self.last = done
        return done.stdout if done.returncode == 0 else None

    def asked(self, *words: str) -> str:
        said = self.said(*words)
        assert said is not None, f"sluice {words}: {self.last}"
        return said

    def change(self) -> None:
        """What a sample has, and a message, so that a fill level is stored."""
        for words in CHANGES:
            self.asked(*words, *(() if words[0] == "limits" else ("--yes",)))
        with socket.create_connection((LOOPBACK, self.port), timeout=HANG_S) as client:
            client.sendall(send("orders", opaque=1))
            assert b'"code":0' in client.recv(1 << 16)


def make_sample(version: str) -> Path:
    """Run that version, change what it can, and keep what it leaves in its state directory. Raises ValueError where it is none."""
    if version not in {*RELEASED, COMING}:
        raise ValueError(f"{version} is neither in RELEASED nor the VERSION of gateway/build.py, {COMING}")
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        tree = sources(version, folder / "sources") if version in RELEASED else ROOT
        with OldGateway(folder / "run", by_sources(tree)) as gateway:
            gateway.change()
        target = SAMPLES / version
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(folder / "run" / "state", target, ignore=shutil.ignore_patterns("admin.token", "lock"))
    return target


def kept(version: str, folder: Path) -> Path:
    """A copy of the sample as the state of a gateway in `folder`. Git keeps no modes of files; a token must not be others' to read."""
    shutil.copytree(SAMPLES / version, folder / "state")
    for path in (folder / "state", *(folder / "state").rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return folder


def released() -> list[str]:
    """Versions that have a section in CHANGELOG.md, the oldest first."""
    heads = [line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## [") and "Unreleased" not in line]
    return sorted(head.partition("[")[2].partition("]")[0] for head in heads)


if __name__ == "__main__":
    print(make_sample(sys.argv[1]))
