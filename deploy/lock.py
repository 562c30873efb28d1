"""Reads the lock files: what is installed, each at one version, with the hashes of all its files.

python deploy/lock.py deploy/requirements.lock setuptools 'wheel>=1'    print these entries and those they need, for --require-hashes
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
VIA: Final = "    # via "  # what needs the entry above; "-r FILE" is pyproject.toml itself


class Locked(NamedTuple):
    """An entry. `text`: its lines, with its hashes. `needed_by`: the normal names of the entries that need it."""

    name: str
    version: str
    hashes: int
    text: str
    needed_by: frozenset[str]


def normal(name: str) -> str:
    """As indexes compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read(file: Path) -> dict[str, Locked]:
    """By normal name. Raises ValueError, with the line, where something else stands there than versions and hashes."""
    found: dict[str, Locked] = {}
    lines: list[str] = []
    needed_by: frozenset[str] = frozenset()
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if line.startswith("#"):
            continue
        entry = ENTRY.fullmatch(line)
        if entry is not None:
            lines, needed_by = [line], frozenset()
            name, version = normal(entry["name"]), entry["version"]
        elif lines and HASH.fullmatch(line):
            lines.append(line)
        elif lines and line.startswith(VIA):
            needed_by = frozenset(normal(name) for name in line.removeprefix(VIA).split(", ") if not name.startswith("-r "))
        else:
            raise ValueError(f"{file}:{number}: neither NAME==VERSION nor a hash: {line}; write the file anew: make lock")
        found[name] = Locked(name, version, len(lines) - 1, "\n".join(lines), needed_by)
    return found


def with_needed(locked: dict[str, Locked], names: set[str]) -> set[str]:
    """The names and those of all that they need."""
    while more := {name for name, entry in locked.items() if entry.needed_by & names} - names:
        names = names | more
    return names


def main() -> None:
    file, *wanted = sys.argv[1:]
    locked = read(Path(file))
    names = {normal(re.split(r"[^\w.-]", text)[0]) for text in wanted}
    unknown = sorted(names - locked.keys())
    if unknown:
        sys.exit(f"{file} has no {', '.join(unknown)}: make lock")
    print("\n".join(locked[name].text for name in sorted(with_needed(locked, names))))


if __name__ == "__main__":
    main()
