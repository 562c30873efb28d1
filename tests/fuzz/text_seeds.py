"""Seeds of what is text: HTTP requests of every route, bodies, configurations, files of the state directory, lines of the access log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
BODIES: dict[str, tuple[dict[str, Any], ...]] = {
    "limits": (
        {"messages": "500/s", "burst": "2s", "reason": "a flood"},
        {"messages": "0/s", "expires": "30m"},
        {"bytes": "5MiB/s", "burst": {"bytes": "1MiB"}, "action": "delay", "max_delay": "500ms", "mode": "shadow"},
        {"candidate": {"messages": "5/s", "burst": {"messages": 3}}, "open_for": "1s", "fallback": "drop", "reply": "system_busy"},
    ),
    "rules": (
        {"messages": "5/s"},
        {
            "match": {"protocol": "rocketmq", "topic": "a*"}, "per": "topic", "limit": {"messages": "5/s", "burst": {"messages": 9}},
            "position": "first", "expires": "10min", "breaker": {"open_for": "0s"},
        },
        {"match": {"protocol": "amqp"}, "limit": {"concurrent": 5}, "algorithm": "concurrency", "before": "orders", "weight": 2.5},
        {"match": {"topic": "b"}, "algorithm": "warm_up", "warm_up": {"over": "10s"}, "limit": {"messages": "50/s"}, "action": "delay"},
    ),
    "quotas": ({"version": 1, "computed_at": "2026-11-21T00:00:00Z", "code": "1", "quotas": []},),
    "log": ({"level": "debug", "for": "10min"},),
    "tokens": ({"role": "viewer", "expires": "1h"}, {"confirm": True}),
}  # fmt: skip
OVERRIDE = {"messages": "5/s", "burst": "2s", "by": "admin", "at": "2026-11-21T12:00:00.000Z", "reason": "why"}
STATE: dict[str, Any] = {
    "version": 2, "revision": 3, "sequence": 5, "keys": {"limits/rocketmq/orders": OVERRIDE, "limits/amqp/%2F/e/r": {"bytes": "1MiB/s"}},
    "rules": {"orders": {"action": "delay", "expires": "2026-12-21T12:00:00.000Z"}}, "quotas": None, "snapshots": [],
    "levels": {}, "live_rules": {"late": {"rule": {"match": {"topic": "a"}, "limit": {"messages": "5/s"}}, "number": 2}},
}  # fmt: skip
OLD_STATE = {name: value for name, value in STATE.items() if name not in ("levels", "live_rules")} | {"version": 1}
ENTRIES = (
    {"sequence": 1, "at": "2026-11-21T12:00:00Z", "by": "admin", "action": "PUT /v1/limits/rocketmq/orders",
     "outcome": "applied", "revision": 1,
     "changes": [{"target": "limits/rocketmq/orders", "after": OVERRIDE}]},
    {"sequence": 2, "at": "2026-11-21T12:00:01Z", "by": "admin", "action": "DELETE /v1/rules/orders",
     "outcome": "applied", "revision": 2,
     "changes": [{"target": "rules/orders", "before": OVERRIDE}]},
    {"sequence": 3, "at": "2026-11-21T12:00:02Z", "by": "sluice", "action": "undo", "outcome": "void", "voids": 2},
    {"sequence": 4, "at": "2026-11-21T12:00:03Z", "by": "ann", "action": "POST /v1/drain", "outcome": "done", "reason": "night"},
)  # fmt: skip
SNAPSHOT = {
    "version": 1, "computed_at": "2026-11-21T00:00:00Z", "code": "0.2.0", "date": "2026-11-20", "inputs": [{"path": "x", "sha256": "0"}],
    "parameters": {"k": 3}, "night": {"target": 0.01},
    "quotas": [
        {"protocol": "rocketmq", "topic": "orders", "messages": {"rate": 5.5, "burst": 20, "hourly": 1.5}, "evidence": {"days": 7}},
        {"protocol": "amqp", "topic": "%2F/e/r", "bytes": {"rate": 1000, "burst": 5000}},
    ],
}  # fmt: skip
LINE = {
    "v": 1, "ts": 1795248000, "gateway": "g1", "boot": "b1", "seq": 7, "protocol": "rocketmq", "topic": "orders", "client": "10.0.0.7",
    "user": None, "group": "p1", "operation": "produce", "messages": 5, "bytes": 500, "refused_messages": 0,
    "refused_bytes": 0, "delayed_messages": 0,
    "dropped_messages": 0, "bypassed_messages": 0, "shadow_refused_messages": 0, "max_100ms_messages": 2, "revision": 1,
}  # fmt: skip
BEAT = {"v": 1, "ts": 1795248001, "gateway": "g1", "boot": "b1", "seq": 8, "heartbeat": True, "revision": 1}
MANIFEST = {
    "v": 1, "gateway": "gateway-a", "hour": "2026-11-21T08:00:00Z",
    "files": [
        {"name": "a/b.jsonl.gz", "size": 5, "sha256": "0" * 64, "lines": 3, "corrupt": 0, "sources": []},
        {"name": "a/c.parquet", "size": 5, "sha256": "0" * 64, "lines": None, "corrupt": 1, "sources": ["b.jsonl"]},
    ],
}  # fmt: skip
CONFIGURATION = """version: 1
gateway: {name: g, state_directory: state}
admin: {bind: '127.0.0.1:9180'}
log: {level: info, format: json}
listeners:
  - name: rabbit
    protocol: amqp
    bind: 127.0.0.1:5672
    upstream: 127.0.0.1:5673
    trusted_proxies: [10.0.0.0/8]
  - {name: rocket, protocol: rocketmq, bind: '127.0.0.1:10911', upstream: '127.0.0.1:10912', idle_timeout: 5min}
memory: {high_watermark: 64MiB}
rules:
  - {name: all, match: {protocol: amqp}, limit: {messages: 5/s, burst: 2s}}
"""


def compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def http(method: str, target: str, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: 127.0.0.1", "Authorization: Bearer admin", *headers]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def requests() -> Iterator[bytes]:
    """One of every route, and with each body where it takes one."""
    from admin.endpoints import ROUTES

    for route in ROUTES:
        path = route.template
        for name, word in (
            ("{protocol}", "rocketmq"),
            ("{topic}", "orders"),
            ("{vhost}", "%2F"),
            ("{exchange}", "e"),
            ("{routing_key}", "r"),
        ):
            path = path.replace(name, word)
        path = path.replace("{id}", "1").replace("{revision}", "1").replace("{name}", "orders")
        path = "/".join("x" + word.partition("}")[2] if word.startswith("{") else word for word in path.split("/"))
        bodies = BODIES.get(path.split("/")[2].partition(":")[0] if path.startswith("/v1/") else "", ({"reason": "why"},))
        for body in bodies if route.body is not None else ({},):
            query = "?force=1" if route.conditional else ""
            yield http(route.method, path + query, body=compact(body) if body else b"")


def http_seeds() -> Iterator[tuple[str, bytes]]:
    for number, request in enumerate(requests()):
        yield "admin_api", bytes([number % 3]) + request
        if number % 6 == 0:
            yield "admin_http", bytes([number % 3]) + request
    put = compact({"messages": "5/s"})
    one = http("PUT", "/v1/limits/rocketmq/orders?force=1", body=put)
    yield "admin_api", b"\x00" + one + http("GET", "/v1/limits/rocketmq/orders") + http("DELETE", "/v1/limits/rocketmq/orders?force=1")
    yield "admin_api", b"\x00" + http("PUT", "/v1/limits/rocketmq/orders?dry_run=1", "If-Match: *", "Idempotency-Key: k", body=put)
    yield "admin_api", b"\x00" + one.replace(b"Bearer admin", b"Bearer no") + one
    yield "admin_http", b"\x00" + one + http("GET", "http://127.0.0.1/v1/status?limit=1")
    chunked = b"PUT /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0a\r\n0123456789\r\n0\r\n\r\n"
    yield "admin_http", b"\x05" + chunked + chunked
    yield "admin_http", b"\x01GET / HTTP/1.0\r\n\r\n"
    yield (
        "admin_http",
        b"\x01PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabcGET / HTTP/1.1\r\nHost: h\r\n\r\n",
    )


def state_seeds() -> Iterator[tuple[str, bytes]]:
    from fuzz.targets.state_files import chain, right

    for state in (STATE, OLD_STATE):
        yield "state_file", b"\x01" + compact(state)
    yield "state_file", b"\x00" + right(compact(OLD_STATE))
    entries = [compact(entry) for entry in ENTRIES]
    yield "journal", b"\x01" + b"\n".join([*entries, b""])
    yield "journal", b"\x01" + b"\n".join([*entries, b'{"hash":"'])
    yield "journal", b"\x00" + chain([*entries, b""], mend=True)

    def sized(content: bytes) -> bytes:
        """Padded to a multiple of 16 by blanks, which JSON does not mind."""
        content += b" " * (-len(content) % 16)
        return bytes([len(content) // 16]) + content

    yield "state_directory", b"\x03" + sized(compact(OLD_STATE)) + sized(compact(OLD_STATE)) + sized(b"")
    history = b"\n".join([*entries, b""])
    yield "state_directory", b"\x07" + sized(b"") + sized(compact(OLD_STATE)) + sized(history)
    yield "state_directory", b"\x3f" + sized(b"") + sized(b"") + sized(history) + sized(b"") + sized(history)
    yield "quota_snapshot", compact(SNAPSHOT)
    yield "quota_snapshot", compact({**SNAPSHOT, "quotas": []})
    for mode in (1, 5, 9, 13):
        yield "fills", bytes([mode]) + b"".join(number.to_bytes(8, "little") for number in (5, 10**9, 2**24, 10**10))
    yield "fills", b'\x00{"at": 1, "secret": "' + b"00" * 16 + b'", "order": "little"}\n\x00\x00\x00\x00'


def text_seeds() -> Iterator[tuple[str, bytes]]:
    yield from http_seeds()
    yield from state_seeds()
    for kind, group in enumerate(("limits", "rules", "rules", "log", "tokens")):
        for body in BODIES[group]:
            yield "admin_body", bytes([kind]) + compact(body)
    yield "admin_body", b"\x40" + compact({"messages": None, "reason": None, "burst": {"messages": 5}})
    yield "admin_body", b"\x02" + compact({"reason": "why"})
    for text in ("500/s", "1/7s", "30k/min", "10MiB/s", "1.5min", "512B", "10%/10s", "250us", "5 m", "2 \u00b5s", "0.5/s"):
        yield "quantity", text.encode()
    yield "yaml_tree", CONFIGURATION.encode()
    yield "yaml_tree", b"a: [1, {b: 'c', \"d\": |\n  text\n}]\n# remark\n"
    yield "yaml_tree", b"- a\n- b: >-\n    folded\n    text\n  c: ~\n"
    yield "settings_file", CONFIGURATION.encode()
    limits = (ROOT / "config/limits.yaml").read_bytes().split(b"\n  - name: ")
    for rule in limits[1:]:
        yield "rules_file", b"rules:\n  - name: " + b"\n".join(line.partition(b"  #")[0] for line in rule.split(b"\n")) + b"\n"
    yield "rules_file", b"rules:\n  - {name: a, match: {protocol: amqp, user: ann}, per: user, limit: {messages: 5/s}, weight: 3}\n"
    for mode in (0, 128):
        yield "log_lines", bytes([mode]) + b"\n".join(map(compact, (LINE, BEAT, {**LINE, "seq": 9}))) + b"\n"
    yield "log_lines", b"\x40" + compact(LINE)[:80] + compact(LINE) + b"\n" + compact({**LINE, "v": 2}) + b"\n[]\n" + compact(BEAT) + b"\n"
    yield "log_manifest", compact(MANIFEST)
