"""Reaching an admin API by TLS and by a Unix socket, and what is said where that fails."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from admin.access import Access
from admin.http.unix_socket import UnixSocket
from cli.admin_address import AdminAddress
from cli.exits import CommandError
from cli.main import main
from common.tls.context import client_hop
from support.admin.serving import serving
from support.tls import Authority

Run = Callable[..., tuple[int, str]]
EXPIRED: dict[str, Any] = {"not_before": datetime(2020, 1, 1, tzinfo=UTC), "not_after": datetime(2021, 1, 1, tzinfo=UTC)}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def ran(*words: Any) -> tuple[int, str]:
        code = main([*map(str, words)])
        return code, capsys.readouterr().err

    return ran


def access(authority: Authority, *hosts: str, client_ca: Path | None = None, **more: Any) -> Access:
    return Access(tls=client_hop(*authority.issue("server", *hosts, **more), client_ca).context)


def test_the_gateway_is_reached_by_tls_and_its_faults_are_said_in_words(run: Run, tmp_path: Path, authority: Authority) -> None:
    (tmp_path / "one").mkdir()
    with serving(tmp_path, "one", access=access(authority, "127.0.0.1")) as served:
        api = served.gateways[0]
        url = f"https://127.0.0.1:{api.address[1]}"
        assert run("status", "--admin", url, "--ca-file", authority.file, "--token-file", api.folder / "admin.token")[0] == 0
        code, err = run("status", "--admin", url)
        assert code == 4
        assert "--ca-file" in err
        code, err = run("status", "--admin", url.replace("127.0.0.1", "localhost"), "--ca-file", authority.file)
        assert code == 4
        assert "another name than localhost" in err
        code, err = run("status", "--admin", url.replace("https", "http"))
        assert code == 1
        assert "https://" in err
        code, err = run("status", "--admin", url, "--ca-file", tmp_path / "nothing.pem")
        assert code == 2
        assert "nothing.pem" in err


def test_an_expired_certificate_is_said(run: Run, tmp_path: Path, authority: Authority) -> None:
    (tmp_path / "one").mkdir()
    with serving(tmp_path, "one", access=access(authority, "127.0.0.1", **EXPIRED)) as served:
        code, err = run("status", "--admin", f"https://127.0.0.1:{served.gateways[0].address[1]}", "--ca-file", authority.file)
        assert code == 4
        assert "expired" in err


def test_a_client_certificate_is_shown_where_the_gateway_wants_one(run: Run, tmp_path: Path, authority: Authority) -> None:
    (tmp_path / "one").mkdir()
    with serving(tmp_path, "one", access=access(authority, "127.0.0.1", client_ca=authority.file)) as served:
        api = served.gateways[0]
        common = ["--admin", f"https://127.0.0.1:{api.address[1]}", "--ca-file", authority.file, "--token-file", api.folder / "admin.token"]
        code, err = run("status", *common)
        assert code == 4
        assert "--client-certificate" in err
        certificate, key = authority.issue("operator", "operator.example")
        assert run("status", *common, "--client-certificate", certificate, "--client-key", key)[0] == 0


def test_without_tls_on_the_port_https_is_told_to_use_http(run: Run, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    with serving(tmp_path, "one") as served:
        code, err = run("status", "--admin", f"https://127.0.0.1:{served.gateways[0].address[1]}")
        assert code == 4
        assert "http://" in err


def test_the_gateway_is_reached_by_its_unix_socket(run: Run, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    unix = UnixSocket(tmp_path / "admin.sock")
    with serving(tmp_path, "one", more=lambda: [unix.listener()]) as served:
        token = served.gateways[0].folder / "admin.token"
        assert run("status", "--admin", f"unix:{tmp_path}/admin.sock", "--token-file", token)[0] == 0
        assert run("--admin", f"unix://{tmp_path}/admin.sock", "status", "--token-file", token)[0] == 0
        code, err = run("status", "--admin", f"unix:{tmp_path}/other.sock")
        assert code == 4
        assert "admin.socket" in err
    unix.remove()


@pytest.mark.parametrize("text", ["unix:", "unix:/", "ftp://a", "http://", "https://a:b", "http://a/path"])
def test_what_is_no_address_is_refused_with_the_forms_there_are(text: str) -> None:
    with pytest.raises(CommandError, match=r"unix:/path/admin\.sock"):
        AdminAddress.of(text)


def test_a_local_token_goes_to_this_machine_only() -> None:
    local = ("http://127.0.0.1:9180", "https://localhost", "unix:/a.sock", "http://[::1]:9180", "127.1.2.3:1")
    assert all(AdminAddress.of(url).local for url in local)
    assert not any(AdminAddress.of(url).local for url in ("http://10.0.0.1", "https://127.0.0.1.evil.example", "http://127.evil"))
