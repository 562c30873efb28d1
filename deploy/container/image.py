"""`make image`, `make image-quotas`: a container image as an OCI archive, without a container daemon: mmdebstrap unpacks Debian's packages.

python deploy/container/image.py [--image sluice-quotas] WHEEL TARGET
                                                               TARGET/NAME-TAG-PROCESSOR.oci.tar, with its SBOM (.cdx.json) beside it,
                                                               and the tree in build/image/NAME/root
python deploy/container/image.py --files-only WHEEL FOLDER     what the Containerfile copies over its base
"""

from __future__ import annotations

import argparse
import compileall
import hashlib
import os
import py_compile
import re
import shutil
import ssl
import struct
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "packaging"))

from addresses import addresses  # noqa: E402
from dependencies import dependencies  # noqa: E402  -- its folder is not on the path before
from environment import EXTRAS, PREFIX, environment  # noqa: E402
from git_version import image_tag  # noqa: E402
from inventory import Package, image_sbom  # noqa: E402
from oci import image, layer  # noqa: E402
from sources import RefusedError, moment, wheel_version  # noqa: E402

WORK: Final = ROOT / "build" / "image"
PYTHON: Final = "3.11"  # of Debian 12
USER: Final = 65532
# Unpacked, not installed: nothing of it runs, so there is no package manager in the image, and of programs only those that are named.
PACKAGES: Final = (f"python{PYTHON}-minimal", f"libpython{PYTHON}-stdlib", "base-files")


class Contents(NamedTuple):
    """What an image has beside Debian's Python and sluice.

    `programs`: of Debian's, kept. `written`: folders of its user, with their modes. `files`: of this folder, for /etc/sluice. `home`: where
    it starts. `runs`: the entry point and its first arguments. `more`: fields of its configuration that the other images do not have.
    """

    description: str
    home: str
    written: Mapping[str, int]
    runs: tuple[Sequence[str], Sequence[str]]
    packages: Sequence[str] = ()
    programs: Sequence[str] = ()
    extras: Sequence[str] = EXTRAS
    files: Sequence[str] = ()
    variables: Sequence[str] = ()
    more: Mapping[str, Any] = {}


IMAGES: Final = {
    "sluice": Contents(
        "A gateway that limits topics in front of RabbitMQ and RocketMQ",
        home="/var/lib/sluice",
        written={"var/lib/sluice": 0o700, "var/log/sluice": 0o750},  # as sluice makes them itself
        runs=(["/usr/bin/sluice"], ["run", "-c", "/etc/sluice/sluice.yaml"]),
        files=("sluice.yaml", "limits.yaml"),
        more={
            "ExposedPorts": {"5670/tcp": {}, "9180/tcp": {}},
            # Not in OCI's specification; Docker reads it. Kubernetes has probes: docs/reaching-the-admin-port.md
            "Healthcheck": {
                "Test": ["CMD", "/usr/bin/sluice", "health"],
                "Interval": 10**10,
                "Timeout": 5 * 10**9,
                "StartPeriod": 15 * 10**9,
            },
        },
    ),
    "sluice-quotas": Contents(
        "The nightly job that learns quotas for sluice's gateways: Spark and its Java",
        home="/tmp",  # noqa: S108  -- the only folder that all volumes of the job leave writable; Java asks /etc/passwd, not HOME
        written={"srv": 0o750},
        runs=([f"{PREFIX}/bin/python3", "-P", "-m", "sluice.spark_jobs.on_kubernetes"], ["--help"]),
        packages=("openjdk-17-jre-headless", "bash", "coreutils"),
        programs=(
            "bash",
            "chmod",
            "dirname",
            "env",
            "rm",
        ),  # all that Spark calls, but for what it does without: strace of a night, 2026-11
        extras=("spark", "zstd"),
        variables=("HOME=/tmp",),
    ),
}
UNUSED: Final = (
    "usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/lintian", "usr/share/bash-completion", "usr/share/info", "var/cache",
    "var/lib/apt", "var/lib/dpkg/info", "var/log/apt", "etc/apt", "dev", "usr/share/python3", "usr/share/binfmts", "usr/bin/pdb3.11",
    "usr/share/alsa", "usr/share/bug", "usr/share/debconf", "usr/share/fontconfig", "usr/share/fonts", "usr/share/perl5",
    *(f"usr/lib/python{PYTHON}/{name}" for name in ("ensurepip", "idlelib", "lib2to3", "pydoc_data")),
)  # fmt: skip


def files(tree: Path, wheel: Path, contents: Contents) -> None:
    """sluice, its user, its folders and its configuration, compiled already: the root filesystem is read-only."""
    environment(tree / PREFIX[1:], wheel, f"/usr/bin/python{PYTHON}", extras=contents.extras)
    (tree / "usr/bin").mkdir(parents=True, exist_ok=True)
    (tree / "usr/bin/sluice").symlink_to("../lib/sluice/bin/sluice")
    modes = {**contents.written, "etc/sluice": 0o755, "tmp": 0o1777}
    for folder, mode in modes.items():
        (tree / folder).mkdir(parents=True, exist_ok=True)
        (tree / folder).chmod(mode)
    for name in contents.files:
        shutil.copyfile(HERE / name, tree / "etc/sluice" / name)
    compiled(tree / PREFIX[1:] / "lib", f"{PREFIX}/lib")


def compiled(folder: Path, there: str) -> None:
    """By their content, not by the time of the source: `there` is where it will be."""
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(folder, quiet=2, stripdir=str(folder), prependdir=there, invalidation_mode=mode)


def base(tree: Path, at: int, contents: Contents) -> list[Package]:
    """Debian's Python in the new folder `tree`, and what else the image has of Debian; the packages that it is of.

    Raises RefusedError where mmdebstrap or Debian's mirror is not to be had.
    """
    if shutil.which("mmdebstrap") is None:
        raise RefusedError("mmdebstrap is not installed (on Debian: apt-get install mmdebstrap)")
    packages = f"--include={','.join([*PACKAGES, *contents.packages])}"
    words = ["mmdebstrap", "--quiet", "--variant=extract", "--skip=cleanup/apt", packages, "bookworm", str(tree)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, "SOURCE_DATE_EPOCH": str(at)})
    if done.returncode:
        raise RefusedError(f"Debian's packages cannot be fetched; does apt-get update work here? mmdebstrap: {done.stderr.strip()[-600:]}")
    archives = [*(tree / "var/cache/apt/archives").glob("*.deb"), certificates(tree, at)]
    found = [(package(each), unpacked(each)) for each in sorted(archives, key=lambda path: path.name)]
    for name in UNUSED:
        path = tree / name
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    for folder in ("dev", "proc", "sys", "run"):
        (tree / folder).mkdir(exist_ok=True)  # on a read-only root filesystem nobody can make what is mounted there
    for folder in ("usr/bin", "usr/sbin", "bin", "sbin"):  # programs of packages that others need to be installed, as awk is
        for path in (tree / folder).glob("*"):
            if path.name not in {f"python{PYTHON}", *contents.programs} and not path.is_dir():
                path.unlink()
    (tree / "etc/passwd").write_text(f"root:x:0:0:root:/root:/sbin/nologin\nsluice:x:{USER}:{USER}:sluice:{contents.home}:/sbin/nologin\n")
    (tree / "etc/group").write_text(f"root:x:0:\nsluice:x:{USER}:\n")
    (tree / "etc/nsswitch.conf").write_text("hosts: files dns\n")
    (tree / "etc/hosts").write_text("127.0.0.1 localhost\n")  # runtimes put their own over it; Spark reaches its Java by that name
    compiled(tree / f"usr/lib/python{PYTHON}", f"/usr/lib/python{PYTHON}")
    (tree / "var/lib/dpkg/status").unlink()
    there = tree / "var/lib/dpkg/status.d"  # where scanners look in images that have no package manager
    there.mkdir()
    kept = [each for each, names in found if each.name == "ca-certificates" or any((tree / name).is_file() for name in names)]
    for each in kept:
        (there / each.name).write_text(each.control)
    return kept


def package(archive: Path) -> Package:
    control = subprocess.run(["dpkg-deb", "--field", str(archive)], capture_output=True, text=True, check=True).stdout
    fields = dict(re.findall(r"^([A-Z][A-Za-z-]*): (.*)$", control, re.MULTILINE))
    return Package(fields["Package"], fields["Version"], fields["Architecture"], control)


def unpacked(archive: Path) -> list[str]:
    """The files of a package, as paths below the root."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(archive)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        with tarfile.open(fileobj=process.stdout, mode="r|") as packed:
            return [member.name for member in packed if not member.isdir()]


def certificates(tree: Path, at: int) -> Path:
    """The public authorities in one file, as ca-certificates would write it; its own dependencies (Perl, OpenSSL) are left out.

    Java, where it is in `tree`, has them in a file of its own. Returns the package.
    """
    fetched = tree.parent / "certificates"
    shutil.rmtree(fetched, ignore_errors=True)
    fetched.mkdir()
    fetched.chmod(0o777)  # apt fetches as a user of its own
    done = subprocess.run(["apt-get", "-q", "download", "ca-certificates"], cwd=fetched, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RefusedError(f"apt-get cannot fetch ca-certificates: {done.stderr.strip()[-300:]}")
    archive = next(fetched.glob("*.deb"))
    subprocess.run(["dpkg-deb", "-x", str(archive), str(fetched / "tree")], check=True)
    found = sorted((fetched / "tree/usr/share/ca-certificates").rglob("*.crt"))
    target = tree / "etc/ssl/certs/ca-certificates.crt"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("".join(f"{path.read_text().rstrip()}\n" for path in found))
    if (tree / "usr/lib/jvm").exists():
        (target.parent / "java").mkdir(exist_ok=True)
        (target.parent / "java/cacerts").write_bytes(truststore(found, at))
    return archive


def truststore(found: Sequence[Path], at: int) -> bytes:
    """These certificates as Java's keytool would write them into a JKS file, with the password that Debian's has."""

    def text(said: str) -> bytes:
        return struct.pack(">H", len(said.encode())) + said.encode()

    made = struct.pack(">III", 0xFEEDFEED, 2, len(found))
    for path in found:
        certificate = ssl.PEM_cert_to_DER_cert(path.read_text().strip())
        made += struct.pack(">I", 2) + text(path.stem.lower()) + struct.pack(">Q", at * 1000) + text("X.509")
        made += struct.pack(">I", len(certificate)) + certificate
    return made + hashlib.sha1("changeit".encode("utf-16-be") + b"Mighty Aphrodite" + made, usedforsecurity=False).digest()


def config(name: str, version: str) -> dict[str, Any]:
    contents = IMAGES[name]
    labels = {
        "title": name, "description": contents.description, "version": version,
        "source": addresses().project, "licenses": "Apache-2.0", "base.name": f"Debian 12, Python {PYTHON}",
    }  # fmt: skip
    entry, arguments = contents.runs
    return {
        "User": f"{USER}:{USER}", "WorkingDir": contents.home, "Entrypoint": entry, "Cmd": arguments,
        "Env": ["PATH=/usr/bin:/bin", "LANG=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1",
                "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt", *contents.variables],
        "StopSignal": "SIGTERM", "Volumes": {f"/{folder}": {} for folder in contents.written},
        "Labels": {f"org.opencontainers.image.{key}": text for key, text in labels.items()}, **contents.more,
    }  # fmt: skip


def build(name: str, wheel: Path, target: Path) -> Path:
    at, contents, work = moment(), IMAGES[name], WORK / name
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    debian, ours, root = work / "debian", work / "sluice", work / "root"
    packages = base(debian, at, contents)
    ours.mkdir()
    files(ours, wheel, contents)
    processor = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()
    layers = [layer(debian, at, {}), layer(ours, at, dict.fromkeys(contents.written, USER))]
    target.mkdir(parents=True, exist_ok=True)
    version = wheel_version(wheel)
    made = target / f"{name}-{image_tag(version)}-{processor}.oci.tar"
    made.write_bytes(image(layers, config(name, version), processor, at, image_tag(version)))
    made.with_name(made.name.replace(".oci.tar", ".cdx.json")).write_text(image_sbom(version, at, dependencies(contents.extras), packages))
    shutil.copytree(debian, root, symlinks=True)
    shutil.copytree(ours, root, symlinks=True, dirs_exist_ok=True)
    return made


if __name__ == "__main__":
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--image", choices=IMAGES, default="sluice")
    parser.add_argument("--files-only", action="store_true")
    options = parser.parse_args()
    os.umask(0o022)
    try:
        if options.files_only:
            chosen = IMAGES[options.image]
            files(options.target, options.wheel, chosen)
            for folder in chosen.written:
                os.chown(options.target / folder, USER, USER)
        else:
            print(build(options.image, options.wheel, options.target))
    except (RefusedError, ValueError, OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"make image: {error}")
