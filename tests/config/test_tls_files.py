"""The files of TLS in a configuration: what is wrong with one is said where it is named, and what is risky is warned of."""

from __future__ import annotations

import logging
import subprocess
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from config import ConfigProblem, diff, hops, lint, load
from config.reloading import merge
from config.tls_files import find_ending_certificates
from gateway.listeners.factory import log_ending_certificates
from support.tls import NAME, Authority

Faults = Callable[..., list[ConfigProblem]]
Write = Callable[..., Path]
RULES = "rules: [{name: a, limit: {messages: 1/s}}]\n"


@pytest.fixture(scope="session")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Good files, and one of every kind that is not."""
    made = Authority(tmp_path_factory.mktemp("tls"))
    now = datetime.now(UTC).replace(tzinfo=None)
    made.issue("good", NAME)
    made.issue("other", NAME)
    made.issue("soon", NAME, not_after=now + timedelta(days=20, hours=1))
    made.issue("old", NAME, not_before=now - timedelta(days=20), not_after=now - timedelta(days=1))
    made.issue("early", NAME, not_before=now + timedelta(days=2), not_after=now + timedelta(days=200))
    at = made.directory
    (at / "empty.pem").write_text("")
    (at / "text.pem").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    (at / "torn.key").write_text((at / "good.key").read_text()[:100])
    run = ["openssl", "pkey", "-in", str(at / "good.key"), "-aes128", "-passout", "pass:x", "-out", str(at / "locked.key")]
    subprocess.run(run, check=True, capture_output=True)
    run = ["openssl", "x509", "-in", str(at / "good.pem"), "-outform", "der", "-out", str(at / "der.pem")]
    subprocess.run(run, check=True, capture_output=True)
    return made


def listener(text: str) -> str:
    return f"listeners:\n  - name: rabbit\n    protocol: amqp\n    bind: 127.0.0.1:1\n    upstream: broker.example:2\n{text}"


def tls(certificate: str = "good.pem", key: str = "good.key", ca: str = "ca.pem") -> str:
    return f"    tls:\n      certificate: {certificate}\n      key: {key}\n      client_ca: {ca}\n"


def behind(ca: str = "ca.pem", certificate: str = "good.pem", key: str = "good.key") -> str:
    return f"    upstream_tls:\n      ca: {ca}\n      certificate: {certificate}\n      key: {key}\n"


@pytest.fixture
def here(ca: Authority, write: Write) -> Write:
    """Writes sluice.yaml beside the files."""

    def written(text: str) -> Path:
        path = write(text)
        for file in ca.directory.iterdir():
            link = path.parent / file.name
            if not link.exists():
                link.symlink_to(file)
        return path

    return written


WRONG = [
    (tls("nowhere.pem"), 7, "tls.certificate", "nowhere.pem cannot be read: No such file or directory", "check the name"),
    (tls("."), 7, "tls.certificate", "cannot be read: Is a directory", "check the name"),
    (tls("empty.pem"), 7, "tls.certificate", "empty.pem holds no certificate in PEM form", "-----BEGIN CERTIFICATE-----"),
    (tls("der.pem"), 7, "tls.certificate", "it looks like DER: `openssl x509 -inform der` converts it", ""),
    (tls("text.pem"), 7, "tls.certificate", "text.pem holds a broken certificate: it is not an X.509 certificate", "write it again"),
    (tls(key="nowhere.key"), 8, "tls.key", "nowhere.key cannot be read", "check the name"),
    (tls(key="other.key"), 8, "tls.key", "other.key is not the key of the certificate in", "name the two that belong together"),
    (tls(key="good.pem"), 8, "tls.key", "good.pem holds no private key in PEM form", "-----BEGIN PRIVATE KEY-----"),
    (tls(key="torn.key"), 8, "tls.key", "torn.key cannot be used: ", "write it again"),
    (tls(key="locked.key"), 8, "tls.key", "locked.key has a password, which is not supported", "openssl pkey -in"),
    (tls(ca="empty.pem"), 9, "tls.client_ca", "holds no certificate", ""),
    ("    tls:\n      certificate: good.pem\n", 7, "tls.key", "is missing", "add key: tls/gateway.key"),
    ("    tls: yes\n", 6, "tls", 'expected a mapping or off, got "yes"', "write off"),
    (behind("nowhere.pem"), 7, "upstream_tls.ca", "nowhere.pem cannot be read", "check the name"),
    (behind(key="other.key"), 9, "upstream_tls.key", "is not the key of the certificate", ""),
    ("    upstream_tls:\n      certificate: good.pem\n", 7, "upstream_tls.certificate", "stands without key", "add key: FILE.pem"),
    ("    upstream_tls:\n      key: good.key\n", 7, "upstream_tls.key", "stands without certificate", "add certificate: FILE.pem"),
    ("    upstream_tls: on\n", 6, "upstream_tls", 'expected a mapping or off, got "on"', "write {} (for the system's CAs), off, or"),
    ("    upstream_tls: {verify: maybe}\n", 6, "upstream_tls.verify", '"maybe" is not one of full, ca, none', ""),
    ("    upstream_tls: {server_name: 'a b'}\n", 6, "upstream_tls.server_name", '"a b" is not a host', ""),
    ("    upstream_tls: {server_name: .example.com}\n", 6, "upstream_tls.server_name", "has a dot with nothing before it", "write it like"),
    ("    upstream_tls: {server_name: a.}\n", 6, "upstream_tls.server_name", '"a." ends with a dot', "write a"),
    ("    upstream_tls: {server_name: 'a:1'}\n", 6, "upstream_tls.server_name", '"a:1" is not an IPv6 address', "without a port"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line", "path", "said", "remedy"), WRONG, ids=lambda value: value if isinstance(value, str) and "\n" not in value else ""
)
def test_a_file_that_cannot_be_used_is_named_where_it_stands(
    here: Write, faults: Faults, text: str, line: int, path: str, said: str, remedy: str
) -> None:
    here(listener(text))
    (problem,) = faults(listener(text))
    assert (problem.line, problem.path) == (line, f"listeners[0].{path}")
    assert said in problem.message
    assert remedy in problem.remedy


def test_everything_wrong_comes_at_once(here: Write, faults: Faults) -> None:
    text = listener(tls("nowhere.pem") + behind(key="other.key")) + "limiter: {queue: many}\n"
    here(text)
    assert [problem.path for problem in faults(text)] == ["listeners[0].tls.certificate", "listeners[0].upstream_tls.key", "limiter.queue"]


RISKY = [
    (tls("soon.pem", "soon.key"), 7, "tls.certificate", "soon.pem expires on 20", "in 20 days"),
    (tls("old.pem", "old.key"), 7, "tls.certificate", "old.pem expired on 20", "clients that verify it refuse to connect"),
    (tls("early.pem", "early.key"), 7, "tls.certificate", "early.pem is not valid before 20", ""),
    ("    upstream_tls: {ca: ca.pem, verify: none}\n", 6, "upstream_tls.verify", "the broker's certificate is not verified", "can read it"),
    ("    upstream_tls: {ca: ca.pem, verify: ca}\n", 6, "upstream_tls.verify", "may be for any host", "can read it"),
    (tls() + behind(), 12, "upstream_tls.certificate", "every client that logs in with SASL EXTERNAL is the user of this certificate", ""),
    (behind(), 8, "upstream_tls.certificate", "the broker sees this certificate for every client", "SASL EXTERNAL is refused here"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line", "path", "said", "also"), RISKY, ids=lambda value: value if isinstance(value, str) and "\n" not in value else ""
)
def test_warns(here: Write, text: str, line: int, path: str, said: str, also: str) -> None:
    (warning,) = lint(load(here(listener(text) + RULES)))
    assert (warning.line, warning.path) == (line, f"listeners[0].{path}")
    assert said in warning.message
    assert also in warning.message
    assert warning.remedy


def test_warns_of_a_certificate_that_speaks_for_every_client_of_rocketmq(here: Write) -> None:
    text = listener(behind()).replace("protocol: amqp", "protocol: rocketmq") + "rules: [{name: a, limit: {messages: 1/s}}]\n"
    (warning,) = lint(load(here(text)))
    assert (warning.line, warning.path) == (8, "listeners[0].upstream_tls.certificate")
    assert warning.message == "to the broker, every client of this listener is the holder of this certificate"


@pytest.mark.parametrize(
    ("text", "line", "path"),
    [(tls(ca="good.pem"), 9, "tls.client_ca"), ("    upstream_tls: {ca: good.pem}\n", 6, "upstream_tls.ca")],
)
def test_warns_of_a_ca_that_is_none(here: Write, text: str, line: int, path: str) -> None:
    (warning,) = lint(load(here(listener(text) + RULES)))
    assert (warning.line, warning.path) == (line, f"listeners[0].{path}")
    assert "good.pem holds a certificate that is no CA's" in warning.message


class Told(logging.Handler):
    """What this thread has logged: (level, event, err). Others may log at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, str, str]] = []
        self.thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self.thread:
            self.lines.append((record.levelname, record.getMessage(), str(record.fields["err"])))  # type: ignore[attr-defined]


def test_the_gateway_logs_what_check_says_of_certificates_at_their_end(here: Write) -> None:
    logger = logging.getLogger("sluice")
    told = Told()
    logger.addHandler(told)
    try:
        log_ending_certificates(find_ending_certificates(load(here(listener(tls() + "    upstream_tls: {verify: none}\n") + RULES))))
        assert told.lines == []
        log_ending_certificates(find_ending_certificates(load(here(listener(tls("soon.pem", "soon.key")) + RULES))))
    finally:
        logger.removeHandler(told)
    assert [line[:2] for line in told.lines] == [("WARNING", "certificate_ending")], told.lines
    assert "soon.pem expires on 20" in told.lines[0][2]


def test_warns_of_a_key_others_can_read(here: Write, ca: Authority) -> None:
    path = here(listener(tls()) + RULES)
    key = ca.directory / "good.key"
    key.chmod(0o604)
    try:
        (warning,) = lint(load(path))
    finally:
        key.chmod(0o600)
    assert (warning.line, warning.path) == (8, "listeners[0].tls.key")
    assert warning.message.endswith("good.key can be read by others")


@pytest.mark.parametrize(
    "text",
    [tls(), "    upstream_tls: {ca: ca.pem}\n", "    upstream_tls: {}\n", "    upstream_tls:\n", "    tls: off\n    upstream_tls: off\n"],
)
def test_does_not_warn(here: Write, text: str) -> None:
    assert lint(load(here(listener(text) + RULES))) == []


def test_the_brokers_name_is_the_upstreams_host_unless_said_otherwise(here: Write) -> None:
    (named,) = load(here(listener(behind()))).listeners
    (other,) = load(here(listener("    upstream_tls: {ca: ca.pem, server_name: other.example}\n"))).listeners
    assert [hop and hop.server_name for hop in hops(named)] == [None, None]
    assert [hop and hop.server_name for hop in hops(other)] == [None, "other.example"]
    names = [
        [hop.copy_for_host(host).server_name for host in ("broker.example.", "10.0.0.1")] for hop in (hops(named)[1], hops(other)[1]) if hop
    ]
    assert names == [["broker.example", "10.0.0.1"], ["other.example", "other.example"]]


def test_tls_is_in_force_on_a_reload_and_so_it_is_said(here: Write) -> None:
    old = load(here(listener(tls()) + RULES))
    new = load(here(listener(tls("other.pem", "other.key") + "    upstream_tls: {ca: ca.pem}\n    send_proxy_protocol: v2\n") + RULES))
    changes = diff(old, new)
    at = old.file.parent
    assert changes["in_force"][:2] == [
        f"listeners.rabbit.tls.certificate: {at}/good.pem -> {at}/other.pem",
        f"listeners.rabbit.tls.key: {at}/good.key -> {at}/other.key",
    ]
    assert changes["in_force"][2].startswith("listeners.rabbit.upstream_tls: off -> {ca: ")
    assert changes["needs_restart"] == ["listeners.rabbit.send_proxy_protocol: none -> v2"]
    both = merge(old, new)
    assert both.listeners == (replace(new.listeners[0], send_proxy_protocol="none"),)
    assert str(both.origin("listeners[0].upstream_tls.ca")).endswith("sluice.yaml:10:24")
    assert diff(both, new)["in_force"] == []


def test_tls_of_a_new_listener_waits_for_the_restart_with_it(here: Write) -> None:
    old = load(here(listener("")))
    new = load(
        here(listener("") + "  - {name: new, protocol: amqp, bind: 127.0.0.1:7, upstream: 127.0.0.1:8, upstream_tls: {ca: ca.pem}}\n")
    )
    changes = diff(old, new)
    assert changes["in_force"] == []
    assert "ca.pem" in changes["needs_restart"][0]
    assert merge(old, new).listeners == old.listeners


def test_permissive_is_for_listeners_of_rocketmq(here: Write, faults: Faults) -> None:
    text = listener("    tls:\n      certificate: good.pem\n      key: good.key\n      mode: permissive\n")
    here(text)
    (problem,) = faults(text)
    assert (problem.line, problem.path) == (9, "listeners[0].tls.mode")
    assert problem.message == "permissive is for RocketMQ; AMQP clients without TLS have a port of their own"
    assert problem.remedy == "set mode: enforcing, and give clients without TLS a listener without `tls`"
    loaded = load(here(text.replace("protocol: amqp", "protocol: rocketmq") + RULES))
    assert lint(loaded) == []
    client_hop, _ = hops(loaded.listeners[0])
    assert client_hop is not None
    assert client_hop.permissive


def test_warns_of_certificates_wanted_from_those_with_tls_only(here: Write) -> None:
    text = listener(tls() + "      mode: permissive\n").replace("protocol: amqp", "protocol: rocketmq")
    (warning,) = lint(load(here(text + RULES)))
    assert (warning.line, warning.path) == (10, "listeners[0].tls.mode")
    assert warning.message == "a client without TLS needs no certificate, so tls.client_ca keeps no client out"
