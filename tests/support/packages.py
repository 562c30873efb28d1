"""Packages under test, made of a release (`tests/deploy/conftest.py`), and a Debian 12 to install in, unpacked once and copied."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from gateway.build import VERSION
from support.environments import ROOT, one_at_a_time

PACKAGING: Final = ROOT / "deploy" / "packaging"
PURE: Final = f"sluice_gateway-{VERSION}-py3-none-any.whl"
SOURCE: Final = f"sluice_gateway-{VERSION}.tar.gz"
BOOKWORM: Final = ROOT / "build" / "packages" / "bookworm-systemd.tar"
INCLUDED: Final = "python3,adduser,init-system-helpers,systemd"


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


def debian(folder: Path) -> Path:
    """A minimal Debian 12 in the new `folder`, from its mirror the first time (100 MB, kept in build/packages)."""
    with one_at_a_time(BOOKWORM):
        if not BOOKWORM.exists():
            made = BOOKWORM.with_suffix(".part.tar")
            words = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={INCLUDED}", "bookworm", str(made)]
            subprocess.run(words, check=True, timeout=1500)
            made.rename(BOOKWORM)
    folder.mkdir()
    subprocess.run(["tar", "-xf", str(BOOKWORM), "-C", str(folder)], check=True, timeout=300)
    shutil.copy("/etc/resolv.conf", folder / "etc/resolv.conf")
    return folder


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
        "proc",
        "etc/passwd-",
        "etc/group-",
        "etc/shadow-",
        "etc/gshadow-",
    )
    found = {str(path.relative_to(root)) for path in root.rglob("*")}
    return {name for name in found if not name.startswith(noted) or name.startswith("var/log/sluice")}
