"""Somebody who copies what a page shows into a shell, and the programs that stand in for what a test machine has not."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Final

from support.gateways import command
from support.pages import ROOT, Block
from support.processes import Process

DEPLOY_FOLDER: Final = f"{quote(str(ROOT))}/deploy/"  # as a shell takes it
ASSIGNMENT: Final = re.compile(r"(?:export )?\w+=(?:\"[^\"]*\"|\$\([^)]*\)|\S+)\s*")


# Programs that a test machine has not, or that would change it. Each takes what the pages say to it, and ends with 1 for anything else.

# systemd: a unit is one that `deploy/systemd` has, and to be started it must lie where systemd looks, which the reader's folder stands for.
SYSTEMCTL: Final = f"""\
verb=$1; shift
[ "${{1:-}}" != --now ] || shift
case $verb in
daemon-reload) exit 0 ;;
enable|start) for unit in "$@"; do
    [ -f "$READER/etc/systemd/system/$unit" ] || [ -f "$READER/etc/systemd/system/$unit.service" ] || exit 1; done ;;
restart) [ -f "{ROOT}/deploy/systemd/$1.service" ] ;;
*) exit 1 ;;
esac"""
JOURNALCTL: Final = f'[ "$1" = -u ] && [ -f "{ROOT}/deploy/systemd/$2.service" ]'
# pip: a requirement is this product with an extra that pyproject.toml has, or what lies there as a file.
PIP: Final = f"""\
[ "$1" = install ] || exit 1
exec {quote(sys.executable)} - "$2" <<'END'
import os, re, sys, tomllib
extras = tomllib.load(open({str(ROOT / "pyproject.toml")!r}, "rb"))["project"]["optional-dependencies"]
asked = re.fullmatch(r"(sluice-gateway|dist/sluice_gateway-\\S+\\.whl)\\[(\\w+)\\]", sys.argv[1])
there = asked and (asked[1] == "sluice-gateway" or os.path.exists(asked[1]))
sys.exit(0 if there and asked[2] in extras else 1)
END"""
# apt-get: packages of names that the distribution could have, which nothing can say without its lists.
APT_GET: Final = """\
[ "$1" = install ] && [ "$2" = -y ] && shift 2 || exit 1
for name in "$@"; do echo "$name" | grep -Eqx '[a-z0-9][a-z0-9.+-]+' || exit 1; done"""
# ssh: the real one reads its options and says what it would do.
SSH: Final = 'exec /usr/bin/ssh -G "$@"'
# hdfs: the three commands of `hdfs dfs` that the page has, on a folder. As Hadoop's, `-put` refuses to write over a file.
HDFS: Final = """\
[ "$1" = dfs ] && shift || exit 1
case "$1" in
-test) [ "$2" = -e ] && [ $# = 3 ] && [ -e "$READER/hdfs$3" ] ;;
-mkdir) [ "$2" = -p ] && [ $# = 3 ] && mkdir -p "$READER/hdfs$3" ;;
-put) [ $# = 3 ] && [ ! -e "$READER/hdfs$3" ] && cp "$2" "$READER/hdfs$3" ;;
*) exit 1 ;;
esac"""

# kubectl: a Secret is made of files that are there, and mounted in $SECRETS; a base that is applied names resources that are there; `exec`
# runs the command beside the gateway that stands for the pod's.
KUBECTL: Final = f"""\
case "$1 $2" in
"create secret") [ "$3" = generic ] && shift 4
    for word in "$@"; do file=${{word#--from-file=}}; [ -s "$file" ] && cp "$file" "$SECRETS/" || exit 1; done ;;
"get secret") [ "$3 $4 $5" = "sluice-tokens -o jsonpath={{.data.operators}}" ] && base64 "$SECRETS/operators" ;;
"apply -k") exec {quote(sys.executable)} - "$3" <<'END'
import pathlib, sys, yaml
base = pathlib.Path(sys.argv[1])
assert all((base / name).is_file() for name in yaml.safe_load((base / "kustomization.yaml").read_text())["resources"])
END
    ;;
"rollout status") grep -rqs "^  name: ${{3#deployment/}}$" {DEPLOY_FOLDER}kubernetes/*/deployment.yaml ;;
"exec deployment/orders") [ "$3 $4 $5" = "-c sluice --" ] && shift 5 && exec "$@" ;;
*) exit 1 ;;
esac"""
# helm: a chart and a file of values that are there.
HELM: Final = '[ "$1" = install ] && [ -f "$3/Chart.yaml" ] && [ "$4" = -f ] && [ -f "$5" ]'


class Reader:
    """Somebody who copies a page's commands into a shell. One shell for all blocks of a page: variables and the folder go on."""

    def __init__(
        self, folder: Path, replaced: Mapping[str, str], environment: Mapping[str, str], stand_ins: Mapping[str, str] | None = None
    ) -> None:
        """`replaced`: ports and folders of the page -> the test's own; `stand_ins`: programs -> scripts in their place."""
        self.folder = folder
        self.replaced = dict(replaced)
        self.environment = os.environ | dict(environment)
        programs = folder / "programs"
        scripts = {
            programs / "sluice": f'exec {shlex.join(command())} "$@"',
            folder / ".venv" / "bin" / "sluice": f'exec {shlex.join(command())} "$@"',
            programs / "python": f'exec {quote(sys.executable)} "$@"',
        }
        for place, script in (scripts | {programs / name: script for name, script in (stand_ins or {}).items()}).items():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(f"#!/bin/sh\n{script}\n")
            place.chmod(0o755)
        self.environment["READER"] = str(folder)
        self.environment["PATH"] = f"{programs}:{os.environ['PATH']}"
        self.done: list[str] = []
        self.outputs: list[str] = []
        self.started: list[Process] = []

    def here(self, text: str) -> str:
        """The text with the page's ports and folders replaced, all at once: what is put in is not replaced again."""
        if not self.replaced:
            return text
        theirs = sorted(self.replaced, key=len, reverse=True)
        return re.sub("|".join(map(re.escape, theirs)), lambda found: self.replaced[found[0]], text)

    def run(self, block: Block, *, within: float = 300) -> str:
        """Run a block behind those before it; returns its output. Fails where a command of it fails."""
        mark = f"--- {block.id}"
        script = "\n".join(["set -eu", *self.done, f"echo '{mark}'", self.here(block.text)])
        ran = subprocess.run(
            ["bash", "-c", script], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=within, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, f"{block.id}: exit {ran.returncode}\n{self.here(block.text)}\n{ran.stdout}\n{ran.stderr}"
        self.done += [line for line in self.here(block.text).splitlines() if ASSIGNMENT.fullmatch(line)]
        self.outputs.append(ran.stdout.rpartition(mark)[2].strip())
        return self.outputs[-1]

    def start(self, line: str) -> Process:
        """Start a command that goes on until it is stopped."""
        process = Process(["bash", "-c", f"exec {self.here(line)}"], log=self.folder / f"started-{len(self.started)}.log",
                          cwd=self.folder, env=self.environment)  # fmt: skip
        self.started.append(process)
        return process

    def close(self) -> None:
        for process in self.started:
            process.stop()
