"""Machines where a checkout cannot be set up: one sentence that has the way out, before anything is installed.

A clock that is wrong: end_to_end/test_clock_jumps.py, admin/test_clock_steps.py. No compiler: test_release.py, test_installed.py.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from support.environments import ROOT
from support.gateways import command
from support.packages import PURE
from support.processes import HANG_S, LOOPBACK, free_ports

SCRIPT = ROOT / "deploy/system-packages.sh"
NOBODY = 65534
TOO_OLD = "#!/bin/sh\ncase $2 in *'>= (3, 11)'*) exit 0 ;; *) exit 1 ;; esac\n"  # python -c '…', asked whether it is new enough


def set_up(folder: Path, *parts: str, user: int | None = None, **environment: str) -> tuple[int, str]:
    """What the script that every target begins with says in `folder`, and its exit code."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | environment
    words = ["/bin/sh", "-s", *parts]
    done = subprocess.run(
        words, input=SCRIPT.read_text(), cwd=folder, env=clean, user=user, capture_output=True, text=True, check=False, timeout=HANG_S
    )
    return done.returncode, done.stderr


def program(place: Path, text: str) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    place.chmod(0o755)
    return place


def test_without_root_what_is_missing_is_named_with_the_command_for_it() -> None:
    code, said = set_up(Path("/"), "zsh", "haproxy", user=NOBODY if os.getuid() == 0 else None, PATH="/nowhere")
    assert code == 1
    assert "Missing on this machine: zsh haproxy\n" in said
    assert "as root: apt-get update && apt-get install --no-install-recommends zsh haproxy" in said


@pytest.mark.parametrize("fault", ["moved", "its Python is gone", "too old", "half made"])
def test_an_old_environment_is_named(tmp_path: Path, fault: str) -> None:
    made = tmp_path / "before/.venv"
    (made / "bin").mkdir(parents=True)
    (made / "bin/activate").write_text(f'VIRTUAL_ENV="{made}"\n')
    (made / "bin/python").symlink_to(sys.executable)
    assert set_up(made.parent, "python", PYTHON=sys.executable) == (0, "")
    if fault == "moved":
        made.parent.rename(tmp_path / "after")
    else:
        (made / {"half made": "bin/activate"}.get(fault, "bin/python")).unlink()
    if fault == "too old":
        program(made / "bin/python", TOO_OLD)
    code, said = set_up(tmp_path / "after" if fault == "moved" else made.parent, "python", PYTHON=sys.executable)
    assert (code, said) == (
        1, ".venv was made in another folder, or by a Python that is gone or older than 3.11: make clean, and run this again.\n"
    )  # fmt: skip


def test_a_python_that_is_too_old_is_named(tmp_path: Path) -> None:
    python = program(tmp_path / "python3", TOO_OLD)
    expected = f"{python} is older than Python 3.11: PYTHON=/path/of/one names another.\n"
    assert set_up(tmp_path, "python", PYTHON=str(python)) == (1, expected)


@pytest.mark.parametrize("which", ["listener", "admin"])
def test_a_port_that_is_in_use_is_named_with_who_has_it(tmp_path: Path, which: str) -> None:
    port, free = free_ports(2)
    with socket.create_server((LOOPBACK, port)):
        bind, admin = (port, free) if which == "listener" else (free, port)
        words = ["run", "--protocol", "amqp", "--bind", f"{LOOPBACK}:{bind}", "--upstream", f"{LOOPBACK}:1", "--limit", "5/s"]
        done = subprocess.run(
            [*command(), *words, "--admin-bind", f"{LOOPBACK}:{admin}"],
            cwd=tmp_path, capture_output=True, text=True, check=False, timeout=HANG_S,
        )  # fmt: skip
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if "cannot_start" in line]
    assert f"{port}" in line
    assert "Address already in use; `ss -ltnp` shows who has it" in line
    assert {"listener": "give the listener another `bind`", "admin": "admin.bind"}[which] in line


@pytest.mark.packages
def test_without_a_network_the_builds_say_what_they_could_not_reach(tmp_path: Path, released: Path) -> None:
    """In a network namespace that has nothing, not even loopback."""
    alone = ["unshare", "--net"]
    image = [sys.executable, str(ROOT / "deploy/container/image.py"), str(released / PURE), str(tmp_path)]
    done = subprocess.run([*alone, *image], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 1
    assert "Debian's packages cannot be fetched; does apt-get update work here?" in done.stderr
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in ("Makefile", "pyproject.toml", "deploy"):
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile)(ROOT / name, checkout / name)
    done = subprocess.run([*alone, "make", ".venv/.dependencies"], cwd=checkout, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 2
    assert "make: the packages could not be installed; why stands above." in done.stderr


def test_an_installation_that_was_cut_short_is_done_anew(tmp_path: Path) -> None:
    """uv and pip take a package with half of its files for one that is there."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "deploy").mkdir()
    for name in ("requirements.lock", "tools.lock", "lock.py", "requirements.py", "system-packages.sh"):
        (tmp_path / "deploy" / name).touch()
    (tmp_path / "pyproject.toml").touch()
    program(tmp_path / ".venv/bin/python", "#!/bin/sh\ncase $1 in -m) exit 1 ;; esac\n")
    uv, told = tmp_path / ".venv/bin/uv", tmp_path / "told"
    (tmp_path / ".venv/.dependencies").touch()

    def install(code: int) -> str:
        (tmp_path / ".venv/.docs").unlink(missing_ok=True)
        program(uv, f'#!/bin/sh\necho "$@" > told\nexit {code}\n')
        done = subprocess.run(["make", ".venv/.docs"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=HANG_S)
        assert (done.returncode == 0) == (code == 0), done.stderr
        return told.read_text()

    assert "--reinstall" not in install(1)
    assert "--reinstall" in install(0)
    assert "--reinstall" not in install(0)
