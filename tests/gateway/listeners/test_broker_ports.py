"""The file that keeps brokers on their ports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.listeners.broker_ports import BrokerPort, BrokerPortsFile

MASTER = BrokerPort(("broker-a", 0), 20911, "10.0.0.1:10911", 1795247411.0)
SLAVE = BrokerPort(("broker-a", 1), 20912, "[fe80::1]:10911", 1795247412.0)
GOOD = {"broker": "b", "id": 0, "port": 20911, "address": "10.0.0.1:10911", "seen": 5}


def test_brokers_and_ports_that_are_written_read_back_as_the_same(tmp_path: Path) -> None:
    file = BrokerPortsFile(tmp_path, "names")
    file.write([MASTER, SLAVE])
    assert BrokerPortsFile(tmp_path, "names").read() == [MASTER, SLAVE]
    assert [path.name for path in tmp_path.iterdir()] == ["broker-ports.names.json"]


def test_each_listener_has_a_file_of_its_own(tmp_path: Path) -> None:
    BrokerPortsFile(tmp_path, "names").write([MASTER])
    with pytest.raises(FileNotFoundError):
        BrokerPortsFile(tmp_path, "others").read()


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    file = BrokerPortsFile(tmp_path, "names")
    file.write([MASTER])
    (tmp_path / "broker-ports.names.new").mkdir()
    with pytest.raises(OSError, match="directory"):
        file.write([SLAVE])
    assert file.read() == [MASTER]


DAMAGED = {
    "empty": b"",
    "half": b'{"version": 1, "brokers": [{"broker": "b"',
    "not UTF-8": b"\xff\xfe",
    "a list": b"[]",
    "another version": json.dumps({"version": 2, "brokers": []}).encode(),
    "no brokers": json.dumps({"version": 1}).encode(),
    **{
        f"no {key}": json.dumps({"version": 1, "brokers": [{name: value for name, value in GOOD.items() if name != key}]}).encode()
        for key in GOOD
    },
    "port is text": json.dumps({"version": 1, "brokers": [GOOD | {"port": "20911"}]}).encode(),
    "port twice": json.dumps({"version": 1, "brokers": [GOOD, GOOD | {"id": 1}]}).encode(),
    "deeper than can be read": b"[" * 200_000,
    "seen is no time": json.dumps({"version": 1, "brokers": [GOOD | {"seen": 10**400}]}).encode(),
    "the name is no text": json.dumps({"version": 1, "brokers": [GOOD | {"broker": "\ud800"}]}).encode(),
    "no name": json.dumps({"version": 1, "brokers": [GOOD | {"broker": ""}]}).encode(),
    "the id is negative": json.dumps({"version": 1, "brokers": [GOOD | {"id": -1}]}).encode(),
    "broker twice": json.dumps({"version": 1, "brokers": [GOOD, GOOD | {"port": 20912}]}).encode(),
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_is_a_value_error(tmp_path: Path, data: bytes) -> None:
    file = BrokerPortsFile(tmp_path, "names")
    file.path.write_bytes(data)
    with pytest.raises(ValueError):  # noqa: PT011  -- json's, UTF-8's and ours
        file.read()
