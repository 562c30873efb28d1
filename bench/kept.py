"""Kept results: the JSON files of bench/results. Each says when (`at`), on what `machine` and at which `commit` it was measured.

    python bench/kept.py        # a line for each that is older than OLD commits of its rooms; `make lint` shows them

A `+` behind a commit: files of the tree differed from it. Results of before 28 November 2026 did not say their commit: theirs is the last
one before `at`.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
RESULTS: Final = ROOT / "bench" / "results"
PACKAGES: Final = ("admin", "cli", "common", "config", "gateway", "limiter", "spark_jobs")
OLD: Final = 100  # commits of its rooms, after which a result is called old
ROOMS: Final = {  # first word of a file's name -> the folders whose code it measures; STAMP: a run of `make bench`
    "STAMP": ("gateway", "limiter"),
    "admin": ("admin", "gateway"),
    "dear": ("gateway", "limiter"),
    "decisions": ("limiter",),
    "quotas": ("spark_jobs",),
    "review": ("gateway", "limiter"),
    "scale": ("gateway", "limiter"),
    "shares": ("gateway", "limiter"),
    "spool": ("gateway", "limiter"),
}


def git(*words: str, root: Path = ROOT) -> str:
    """What git says, or "" where it has nothing to say: no git, no repository, no such commit."""
    try:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def commit(root: Path = ROOT) -> str:
    """The commit of a tree, `+` behind it where its code differs; "" without git."""
    changed = git("status", "--porcelain", "--", *PACKAGES, root=root)
    return git("rev-parse", "--short=8", "HEAD", root=root) + ("+" if changed else "")


def congestion_control() -> str:
    """TCP's, of connections that do not ask for another: "cubic", "bbr"."""
    return Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()


def before(command: list[str]) -> dict[str, Any]:
    """What is said beside every number, taken before the work begins; `command` runs sluice."""
    version = subprocess.run([*command, "version"], capture_output=True, text=True, check=False).stdout
    machine = {
        "processors": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2), "congestion_control": congestion_control(),
    }  # fmt: skip
    at = datetime.now(UTC).isoformat(timespec="seconds")
    return {"at": at, "commit": commit(), "machine": machine, "sluice": " ".join(version.split())}


def keep(path: Path, facts: dict[str, Any], found: Any) -> None:
    """Write what was found, behind the facts that `before` gave. The file before of this name is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**facts, "found": found}, separators=(",", ":")) + "\n")
    print(f"kept: {path.name}", flush=True)


def files() -> list[Path]:
    """All that git has, so that a try of a benchmark is no kept result; without git all that are there."""
    listed = git("ls-files", str(RESULTS)).splitlines()
    return sorted(ROOT / name for name in listed if (ROOT / name).is_file()) if listed else sorted(RESULTS.glob("*.json"))


def rooms(path: Path) -> tuple[str, ...]:
    """KeyError for a name whose first word is not in ROOMS."""
    word = path.stem.partition("-")[0]
    return ROOMS["STAMP" if word[0].isdigit() else word]


def old_results(paths: list[Path], root: Path = ROOT) -> Iterator[str]:
    """A line for each that was measured more than OLD commits of its rooms ago. Nothing where git does not know its commit."""
    for path in paths:
        measured = json.loads(path.read_text())["commit"].rstrip("+")
        count = int(git("rev-list", "--count", f"{measured}..HEAD", "--", *rooms(path), root=root) or 0)
        if count > OLD:
            of = " and ".join(f"{room}/" for room in rooms(path))
            yield f"{path.relative_to(root)}: measured at {measured}, {count} commits of {of} ago"


if __name__ == "__main__":
    for line in old_results(files()):
        print(line)
