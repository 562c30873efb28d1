"""The Containerfile, built by buildah from the sources as one commit has them, on a Debian 12 that is made here under the name it asks for.

What a build may fetch anew is kept in build/packages: uv's packages and compiled units (by their content). `make test-packages`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from gateway.build import VERSION
from support.brokers.rabbitmq import RabbitMQ
from support.containers import contained, limited_and_seen
from support.environments import ROOT, one_at_a_time
from support.images import reachable
from support.packages import KEPT, minimal, reaching_the_index, repository
from support.processes import HANG_S

pytestmark = pytest.mark.packages
BASE: Final = "docker.io/library/debian:12-slim"
FILE: Final = "deploy/container/Containerfile"
sys.path.insert(0, str(ROOT / "deploy/container"))


class Buildah:
    """With a store of its own in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "tmp").mkdir()

    def __call__(self, *words: str | Path, cwd: Path = ROOT) -> str:
        store = ["--root", self._folder / "store", "--runroot", self._folder / "run", "--storage-driver", "vfs"]
        command = [str(word) for word in ("buildah", *store, *words)]
        clean = {**os.environ, "TMPDIR": str(self._folder / "tmp")}
        done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, check=False, timeout=3000)
        assert done.returncode == 0, f"{words}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout.strip()

    def import_base(self) -> None:
        more = self._folder / "more"
        reaching_the_index(more)
        container = self("from", "scratch")
        self("add", "--quiet", container, minimal(), "/")
        self("add", "--quiet", container, more, "/")
        self("commit", "--quiet", "--rm", container, BASE)


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Buildah]:
    """Has built the image `sluice`."""
    folder = tmp_path_factory.mktemp("buildah")
    run = Buildah(folder)
    run.import_base()
    sources = repository(folder / "sources")
    (sources / ".venv").mkdir()
    (sources / ".venv/.dependencies").touch()  # what the builder must not see: make would take it for an environment
    kept = KEPT / "containerfile"
    with one_at_a_time(kept):
        volumes = []
        for name, there in (("build", "/source/build"), ("cache", "/root/.cache")):
            (kept / name).mkdir(parents=True, exist_ok=True)
            volumes += ["--volume", f"{kept / name}:{there}"]
        options = ["--isolation", "chroot", "--network", "host", "--pull-never", "--format", "docker", *volumes]
        run("build", *options, "--file", FILE, "--tag", "sluice", ".", cwd=sources)
    yield run
    run("rm", "--all")
    run("rmi", "--all", "--force")


@pytest.fixture(scope="module")
def root(buildah: Buildah) -> Path:
    """The image's root filesystem."""
    return Path(buildah("mount", buildah("from", "--pull-never", "sluice")))


@pytest.fixture
def writable(root: Path, tmp_path: Path) -> Path:
    reachable(tmp_path, root)
    return tmp_path


def test_it_is_set_up_as_the_image_of_make_image(buildah: Buildah) -> None:
    from image import config  # deploy/container/image.py

    made = json.loads(buildah("inspect", "--type", "image", "sluice"))["Docker"]["config"]
    wanted = config("sluice", VERSION)
    same = ("User", "WorkingDir", "Entrypoint", "Cmd", "StopSignal", "ExposedPorts", "Volumes", "Healthcheck")
    assert {name: made[name] for name in same} == {name: wanted[name] for name in same}
    labels = {f"org.opencontainers.image.{name}" for name in ("title", "description", "source", "licenses")}
    assert {name: made["Labels"][name] for name in labels} == {name: wanted["Labels"][name] for name in labels}
    assert set(wanted["Env"]) - set(made["Env"]) == {"SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"}, "Debian's own OpenSSL finds it"


def test_its_user_alone_reaches_the_state(root: Path) -> None:
    found = {name: (root / name).stat() for name in ("var/lib/sluice", "var/log/sluice", "tmp")}
    modes = {name: (each.st_mode & 0o7777, each.st_uid, each.st_gid) for name, each in found.items()}
    assert modes == {"var/lib/sluice": (0o700, 65532, 65532), "var/log/sluice": (0o750, 65532, 65532), "tmp": (0o1777, 0, 0)}


@pytest.mark.parametrize(
    ("words", "says"), [(["version"], "compiled"), (["check", "-c", "/etc/sluice/sluice.yaml"], ": good")], ids=["version", "check"]
)
def test_its_command_runs_as_nobody_on_a_read_only_root(root: Path, writable: Path, words: list[str], says: str) -> None:
    asked = subprocess.run(
        contained(root, writable, "/usr/bin/sluice", *words), capture_output=True, text=True, check=False, timeout=HANG_S
    )
    assert asked.returncode == 0, asked
    assert says in asked.stdout + asked.stderr


def test_the_first_limit_of_the_page_limits_what_reaches_the_broker(
    root: Path, writable: Path, rabbitmq: RabbitMQ, record_property: Callable[[str, object], None]
) -> None:
    record_property("remark", limited_and_seen(root, writable, rabbitmq, "the Containerfile"))
