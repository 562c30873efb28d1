"""Fuzz every target: `python tests/fuzz/run.py [--seconds 60] [--build compiled] [TARGET ...]`, or `make fuzz SECONDS=60 BUILD=compiled`.

The seconds are shared between the targets, one after the other, each in a process of its own. Of the source tree atheris looks for inputs
that reach something new, and keeps them under build/fuzz/TARGET from run to run. Compiled modules have no branches that it could see, so
of that build mutations of everything found so far are tried blindly, with other chance each time (`blind.py`). The committed corpus is
read, never written (`minimise.py` adds to it). A crash is written to tests/fuzz/crashes/TARGET: mend it, keep the file, and
`test_corpus.py` guards it from then on. Exits 1 when a target crashed.

build/fuzz/executions.json adds up what was run, of each target and build.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
sys.path[:] = [str(ROOT / "tests"), *(entry for entry in sys.path if entry not in ("", str(HERE), str(ROOT)))]

from fuzz import blind  # noqa: E402
from fuzz.inputs import CRASHES, FOUND, LONGEST, committed, names  # noqa: E402

SLOWEST_S = 10  # an input that takes longer is a fault, on a loaded machine too
MEMORY_MB = 1024
ACCOUNT = "executions.json"


def guided(name: str, seconds: int, found: Path, crashes: Path) -> None:
    """One target of the source tree under atheris, in this process, which ends with it."""
    import atheris

    sys.path.insert(0, str(ROOT))
    from fuzz.mutators import mutated
    from fuzz.targets import TARGETS

    with atheris.instrument_imports(include=["gateway", "limiter", "admin", "control_plane"]):
        target = TARGETS[name]

    for directory in (found / name, crashes / name):
        directory.mkdir(parents=True, exist_ok=True)

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        """Half of the time as libFuzzer does, which learns from comparisons."""
        luck = Random(seed)
        made: bytes = atheris.Mutate(data, most) if luck.random() < 0.5 else mutated(name, data, luck, most)
        return made

    atheris.Setup(
        [
            name,
            f"-max_total_time={seconds}",
            f"-max_len={LONGEST}",
            f"-timeout={SLOWEST_S}",
            f"-rss_limit_mb={MEMORY_MB}",
            f"-artifact_prefix={crashes / name}/",
            "-print_final_stats=1",
            "-verbosity=0",
            str(found / name),
            str(committed(name)),
        ],
        target,
        custom_mutator=mutate,
    )
    atheris.Fuzz()


def run_guided(name: str, seconds: int, found: Path, crashes: Path) -> tuple[int, str]:
    """How many inputs were run, and what was wrong; "": nothing."""
    command = [sys.executable, __file__, "--only", "--seconds", str(seconds), "--found", str(found), "--crashes", str(crashes), name]
    with tempfile.TemporaryDirectory(prefix="sluice-fuzz-", dir=blind.in_memory()) as folder:  # atheris leaves out `atexit`
        environment = {**os.environ, "TMPDIR": folder}
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment, check=False)
    output = done.stdout + done.stderr
    executions = sum(int(line.split()[-1]) for line in output.splitlines() if line.startswith("stat::number_of_executed_units:"))
    told = [line for line in output.splitlines() if not line.startswith(("INFO: ", "WARNING: Failed to find function"))]
    return executions, "\n".join(told)[:6000] or f"ended with {done.returncode}" if done.returncode else ""


def account(file: Path, build: str, name: str, executions: int, seconds: float) -> None:
    """Add a run to what was run before."""
    known = json.loads(file.read_text()) if file.exists() else {}
    entry = known.setdefault(build, {}).setdefault(name, {"executions": 0, "seconds": 0.0})
    entry["executions"] += executions
    entry["seconds"] = round(entry["seconds"] + seconds, 1)
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".new")
    draft.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    draft.replace(file)


def main() -> int:
    parser = argparse.ArgumentParser(description="fuzz every target for its share of the time")
    parser.add_argument("--seconds", type=int, default=60, help="for all targets together")
    parser.add_argument(
        "--build", choices=("source", "compiled"), default="source", help="what is fuzzed: this source tree, or the installed wheel"
    )
    parser.add_argument("--found", type=Path, default=FOUND, help="where inputs are kept, and the account")
    parser.add_argument("--crashes", type=Path, default=CRASHES, help=argparse.SUPPRESS)
    parser.add_argument("--only", action="store_true", help=argparse.SUPPRESS)  # one target under atheris, in this process
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(names())}")
    given = parser.parse_args()
    chosen = given.targets or names()
    unknown = set(chosen) - set(names())
    if unknown:
        parser.error(f"no such target: {', '.join(sorted(unknown))}; there are {', '.join(names())}")
    if given.only:
        guided(chosen[0], given.seconds, given.found, given.crashes)
        return 0
    failed = False
    total = 0
    for name in chosen:
        seconds = max(given.seconds // len(chosen), 1)
        began = time.monotonic()
        if given.build == "source":
            executions, fault = run_guided(name, seconds, given.found, given.crashes)
        else:
            executions, fault = blind.run(blind.Job(name, seconds, given.found, given.crashes, time.time_ns(), SLOWEST_S, MEMORY_MB))
        took = time.monotonic() - began
        account(given.found / ACCOUNT, given.build, name, executions, took)
        total += executions
        print(f"{name:20} {'CRASHED' if fault else 'ok':8} {executions:>12,} executions in {took:.0f} s", flush=True)
        if fault:
            failed = True
            print(fault, file=sys.stderr, flush=True)
    print(f"{'all':20} {'':8} {total:>12,} executions of the {given.build} build")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
