"""The version of a build from git: newer than the ones before it for pip and for dpkg; and in what has no git."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from itertools import pairwise
from pathlib import Path

import pytest
from packaging.version import Version

from support.environments import ROOT
from support.packages import git, pure_wheel, repository

sys.path.insert(0, str(ROOT / "deploy" / "packaging"))

import sources
from git_version import FILE, debian_version, image_tag, read_version, stamp

SDIST = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"


class Project:
    """A repository in `folder` with nothing but gateway/build.py."""

    def __init__(self, folder: Path, version: str = "0.3.0") -> None:
        self.folder = folder
        (folder / FILE).parent.mkdir(parents=True)
        git(folder, "init", "--quiet")
        self.declare(version)

    def declare(self, version: str) -> None:
        text = (ROOT / FILE).read_text()
        start = text.index('VERSION: Final = "') + len('VERSION: Final = "')
        (self.folder / FILE).write_text(f"{text[:start]}{version}{text[text.index(chr(34), start) :]}")
        self.commit()

    def commit(self) -> None:
        git(self.folder, "add", ".")
        git(self.folder, "commit", "--quiet", "--allow-empty", "-m", "one")

    def change(self) -> None:
        with (self.folder / FILE).open("a") as file:
            file.write("# changed\n")

    def tag(self, name: str) -> None:
        git(self.folder, "tag", name)

    def version(self) -> str:
        return read_version(self.folder).text


def short(folder: Path) -> str:
    return git(folder, "rev-parse", "HEAD")[:9]


def history(folder: Path) -> list[str]:
    """The versions of builds one after the other: before a tag, of a candidate, on a tag, after it, and of the release to come."""
    project = Project(folder, "0.3.0")
    made = []

    def build(*, changed: bool = True) -> None:
        made.append(project.version())
        if changed:  # a build of what is not in a commit yet
            project.change()
            made.append(project.version())
        project.commit()

    for _ in range(11):
        build()
    for tag in ("v0.3.0a1", "v0.3.0rc1", "v0.3.0rc2"):
        project.tag(tag)
        build()
        build()
    project.tag("v0.3.0")
    project.tag("v0.3.0.checked")  # none of ours
    for _ in range(11):
        build(changed=False)
    project.tag("v0.3.1")
    build()
    build()
    project.declare("0.4.0")
    build()
    project.tag("v0.3.2")  # of a branch that was merged
    build()
    project.tag("v0.4.0")
    build()
    return made


def test_each_build_is_newer_than_the_one_before(tmp_path: Path) -> None:
    made = ["0.2.0", *history(tmp_path / "project")]  # all builds were called 0.2.0 before
    assert {"0.3.0a1", "0.3.0rc1", "0.3.0rc2", "0.3.0", "0.3.1", "0.4.0"} < set(made)
    for before, after in pairwise(made):
        assert Version(before) < Version(after), (before, after)
        words = ["dpkg", "--compare-versions", f"{debian_version(before)}-1", "lt", f"{debian_version(after)}-1"]
        assert subprocess.run(words, check=False).returncode == 0, words
    assert [str(Version(version)) for version in made] == made, "normal as PEP 440 has it, or files would be called otherwise"


def test_what_stands_in_a_version(tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    project.commit()
    assert project.version() == f"0.3.0.dev2+g{short(project.folder)}"
    project.change()
    assert project.version() == f"0.3.0.dev2+g{short(project.folder)}.changed"
    assert debian_version(project.version()) == f"0.3.0~~dev2+g{short(project.folder)}.changed"
    assert debian_version("0.3.0.dev2+g6cfdd32a6") == "0.3.0~~dev2+g6cfdd32a6", "no letter of a commit is one of a release"
    assert image_tag(project.version()) == f"0.3.0.dev2_g{short(project.folder)}.changed"
    project.commit()
    project.tag("v0.3.0")
    (project.folder / "unknown-to-git").touch()
    assert read_version(project.folder) == ("0.3.0", "v0.3.0", 0, git(project.folder, "rev-parse", "HEAD"), False)
    project.commit()
    assert project.version() == f"0.3.0.post1+g{short(project.folder)}"


@pytest.mark.parametrize(("version", "debian"), [
    ("0.3.0.dev1040+g6068a4996", "0.3.0~~dev1040+g6068a4996"), ("0.3.0a1.post2+g1b2a3rc45", "0.3.0~a1.post2+g1b2a3rc45"),
    ("0.3.0rc1", "0.3.0~rc1"), ("0.3.0", "0.3.0"), ("0.3.0.post5+g1c2d3e4f5.changed", "0.3.0.post5+g1c2d3e4f5.changed"),
])  # fmt: skip
def test_of_a_version_for_dpkg_only_the_public_part_is_another(version: str, debian: str) -> None:
    assert debian_version(version) == debian


@pytest.mark.parametrize("tag", ["", "v0.3.0"])
def test_a_shallow_clone_does_not_count_what_it_has_not(tmp_path: Path, tag: str) -> None:
    project = Project(tmp_path / "project")
    project.commit()
    if tag:
        project.tag(tag)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{project.folder}", str(clone))
    assert read_version(clone).text == (tag[1:] or f"0.3.0.dev0+g{short(clone)}")
    assert read_version(clone).commits == (0 if tag else None)


def test_without_git_a_version_is_older_than_all_of_its_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = Project(tmp_path / "project")
    inner = Project(project.folder / "vendor" / "sluice", "0.7.0")  # the repository around it counts its own commits
    (inner.folder / ".git").rename(tmp_path / "away")
    assert read_version(inner.folder) == ("0.7.0.dev0", "", None, "", False)
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))  # no git
    assert project.version() == "0.3.0.dev0"


@pytest.mark.slow
def test_a_repository_of_another_user_and_a_hook_of_git_do_not_mislead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build by root in somebody's checkout; and one in a commit hook, which git tells another place and index."""
    project = Project(tmp_path / "project")
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    subprocess.run(["chown", "-R", "65534:65534", str(project.folder)], check=True)
    assert project.version().startswith("0.3.0.dev1+g")
    assert FILE in sources.tracked(project.folder)


def test_what_is_written_into_sources_is_their_version(tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    found = read_version(project.folder)
    (project.folder / FILE).write_text(stamp((project.folder / FILE).read_text(), found))
    assert read_version(project.folder) == found, "git says that they are changed"
    unknown = read_version(Project(tmp_path / "unknown").folder)._replace(text="0.3.0.dev0", commit="", commits=None)
    (tmp_path / "unknown" / FILE).write_text(stamp((ROOT / FILE).read_text(), unknown))
    assert read_version(tmp_path / "unknown") == unknown


@pytest.mark.slow
def test_it_is_in_the_source_distribution_and_in_the_wheel_that_is_made_of_it(tmp_path: Path) -> None:
    """By setuptools alone, as `python -m build` and `pip install git+…` call it; on a commit after a tag."""
    sources = repository(tmp_path / "sources", "v0.1.0")
    build = (sources / FILE).read_bytes()
    commit = git(sources, "rev-parse", "HEAD")
    version = read_version(sources).text
    assert version.endswith(f".dev1+g{commit[:9]}")

    def run(program: str, folder: Path) -> str:
        words = [sys.executable, "-c", program, str(tmp_path)]
        clean = {"SLUICE_COMPILE": "0", "PATH": "/usr/bin:/bin"}
        done = subprocess.run(words, cwd=folder, check=False, capture_output=True, text=True, env=clean)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.splitlines()[-1]

    archive = tmp_path / run(SDIST, sources)
    assert archive.name == f"sluice_gateway-{version}.tar.gz"
    assert (sources / FILE).read_bytes() == build, "the checkout is as it was"
    with tarfile.open(archive) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)  # Debian's 3.11.2 has none yet
        packed.extractall(tmp_path)
    wheel = pure_wheel(tmp_path / f"sluice_gateway-{version}", tmp_path)
    assert wheel.name == f"sluice_gateway-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as packed_wheel:
        packed_wheel.extractall(tmp_path / "site")
    clean = {"PYTHONPATH": str(tmp_path / "site"), "PYTHONDONTWRITEBYTECODE": "1"}
    said = subprocess.run([sys.executable, "-m", "sluice", "version"], cwd=tmp_path, env=clean, check=True, capture_output=True, text=True)
    rows = dict(line.split(None, 1) for line in said.stdout.splitlines())
    assert (rows["sluice"], rows["tag"], rows["commits"], rows["commit"]) == (version, "-", "1", commit)
