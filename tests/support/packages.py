"""Packages under test, made of a release (`tests/deploy/conftest.py`), and a Debian 12 to install in, unpacked once and copied."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from gateway.build import VERSION
from support.environments import ROOT, one_at_a_time

PACKAGING: Final = ROOT / "deploy" / "packaging"
PURE: Final = f"sluice_gateway-{VERSION}-py3-none-any.whl"
SOURCE: Final = f"sluice_gateway-{VERSION}.tar.gz"
sys.path.insert(0, str(PACKAGING))

from git_version import FILE  # noqa: E402  -- its folder is not on the path before
from sources import copy  # noqa: E402

KEPT: Final = ROOT / "build" / "packages"
BOOKWORM: Final = KEPT / "bookworm-systemd-venv.tar"
INCLUDED: Final = "python3,python3-venv,adduser,init-system-helpers,systemd"
# Of this machine, where a proxy has an authority of its own: where Debian keeps those that are added, the file of all, and pip's settings.
AUTHORITIES: Final = ("usr/local/share/ca-certificates", "etc/ssl/certs/ca-certificates.crt", "etc/pip.conf")


def repository(folder: Path, tag: str = f"v{VERSION}") -> Path:
    """The sources as one commit of a new repository in `folder`, with `tag`: its builds are called VERSION, whatever was committed here."""
    copy(folder)
    (folder / FILE).write_bytes((ROOT / FILE).read_bytes())  # without the version of this checkout
    (folder / "CHANGELOG.md").write_text(f"# Changelog\n\n## [{VERSION}] - 2026-11-28\n\n### Changed\n\n* As a test has it.\n")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "all")
    git(folder, "tag", tag)
    return folder


def git(folder: Path, *words: str) -> str:
    """Run git in `folder`, with nobody's settings."""
    nobody = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    names = {f"GIT_{who}_{what}": f"test{at}" for who in ("AUTHOR", "COMMITTER") for what, at in (("NAME", ""), ("EMAIL", "@test"))}
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | nobody | names
    return subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, text=True, env=clean).stdout.strip()


def release(target: Path) -> Path:
    """As the target does it on the commit of a tag, without the compiled wheel. That its builds are the same twice is checked by itself."""
    with tempfile.TemporaryDirectory() as work:
        program = repository(Path(work, "sources")) / "deploy/packaging/release.py"
        subprocess.run([sys.executable, str(program), str(target), "--compiled", "no"], check=True, timeout=600)
    return target


def pure_wheel(sources: Path, target: Path) -> Path:
    """By setuptools alone, as `pip wheel .` calls it, in the folder `target`."""
    program = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
    target.mkdir(parents=True, exist_ok=True)
    clean = {"SLUICE_COMPILE": "0", "PATH": "/usr/bin:/bin"}
    words = [sys.executable, "-c", program, str(target)]
    done = subprocess.run(words, cwd=sources, check=False, capture_output=True, text=True, env=clean, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return target / done.stdout.splitlines()[-1]


def another(wheel: Path, folder: Path, version: str, files: Mapping[str, str] | None = None) -> Path:
    """The pure wheel as a version that is called otherwise, with `files` (name in the wheel -> text) in place of its own, in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / wheel.name.replace(VERSION, version)
    changed = dict(files or {})
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            content = changed.pop(name, "").encode() or old.read(name)
            if name == "sluice/gateway/build.py":
                content = content.replace(f'"{VERSION}"'.encode(), f'"{version}"'.encode())
            elif name.endswith("/METADATA"):
                content = content.replace(f"\nVersion: {VERSION}\n".encode(), f"\nVersion: {version}\n".encode(), 1)
            elif name.endswith("/RECORD"):
                content = content.replace(f"-{VERSION}.dist-info".encode(), f"-{version}.dist-info".encode())
            new.writestr(name.replace(f"-{VERSION}.dist-info", f"-{version}.dist-info"), content)
    assert not changed, f"not in the wheel: {sorted(changed)}"
    return made


def deb(wheel: Path, target: Path) -> Path:
    """A Debian package of a wheel, compressed in haste: a third of the time that a release takes."""
    words = [sys.executable, str(ROOT / "deploy/debian/build.py"), str(wheel), str(target)]
    in_haste = {**os.environ, "DPKG_DEB_COMPRESSOR_LEVEL": "0"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300, env=in_haste)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def _bootstrapped(archive: Path, *options: str) -> Path:
    """A minimal Debian 12 as a tar, from its mirror the first time (kept in build/packages)."""
    with one_at_a_time(archive):
        if not archive.exists():
            made = archive.with_suffix(".part.tar")
            words = ["mmdebstrap", "--quiet", "--variant=minbase", *options, "bookworm", str(made)]
            subprocess.run(words, check=True, timeout=1500)
            made.rename(archive)
    return archive


def minimal() -> Path:
    """A Debian 12 as a tar, without anything that a Debian can do without."""
    return _bootstrapped(KEPT / "bookworm-minimal.tar")


def debian(folder: Path) -> Path:
    """A minimal Debian 12 with systemd and Python in the new `folder`."""
    _bootstrapped(BOOKWORM, f"--include={INCLUDED}")
    folder.mkdir()
    subprocess.run(["tar", "-xf", str(BOOKWORM), "-C", str(folder)], check=True, timeout=300)
    shutil.copy("/etc/resolv.conf", folder / "etc/resolv.conf")
    return folder


def reaching_the_index(root: Path) -> None:
    """Let pip in the tree `root` reach the package index as pip here does."""
    for name in AUTHORITIES:
        found, place = Path("/", name), root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if found.is_dir():
            shutil.copytree(found, place, dirs_exist_ok=True)
        elif found.exists():
            shutil.copyfile(found, place)


def inside(root: Path, *words: str, user: str = "root", check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command in that Debian."""
    clean = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8", "TERM": "dumb"}
    done = subprocess.run(chrooted(root, words, user), env=clean, capture_output=True, text=True, check=False, timeout=300)
    assert not check or done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done


def chrooted(root: Path, words: Sequence[str], user: str = "root") -> list[str]:
    return ["chroot", f"--userspec={user}", str(root), *words]


def tree(root: Path) -> set[str]:
    """All paths, without what dpkg and its friends note down of themselves."""
    noted = (
        "var/lib/dpkg",
        "var/log/",
        "var/cache",
        "var/backups",
        "run",
        "etc/passwd-",
        "etc/group-",
        "etc/shadow-",
        "etc/gshadow-",
    )
    tops = [top for top in root.iterdir() if top.name != "proc"]
    found = {str(path.relative_to(root)) for top in tops for path in (top, *top.rglob("*"))}
    return {name for name in found if not name.startswith(noted) or name.startswith("var/log/sluice")}
