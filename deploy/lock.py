"""Reads the lock files: what pip installs, each at one version, with the hashes of all its files.

python deploy/lock.py deploy/requirements.lock setuptools wheel     print these entries, for pip's --require-hashes
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final, NamedTuple

HERE: Final = Path(__file__).parent
REQUIREMENTS: Final = HERE / "requirements.lock"
TOOLS: Final = HERE / "tools.lock"
ENTRY: Final = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+)(?: ; (?P<marker>[^\\]+?))? \\")
HASH: Final = re.compile(r"    --hash=sha256:[0-9a-f]{64}(?: \\)?")


class Locked(NamedTuple):
    """An entry. `text`: its lines, with its hashes."""

    name: str
    version: str
    hashes: int
    text: str


def normal(name: str) -> str:
    """As indexes compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read(file: Path) -> dict[str, Locked]:
    """By normal name. Raises ValueError, with the line, where something else stands there than versions and hashes."""
    found: dict[str, Locked] = {}
    lines: list[str] = []
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if line.startswith("#"):
            continue
        entry = ENTRY.fullmatch(line)
        if entry is not None:
            lines = [line]
            name, version = normal(entry["name"]), entry["version"]
        elif lines and HASH.fullmatch(line):
            lines.append(line)
        else:
            raise ValueError(f"{file}:{number}: neither NAME==VERSION nor a hash: {line}; write the file anew: make lock")
        found[name] = Locked(name, version, len(lines) - 1, "\n".join(lines))
    return found


def main() -> None:
    file, *names = sys.argv[1:]
    locked = read(Path(file))
    unknown = [name for name in names if normal(name) not in locked]
    if unknown:
        sys.exit(f"{file} has no {', '.join(unknown)}: make lock")
    print("\n".join(locked[normal(name)].text for name in names))


if __name__ == "__main__":
    main()
