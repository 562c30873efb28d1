"""The Debian package, `make test-packages`: what is in it; and installed, upgraded, removed and purged in a Debian 12 of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from gateway.build import VERSION
from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.clients.newcomers import NEWCOMERS, Newcomers
from support.environments import ROOT
from support.first_limits import Clock, assert_limited, assert_seen, first_queue
from support.packages import PURE, another, chrooted, deb, debian, git, inside, pure_wheel, repository, tree
from support.pages import shown
from support.processes import HANG_S, LOOPBACK, Process, free_ports, wait_until
from support.systemd_namespace import SystemdNamespace

pytestmark = [pytest.mark.slow, pytest.mark.packages]  # what is built takes its time


@pytest.fixture(scope="module")
def wheel(released: Path) -> Path:
    """The pure one: the compiled one takes minutes, and differs in nothing that is tested here."""
    return released / PURE


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    return deb(wheel, tmp_path_factory.mktemp("deb"))


def read(package: Path, *words: str) -> str:
    return subprocess.run(["dpkg-deb", *words, str(package)], capture_output=True, text=True, check=True).stdout


def test_what_is_in_the_package(package: Path) -> None:
    lines = [line.split() for line in read(package, "--contents").splitlines()]
    modes = {words[5].removeprefix("."): (words[0], words[1]) for words in lines}
    assert {owner for _, owner in modes.values()} == {"root/root"}
    assert modes["/usr/lib/sluice/package/bin/sluice"][0] == "-rwxr-xr-x"
    for name in (
        "/etc/sluice/sluice.yaml",
        "/etc/sluice/limits.yaml",
        "/lib/systemd/system/sluice.service",
        "/usr/share/man/man1/sluice.1.gz",
    ):
        assert modes[name][0] == "-rw-r--r--", name
    for needed in ("trio", "h11", "yaml", "msgspec", "pamqp", "click", "zstandard", "redis", "sluice"):
        assert f"/usr/lib/sluice/package/lib/python3.11/site-packages/{needed}/__init__.py" in modes
    outside = {name for name in modes if not name.startswith(("/usr/lib/sluice/", "/usr/share/doc/sluice/"))}
    assert not [name for name in outside if name.endswith(".py")], "nothing for the system's Python"
    assert not [name for name in modes if "__pycache__" in name]


def test_what_runs_is_in_a_folder_that_is_another_for_another_build(package: Path, wheel: Path, tmp_path: Path) -> None:
    """Or an upgrade would replace the files of a process that runs, or take them away."""
    names = []
    changed = another(wheel, tmp_path, VERSION, {"sluice/py.typed": "# changed\n"})
    for number, each in enumerate((package, deb(changed, tmp_path / "deb"))):
        folder = tmp_path / f"{number}"
        subprocess.run(["dpkg-deb", "-R", str(each), str(folder)], check=True)
        interpreter = (folder / "usr/lib/sluice/package/bin/sluice").read_text().splitlines()[0]
        name = Path(interpreter.removeprefix("#!")).parts[-3]
        assert interpreter == f"#!/usr/lib/sluice/{name}/bin/python3"
        assert f"\nname={name} " in (folder / "DEBIAN/postinst").read_text()
        names.append(name)
    assert len(set(names)) == 2
    assert all(re.fullmatch(rf"{re.escape(VERSION)}-1-[0-9a-f]{{12}}", name) for name in names)


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


@pytest.mark.parametrize("name", ["sluice-ship", "sluice-quotas"])
def test_the_jobs_leave_the_gateways_folder_where_it_is(name: str, package: Path, tmp_path: Path) -> None:
    """systemd moves LogsDirectory to /var/log/private for a unit with DynamicUser: the running gateway could not go on with its log."""
    subprocess.run(["dpkg-deb", "-x", str(package), str(tmp_path)], check=True)
    unit = (tmp_path / f"lib/systemd/system/{name}.service").read_text()
    assert "DynamicUser" not in unit
    assert "\nUser=sluice\n" in unit
    assert "\nGroup=sluice\n" in unit
    assert "\nOnCalendar=" in (tmp_path / f"lib/systemd/system/{name}.timer").read_text()
    program = {"sluice-ship": "/usr/bin/sluice log ship ", "sluice-quotas": "/opt/sluice/bin/sluice quotas nightly "}[name]
    assert f"\nExecStart={program}" in unit


def test_two_builds_are_the_same(package: Path, wheel: Path, tmp_path: Path) -> None:
    again = deb(wheel, tmp_path)
    assert again.read_bytes() == package.read_bytes()


# ---- in a Debian of its own --------------------------------------------------------------------------------------------


@pytest.fixture
def machine(tmp_path: Path, package: Path) -> Path:
    root = debian(tmp_path / "machine")
    (root / f"root/{package.name}").write_bytes(package.read_bytes())
    return root


# What a gateway starts when it needs it, and one of the version before must not: a worker, and what keeps the access log's files.
OTHERS: Final = dict.fromkeys(
    ("sluice/gateway/workers/worker.py", "sluice/common/log_files/keeper.py"), 'raise SystemExit("this is of another version")\n'
)


def newer(wheel: Path, folder: Path, files: Mapping[str, str] | None = None) -> Path:
    """The next version; `files` of its wheel are others."""
    made = deb(another(wheel, folder / "wheel", VERSION, {"sluice/py.typed": "# newer\n", **(files or {})}), folder / "deb")
    subprocess.run(["dpkg-deb", "-R", str(made), str(folder / "newer")], check=True)
    control = folder / "newer/DEBIAN/control"
    control.write_text(control.read_text().replace(f"Version: {VERSION}-1", f"Version: {VERSION}-2"))
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(folder / "newer"), str(folder / "newer.deb")], check=True
    )
    return folder / "newer.deb"


def test_lintian_says_nothing(package: Path) -> None:
    words = ["lintian", "--allow-root", "--fail-on", "error,warning", "--tag-display-limit", "0", str(package)]
    said = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout) == (0, ""), said


@pytest.fixture
def serving(machine: Path) -> Iterator[tuple[Process, str]]:
    """The service's command, by the service's user, on ports of this test; and the URL of its admin port."""
    block = shown("docs/deploy/debian.md", "apt-get install")
    assert fnmatch(f"./sluice_{VERSION}-1_amd64.deb", block.text.split()[-1])
    before = tree(machine)
    (machine / "root/before").write_text("\n".join(sorted(before)))
    inside(machine, "dpkg", "-i", f"/root/sluice_{VERSION}-1_amd64.deb")  # apt-get would do this; its lists are no part of the machine
    ports = free_ports(3)
    url = configure(machine, ports)
    with processes_seen(machine):
        process = start(machine, url)
        try:
            yield process, url
        finally:
            process.stop()


def test_from_the_package_to_a_flood_in_the_dashboard_as_the_page_says(
    package: Path, rabbitmq: RabbitMQ, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """The page's commands, typed as root under a real systemd; only the ports are this test's."""
    root = debian(tmp_path / "machine")
    (root / "root" / package.name).write_bytes(package.read_bytes())
    port, admin = free_ports(2)

    with SystemdNamespace(tmp_path / "systemd", {}, machine=root) as machine, first_queue(rabbitmq) as queue:
        clock = Clock("docs/deploy/debian.md")
        machine.type(shown("docs/deploy/debian.md", "apt-get install").text)
        clock.at("installed")
        url = configure(root, [port, rabbitmq.port, admin])
        machine.type(shown("docs/deploy/debian.md", "systemctl enable").text)
        wait_until(lambda: alive(url), within=60, what="the gateway")
        clock.at("started")
        assert "100/s" in machine.type(shown("docs/deploy/debian.md", "limits set").text, SLUICE_ADMIN=url)
        counted = assert_limited(f"amqp://guest:guest@{LOOPBACK}:{port}/%2F", queue)
        clock.at("limited")
        assert_seen(url, {"token": machine.type(shown("docs/deploy/debian.md", "cat /var/lib/sluice").text).strip()}, counted)
        clock.at("seen")
    record_property("remark", clock.remark(counted))


def test_the_build_of_the_next_commit_is_an_upgrade_for_pip_and_for_dpkg(tmp_path: Path) -> None:
    """Neither is told to take another version: each finds out which one is newer."""
    machine, sources, dist = debian(tmp_path / "machine"), repository(tmp_path / "sources", "v0.0.1"), tmp_path / "dist"
    pip = [str(tmp_path / "venv/bin/python"), "-m", "pip"]
    newest = ["--quiet", "--no-index", "--no-deps", "--pre", "--upgrade", "--find-links", str(dist), "sluice-gateway"]
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=300)
    versions = []
    for _ in range(2):
        wheel = pure_wheel(sources, dist)
        package = deb(wheel, tmp_path / "deb")
        (machine / f"root/{package.name}").write_bytes(package.read_bytes())
        said = inside(machine, "dpkg", "-i", f"/root/{package.name}")
        assert "downgrading" not in said.stderr
        subprocess.run([*pip, "install", *newest], check=True, timeout=300)
        found = subprocess.run([*pip, "show", "sluice-gateway"], check=True, capture_output=True, text=True, timeout=HANG_S).stdout
        assert f"\nVersion: {wheel.name.split('-')[1]}\n" in found
        rows = dict(line.split(None, 1) for line in inside(machine, "sluice", "version").stdout.splitlines())
        assert (rows["sluice"], rows["commit"]) == (wheel.name.split("-")[1], git(sources, "rev-parse", "HEAD"))
        versions.append(inside(machine, "dpkg-query", "-W", "-f", "${Version}", "sluice").stdout)
        git(sources, "commit", "--quiet", "--allow-empty", "-m", "the next")
    assert [version.partition("+")[0] for version in versions] == [f"{VERSION}~~dev1", f"{VERSION}~~dev2"]


def configure(machine: Path, ports: list[int], **gateway: object) -> str:
    """Where clients come, where the broker is, and the admin port, whose URL is returned."""
    config = machine / "etc/sluice/sluice.yaml"
    written = yaml.safe_load(config.read_text())
    written["gateway"] |= gateway
    written["listeners"][0] |= {"bind": f"{LOOPBACK}:{ports[0]}", "upstream": f"{LOOPBACK}:{ports[1]}"}
    written["admin"]["bind"] = f"{LOOPBACK}:{ports[2]}"
    config.write_text(yaml.safe_dump(written))
    return f"http://{LOOPBACK}:{ports[2]}"


def start(machine: Path, url: str, number: int = 1) -> Process:
    """What the unit would; returned once it serves."""
    log = machine / f"root/log{number}"
    process = Process(chrooted(machine, ["/usr/bin/sluice", "run", "-c", "/etc/sluice/sluice.yaml"], "sluice"), log=log)
    try:
        process.wait_until(lambda: '"event": "started"' in process.output() and alive(url), within=60, what="the gateway")
    except BaseException:
        process.stop()
        raise
    return process


def alive(url: str) -> bool:
    return subprocess.run(["curl", "-sf", f"{url}/livez"], capture_output=True, check=False).returncode == 0


def test_installed_upgraded_removed_and_purged(machine: Path, serving: tuple[Process, str], wheel: Path, tmp_path: Path) -> None:
    process, url = serving
    state = machine / "var/lib/sluice"
    assert oct(state.stat().st_mode & 0o777) == "0o750"
    assert state.owner() != "root" if state.stat().st_uid < 100 else state.stat().st_uid >= 100
    assert (state / "admin.token").exists()
    assert not (machine / "etc/systemd/system/multi-user.target.wants/sluice.service").is_symlink(), "a first start is the operator's"
    assert f"sluice {VERSION}" in inside(machine, "sluice", "--version").stdout
    assert inside(machine, "sluice", "status", "--admin", url, "--token-file", "/var/lib/sluice/admin.token").returncode == 0

    (machine / "root/newer.deb").write_bytes(newer(wheel, tmp_path).read_bytes())
    inside(machine, "dpkg", "-i", "/root/newer.deb")
    assert url.rpartition(":")[2] in (machine / "etc/sluice/sluice.yaml").read_text(), "what the operator has written is kept"
    assert alive(url), "the old process serves until it is restarted"
    assert f"{VERSION}-2" in inside(machine, "dpkg-query", "-W", "sluice").stdout

    process.stop()
    inside(machine, "dpkg", "--remove", "sluice")
    assert (machine / "etc/sluice/sluice.yaml").exists()
    assert (state / "admin.token").exists()
    assert not (machine / "usr/lib/sluice").exists(), "also what postinst has made"

    inside(machine, "dpkg", "--purge", "sluice")
    for name in ("before", "log1", "newer.deb"):
        assert (machine / "root" / name).exists()
    before = set((machine / "root/before").read_text().splitlines()) | {"root/before", "root/log1", "root/newer.deb"}
    assert tree(machine) - before == set()
    assert "sluice" not in (machine / "etc/passwd").read_text()
    assert "sluice" not in (machine / "etc/group").read_text()


def test_an_upgrade_whose_configuration_is_refused_says_so_and_disturbs_nobody(
    machine: Path, serving: tuple[Process, str], wheel: Path, tmp_path: Path
) -> None:
    _, url = serving
    (machine / "etc/sluice/limits.yaml").write_text("rules: [{name: x, limit: {messages: 10O/s}}]\n")
    (machine / "root/newer.deb").write_bytes(newer(wheel, tmp_path).read_bytes())
    done = inside(machine, "dpkg", "-i", "/root/newer.deb")
    assert "sluice: this version refuses /etc/sluice/sluice.yaml; a running sluice goes on as it was:" in done.stderr
    assert "10O" in done.stderr
    assert "ok installed" in inside(machine, "dpkg-query", "-W", "-f", "${Status}", "sluice").stdout
    assert alive(url)


@contextmanager
def processes_seen(machine: Path) -> Iterator[None]:
    """/proc in the machine: an upgrade looks there for processes that still run from the folder of the version before."""
    subprocess.run(["mount", "-t", "proc", "proc", str(machine / "proc")], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(machine / "proc")], check=True)


def folders(machine: Path) -> set[str]:
    """That sluice may run from."""
    return {path.name for path in (machine / "usr/lib/sluice").iterdir() if path.name not in {"package", "current"}}


def asked(url: str, machine: Path, path: str) -> Any:
    token = (machine / "var/lib/sluice/admin.token").read_text().strip()
    words = ["curl", "-sf", "-H", f"Authorization: Bearer {token}", f"{url}{path}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=HANG_S)
    assert done.returncode == 0, f"{path}: {done}"
    return json.loads(done.stdout)


def test_an_old_process_goes_on_with_its_own_files_while_another_version_is_installed(
    machine: Path, package: Path, wheel: Path, tmp_path: Path
) -> None:
    """Its parent starts a worker anew: what it starts must be of its own version. The version after it has others that end at once."""
    inside(machine, "dpkg", "-i", f"/root/{package.name}")
    (first,) = folders(machine)
    with processes_seen(machine):
        url = configure(machine, free_ports(3), workers=2)
        process = start(machine, url)
        try:
            (machine / "etc/sluice/limits.yaml").write_text("rules: [{name: x, limit: {messages: 10O/s}}]\n")
            (machine / "root/newer.deb").write_bytes(newer(wheel, tmp_path, OTHERS).read_bytes())
            assert "this version refuses" in inside(machine, "dpkg", "-i", "/root/newer.deb").stderr
            assert first in folders(machine)
            assert (machine / "usr/lib/sluice/current").readlink() != Path(first)
            (killed, *_) = [each["pid"] for each in asked(url, machine, "/v1/status")["workers"]]
            os.kill(killed, signal.SIGKILL)

            def replaced() -> bool:
                workers = asked(url, machine, "/v1/status")["workers"]
                return [each["serves"] for each in workers] == [True, True] and killed not in {each["pid"] for each in workers}

            process.wait_until(replaced, within=60, what="another worker of the version before")
            assert "another version" not in process.output()
        finally:
            process.stop()
        inside(machine, "dpkg", "-i", "/root/newer.deb")
        assert first not in folders(machine), "nobody runs from it any more"
        assert len(folders(machine)) == 1


def test_upgraded_and_gone_back_under_load(
    machine: Path, package: Path, wheel: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """As the page says where systemd holds no sockets: install, start the next process beside the running one. Nobody is refused."""
    inside(machine, "dpkg", "-i", f"/root/{package.name}")
    (machine / "root/newer.deb").write_bytes(newer(wheel, tmp_path).read_bytes())
    with (
        processes_seen(machine),
        RabbitMQ(tmp_path) as rabbitmq,
        Queue(rabbitmq.url, "upgraded") as queue,
    ):
        ports = free_ports(2)
        url = configure(machine, [ports[0], rabbitmq.port, ports[1]], takeover="/var/lib/sluice/takeover.sock")
        (machine / "etc/sluice/limits.yaml").write_text("rules: []\n")
        running = start(machine, url)
        newcomers = Newcomers(ports[0], "upgraded")
        seen = {folder_of(running)}
        try:
            with newcomers.coming():
                for number, name in enumerate(("newer.deb", package.name), 2):
                    running.wait_until(partial(newcomers.have_confirmed, len(newcomers.confirmed) + 50), within=60, what="confirms")
                    inside(machine, "dpkg", "-i", f"/root/{name}")
                    running.wait_until(partial(newcomers.have_confirmed, len(newcomers.confirmed) + 50), within=60, what="confirms")
                    before, running = running, start(machine, url, number)
                    assert before.popen.wait(HANG_S) == 0, before.output()[-3000:]
                    seen.add(folder_of(running))
                running.wait_until(partial(newcomers.have_confirmed, len(newcomers.confirmed) + 50), within=60, what="confirms")
        finally:
            running.stop()
        stored = queue.drain()
    record_property("remark", f"{len(newcomers.confirmed)} confirmed, {newcomers.told} told to reconnect")
    assert newcomers.faults == []
    assert set(newcomers.confirmed) <= set(stored)
    assert len(stored) == len(set(stored))
    assert newcomers.told <= 2 * NEWCOMERS
    assert len(seen) == 2, "each version ran from its own folder"


def folder_of(process: Process) -> str:
    """Of the Python that runs: the name of its folder under /usr/lib/sluice."""
    return Path(Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")[0].decode()).parts[-3]


@pytest.mark.parametrize("takeover", [False, True], ids=["restarted", "taken over"])
def test_upgraded_and_gone_back_under_load_by_systemd(
    package: Path, wheel: Path, tmp_path: Path, takeover: bool, record_property: Callable[[str, object], None]
) -> None:
    """All as the page says, under a real systemd: its unit, its user, the sockets of the example. dpkg alone restarts the service.

    Where the setting is there, it has the next process take over: nobody is closed unheard.
    """
    root = debian(tmp_path / "machine")
    (root / f"root/{package.name}").write_bytes(package.read_bytes())
    (root / "root/newer.deb").write_bytes(newer(wheel, tmp_path).read_bytes())
    with (
        RabbitMQ(tmp_path) as rabbitmq,
        Queue(rabbitmq.url, "upgraded") as queue,
        SystemdNamespace(tmp_path / "systemd", {}, machine=root) as inside,
    ):
        inside.run("dpkg", "-i", f"/root/{package.name}")
        assert inside.show("sluice.service", "ActiveState") == "inactive", "a first start is the operator's"
        ports = free_ports(2)
        gateway = {"takeover": "/var/lib/sluice/takeover.sock"} if takeover else {}
        configure(root, [ports[0], rabbitmq.port, ports[1]], **gateway)
        (root / "etc/sluice/limits.yaml").write_text("rules: []\n")
        example = inside.run("cat", "/usr/share/doc/sluice/examples/sluice.socket").stdout
        bare = re.sub(r"^ListenStream=\S+\n", "", example, flags=re.MULTILINE)
        sockets = "".join(f"ListenStream={LOOPBACK}:{port}\n" for port in ports)
        (root / "etc/systemd/system/sluice.socket").write_text(bare.replace("Backlog=", f"{sockets}Backlog="))
        inside.run("sluice", "check", "-c", "/etc/sluice/sluice.yaml")
        inside.systemctl("daemon-reload")
        inside.systemctl("enable", "--now", "sluice.socket", "sluice.service")
        newcomers = Newcomers(ports[0], "upgraded")
        pids, ran_from = [inside.main_pid("sluice.service")], folders(root)
        with newcomers.coming():
            for name in ("newer.deb", package.name):
                wait_until(partial(newcomers.have_confirmed, len(newcomers.confirmed) + 50), within=60, what="confirms")
                inside.run("dpkg", "-i", f"/root/{name}")
                pids.append(inside.main_pid("sluice.service"))
                wait_until(partial(newcomers.have_confirmed, len(newcomers.confirmed) + 50), within=60, what="confirms")
                assert takeover or len(folders(root)) == 1, "that of the version before goes with its process"
                ran_from |= folders(root)
        assert inside.log().count('"taken_over"') == (2 if takeover else 0)
        stored = queue.drain()
        user = inside.run("stat", "-c", "%U", f"/proc/{pids[-1]}").stdout.strip()
        inside.run("dpkg", "--purge", "sluice")
        assert inside.show("sluice.service", "ActiveState") == "inactive", inside.log()[-5000:]
    record_property("remark", f"{len(newcomers.confirmed)} confirmed, {newcomers.told} told, {len(newcomers.faults)} closed unheard")
    assert user == "sluice"
    assert len(set(pids)) == 3
    assert len(ran_from) == 2
    assert set(newcomers.confirmed) <= set(stored)
    assert len(stored) == len(set(stored))
    assert not [each for each in newcomers.faults if "Refused" in each], newcomers.faults
    assert newcomers.told + len(newcomers.faults) <= 2 * NEWCOMERS, newcomers
    assert not (takeover and newcomers.faults), newcomers.faults


def test_a_full_disk_leaves_the_version_before(machine: Path, package: Path, wheel: Path, tmp_path: Path) -> None:
    """dpkg unpacks all before it replaces anything."""
    inside(machine, "dpkg", "-i", f"/root/{package.name}")
    (machine / "root/newer.deb").write_bytes(newer(wheel, tmp_path).read_bytes())
    site = machine / "usr/lib/sluice"
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
    assert fnmatch(f"./{package.name}", shown("docs/deploy/debian.md", "apt-get install").text.split()[-1])
    assert ROOT.joinpath("docs/deploy/debian.md").exists()
