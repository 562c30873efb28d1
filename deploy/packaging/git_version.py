"""The version of a build, from git: each build is newer than the ones before it, for pip (PEP 440) and for dpkg.

    0.3.0.dev1017+gd0511bfe4           1,017 commits, and no tag of 0.3.0 or newer among them
    0.3.0                              the commit that has the tag v0.3.0
    0.3.0.post5+g1c2d3e4f5             five commits after it
    0.3.0.post5+g1c2d3e4f5.changed     with files that git knows and that were changed since

`VERSION` in gateway/build.py says which release the work leads to. A tag of that release or of a newer one counts instead of it. What has
no git, a source distribution, a wheel and what is made of it, has these facts written into its gateway/build.py.

python deploy/packaging/git_version.py      prints the version of this checkout
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
FILE: Final = "gateway/build.py"
_SHORT: Final = 9  # characters of a commit in a version
CHANGED: Final = ".changed"  # files that git knows are not as in the commit
_VERSION: Final = re.compile(r"(\d+(?:\.\d+)*)(?:(a|b|rc)(\d+))?")


class BuildVersion(NamedTuple):
    """`commits`: since `tag`, or all where there is no tag; None where nobody can count them. `commit`: all 40 digits, or ""."""

    text: str
    tag: str
    commits: int | None
    commit: str
    changed: bool


class UnknownVersionError(Exception):
    """There is no git, or it cannot say; the message has the way out."""


def read_version(root: Path = ROOT) -> BuildVersion:
    """As the sources in `root` have it written, or as git says. Without both `.dev0` of the release to come, older than all its builds."""
    source = (root / FILE).read_text()
    declared, commits, commit = (_constant(source, name) for name in ("VERSION", "COMMITS", "COMMIT"))
    if commit or not _VERSION.fullmatch(declared):  # written already
        return BuildVersion(declared, _constant(source, "TAG"), int(commits) if commits else None, commit, declared.endswith(CHANGED))
    try:
        return _ask_git(root, declared)
    except UnknownVersionError:
        return BuildVersion(f"{declared}.dev0", "", None, "", changed=False)


def declared_version(root: Path = ROOT) -> str:
    """`VERSION` in gateway/build.py."""
    return _constant((root / FILE).read_text(), "VERSION")


def stamp(source: str, version: BuildVersion) -> str:
    """The text of gateway/build.py with the facts of a build."""
    facts = {"VERSION": version.text, "TAG": version.tag, "COMMITS": "" if version.commits is None else str(version.commits)}
    for name, value in {**facts, "COMMIT": version.commit}.items():
        source, count = _line(name).subn(rf'\g<1>"{value}"', source)
        assert count == 1, f"{FILE} has no line {name}"
    return source


def commit_moment(root: Path = ROOT) -> int:
    """When the commit was made, in Unix seconds. Raises UnknownVersionError."""
    if not (root / ".git").exists():
        raise UnknownVersionError("no git checkout")
    return int(run_git(root, "log", "-1", "--format=%ct"))


def debian_version(version: str) -> str:
    """The same in dpkg's order: what comes before a release has a tilde, `.dev` two, as it comes before `a1` and `rc1`."""
    public, plus, local = version.partition("+")  # a commit may have an a or a b between two digits
    return re.sub(r"\.dev", "~~dev", re.sub(r"(?<=\d)(a|b|rc)(?=\d)", r"~\1", public)) + plus + local


def image_tag(version: str) -> str:
    """The same as a tag of an image, which takes no plus sign; Helm writes it so, too."""
    return version.replace("+", "_")


def _line(name: str) -> re.Pattern[str]:
    return re.compile(rf'^({name}: Final = )"([^"]*)"', re.MULTILINE)


def _constant(source: str, name: str) -> str:
    found = _line(name).search(source)
    assert found is not None, f"{FILE} has no {name}"
    return found[2]


def _ask_git(root: Path, declared: str) -> BuildVersion:
    if not (root / ".git").exists():  # the repository of a folder above is another project's
        raise UnknownVersionError("no git checkout")
    shallow, commit = run_git(root, "rev-parse", "--is-shallow-repository", "HEAD").split()
    changed = bool(run_git(root, "status", "--porcelain", "--untracked-files=no"))
    local = f"+g{commit[:_SHORT]}{CHANGED if changed else ''}"
    tags = [tag for tag in run_git(root, "tag", "--merged", "HEAD", "--list", "v[0-9]*").split() if _VERSION.fullmatch(tag[1:])]
    tag = max(tags, key=lambda each: _order(each[1:]), default="")
    counts = tag != "" and _order(tag[1:])[0] >= _order(declared)[0]
    commits = int(run_git(root, "rev-list", "--count", f"{tag}..HEAD" if counts else "HEAD"))
    if counts and commits == 0:
        return BuildVersion(tag[1:] + (local if changed else ""), tag, 0, commit, changed)
    if shallow == "true":  # what is not there cannot be counted
        return BuildVersion(f"{declared}.dev0{local}", "", None, commit, changed)
    if counts:
        return BuildVersion(f"{tag[1:]}.post{commits}{local}", tag, commits, commit, changed)
    return BuildVersion(f"{declared}.dev{commits}{local}", "", commits, commit, changed)


def _order(version: str) -> tuple[tuple[int, ...], tuple[str, int]]:
    """The numbers without zeros at their end, and the stage: a, b and rc come before the release."""
    found = _VERSION.fullmatch(version)
    assert found is not None, f"{FILE}: VERSION is {version}, which is neither 1.2.3 nor 1.2.3rc1"
    numbers = [int(part) for part in found[1].split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers), (found[2], int(found[3])) if found[2] else ("release", 0)


def run_git(root: Path, *words: str) -> str:
    """What git says of `root`, whoever owns it: its sources are about to be run anyway. It writes nothing and asks no network."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    clean |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "LC_ALL": "C"}
    command = ["git", "-c", f"safe.directory={root}", "-C", str(root), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=clean)
    except OSError as error:
        raise UnknownVersionError(f"git cannot be run: {error.strerror}") from None
    except subprocess.CalledProcessError as error:
        raise UnknownVersionError(f"git {words[0]}: {error.stderr.strip()}") from None
    return done.stdout.strip()


if __name__ == "__main__":
    print(read_version().text)
