"""Fuzz every target: `python tests/fuzz/run.py [--seconds 60] [TARGET ...]`, or `make fuzz SECONDS=60`.

The seconds are shared between the targets, one after the other, each in a process of its own (atheris does not return). Inputs that reach
something new are kept under build/fuzz/TARGET from run to run; the committed corpus is read, never written. A crash is written to
tests/fuzz/crashes/TARGET: mend it, keep the file, and `test_corpus.py` guards it from then on. Exits 1 when a target crashed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
LONGEST = 4096  # bytes of input: enough for some dozen frames
SLOWEST_S = 10  # an input that takes longer is a fault, on a loaded machine too
MEMORY_MB = 1024


def fuzz(name: str, seconds: int) -> None:
    """One target, in this process, which ends with it."""
    import atheris

    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]  # the source tree: a fuzzer sees no branches in compiled modules
    sys.path = [entry for entry in sys.path if entry != str(HERE)]
    with atheris.instrument_imports(include=["gateway", "limiter"]):
        from fuzz.targets import TARGETS

    found = ROOT / "build/fuzz" / name
    crashes = HERE / "crashes" / name
    for directory in (found, crashes):
        directory.mkdir(parents=True, exist_ok=True)
    atheris.Setup(
        [
            name,
            f"-max_total_time={seconds}",
            f"-max_len={LONGEST}",
            f"-timeout={SLOWEST_S}",
            f"-rss_limit_mb={MEMORY_MB}",
            f"-artifact_prefix={crashes}/",
            "-print_final_stats=1",
            "-verbosity=0",
            str(found),
            str(HERE / "corpus" / name),
        ],
        TARGETS[name],
    )
    atheris.Fuzz()


def names() -> list[str]:
    return sorted(directory.name for directory in (HERE / "corpus").iterdir())


def executions(output: str) -> str:
    for line in output.splitlines():
        if line.startswith("stat::number_of_executed_units:"):
            return f"{int(line.split()[-1]):,}"
    return "?"


def main() -> int:
    parser = argparse.ArgumentParser(description="fuzz every target for its share of the time")
    parser.add_argument("--seconds", type=int, default=60, help="for all targets together")
    parser.add_argument("--only", action="store_true", help=argparse.SUPPRESS)  # one target, in this process
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(names())}")
    given = parser.parse_args()
    chosen = given.targets or names()
    unknown = set(chosen) - set(names())
    if unknown:
        parser.error(f"no such target: {', '.join(sorted(unknown))}; there are {', '.join(names())}")
    if given.only:
        fuzz(chosen[0], given.seconds)
        return 0
    failed = []
    for name in chosen:
        seconds = max(given.seconds // len(chosen), 1)
        command = [sys.executable, __file__, "--only", "--seconds", str(seconds), name]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=os.environ, check=False)
        output = done.stdout + done.stderr
        print(f"{name:20} {'CRASHED' if done.returncode else 'ok':8} {executions(output):>12} executions in {seconds} s", flush=True)
        if done.returncode:
            failed.append(name)
            told = [line for line in output.splitlines() if not line.startswith(("INFO: ", "WARNING: Failed to find function"))]
            print("\n".join(told)[:6000], file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
