"""The ways to run `sluice log ship` that `deploy/` has, each executed as it is written, with paths replaced."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from pathlib import Path

import yaml

from support.gateways import command
from support.log_files import log_file
from support.processes import HANG_S, Process

ROOT = Path(__file__).parents[2]
SYSTEMD = ROOT / "deploy" / "systemd"
UNITS = ("sluice-ship.service", "sluice-ship.timer")


def values(name: str, key: str) -> list[str]:
    """What a unit says of `key`."""
    lines = (SYSTEMD / name).read_text().splitlines()
    return [line.partition("=")[2] for line in lines if line.partition("=")[0] == key]


def test_systemd_knows_every_word_of_the_units(tmp_path: Path) -> None:
    for name in UNITS:
        (tmp_path / name).write_text((SYSTEMD / name).read_text().replace("/usr/bin/sluice", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / name) for name in UNITS)],
        capture_output=True, text=True, timeout=HANG_S, check=False,
    )  # fmt: skip
    assert (done.returncode, [line for line in done.stderr.splitlines() if "sluice-ship" in line]) == (0, [])
    (at,) = values("sluice-ship.timer", "OnCalendar")
    done = subprocess.run(["systemd-analyze", "calendar", at], capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr


def test_the_unit_ships(tmp_path: Path) -> None:
    log, target = tmp_path / "log", tmp_path / "target"
    log_file(log)
    (start,) = values("sluice-ship.service", "ExecStart")
    places = {"/usr/bin/sluice": command(), "/var/log/sluice": [str(log)], "${SLUICE_SHIP_TO}": [str(target)]}
    words = [part for word in shlex.split(start) for part in places.get(word, [word])]
    done = subprocess.run(words, capture_output=True, text=True, timeout=HANG_S, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr
    assert list(target.rglob("*.jsonl"))


def test_the_sidecar_ships_until_it_is_told_to_stop(tmp_path: Path) -> None:
    log, target = tmp_path / "log", tmp_path / "target"
    log_file(log)
    described = yaml.safe_load((ROOT / "deploy" / "kubernetes" / "ship-sidecar.yaml").read_text())
    (container,) = described["containers"]
    (mount,) = container["volumeMounts"]
    assert [each["name"] for each in described["volumes"]] == [mount["name"]]
    words = [*container["command"], *container["args"]]
    assert words[0] == "sluice"
    assert mount["mountPath"] in words
    places = {"/srv/access-log": str(log), "--to=s3://logs/sluice": f"--to={target}"}
    stderr = tmp_path / "stderr"
    process = Process([*command(), *(places.get(word, word) for word in words[1:])], log=stderr, env=os.environ)
    process.wait_until(lambda: "1 file shipped to" in stderr.read_text(), within=20, what="a round")
    process.popen.send_signal(signal.SIGTERM)
    assert process.popen.wait(HANG_S) == 0
    assert list(target.rglob("*.jsonl"))
