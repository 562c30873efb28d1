"""One secret in every place where one can stand, peers that repeat what they were told, and nothing that the product writes holds it."""

from __future__ import annotations

import json
import socketserver
import tarfile
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pika
import pytest
import yaml

from config import ConfigError, load
from support.brokers import stand_ins
from support.gateways import Gateway, StartGateway, amqp_listener
from support.processes import LOOPBACK, wait_until

SECRET = "s3cr3t-hunter2"
RULES: list[dict[str, object]] = [
    {"name": "slow", "match": {"protocol": "amqp", "exchange": "orders"}, "limit": {"messages": "1/h", "burst": "1h"}},
    {"name": "queue", "match": {"protocol": "amqp", "queue": "work"}, "limit": {"messages": "9/s"}},
]
TRACEPARENT = "00-0af7651916cd43dd8448eb211c803190-b7ad6b7169203331-01"
FAILURES = {"webhook_rejected", "webhook_failed", "spans_lost", "fleet_lost"}


class Parrot(socketserver.BaseRequestHandler):
    """Repeats what it was sent: as the status line or the body of an answer of HTTP, as an error of Redis."""

    def handle(self) -> None:
        heard = self.request.recv(65_536)
        words = b" ".join(heard.split())
        if not heard.startswith(b"POST"):
            self.request.sendall(b"-ERR I was told " + words + b"\r\n")
        elif b"/garbled" in heard:
            self.request.sendall(words + b"\r\n\r\n")
        else:
            self.request.sendall(b"HTTP/1.1 404 " + words[:200] + b"\r\nContent-Length: %d\r\n\r\n" % len(heard) + heard)


@pytest.fixture
def parrot() -> Iterator[str]:
    with socketserver.ThreadingTCPServer((LOOPBACK, 0), Parrot) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield f"{LOOPBACK}:{server.server_address[1]}"
        finally:
            server.shutdown()


def planted(parrot: str, folder: Path) -> dict[str, object]:
    """Settings with the secret in all of them."""
    folder.mkdir()
    for name, text in (("plain", SECRET), ("headers", f"Authorization: Bearer {SECRET}\n"), ("token", f"{SECRET}-of-ci-{'x' * 32}\n")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
    plain = str(folder / "plain")
    return {
        "webhooks": [
            {"url": f"http://{parrot}/services/{SECRET}", "name": "path"},
            {"url": f"http://{parrot}/garbled/{SECRET}", "name": "garbled"},
            {"url": f"http://{parrot}/?channel={SECRET}", "name": "query"},
            {"url": f"http://{parrot}/", "name": "token", "token_file": plain, "user": "sluice"},
        ],
        "tracing": {"endpoint": f"http://{parrot}/v1/{SECRET}", "headers_file": str(folder / "headers"), "timeout": "2s"},
        "fleet": {"redis": {"url": f"redis://{SECRET}@{parrot}/0", "name": "orders", "password_file": plain, "secret_file": plain}},
        "admin": {"tokens": [{"name": "ci", "role": "operator", "file": str(folder / "token")}]},
    }


def events(gateway: Gateway) -> set[str]:
    return {json.loads(line)["event"] for line in gateway.log().splitlines() if line.startswith('{"ts": ')}


def flood(gateway: Gateway) -> None:
    with closing(pika.BlockingConnection(pika.URLParameters(gateway.amqp_url()))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for _ in range(3):
            with suppress(pika.exceptions.NackError):
                channel.basic_publish("orders", "created", b"hello", pika.BasicProperties(headers={"traceparent": TRACEPARENT}))
    wait_until(lambda: events(gateway) >= FAILURES, within=60, what=f"the log has {FAILURES}")


def written(gateway: Gateway, folder: Path) -> dict[str, str]:
    """All that the product writes, by where."""
    found = {"the log": gateway.log(), "metrics": gateway.request("GET", "/metrics").text}
    paths = json.loads(gateway.request("GET", "/v1/openapi.json").text)["paths"]
    for path in [path for path, verbs in paths.items() if "get" in verbs and "{" not in path and path != "/v1/stream"]:
        found[path] = gateway.request("GET", path).text
    for path in ("/v1/config?origins=1", "/v1/reload?dry_run=1"):
        found[path] = gateway.request("GET" if "config" in path else "POST", path).text
    for words in (["config", "show"], ["config", "show", "-o", "json"], ["config", "show", "--origin"], ["check"]):
        done = gateway.cli(*words, "-c", str(gateway.config))
        found[" ".join(words)] = done.stdout + done.stderr
    changed = yaml.safe_load(gateway.config.read_text())
    changed["webhooks"][0]["url"] += "-other"
    (gateway.directory / "other.yaml").write_text(yaml.safe_dump(changed))
    for words in (["sluice.yaml"], ["sluice.yaml", "other.yaml"]):
        done = gateway.cli("config", "diff", *words)
        found[f"config diff {len(words)}"] = done.stdout + done.stderr
    gateway.cli("support-bundle", "-c", str(gateway.config), "--log", str(folder / "log"), "-o", str(folder / "bundle.tar.gz"))
    with tarfile.open(folder / "bundle.tar.gz") as bundle:
        for member in bundle.getmembers():
            content = bundle.extractfile(member)
            assert content is not None
            found[member.name] = content.read().decode()
    return found


def test_what_the_product_writes_holds_no_planted_secret(start_gateway: StartGateway, parrot: str, tmp_path: Path) -> None:
    folder = tmp_path / "planted"
    settings: dict[str, Any] = planted(parrot, folder)
    tokens = settings.pop("admin")["tokens"]
    with stand_ins.rabbitmq() as broker:
        login = {"user": "sluice", "password_file": str(folder / "plain")}
        gateway = start_gateway([amqp_listener(broker.address, own_login=login)], RULES, **settings)
        configuration = yaml.safe_load(gateway.config.read_text())
        configuration["admin"]["tokens"] = tokens
        gateway.config.write_text(yaml.safe_dump(configuration))
        gateway.cli("reload")
        flood(gateway)
        (folder / "log").write_text(gateway.log())
        found = written(gateway, folder)
    assert {where: text[max(0, text.find(SECRET) - 200) :][:400] for where, text in found.items() if SECRET in text} == {}
    assert f"http://{parrot}/…" == json.loads(found["/v1/config"])["webhooks"][0]["url"]
    assert "webhooks.path.url: " in found["config diff 2"]


LISTENERS = "listeners:\n  - {name: rabbit, protocol: amqp, bind: '127.0.0.1:5672', upstream: '127.0.0.1:5673'}\n"
FAULTY = {
    "a key that is not known": f"webhook: [{{url: https://hooks.example/{SECRET}}}]",
    "a URL without its scheme": f"webhooks: [{{url: hooks.example/services/{SECRET}}}]",
    "a URL of another scheme": f"webhooks:\n- url: ftp://hooks.example/{SECRET}",
    "a URL with a login": f"webhooks: [{{url: 'https://user:{SECRET}@hooks.example/'}}]",
    "a URL with a secret in its query": f"webhooks: [{{url: 'https://hooks.example?api_key={SECRET}'}}]",
    "a URL for a file": f"webhooks: [{{name: ops, url_file: https://hooks.example/{SECRET}}}]",
    "a URL with a fragment": f"webhooks: [{{url: 'https://hooks.example#{SECRET}'}}]",
    "a URL with other signs": f'webhooks: [{{url: "https://hooks.example/a b/{SECRET}"}}]',
    "a fault beside a URL": f"webhooks: [{{url: https://hooks.example/{SECRET}, timeout: 1h}}]",
    "a collector's query": f"tracing: {{endpoint: 'http://127.0.0.1:4318/v1/traces?x={SECRET}'}}",
    "a collector without its scheme": f"tracing:\n  endpoint: 127.0.0.1:4318/{SECRET}",
    "a Redis' password": f"fleet: {{redis: {{url: 'redis://:{SECRET}@h/0', name: x}}}}",
    "a Redis' database": f"fleet: {{redis: {{url: 'rediss://{SECRET}@h/x', name: x}}}}",
    "a broker's URL": f"gateway: {{name: x}}\nspool: {{directory: 'amqp://guest:{SECRET}@127.0.0.1:5672', max: 1}}",
    "a token in place of its file": f"admin: {{tokens: [{{name: ci, role: viewer, token: {SECRET}}}]}}",
}


@pytest.mark.parametrize("text", FAULTY.values(), ids=FAULTY)
def test_a_fault_of_a_configuration_does_not_repeat_a_secret(tmp_path: Path, text: str) -> None:
    (tmp_path / "sluice.yaml").write_text(f"{LISTENERS}{text}\n")
    with pytest.raises(ConfigError) as raised:
        load(tmp_path / "sluice.yaml")
    assert SECRET not in str(raised.value)


def test_an_upstream_that_is_a_url_is_not_repeated(tmp_path: Path) -> None:
    for url in (f"amqp://guest:{SECRET}@broker:5672", f"amqp://{SECRET}@broker:5672/vhost", f"amqps://broker/?password={SECRET}"):
        (tmp_path / "sluice.yaml").write_text(LISTENERS.replace("127.0.0.1:5673", url))
        with pytest.raises(ConfigError) as raised:
            load(tmp_path / "sluice.yaml")
        assert SECRET not in str(raised.value)
