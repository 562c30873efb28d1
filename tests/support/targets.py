"""What every target of `sluice log ship` has to do, run over each of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from common.log_files import manifest
from common.log_files.marks import Shipments
from common.log_files.names import look
from common.log_files.shipment import Sent, ship
from common.log_files.targets import Target
from support.log_files import HOUR, NOON, killed_at_each_step, log_file

LATER = NOON + 3 * HOUR


def run(directory: Path, target: Target, now: float = LATER) -> list[Sent]:
    return list(ship(directory, target, now, 600))


def whole(directory: Path, target: Target, gateway: str = "g1") -> bool:
    """Whether the hour's manifest at the target names every file here, and each is there as it is here."""
    text = target.get(manifest.HourManifest(gateway, NOON).name)
    if text is None:
        return False
    known = manifest.read(text, gateway, NOON)
    for file in look(directory).files:
        if file.gateway == gateway and file.hour == NOON:
            data = file.path.read_bytes()
            entry = known.files[file.name]
            assert (entry.size, entry.sha256) == (len(data), hashlib.sha256(data).hexdigest())
            assert target.get(file.name) == data
    return True


def a_file_is_there_as_it_was_put(tmp_path: Path, target: Target) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x" * 300_000)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    name = "dt=2026-11-20/hr=05/orders side-b1-000000.jsonl"
    assert target.stat(name, 300_000) is None
    assert target.get(name) is None
    for _ in range(2):  # and it replaces
        target.put(name, source, digest)
        assert target.stat(name, 300_000) == (300_000, digest)
    assert target.get(name) == source.read_bytes()
    other = target.stat(name, 5)
    assert other is not None
    assert other.size == 300_000
    for text in (b"one", b"another"):
        target.put_bytes("manifest/g1/dt=2026-11-20/hr=05.json", text)
        assert target.get("manifest/g1/dt=2026-11-20/hr=05.json") == text


def hours_go_once_and_whole(tmp_path: Path, target: Target) -> None:
    log = tmp_path / "log"
    for number in range(3):
        log_file(log, number=number)
    log_file(log, gateway="g2")
    log_file(log, NOON + 2 * HOUR)  # its hour is not over
    assert [(each.gateway, each.files, each.already, each.fault) for each in run(log, target)] == [("g1", 3, 0, ""), ("g2", 1, 0, "")]
    assert whole(log, target)
    assert whole(log, target, "g2")
    assert run(log, target) == []
    log_file(log, number=9)  # comes late
    assert [(each.gateway, each.files) for each in run(log, target)] == [("g1", 1)]
    assert whole(log, target)
    assert Shipments(log).begun


def a_killed_run_is_gone_on_with(tmp_path: Path, target: Callable[[int], Target], monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed before each step on this side. `target(n)` is a fresh place each time."""
    log = tmp_path / "log"
    for number in range(2):
        log_file(log, number=number)
    place = [0]
    for death in killed_at_each_step(monkeypatch, lambda: run(log, target(place[0]))):
        at = target(place[0])
        shipments = Shipments(log, at.url)
        if any(shipments.has(file) for file in look(log).files):
            assert whole(log, at), "a mark says shipped, and it is not"
        again = run(log, at)
        assert all(not each.fault for each in again)
        assert whole(log, at)
        assert run(log, at) == []
        place[0] = death + 1
    assert place[0] >= 4


def a_file_that_is_there_is_not_sent_again(tmp_path: Path, target: Target) -> None:
    log = tmp_path / "log"
    path = log_file(log)
    (file,) = look(log).files
    target.put(file.name, path, hashlib.sha256(path.read_bytes()).hexdigest())
    log_file(log, number=1)
    assert [(each.files, each.already) for each in run(log, target)] == [(1, 1)]
    assert whole(log, target)


def what_is_half_there_is_replaced(tmp_path: Path, target: Target) -> None:
    log = tmp_path / "log"
    path = log_file(log)
    (file,) = look(log).files
    half = tmp_path / "half"
    half.write_bytes(path.read_bytes()[:50])
    target.put(file.name, half, hashlib.sha256(half.read_bytes()).hexdigest())
    assert [(each.files, each.already) for each in run(log, target)] == [(1, 0)]
    assert whole(log, target)


def a_foreign_manifest_stops_its_hour(tmp_path: Path, target: Target) -> None:
    log = tmp_path / "log"
    log_file(log)
    target.put_bytes(manifest.HourManifest("g1", NOON).name, json.dumps({"v": 9, "files": []}).encode())
    (sent,) = run(log, target)
    assert "a manifest of version 9" in sent.fault
    assert not Shipments(log).has(look(log).files[0])


CONTRACT = [
    a_file_is_there_as_it_was_put, hours_go_once_and_whole, a_file_that_is_there_is_not_sent_again, what_is_half_there_is_replaced,
    a_foreign_manifest_stops_its_hour,
]  # fmt: skip
