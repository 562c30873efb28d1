"""The container image: an OCI archive that others' tools read; its root filesystem runs as nobody, read-only, without a capability.

`make test-packages`; the image of the quota job is in test_every_night.py.
"""

from __future__ import annotations

import email
import json
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.build import VERSION
from support.brokers.rabbitmq import RabbitMQ
from support.containers import contained, limited_and_seen, ports_of
from support.images import built, reachable, unpacked
from support.pages import shown
from support.processes import HANG_S, LOOPBACK, Process, free_ports, wait_until

pytestmark = pytest.mark.packages
MOST = 90 * 10**6  # bytes, compressed


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory, released: Path) -> Path:
    """Of the pure wheel."""
    return built(released, tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module")
def root(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root filesystem, as umoci makes it of the archive's layers."""
    return unpacked(archive, tmp_path_factory.mktemp("bundle"), shown("docs/deploy/container.md", "skopeo copy").text)


@pytest.fixture
def writable(root: Path, tmp_path: Path) -> Path:
    reachable(tmp_path, root)
    return tmp_path


def test_the_image_is_small_and_says_what_it_is(archive: Path) -> None:
    assert archive.stat().st_size < MOST
    with tarfile.open(archive) as packed:
        blobs = {member.name: packed.extractfile(member).read() for member in packed.getmembers()}  # type: ignore[union-attr]
    (manifest,) = json.loads(blobs["index.json"])["manifests"]
    assert manifest["platform"] == {"architecture": archive.name.split(".oci")[0].rpartition("-")[2], "os": "linux"}
    described = json.loads(blobs["blobs/sha256/" + json.loads(blobs["blobs/sha256/" + manifest["digest"][7:]])["config"]["digest"][7:]])
    config = described["config"]
    assert config["User"] == "65532:65532"
    assert config["StopSignal"] == "SIGTERM"
    assert config["Healthcheck"]["Test"] == ["CMD", "/usr/bin/sluice", "health"]
    assert config["Labels"]["org.opencontainers.image.version"] == VERSION


def test_scanners_see_its_packages_and_the_sbom_has_them_all(archive: Path, root: Path) -> None:
    """Where there is no package manager they look into status.d, as for distroless images."""
    status = root / "var/lib/dpkg/status.d"
    found = {file.name: email.message_from_string(file.read_text()) for file in status.iterdir()}
    assert {"base-files", "libc6", "libssl3", "libpython3.11-stdlib", "python3.11-minimal", "ca-certificates"} <= found.keys()
    assert not {"mawk", "gcc-12-base"} & found.keys(), "nothing of them is left"
    assert all(each["Package"] == name and each["Version"] and each["Architecture"] and each["Maintainer"] for name, each in found.items())
    made = json.loads(archive.with_name(archive.name.replace(".oci.tar", ".cdx.json")).read_text())
    named = {each["name"]: each for each in made["components"]}
    assert {each["Version"] for each in found.values()} <= {each["version"] for each in named.values()}
    assert named["libssl3"]["purl"].startswith("pkg:deb/debian/libssl3@3.0.")
    installed = {each.name.partition("-")[0] for each in (root / "usr/lib/sluice/lib/python3.11/site-packages").glob("*.dist-info")}
    assert {name.replace("-", "_").lower() for name in named} >= {name.lower() for name in installed} - {"sluice_gateway"}
    references = {each["bom-ref"] for each in made["components"]}
    assert {name for each in made["dependencies"] for name in each["dependsOn"]} <= references


def test_its_user_alone_reaches_the_state(root: Path) -> None:
    """A volume that a runtime makes is as the image's folder is; sluice warned of the image's own 0755."""
    for name, mode in (("state", 0o700), ("log", 0o750)):
        found = (root / {"state": "var/lib/sluice", "log": "var/log/sluice"}[name]).stat()
        assert (found.st_mode & 0o7777, found.st_uid, found.st_gid) == (mode, 65532, 65532)


def test_there_is_no_shell_and_nothing_else_to_run(root: Path) -> None:
    programs = {path.name for folder in ("bin", "sbin", "usr/bin", "usr/sbin") for path in (root / folder).glob("*")}
    assert programs == {"python3.11", "sluice"}
    assert not [path for path in root.rglob("*") if path.is_file() and not path.is_symlink() and path.stat().st_mode & 0o6000], "setuid"


def test_the_first_limit_of_the_page_limits_what_reaches_the_broker(
    root: Path, writable: Path, rabbitmq: RabbitMQ, record_property: Callable[[str, object], None]
) -> None:
    record_property("remark", limited_and_seen(root, writable, rabbitmq, "docs/deploy/container.md"))


def test_it_serves_as_nobody_on_a_read_only_root(root: Path, writable: Path) -> None:
    ports = free_ports(3)
    settings = ports_of(*ports)
    words = contained(root, writable, "/usr/bin/sluice", "run", "-c", "/etc/sluice/sluice.yaml", *settings)
    running = Process(words, log=writable / "log.txt")
    try:
        url = f"http://{LOOPBACK}:{ports[2]}"
        wait_until(
            lambda: subprocess.run(["curl", "-sf", f"{url}/livez"], capture_output=True, check=False).returncode == 0, within=60, what="it"
        )
        health = contained(root, writable, "/usr/bin/sluice", "health", "--admin", url)
        asked = subprocess.run(health, capture_output=True, text=True, check=False, timeout=HANG_S)
        assert (asked.returncode, "unreachable" in asked.stdout + asked.stderr) == (1, True), asked  # there is no broker
        change = ["limits", "set", "amqp", "/", "orders", "order.created", "--messages", "100/s", "--reason", "test", "--admin", url]
        by_command = contained(root, writable, "/usr/bin/sluice", *change)
        asked = subprocess.run(by_command, capture_output=True, text=True, check=False, timeout=HANG_S)
        assert asked.returncode == 0, asked
        status = Path(f"/proc/{child(running.pid)}/status").read_text()
        assert "CapEff:\t0000000000000000" in status
        assert "NoNewPrivs:\t1" in status
        assert "Uid:\t65532\t65532" in status
    finally:
        running.stop()
    assert (writable / "state" / "admin.token").stat().st_uid == 65532


def child(pid: int) -> int:
    """The gateway: the last of those that began each other."""
    while True:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if not found:
            return pid
        pid = int(found[0])


def test_where_nothing_can_be_written_it_serves_and_one_line_says_so(root: Path, writable: Path) -> None:
    settings = [*ports_of(*free_ports(3)), "--state-directory", "/etc/state"]
    running = Process(
        contained(root, writable, "/usr/bin/sluice", "run", "-c", "/etc/sluice/sluice.yaml", *settings), log=writable / "log.txt"
    )
    try:
        running.wait_until(lambda: '"event": "started"' in running.log.read_text(), within=60, what="it")
        (line,) = [line for line in running.log.read_text().splitlines() if "/etc/state cannot be read or made" in line]
        assert "Read-only file system" in line
    finally:
        running.stop()
    assert "Traceback" not in running.log.read_text()
