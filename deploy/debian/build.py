"""`make deb`: the Debian package, by dpkg-deb alone.

python deploy/debian/build.py WHEEL TARGET      a wheel, and the folder for sluice_VERSION-1_ARCHITECTURE.deb

It has an environment of its own under /usr/lib/sluice with the locked dependencies, so it takes nothing from, and gives nothing to, the
system's Python. Equal inputs are equal bytes.

A running gateway imports some modules and starts children only when they are needed. If an upgrade replaced its files, or took them away,
it would go on with two versions at once, or not at all. So nobody runs what dpkg unpacks, in /usr/lib/sluice/package: `postinst` makes hard
links of it in a folder of this build's own, /usr/lib/sluice/VERSION-DIGEST, turns the link /usr/lib/sluice/current to it, and removes
other such folders once no process runs from them.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "packaging"))

from addresses import addresses, maintainer  # noqa: E402  -- its folder is not on the path before
from environment import PREFIX, environment  # noqa: E402  -- its folder is not on the path before
from git_version import debian_version  # noqa: E402
from sources import RefusedError, changes_up_to, moment, wheel_version  # noqa: E402

PYTHON: Final = "3.11"  # of Debian 12
# The shared units, with what differs on a machine that has the package: a user of its own, sockets only where wanted, and Spark elsewhere.
# With DynamicUser=yes one would take /var/log/sluice away from the running gateway: systemd moves it to /var/log/private.
UNITS: Final = {
    "sluice.service": (("DynamicUser=yes", "User=sluice\nGroup=sluice"), ("Requires=sluice.socket", "Wants=sluice.socket")),
    "sluice-ship.service": (("DynamicUser=yes", "Group=sluice"),),
    "sluice-ship.timer": (),
    "sluice-quotas.service": (("DynamicUser=yes", "Group=sluice"), ("ExecStart=/usr/bin/sluice", "ExecStart=/opt/sluice/bin/sluice")),
    "sluice-quotas.timer": (),
}
CONTROL: Final = """Package: sluice
Version: {version}
Architecture: {architecture}
Maintainer: {maintainer}
Installed-Size: {size}
Depends: python3 (>= {python}), python3 (<< {next}), python{python}, libc6 (>= 2.28), adduser, init-system-helpers (>= 1.54~)
Recommends: ca-certificates
Homepage: {homepage}
Section: net
Priority: optional
Description: gateway that limits topics in front of RabbitMQ and RocketMQ
 One topic's flood must not take a shared broker away from everybody. sluice
 speaks the broker's own protocol, knows which topic each message is for, and
 limits every topic by messages and bytes per second. Clients within their
 limits notice nothing.
 .
 The package has its Python dependencies with it, under /usr/lib/sluice.
"""


def architecture() -> str:
    return subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()


def revision(wheel: Path) -> str:
    """Of the package: 0.3.0 is 0.3.0-1."""
    return f"{debian_version(wheel_version(wheel))}-1"


def place(tree: Path, name: str, content: str | bytes, mode: int = 0o644) -> None:
    path = tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(mode)


def packed(text: str) -> bytes:
    return gzip.compress(text.encode(), compresslevel=9, mtime=0)


def unit(name: str) -> str:
    """From deploy/systemd, without the words to those who install by hand. Raises RefusedError where what must differ is not there."""
    text = (ROOT / "deploy" / "systemd" / name).read_text()
    text = text[text.index("[Unit]") :]
    for old, new in UNITS[name]:
        if not re.search(rf"^{re.escape(old)}\b", text, re.MULTILINE):
            raise RefusedError(f"deploy/systemd/{name} has no line {old}: deploy/debian/build.py must be told what stands there now")
        text = re.sub(rf"^{re.escape(old)}\b", new, text, flags=re.MULTILINE)
    return text


def own_environment(tree: Path, wheel: Path) -> str:
    """Lay out what is unpacked; the name of the folder it will run from, which is another for other content."""
    folder = environment(tree / PREFIX[1:] / "package", wheel, f"/usr/bin/python{PYTHON}", f"{PREFIX}/@NAME@")
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        content = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        digest.update(b"%s\0%d\0" % (os.fsencode(path.relative_to(folder)), len(content)) + content)
    name = f"{revision(wheel)}-{digest.hexdigest()[:12]}"
    command = folder / "bin/sluice"
    command.write_text(command.read_text().replace("@NAME@", name))
    return name


def lay_out(tree: Path, wheel: Path, at: int) -> None:
    """The package's files, from the root of the machine that gets it, and DEBIAN/ with what dpkg reads."""
    runs_from = own_environment(tree, wheel)
    (tree / "usr/bin").mkdir(parents=True)
    (tree / "usr/bin/sluice").symlink_to("../lib/sluice/current/bin/sluice")
    for name in ("sluice.yaml", "limits.yaml"):
        place(tree, f"etc/sluice/{name}", (HERE / name).read_bytes())
    for name in UNITS:
        place(tree, f"lib/systemd/system/{name}", unit(name))
    examples = "usr/share/doc/sluice/examples"
    for file in ("sluice.yaml", "limits.yaml", "sluice.schema.json", "limits.schema.json"):
        place(tree, f"{examples}/{file}", (ROOT / "config" / file).read_bytes())
    place(tree, f"{examples}/sluice.socket", (ROOT / "deploy/systemd/sluice.socket").read_bytes())
    version = wheel_version(wheel)
    changed = changes_up_to(version)
    day = format_datetime(datetime.fromtimestamp(at, UTC))
    told = f"  * Release {version}; what has changed: changelog.gz"
    first = f"sluice ({revision(wheel)}) stable; urgency=medium\n\n{told}\n\n -- {maintainer()}  {day}\n"
    place(tree, "usr/share/doc/sluice/changelog.Debian.gz", packed(first))
    place(tree, "usr/share/doc/sluice/changelog.gz", packed(f"{version}\n\n{changed}\n"))
    place(tree, "usr/share/doc/sluice/copyright", (HERE / "copyright").read_bytes())
    place(tree, "usr/share/man/man1/sluice.1.gz", packed((HERE / "sluice.1").read_text()))
    place(tree, "usr/share/lintian/overrides/sluice", (HERE / "lintian-overrides").read_bytes())
    for path in sorted(tree.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)
    files = [path for path in sorted(tree.rglob("*")) if path.is_file() and not path.is_symlink()]
    sums = [subprocess.run(["md5sum", *map(str, files)], capture_output=True, text=True, check=True).stdout.replace(f"{tree}/", "")]
    place(tree, "DEBIAN/md5sums", "".join(sums))
    size = sum(-(-path.stat().st_size // 1024) for path in files) + len(files)
    major, minor = PYTHON.split(".")
    facts = {
        "version": revision(wheel),
        "architecture": architecture(),
        "maintainer": maintainer(),
        "homepage": addresses().project,
        "size": size,
        "python": PYTHON,
    }
    place(tree, "DEBIAN/control", CONTROL.format(**facts, next=f"{major}.{int(minor) + 1}"))
    place(tree, "DEBIAN/conffiles", "/etc/sluice/limits.yaml\n/etc/sluice/sluice.yaml\n")
    for script in ("postinst", "prerm", "postrm"):
        place(tree, f"DEBIAN/{script}", (HERE / script).read_text().replace("@NAME@", runs_from), 0o755)


def build(wheel: Path, target: Path, work: Path) -> Path:
    at = moment()
    tree = work / "tree"
    tree.mkdir()
    tree.chmod(0o755)
    lay_out(tree, wheel, at)
    for path in [tree, *tree.rglob("*")]:
        os.utime(path, (at, at), follow_symlinks=False)
    made = work / f"sluice_{revision(wheel)}_{architecture()}.deb"
    words = ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", str(tree), str(made)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "SOURCE_DATE_EPOCH": str(at)})
    target.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(made, target / made.name))


if __name__ == "__main__":
    try:
        (ROOT / "build").mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="deb-", dir=ROOT / "build") as work:
            print(build(Path(sys.argv[1]), Path(sys.argv[2]), Path(work)))
    except (RefusedError, ValueError, OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"make deb: {error}")
