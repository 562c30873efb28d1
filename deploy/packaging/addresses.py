"""Where sluice is published: its project's page, and the registry of its images. pyproject.toml has both; the other files repeat them.

python deploy/packaging/addresses.py                       prints them
python deploy/packaging/addresses.py PROJECT REGISTRY      writes them into all files: make addresses
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
PLACES: Final = ("pyproject.toml", "deploy", "docs/deploy", "tests/deploy/kubernetes")
KINDS: Final = frozenset({".toml", ".yaml", ".yml", ".md", ".json", ".txt", ".tpl", ""})  # of files: none is a program


class Addresses(NamedTuple):
    """`project`: the URL of its page, without a slash at its end. `registry`: host and path before an image's name."""

    project: str
    registry: str


def addresses(root: Path = ROOT) -> Addresses:
    described = tomllib.loads((root / "pyproject.toml").read_text())
    return Addresses(described["project"]["urls"]["Homepage"], described["tool"]["sluice"]["registry"])


def maintainer(root: Path = ROOT) -> str:
    """Name and address, as in a Debian package."""
    (found,) = tomllib.loads((root / "pyproject.toml").read_text())["project"]["maintainers"]
    return f"{found['name']} <{found['email']}>"


def files(root: Path) -> Iterator[Path]:
    for name in PLACES:
        place = root / name
        yield from (place,) if place.is_file() else (path for path in sorted(place.rglob("*")) if path.is_file() and path.suffix in KINDS)


def write(new: Addresses, root: Path = ROOT) -> list[Path]:
    """Put the new addresses in place of those of now; the files that have changed."""
    old, changed = addresses(root), []
    for path in files(root):
        text = path.read_text()
        made = re.sub(rf"{re.escape(old.project)}(?=[/\"'\s.\]]|$)", new.project, text)
        made = re.sub(rf"(?<![\w.-]){re.escape(old.registry)}(?=[/\"])", new.registry, made)
        if made != text:
            path.write_text(made)
            changed.append(path)
    return changed


if __name__ == "__main__":
    if len(sys.argv) == len(Addresses._fields) + 1:
        print(*write(Addresses(sys.argv[1].rstrip("/"), sys.argv[2].rstrip("/"))), sep="\n")
    else:
        print(*addresses(), sep="\n")
