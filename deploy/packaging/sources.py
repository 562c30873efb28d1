"""What a release is made from: the version, the moment its files carry, and copies of the files that git knows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
_VERSION: Final = re.compile(r'^VERSION\b.*"(.+)"', re.MULTILINE)


class RefusedError(Exception):
    """No release can be made of this; the message says why, and what to do."""


def version(root: Path = ROOT) -> str:
    """As `gateway/build.py` has it: the one place."""
    found = _VERSION.search((root / "gateway" / "build.py").read_text())
    if found is None:
        raise RefusedError("gateway/build.py has no VERSION")
    return found[1]


def changes(root: Path = ROOT) -> tuple[str, str]:
    """The day (YYYY-MM-DD) and the text of the CHANGELOG's section of this version. Raises RefusedError where there is none."""
    wanted = version(root)
    sections = re.split(r"^## ", (root / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]
    for section in sections:
        head, _, text = section.partition("\n")
        dated = re.fullmatch(rf"\[{re.escape(wanted)}\] - (\d\d\d\d-\d\d-\d\d)\s*", head)
        if dated is not None:
            if not text.strip():
                raise RefusedError(f"CHANGELOG.md: the section of {wanted} is empty: write what has changed for users")
            return dated[1], text.strip()
    head = f"## [{wanted}] - YYYY-MM-DD"
    raise RefusedError(f"CHANGELOG.md has no section `{head}`: name the changes of this version there, or set VERSION in gateway/build.py")


def unreleased(root: Path = ROOT) -> int:
    """How many changes the CHANGELOG has under [Unreleased]: they are in what is built, and not in the section of its version."""
    _, _, rest = (root / "CHANGELOG.md").read_text().partition("\n## [Unreleased]")
    return rest.partition("\n## ")[0].count("\n* ")


def moment(root: Path = ROOT) -> int:
    """Unix seconds that all files of the release carry: SOURCE_DATE_EPOCH, or the day in the CHANGELOG, so that a rebuild has the same."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    day, _ = changes(root)
    return int(given) if given else int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp())


def tracked(root: Path = ROOT) -> list[str]:
    """Paths of all files that git knows, as in the working tree; without git, those that a source distribution lists."""
    if (root / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
        return sorted(name for name in listed.split("\0") if name and (root / name).is_file())
    listing = root / "build" / "sluice_gateway.egg-info" / "SOURCES.txt"
    if not listing.exists():
        raise RefusedError("neither a git checkout nor a source distribution: nothing says which files belong to the release")
    return sorted(name for name in listing.read_text().splitlines() if (root / name).is_file())


def copy(target: Path, root: Path = ROOT) -> None:
    """A clean copy of the sources in the new folder `target`: nothing that lies about in the checkout gets into a release."""
    shutil.rmtree(target, ignore_errors=True)
    for name in tracked(root):
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, place)
        place.chmod(0o755 if os.access(root / name, os.X_OK) else 0o644)


if __name__ == "__main__":
    try:
        changes()
        print(version())
    except RefusedError as refused:
        sys.exit(f"sources.py: {refused}")
