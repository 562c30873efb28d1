"""A small admin server that keeps to `docs/design/contract.md` 5, and a way to run the command line against it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from cli.main import main

TOKEN = "t0ken-of-the-tests-0123456789"
NOTHING: dict[str, Any] = {
    "version": 1,
    "computed_at": "1970-01-01T00:00:00Z",
    "code": "none",
    "inputs": [],
    "parameters": {},
    "quotas": [],
}


@dataclass
class Request:
    """What the server saw."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class Admin:
    """The server's side: what it holds, and what it was asked."""

    url: str = ""
    overrides: dict[str, dict[str, Any]] = field(default_factory=dict)  # path -> live change
    rules: dict[str, dict[str, Any]] = field(default_factory=lambda: {"orders": {"name": "orders", "limit": {"messages": "500/s"}}})
    quotas: dict[str, Any] = field(default_factory=lambda: NOTHING)
    before: dict[str, Any] | None = None  # the publication that a rollback of quotas leads to
    history: list[dict[str, Any]] = field(default_factory=list)
    topics: list[dict[str, Any]] = field(default_factory=list)
    spool: dict[str, Any] = field(default_factory=dict)  # the figures of `GET /v1/spool`
    requests: list[Request] = field(default_factory=list)
    answers: dict[str, tuple[int, dict[str, Any]]] = field(default_factory=dict)  # "METHOD path" -> an answer out of the ordinary
    computed: dict[str, Callable[[dict[str, str]], dict[str, Any]]] = field(default_factory=dict)  # "METHOD path" -> the body for a query
    race: Callable[[], None] | None = None  # what somebody else does between a GET and the write after it

    def writes(self) -> list[Request]:
        return [request for request in self.requests if request.method != "GET"]


def etag(value: object) -> str:
    return f'"{sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]}"'


class Handler(BaseHTTPRequestHandler):
    """One request. `admin` is the Admin it belongs to."""

    admin: Admin

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  -- the base class's name
        """Say nothing on stderr."""

    def handle_any(self) -> None:
        parts = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        request = Request(self.command, parts.path, query, dict(self.headers.items()), json.loads(raw) if raw else None)
        self.admin.requests.append(request)
        status, body, tag = self.answer(request)
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if status < 400 else "application/problem+json")
        self.send_header("Content-Length", str(len(data)))
        if tag:
            self.send_header("ETag", tag)
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_DELETE = handle_any  # noqa: N815  -- the base class calls them so

    def answer(self, request: Request) -> tuple[int, Any, str]:
        strange = self.admin.answers.get(f"{request.method} {request.path}")
        if strange is not None:
            return *strange, ""
        computed = self.admin.computed.get(f"{request.method} {request.path}")
        if computed is not None:
            return 200, computed(request.query), ""
        if request.path in {"/livez", "/readyz"}:
            return 200, {"ready": True}, ""
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return problem(401, "unauthorised", "no such token")
        found = self.route(request)
        return problem(404, "not-found", "there is nothing at this path") if found is None else found

    def route(self, request: Request) -> tuple[int, Any, str] | None:
        admin, path = self.admin, request.path
        if path in {"/v1/limits", "/v1/topics", "/v1/clients", "/v1/connections", "/v1/listeners", "/v1/audit", "/v1/tokens"}:
            return page(admin.topics, request)
        if path == "/v1/spool":
            shown = [each for each in admin.topics if request.query.get("topic") in (None, each["topic"])]
            status, body, _ = page(shown, request)
            return status, {**body, "spool": admin.spool}, ""
        if path.startswith("/v1/connections/") and request.method == "DELETE":
            number = int(path.rpartition("/")[2])
            return (200, {"done": f"connection {number} is being closed"}, "") if number == 7 else problem(404, "not-found", "no such one")
        if path == "/v1/rules":
            body = page(list(admin.rules.values()), request)[1]
            return 200, {**body, "orphans": {}, "revision": 1}, etag(admin.rules)
        if path == "/v1/history":
            return *page(admin.history, request)[:2], etag(admin.history)
        if path == "/v1/config:reload" and request.method == "POST":
            return 200, {"in_force": ["rule a: added"], "needs_restart": []}, ""
        if path == "/v1/drain" and request.method == "POST":
            return (202, {"done": "draining"}, "") if (request.body or {}).get("confirm") else problem(422, "invalid", "confirm")
        if path == "/v1/status":
            return 200, {"connections": 7, "draining": False}, ""
        if path == "/v1/quotas/status":
            return 200, {"published": None, "shadow": None, "age_seconds": None}, etag(admin.quotas)
        if path == "/v1/quotas:rollback":
            if admin.before is None:
                return problem(404, "not-found", "no quotas are published")
            if request.query.get("dry_run"):
                return 200, {"dry_run": True, "changes": [{"target": "quotas", "before": {}, "after": admin.before}]}, ""
            return self.write(request, admin.quotas, lambda _: None) or (200, {"published": admin.before, "revision": 9}, "")
        if path == "/v1/quotas":
            return self.write(request, admin.quotas, self.put_quotas) or (200, admin.quotas, etag(admin.quotas))
        if path.startswith("/v1/limits/"):
            return self.change(request, admin.overrides, path, self.key)
        if path.startswith("/v1/rules/") and path.endswith(":promote"):
            rule = admin.rules.get(path.rpartition("/")[2].removesuffix(":promote"))
            if rule is None or "candidate" not in rule:
                return problem(404, "not-found", "no rule") if rule is None else problem(409, "no-candidate", "it has no candidate")
            after = {"name": rule["name"], "limit": rule["candidate"]}
            return self.write(request, rule, lambda _: admin.rules.update({rule["name"]: after})) or (200, after, etag(after))
        if path.startswith("/v1/rules/"):
            name = unquote(path.rpartition("/")[2])
            return self.change(request, admin.rules, name, lambda name: admin.rules[name]) if name in admin.rules else None
        if path.endswith(":rollback"):
            return self.write(request, admin.history, lambda _: None) or (200, {"entry": {"revision": 9}, "revision": 9}, "")
        if path.startswith("/v1/history/"):
            wanted = int(path.rpartition("/")[2])
            entries = [entry for entry in admin.history if entry["revision"] == wanted]
            return (200, {"entry": entries[0], "revision": 3}, "") if entries else None
        return None

    def put_quotas(self, request: Request) -> None:
        self.admin.quotas = request.body

    def key(self, path: str) -> dict[str, Any]:
        override = self.admin.overrides.get(path)
        limit = {"messages": (override or {}).get("messages", "2000/s")}
        level = {
            "per": "topic",
            "thing": unquote(path.split("/", 4)[4]),
            "limit": limit,
            "origin": "override" if override else "default",
            "rule": "r",
        }
        return {"path": path, "override": override, "levels": [level]}

    def change(self, request: Request, held: dict[str, Any], name: str, show: Callable[[str], Any]) -> tuple[int, Any, str]:
        def write(request: Request) -> None:
            if request.method == "DELETE":
                held.pop(name, None)
            else:
                held[name] = {**held.get(name, {}), **request.body} if show is not self.key else request.body

        refused = self.write(request, show(name), write)
        if refused is not None:
            return refused
        if name not in held and show != self.key:
            return 200, {}, ""
        return 200, show(name), etag(show(name))

    def write(self, request: Request, current: object, do: Callable[[Request], None]) -> tuple[int, Any, str] | None:
        """Do a write as docs/design/contract.md 5 has it: 428 without If-Match, 412 on a race, a dry run changes nothing. None: go on and
        show."""
        if request.method == "GET":
            if self.admin.race is not None:
                answer = 200, current, etag(current)
                self.admin.race()
                self.admin.race = None
                return answer
            return None
        if request.query.get("dry_run") == "1":
            return 200, {"dry_run": True, "would_be_revision": 5, "changes": [], "topics_affected": 1, "topics": []}, ""
        given = request.headers.get("If-Match")
        if given is None:
            return problem(428, "precondition-required", "send If-Match")
        if given not in {"*", etag(current)}:
            return problem(412, "precondition-failed", "it was changed since you read it")
        do(request)
        return None


def problem(status: int, name: str, detail: str, errors: list[dict[str, str]] | None = None) -> tuple[int, Any, str]:
    return status, {"type": f"urn:sluice:problem:{name}", "title": name, "status": status, "detail": detail, "errors": errors or []}, ""


def page(items: list[dict[str, Any]], request: Request) -> tuple[int, Any, str]:
    """A page, with a cursor that is a position."""
    start, count = int(request.query.get("cursor", "0")), int(request.query.get("limit", "100"))
    following = str(start + count) if start + count < len(items) else None
    return 200, {"items": items[start : start + count], "next": following, "total": len(items)}, ""


@contextmanager
def served() -> Iterator[Admin]:
    made = Admin()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("BoundHandler", (Handler,), {"admin": made}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.005}, daemon=True)
    thread.start()
    made.url = f"http://127.0.0.1:{server.server_port}"
    yield made
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Admin]:
    """A running admin server; SLUICE_ADMIN and SLUICE_TOKEN lead to it."""
    with served() as made:
        monkeypatch.setenv("SLUICE_ADMIN", made.url)
        monkeypatch.setenv("SLUICE_TOKEN", TOKEN)
        yield made


@pytest.fixture
def second_admin() -> Iterator[Admin]:
    """Another one, with the same token."""
    with served() as made:
        yield made


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No variable and no state directory of this machine's."""
    for name in (
        "SLUICE_ADMIN",
        "SLUICE_TOKEN",
        "SLUICE_TOKEN_FILE",
        "SLUICE_CONFIG",
        "SLUICE_GATEWAY__STATE_DIRECTORY",
        "STATE_DIRECTORY",
        "NO_COLOR",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path_factory.mktemp("somewhere"))


@dataclass(frozen=True)
class Ran:
    """How a run of the command line ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def sluice(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run `sluice` with these words."""

    def run(*words: object) -> Ran:
        capsys.readouterr()
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run
