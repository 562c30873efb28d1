"""Every compiled wheel in dist/, installed with the locked dependencies beside it and started on the Python and the processor it is for.

`make test-wheels` makes them: for this machine's Python, and with PYTHONS='python3.13' ARM64=1 for others. arm64's runs under qemu, on
Debian's Python for arm64. Another wheel than these has nothing here that could run it, and fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.clients.newcomers import Newcomers
from support.environments import ROOT
from support.processes import LOOPBACK, Process, free_ports

pytestmark = [pytest.mark.packages, pytest.mark.long]
sys.path.insert(0, str(ROOT / "deploy" / "packaging"))

from git_version import read_version  # noqa: E402  -- its folder is not on the path before

VERSION: Final = read_version().text
DIST: Final = ROOT / "dist"
WHEELS: Final = sorted(path.name for path in DIST.glob("sluice_gateway-*-cp*.whl"))
ARM64: Final = ROOT / "build" / "arm64" / "root"
MACHINES: Final = {"x86_64": 62, "aarch64": 183}  # e_machine of an ELF file
SLOW_S: Final = 180  # qemu takes a dozen times the processor


class Installed(NamedTuple):
    """`command`: sluice, as it was installed. `says`: of its build, at the end of `--version`."""

    command: list[str]
    says: str


def tags(wheel: str) -> tuple[str, str]:
    """The Python ("311") and the processor ("aarch64") it is for."""
    found = re.fullmatch(rf"sluice_gateway-{re.escape(VERSION)}-cp(\d+)-cp\1-manylinux.*_(x86_64|aarch64)\.whl", wheel)
    assert found is not None, f"{wheel}: not of this version, or not for every Linux"
    return found[1], found[2]


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SLUICE_", "VIRTUAL_ENV"))}


def done(*words: str | Path, folder: Path, within: float = SLOW_S, **more: str) -> str:
    found = subprocess.run(
        [*map(str, words)], cwd=folder, env=environment() | more, capture_output=True, text=True, check=False, timeout=within
    )
    assert found.returncode == 0, f"{words}\n{found.stdout}{found.stderr}"
    return found.stdout + found.stderr


@pytest.fixture(scope="module", params=WHEELS)
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("installed")
    wheel = str(request.param)
    number, processor = tags(wheel)
    python = f"{number[0]}.{number[1:]}"
    ours = f"{sys.version_info.major}{sys.version_info.minor}"
    pip = ["-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    locked = ["--no-deps", "--only-binary", ":all:"]
    requirements = ["--require-hashes", "-r", str(DIST / f"sluice-{VERSION}-requirements.txt")]
    if processor == "aarch64":
        every = [word for old in ("2_17", "2_28", "2_34") for word in ("--platform", f"manylinux_{old}_aarch64")]
        every += ["--platform", "manylinux2014_aarch64", "--python-version", python, "--target", str(folder / "site")]
        done(sys.executable, *pip, *locked, *every, *requirements, folder=folder, within=600)
        done(sys.executable, *pip, *locked, *every, DIST / wheel, folder=folder)
        with_site = ["qemu-aarch64-static", "-L", str(ARM64), "-E", f"PYTHONPATH={folder / 'site'}"]
        return Installed([*with_site, str(ARM64 / f"usr/bin/python{python}"), "-m", "sluice"], f"(compiled, Python {python}")
    interpreter = sys.executable if number == ours else str(ROOT / f"build/builders-cpython-{number}/bin/python")
    done(interpreter, "-m", "venv", folder / "venv", folder=folder)
    done(folder / "venv/bin/python", *pip, *locked, *requirements, folder=folder, within=600)
    done(folder / "venv/bin/python", *pip, *locked, DIST / wheel, folder=folder)
    return Installed([str(folder / "venv/bin/sluice")], f"(compiled, Python {python}")


def test_there_are_compiled_wheels() -> None:
    assert WHEELS, "make test-wheels makes them"


@pytest.mark.parametrize("wheel", WHEELS)
def test_all_its_libraries_are_for_the_processor_it_names(wheel: str) -> None:
    _, processor = tags(wheel)
    with zipfile.ZipFile(DIST / wheel) as packed:
        libraries = [name for name in packed.namelist() if name.endswith(".so")]
        assert libraries
        for name in libraries:
            head = packed.read(name)[:20]
            assert (head[:4], int.from_bytes(head[18:20], "little")) == (b"\x7fELF", MACHINES[processor]), name


def test_it_says_that_it_is_compiled_and_checks_the_example(installed: Installed, tmp_path: Path) -> None:
    assert installed.says in done(*installed.command, "--version", folder=tmp_path)
    assert "0 warnings" in done(*installed.command, "check", ROOT / "config" / "sluice.yaml", folder=tmp_path)


def test_it_limits_a_topic_before_a_real_rabbitmq(
    installed: Installed, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Clients come, publish, have their confirm and leave; then a limit is set, and the gateway ends well."""
    port, admin_port = free_ports(2)
    admin = f"http://{LOOPBACK}:{admin_port}"
    with RabbitMQ(tmp_path / "rabbitmq") as rabbitmq, Queue(rabbitmq.url, "limited") as queue:
        ways = ["--bind", f"{LOOPBACK}:{port}", "--upstream", f"{LOOPBACK}:{rabbitmq.port}", "--admin-bind", f"{LOOPBACK}:{admin_port}"]
        command = [*installed.command, "run", "--protocol", "amqp", *ways, "--limit", "100k/s"]
        with Process(command, log=tmp_path / "log", cwd=tmp_path, env=environment()) as running:
            there = ["curl", "-sf", f"{admin}/readyz"]
            running.wait_until(
                lambda: subprocess.run(there, capture_output=True, check=False).returncode == 0, within=SLOW_S, what="the gateway"
            )
            newcomers = Newcomers(port, "limited")
            with newcomers.coming():
                running.wait_until(lambda: newcomers.have_confirmed(50), within=SLOW_S, what="50 confirms")
            assert newcomers.faults == []
            assert set(newcomers.confirmed) <= set(queue.drain())
            limit = ["limits", "set", "amqp", "/", "", "limited", "--messages", "1/h", "--burst", "1h", "--reason", "next to none"]
            done(*installed.command, *limit, folder=tmp_path, SLUICE_ADMIN=admin)
            assert "1/h" in done(*installed.command, "limits", "get", "amqp", "/", "", "limited", folder=tmp_path, SLUICE_ADMIN=admin)
            assert running.stop(grace=SLOW_S) == 0, running.output()[-3000:]
    record_property("remark", f"{len(newcomers.confirmed)} confirmed")
