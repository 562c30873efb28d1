"""The Debian package: what is in it; and installed, upgraded, removed and purged in a Debian 12 of its own (`make test-packages`)."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from gateway.build import VERSION
from support.environments import ROOT
from support.packages import PURE, chrooted, deb, debian, inside, release, tree
from support.pages import shown
from support.processes import LOOPBACK, Process, free_ports


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the pure wheel: the compiled one takes minutes, and differs in nothing that is tested here."""
    target = tmp_path_factory.mktemp("deb")
    return deb(release(target) / PURE, target)


def read(package: Path, *words: str) -> str:
    return subprocess.run(["dpkg-deb", *words, str(package)], capture_output=True, text=True, check=True).stdout


def test_what_is_in_the_package(package: Path) -> None:
    lines = [line.split() for line in read(package, "--contents").splitlines()]
    modes = {words[5].removeprefix("."): (words[0], words[1]) for words in lines}
    assert {owner for _, owner in modes.values()} == {"root/root"}
    assert modes["/usr/lib/sluice/bin/sluice"][0] == "-rwxr-xr-x"
    for name in (
        "/etc/sluice/sluice.yaml",
        "/etc/sluice/limits.yaml",
        "/lib/systemd/system/sluice.service",
        "/usr/share/man/man1/sluice.1.gz",
    ):
        assert modes[name][0] == "-rw-r--r--", name
    for needed in ("trio", "h11", "yaml", "msgspec", "pamqp", "click", "rich", "zstandard", "redis", "sluice"):
        assert f"/usr/lib/sluice/lib/python3.11/site-packages/{needed}/__init__.py" in modes
    outside = {name for name in modes if not name.startswith(("/usr/lib/sluice/", "/usr/share/doc/sluice/"))}
    assert not [name for name in outside if name.endswith(".py")], "nothing for the system's Python"
    assert not [name for name in modes if "__pycache__" in name]


def test_what_dpkg_is_told(package: Path) -> None:
    assert read(package, "--field").startswith(f"Package: sluice\nVersion: {VERSION}-1\n")
    words = ["dpkg-deb", "--info", str(package), "conffiles"]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert said == "/etc/sluice/limits.yaml\n/etc/sluice/sluice.yaml\n"


def test_the_unit_has_a_user_and_needs_no_sockets(package: Path, tmp_path: Path) -> None:
    subprocess.run(["dpkg-deb", "-x", str(package), str(tmp_path)], check=True)
    unit = (tmp_path / "lib/systemd/system/sluice.service").read_text()
    assert "\nUser=sluice\n" in unit
    assert "DynamicUser" not in unit
    assert "\nWants=sluice.socket\n" in unit
    assert "\nExecStart=/usr/bin/sluice run -c /etc/sluice/sluice.yaml\n" in unit


def test_two_builds_are_the_same(package: Path, tmp_path: Path) -> None:
    again = deb(package.parent / PURE, tmp_path)
    assert again.read_bytes() == package.read_bytes()


# ---- in a Debian of its own --------------------------------------------------------------------------------------------


@pytest.fixture
def machine(tmp_path: Path, package: Path) -> Path:
    root = debian(tmp_path / "machine")
    (root / f"root/{package.name}").write_bytes(package.read_bytes())
    return root


def newer(package: Path, folder: Path) -> Path:
    """The same as the next version."""
    subprocess.run(["dpkg-deb", "-R", str(package), str(folder / "newer")], check=True)
    control = folder / "newer/DEBIAN/control"
    control.write_text(control.read_text().replace(f"Version: {VERSION}-1", f"Version: {VERSION}-2"))
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(folder / "newer"), str(folder / "newer.deb")], check=True
    )
    return folder / "newer.deb"


@pytest.mark.packages
def test_lintian_says_nothing(package: Path) -> None:
    words = ["lintian", "--allow-root", "--fail-on", "error,warning", "--tag-display-limit", "0", str(package)]
    said = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout) == (0, ""), said


@pytest.fixture
def serving(machine: Path) -> Iterator[tuple[Process, str]]:
    """The service's command, by the service's user, on ports of this test; and the URL of its admin port."""
    block = shown("docs/deploy/debian.md", "apt-get install")
    assert f"sluice_{VERSION}-1_amd64.deb" in block.text
    before = tree(machine)
    (machine / "root/before").write_text("\n".join(sorted(before)))
    inside(machine, "dpkg", "-i", f"/root/sluice_{VERSION}-1_amd64.deb")  # apt-get would do this; its lists are no part of the machine
    ports = free_ports(3)
    config = machine / "etc/sluice/sluice.yaml"
    written = yaml.safe_load(config.read_text())
    written["listeners"][0] |= {"bind": f"{LOOPBACK}:{ports[0]}", "upstream": f"{LOOPBACK}:{ports[1]}"}
    written["admin"]["bind"] = f"{LOOPBACK}:{ports[2]}"
    config.write_text(yaml.safe_dump(written))
    process = Process(chrooted(machine, ["/usr/bin/sluice", "run", "-c", "/etc/sluice/sluice.yaml"], "sluice"), log=machine / "root/log")
    url = f"http://{LOOPBACK}:{ports[2]}"
    try:
        process.wait_until(lambda: alive(url), within=60, what="the gateway")
        yield process, url
    finally:
        process.stop()


def alive(url: str) -> bool:
    return subprocess.run(["curl", "-sf", f"{url}/livez"], capture_output=True, check=False).returncode == 0


@pytest.mark.packages
def test_installed_upgraded_removed_and_purged(machine: Path, serving: tuple[Process, str], package: Path, tmp_path: Path) -> None:
    process, url = serving
    state = machine / "var/lib/sluice"
    assert oct(state.stat().st_mode & 0o777) == "0o750"
    assert state.owner() != "root" if state.stat().st_uid < 100 else state.stat().st_uid >= 100
    assert (state / "admin.token").exists()
    assert not (machine / "etc/systemd/system/multi-user.target.wants/sluice.service").is_symlink(), "a first start is the operator's"
    assert f"sluice {VERSION}" in inside(machine, "sluice", "--version").stdout
    assert inside(machine, "sluice", "status", "--admin", url, "--token-file", "/var/lib/sluice/admin.token").returncode == 0

    (machine / "root/newer.deb").write_bytes(newer(package, tmp_path).read_bytes())
    inside(machine, "dpkg", "-i", "/root/newer.deb")
    assert url.rpartition(":")[2] in (machine / "etc/sluice/sluice.yaml").read_text(), "what the operator has written is kept"
    assert alive(url), "the old process serves until it is restarted"
    assert f"{VERSION}-2" in inside(machine, "dpkg-query", "-W", "sluice").stdout

    process.stop()
    inside(machine, "dpkg", "--remove", "sluice")
    assert (machine / "etc/sluice/sluice.yaml").exists()
    assert (state / "admin.token").exists()
    assert not (machine / "usr/lib/sluice").exists()

    inside(machine, "dpkg", "--purge", "sluice")
    for name in ("before", "log", "newer.deb"):
        assert (machine / "root" / name).exists()
    before = set((machine / "root/before").read_text().splitlines()) | {"root/before", "root/log", "root/newer.deb"}
    assert tree(machine) - before == set()
    assert "sluice" not in (machine / "etc/passwd").read_text()
    assert "sluice" not in (machine / "etc/group").read_text()


@pytest.mark.packages
def test_a_topic_is_limited_as_the_page_says(machine: Path, serving: tuple[Process, str]) -> None:
    """But for systemd, which is not there: `serving` has started what its unit would."""
    _, url = serving
    check, start = shown("docs/deploy/debian.md", "systemctl enable").text.splitlines()
    assert start == "systemctl enable --now sluice"
    assert inside(machine, *shlex.split(check.removesuffix(" --strict"))).returncode == 0
    for line in shown("docs/deploy/debian.md", "limits set").text.splitlines():
        said = inside(machine, *shlex.split(line), "--admin", url, "--token-file", "/var/lib/sluice/admin.token").stdout
    assert "100/s" in said


@pytest.mark.packages
def test_an_upgrade_whose_configuration_is_refused_says_so_and_disturbs_nobody(
    machine: Path, serving: tuple[Process, str], package: Path, tmp_path: Path
) -> None:
    _, url = serving
    (machine / "etc/sluice/limits.yaml").write_text("rules: [{name: x, limit: {messages: 10O/s}}]\n")
    (machine / "root/newer.deb").write_bytes(newer(package, tmp_path).read_bytes())
    done = inside(machine, "dpkg", "-i", "/root/newer.deb")
    assert "sluice: this version refuses /etc/sluice/sluice.yaml; a running sluice goes on as it was:" in done.stderr
    assert "10O" in done.stderr
    assert "ok installed" in inside(machine, "dpkg-query", "-W", "-f", "${Status}", "sluice").stdout
    assert alive(url)


@pytest.mark.packages
def test_a_full_disk_leaves_the_version_before(machine: Path, package: Path, tmp_path: Path) -> None:
    """dpkg unpacks all before it replaces anything."""
    inside(machine, "dpkg", "-i", f"/root/{package.name}")
    (machine / "root/newer.deb").write_bytes(newer(package, tmp_path).read_bytes())
    site = machine / "usr/lib/sluice"
    subprocess.run(
        ["find", str(site), "-depth", "-name", "__pycache__", "-exec", "rm", "-rf", "{}", "+"], check=True
    )  # what prerm would free
    kept = tmp_path / "kept"
    subprocess.run(["cp", "-a", str(site), str(kept)], check=True)
    size = int(subprocess.run(["du", "-sk", str(site)], capture_output=True, text=True, check=True).stdout.split()[0])
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size + 4096}k", "tmpfs", str(site)], check=True)
    try:
        subprocess.run(["cp", "-a", f"{kept}/.", str(site)], check=True)
        done = inside(machine, "dpkg", "-i", "/root/newer.deb", check=False)
        assert done.returncode != 0
        assert "No space left on device" in done.stderr
        assert f"sluice {VERSION}" in inside(machine, "sluice", "--version").stdout
        assert f"{VERSION}-1" in inside(machine, "dpkg-query", "-W", "sluice").stdout
    finally:
        subprocess.run(["umount", str(site)], check=True)


def test_the_page_names_the_package_that_is_built(package: Path) -> None:
    assert package.name in shown("docs/deploy/debian.md", "apt-get install").text
    assert ROOT.joinpath("docs/deploy/debian.md").exists()
