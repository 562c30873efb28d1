"""What a reload does to a listener's TLS: new connections begin with what the files say, all of it or nothing."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from msgspec import to_builtins

from common.tls.certificates import TlsFileError
from config import Settings, diff, load
from config.reloading import merge
from gateway.listeners.factory import apply_tls, find_changed_tls, listeners_of, read_tls
from support.tls import NAME, Authority


@pytest.fixture
def ca(tmp_path: Path) -> Authority:
    made = Authority(tmp_path)
    made.issue("a", NAME, not_after=datetime(2040, 1, 1))  # noqa: DTZ001  -- trustme's own word for UTC
    made.issue("b", NAME)
    return made


def settings(directory: Path, text: str) -> Settings:
    file = directory / "sluice.yaml"
    file.write_text(f"listeners: [{{name: rabbit, protocol: amqp, bind: 127.0.0.1:0, upstream: 127.0.0.1:2, {text}}}]\n")
    return load(file)


BOTH = "tls: {certificate: a.pem, key: a.key}, upstream_tls: {ca: ca.pem, certificate: a.pem, key: a.key}"


def test_changed_files_are_reported_and_used_by_new_connections_and_failure_counts_stay(ca: Authority, tmp_path: Path) -> None:
    configured = settings(tmp_path, BOTH)
    listening = listeners_of(configured)
    rabbit = listening["rabbit"]
    before = rabbit.tls
    assert before is not None
    described = {"certificate_expires": "2040-01-01T00:00:00Z", "peer_verified": False, "handshakes_failed": {}, "mode": "enforcing"}
    assert to_builtins(before.describe()) == described
    before.failures["expired"] = 3
    assert apply_tls(listening, read_tls(configured.listeners)) == []
    ca.issue("a", NAME, not_after=datetime(2041, 1, 1))  # noqa: DTZ001
    told = find_changed_tls(listening, read_tls(configured.listeners))
    assert rabbit.tls is not None
    assert rabbit.tls.describe().certificate_expires == "2040-01-01T00:00:00Z", "saying so puts nothing in force"
    changed = apply_tls(listening, read_tls(configured.listeners))
    assert changed == told
    assert changed == ["listeners.rabbit.tls: the files have changed", "listeners.rabbit.upstream_tls: the files have changed"]
    assert rabbit.tls is not None
    assert rabbit.tls is not before
    assert to_builtins(rabbit.tls.describe()) == {
        "certificate_expires": "2041-01-01T00:00:00Z",
        "peer_verified": False,
        "handshakes_failed": {"expired": 3},
        "mode": "enforcing",
    }
    assert rabbit.upstreams.tls is not None
    assert rabbit.upstreams.tls.describe().peer_verified


def test_a_broken_file_changes_nothing(ca: Authority, tmp_path: Path) -> None:
    configured = settings(tmp_path, BOTH)
    listening = listeners_of(configured)
    before = listening["rabbit"].tls
    (ca.directory / "a.key").write_text((ca.directory / "b.key").read_text())
    with pytest.raises(TlsFileError, match=r"a\.key is not the key of the certificate in"):
        read_tls(configured.listeners)
    assert listening["rabbit"].tls is before


def test_tls_can_be_switched_on_and_off(ca: Authority, tmp_path: Path) -> None:
    assert ca.file.exists()
    listening = listeners_of(settings(tmp_path, "max_frame: 1MiB"))
    rabbit = listening["rabbit"]
    assert [rabbit.tls, rabbit.upstreams.tls] == [None, None]
    assert apply_tls(listening, read_tls(settings(tmp_path, BOTH).listeners)) == []
    assert rabbit.tls is not None
    upstream_tls = rabbit.upstreams.members[0].tls
    assert upstream_tls is not None
    assert upstream_tls.server_name == "127.0.0.1"
    apply_tls(listening, read_tls(settings(tmp_path, "tls: off").listeners))
    assert [rabbit.tls, rabbit.upstreams.tls] == [None, None]


def test_a_reload_changes_whether_clients_without_tls_are_let_in(ca: Authority, tmp_path: Path) -> None:
    assert ca.file.exists()
    file = tmp_path / "sluice.yaml"

    def mode(word: str) -> Settings:
        tls = f"{{certificate: a.pem, key: a.key, mode: {word}}}"
        file.write_text(f"listeners: [{{name: rocket, protocol: rocketmq, bind: 127.0.0.1:0, upstream: 127.0.0.1:2, tls: {tls}}}]\n")
        return load(file)

    before, after = mode("enforcing"), mode("permissive")
    assert diff(before, after) == {"in_force": ["listeners.rocket.tls.mode: enforcing -> permissive"], "needs_restart": []}
    listening = listeners_of(before)
    apply_tls(listening, read_tls(merge(before, after).listeners))
    assert listening["rocket"].tls is not None
    assert listening["rocket"].tls.describe().mode == "permissive"
