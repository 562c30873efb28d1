"""What a release is made from: the version, the moment its files carry, and copies of the files that git knows."""

from __future__ import annotations

import os
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from git_version import FILE, BuildVersion, UnknownVersionError, commit_moment, declared_version, read_version, run_git, stamp

ROOT: Final = Path(__file__).resolve().parents[2]


class RefusedError(Exception):
    """No release can be made of this; the message says why, and what to do."""


def version(root: Path = ROOT) -> str:
    """Of a build of these sources."""
    return read_version(root).text


def wheel_version(wheel: Path) -> str:
    """Of what is made of a wheel: git may have gone on since."""
    return wheel.name.split("-")[1]


def changes(wanted: str, root: Path = ROOT) -> str:
    """The text of the CHANGELOG's section of that version. Raises RefusedError where there is none."""
    day, text = _sections(root).get(wanted, ("", ""))
    if day and not text:
        raise RefusedError(f"CHANGELOG.md: the section of {wanted} is empty: write what has changed for users")
    if not day:
        head = f"## [{wanted}] - YYYY-MM-DD"
        raise RefusedError(f"CHANGELOG.md has no section `{head}`: name the changes of this version there, or set VERSION in {FILE}")
    return text


def changes_up_to(version: str, root: Path = ROOT) -> str:
    """The CHANGELOG's section of a release; of a build between two releases, the Unreleased part and the newest section."""
    sections = _sections(root)
    wanted = [version] if version in sections else list(sections)[:2]
    return "\n\n".join(f"[{name}]\n\n{sections[name][1]}" for name in wanted if sections[name][1])


def _sections(root: Path) -> dict[str, tuple[str, str]]:
    """Version or "Unreleased" -> the day (YYYY-MM-DD; "" without one) and the text; the newest first."""
    found = {}
    for section in re.split(r"^## ", (root / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]:
        head, _, text = section.partition("\n")
        if (named := re.fullmatch(r"\[([^]]+)\](?: - (\d\d\d\d-\d\d-\d\d))?\s*", head)) is not None:
            found[named[1]] = (named[2] or "", text.strip())
    return found


def check_release(found: BuildVersion, root: Path = ROOT) -> str:
    """What a build of these sources lacks to be published, in a sentence; "" where it lacks nothing.

    Raises RefusedError where its version would be wrong: commits that cannot be counted, a tag without its section of the CHANGELOG.
    """
    if found.commits is None:
        raise RefusedError("git cannot count the commits, so the version would be wrong: git fetch --unshallow --tags")
    if found.tag and found.commits == 0:
        if found.tag != f"v{declared_version(root)}":
            raise RefusedError(f"the tag is {found.tag}, and VERSION in {FILE} is {declared_version(root)}: set it, and tag that commit")
        changes(found.tag[1:], root)
        if _sections(root).get("Unreleased", ("", ""))[1]:
            raise RefusedError("CHANGELOG.md has changes under [Unreleased]: move them into the version's section, and tag that commit")
        return "files differ from the commit of the tag" if found.changed else ""
    return f"no tag v{declared_version(root)} on this commit"


def moment(root: Path = ROOT) -> int:
    """Unix seconds that all files carry: SOURCE_DATE_EPOCH, or when the commit was made; without git, the CHANGELOG's newest day."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    try:
        return commit_moment(root)
    except UnknownVersionError:
        days = [day for day, _ in _sections(root).values() if day]
        if not days:
            raise RefusedError("neither git nor a day in CHANGELOG.md says how old the sources are: set SOURCE_DATE_EPOCH") from None
        return int(datetime.fromisoformat(days[0]).replace(tzinfo=UTC).timestamp())


def tracked(root: Path = ROOT) -> list[str]:
    """Paths of all files that git knows, as in the working tree; without git, those that a source distribution lists."""
    if (root / ".git").exists():
        listed = run_git(root, "ls-files", "-z")
        return sorted(name for name in listed.split("\0") if name and (root / name).is_file())
    listing = root / "build" / "sluice_gateway.egg-info" / "SOURCES.txt"
    if not listing.exists():
        raise RefusedError("neither a git checkout nor a source distribution: nothing says which files belong to the release")
    return sorted(name for name in listing.read_text().splitlines() if (root / name).is_file())


def copy(target: Path, root: Path = ROOT) -> None:
    """A clean copy of the sources in the new folder `target`, without git: nothing that lies about in the checkout gets into a release."""
    shutil.rmtree(target, ignore_errors=True)
    for name in tracked(root):
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, place)
        place.chmod(0o755 if os.access(root / name, os.X_OK) else 0o644)
    written = target / FILE
    written.write_text(stamp(written.read_text(), read_version(root)))
