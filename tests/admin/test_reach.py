"""Who reaches the admin API, and how: names, TLS, the listener for probes, the Unix socket."""

from __future__ import annotations

import logging
import socket
import ssl
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trio

from admin.access import Access
from admin.http.unix_socket import UnixSocket
from common.descriptors import WHOLE
from common.tls.context import client_hop, explain
from support.admin.admin_client import Control, Reply, control, everything, request
from support.expositions import series
from support.gateways import Gateway, amqp_listener
from support.processes import LOOPBACK, free_ports
from support.tls import Authority

NAME = "sluice.monitoring.svc"


# ---- names -----------------------------------------------------------------------------------------------------------


async def test_a_configured_name_is_answered_and_another_is_told_the_setting(tmp_path: Path) -> None:
    async with control(tmp_path, names=(NAME,)) as api:
        for host in (NAME, NAME.upper(), f"{NAME}:9180", f"{NAME}."):
            assert (await api.ask("GET", "/livez", headers={"Host": host})).status == 200
        for host in ("other.monitoring.svc", f"{NAME}.evil.example", f"evil.{NAME}", f"{NAME}:9180:1", f"{NAME}@evil", f"{NAME}:123456"):
            refused = await api.ask("GET", "/v1/status", headers={"Host": host})
            assert refused.status == 421, host
            assert "admin.names" in refused.json()["detail"]


async def test_a_reload_changes_the_names(api: Control) -> None:
    assert (await api.ask("GET", "/livez", headers={"Host": NAME})).status == 421
    api.gateway.access = replace(api.gateway.access, names=(NAME,))
    assert (await api.ask("POST", "/v1/config:reload")).status == 200
    assert (await api.ask("GET", "/livez", headers={"Host": NAME})).status == 200


# ---- TLS -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


def access_by(authority: Authority, name: str = "server", *, client_ca: Path | None = None) -> Access:
    certificate, key = authority.issue(name, "localhost", "127.0.0.1")
    return Access(tls=client_hop(certificate, key, client_ca).context, explain=lambda error: explain(error)[1])


def trust(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.file))


@asynccontextmanager
async def protected(api: Control, context: ssl.SSLContext) -> AsyncIterator[trio.SSLStream[trio.SocketStream]]:
    stream = trio.SSLStream(await api.connect(), context, server_hostname="localhost", https_compatible=True)
    try:
        yield stream
    finally:
        await trio.aclose_forcefully(stream)


async def ask_tls(api: Control, context: ssl.SSLContext, path: str = "/v1/status", token: str | None = None) -> Reply:
    async with protected(api, context) as stream:
        return await request(stream, "GET", path, token=token)


async def handshakes_failed(api: Control, count: int) -> None:
    """Wait until so many have failed."""
    assert api.admin.server.tls is not None
    with trio.fail_after(30):
        while api.admin.server.tls.failed < count:
            await trio.sleep(0.01)


async def test_a_client_that_trusts_the_ca_is_served_over_tls(tmp_path: Path, authority: Authority) -> None:
    async with control(tmp_path, access=access_by(authority)) as api:
        assert (await ask_tls(api, trust(authority), token=api.token())).status == 200
        assert (await ask_tls(api, trust(authority))).status == 401


async def test_many_requests_fit_on_one_tls_connection(tmp_path: Path, authority: Authority) -> None:
    async with control(tmp_path, access=access_by(authority)) as api, protected(api, trust(authority)) as stream:
        for _ in range(5):
            assert (await request(stream, "GET", "/v1/status", token=api.token())).status == 200


async def test_a_client_without_tls_is_told_to_use_https(tmp_path: Path, authority: Authority) -> None:
    async with control(tmp_path, access=access_by(authority)) as api:
        said = await api.say(b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert said.startswith(b"HTTP/1.1 400 ")
        assert b"https://" in said
        length = next(line for line in said.split(b"\r\n") if line.startswith(b"Content-Length"))
        assert int(length.split()[1]) == len(said.partition(b"\r\n\r\n")[2])


async def test_with_a_client_ca_a_certificate_is_needed_and_a_token_as_well(tmp_path: Path, authority: Authority) -> None:
    async with control(tmp_path, access=access_by(authority, client_ca=authority.file)) as api:
        bare = trust(authority)
        bare.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(trio.BrokenResourceError) as refused:
            await ask_tls(api, bare, token=api.token())
        assert "handshake failure" in str(refused.value.__cause__).lower() or "alert" in str(refused.value.__cause__).lower()
        shown = trust(authority)
        shown.load_cert_chain(*authority.issue("operator", "operator.example"))
        assert (await ask_tls(api, shown)).status == 401
        assert (await ask_tls(api, shown, token=api.token())).status == 200


async def test_a_certificate_of_another_ca_is_refused(tmp_path: Path, authority: Authority) -> None:
    other = Authority(tmp_path / "other", "other")
    async with control(tmp_path, access=access_by(authority, client_ca=authority.file)) as api:
        shown = trust(authority)
        shown.load_cert_chain(*other.issue("operator", "operator.example"))
        with pytest.raises(trio.BrokenResourceError):
            await ask_tls(api, shown, token=api.token())
        await handshakes_failed(api, 1)


async def test_a_reload_reads_the_certificate_again_and_open_connections_stay(tmp_path: Path, authority: Authority) -> None:
    renewed = Authority(tmp_path / "renewed", "renewed")
    async with control(tmp_path, access=access_by(authority)) as api, protected(api, trust(authority)) as before:
        assert (await request(before, "GET", "/livez")).status == 200
        api.gateway.access = replace(api.gateway.access, tls=access_by(renewed).tls)
        assert (await request(before, "POST", "/v1/config:reload", token=api.token())).status == 200
        with pytest.raises(trio.BrokenResourceError):
            await ask_tls(api, trust(authority), "/livez")
        assert (await ask_tls(api, trust(renewed), "/livez")).status == 200
        assert (await request(before, "GET", "/livez")).status == 200


async def test_half_handshakes_take_no_place_of_others(tmp_path: Path, authority: Authority) -> None:
    async with control(tmp_path, access=access_by(authority)) as api:
        silent = [await api.connect() for _ in range(WHOLE.handshakes + 30)]
        for stream in silent[::2]:
            await stream.send_all(b"\x16\x03\x01\x02")
        for _ in range(3):
            assert (await ask_tls(api, trust(authority), token=api.token())).status == 200
        await handshakes_failed(api, 30)
        for stream in silent:
            await trio.aclose_forcefully(stream)


async def test_a_handshake_that_never_ends_is_closed(tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("admin.http.tls.HANDSHAKE_S", 0.05)
    async with control(tmp_path, access=access_by(authority)) as api, await api.connect() as slow:
        await slow.send_all(b"\x16\x03\x01\x02\x00\x01")
        assert await everything(slow) == b""


async def test_an_expired_certificate_is_the_clients_to_refuse_and_counts_as_failed(tmp_path: Path, authority: Authority) -> None:
    past = datetime(2020, 1, 1, tzinfo=UTC), datetime(2021, 1, 1, tzinfo=UTC)
    certificate, key = authority.issue("expired", "localhost", not_before=past[0], not_after=past[1])
    async with control(tmp_path, access=Access(tls=client_hop(certificate, key, None).context)) as api:
        with pytest.raises(trio.BrokenResourceError) as refused:
            await ask_tls(api, trust(authority), "/livez")
        assert "certificate has expired" in str(refused.value.__cause__)


async def test_a_scrape_says_until_when_the_admin_ports_certificate_holds(tmp_path: Path, authority: Authority) -> None:
    def told(reply: Reply) -> list[tuple[dict[str, str], float]]:
        return series(reply.body.decode()).get("sluice_admin_tls_cert_expiry_timestamp_seconds", [])

    async with control(tmp_path, access=replace(access_by(authority), certificate_until=1_800_000_000)) as api:
        metrics = await ask_tls(api, trust(authority), "/metrics", api.token())
        assert told(metrics) == [({}, 1_800_000_000)]
        api.gateway.access = replace(api.gateway.access, certificate_until=1_900_000_000)
        api.admin.prepare(api.gateway.access)()
        assert told(await ask_tls(api, trust(authority), "/metrics", api.token())) == [({}, 1_900_000_000)]
    async with control(tmp_path / "plain") as api:
        assert told(await api.ask("GET", "/metrics")) == []


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_gateway_tells_the_end_of_its_admin_ports_certificate_with_workers_too(
    tmp_path: Path, authority: Authority, workers: int
) -> None:
    """Until November 2026 no metric had it, so the alert on certificates never saw the admin port's."""
    end = datetime(2031, 5, 1, tzinfo=UTC)
    certificate, key = authority.issue(f"admin-{workers}", "localhost", not_after=end)
    admin_port, probes_port = free_ports(2)
    settings = {
        "gateway": {"name": "ends", "state_directory": "state", "workers": workers},
        "admin": {"bind": f"{LOOPBACK}:{admin_port}", "tls": {"certificate": str(certificate), "key": str(key)}},
        "probes": {"bind": f"{LOOPBACK}:{probes_port}", "metrics": "open"},
    }
    gateway = Gateway(tmp_path, [amqp_listener(f"{LOOPBACK}:1")], [], settings, until="/livez")
    gateway.admin_port = probes_port
    with gateway:
        found = [sample for sample in gateway.samples() if sample.name == "sluice_admin_tls_cert_expiry_timestamp_seconds"]
    assert [(sample.labels, sample.value) for sample in found] == [({}, end.timestamp())]


# ---- the listener for probes -----------------------------------------------------------------------------------------


async def ask_probes(
    api: Control, path: str, method: str = "GET", token: str | None = None, headers: dict[str, str] | None = None
) -> Reply:
    async with await trio.open_tcp_stream(*api.probes) as stream:
        return await request(stream, method, path, token=token, headers=headers)


async def test_probes_are_answered_to_any_host_without_a_token(api: Control) -> None:
    for path in ("/livez", "/readyz", "/startupz"):
        for host in ("10.1.2.3:9181", NAME, "evil.example"):
            assert (await ask_probes(api, path, headers={"Host": host})).status == 200
        assert (await ask_probes(api, path, "HEAD")).status == 200
        assert (await api.ask("GET", path, role=None)).status == 200


async def test_the_listener_for_probes_has_nothing_else(api: Control) -> None:
    for path in ("/", "/v1/status", "/v1/limits", "/v1/openapi.json", "/metrics/", "/livez/", "/%6Civez", "/v1/config:reload", "/t/a/b"):
        for method in ("GET", "POST", "PUT", "DELETE"):
            found = await ask_probes(api, path, method, token=api.token())
            assert found.status == 404, (method, path)
            assert "/livez, /readyz, /startupz, /metrics" in found.json()["detail"]
            assert "admin.bind" in found.json()["detail"]
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert (await ask_probes(api, "/metrics", method, token=api.token())).status == 405


async def test_metrics_need_a_token_unless_they_are_open(api: Control) -> None:
    assert (await ask_probes(api, "/metrics")).status == 401
    assert (await ask_probes(api, "/metrics", token="wrong")).status == 401
    assert (await ask_probes(api, "/metrics", token=api.token("viewer"))).status == 200
    api.gateway.access = replace(api.gateway.access, metrics_open=True)
    assert (await api.ask("POST", "/v1/config:reload")).status == 200
    assert (await ask_probes(api, "/metrics")).status == 200
    assert (await api.ask("GET", "/metrics", role=None)).status == 401  # of the admin API they never are


async def test_a_gateway_that_has_not_begun_fails_its_startup_probe_only(api: Control) -> None:
    api.gateway.begun = False
    assert (await ask_probes(api, "/startupz")).status == 503
    assert (await ask_probes(api, "/livez")).status == 200
    api.gateway.begun = True
    api.gateway.not_ready = ["broker down"]
    assert (await ask_probes(api, "/startupz")).status == 200
    unready = await ask_probes(api, "/readyz")
    assert (unready.status, unready.json()) == (503, {"ready": False})


async def test_a_thousand_idle_connections_to_the_probes_cost_neither_listener_anything(api: Control) -> None:
    idle = [await trio.open_tcp_stream(*api.probes) for _ in range(1000)]
    for stream in idle[::3]:
        await stream.send_all(b"GET /livez HTTP/1.1\r\nHo")
    assert (await ask_probes(api, "/livez")).status == 200
    assert (await api.ask("GET", "/v1/status")).status == 200
    assert len(api.admin.probes.open) <= api.admin.probes.most
    assert len(api.admin.server.open) <= 2
    for stream in idle:
        await trio.aclose_forcefully(stream)


async def test_idle_connections_to_the_admin_api_take_no_place_of_probes(api: Control) -> None:
    idle = [await api.connect() for _ in range(200)]
    assert (await ask_probes(api, "/livez")).status == 200
    assert (await api.ask("GET", "/v1/status")).status == 200
    for stream in idle:
        await trio.aclose_forcefully(stream)


async def test_wrong_tokens_are_slowed_down_over_probes_too(api: Control) -> None:
    found = {(await ask_probes(api, "/metrics", token="wrong")).status for _ in range(12)}
    assert found == {401, 429}
    assert (await ask_probes(api, "/metrics", token=api.token("viewer"))).status == 200


# ---- the Unix socket -------------------------------------------------------------------------------------------------


async def test_the_unix_socket_is_for_its_owner_needs_a_token_and_goes_with_the_gateway(tmp_path: Path) -> None:
    path = tmp_path / "run" / "admin.sock"
    unix = UnixSocket(path)
    async with control(tmp_path, more=lambda: [unix.listener()]) as api:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        async with await trio.open_unix_socket(str(path)) as stream:
            assert (await request(stream, "GET", "/v1/status")).status == 401
            assert (await request(stream, "GET", "/v1/status", token=api.token())).status == 200
        line = (await api.ask("GET", "/v1/audit")).json()["items"][0]
        assert line["address"].startswith("local (uid ")
    unix.remove()
    assert not path.exists()


def test_a_stale_socket_is_replaced_and_one_in_use_is_not(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    first = UnixSocket(path)
    with pytest.raises(OSError, match=r"another process listens there; see admin\.socket"):
        UnixSocket(path)
    first.remove()
    path.write_text("a file")
    with pytest.raises(OSError, match="no socket"):
        UnixSocket(path)
    assert path.read_text() == "a file"


def test_a_socket_that_another_process_has_replaced_is_left_to_it(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    first = UnixSocket(path)
    path.unlink()
    second = UnixSocket(path)
    first.remove()
    assert path.exists()
    second.remove()
    path.write_text("another's, perhaps of the same inode")
    for one in (first, second):
        one.remove()
    assert path.exists()


# ---- tokens in the wrong place ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["token", "access_token", "api_key", "TOKEN", "authorization", "bearer"])
async def test_a_token_in_the_query_is_refused_in_words_and_written_nowhere(
    api: Control, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = api.token()
    for method, path in (("GET", "/v1/status"), ("POST", "/v1/config:reload"), ("GET", "/livez")):
        refused = await api.ask(method, f"{path}?{name}={secret}", role=None)
        assert refused.status == 400
        assert "Authorization: Bearer" in refused.json()["detail"]
        assert secret not in refused.body.decode()
    assert secret not in caplog.text
    assert secret not in (await api.ask("GET", "/v1/audit")).body.decode()
