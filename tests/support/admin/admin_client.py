"""An admin API under test: the real server on loopback, the real store and judge, and a client that says exactly what it is told to."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import h11
import trio

from admin.access import Access
from admin.app import Admin, serve
from admin.http.exchange import Deadlines
from admin.store.store import Store
from config.rule_texts import RuleTexts
from limiter.limits import Limit, Rate
from limiter.rules.rule_set import Match, Rule
from support.admin.fake_gateway import FakeGateway
from support.processes import HANG_S

RULES = (
    Rule("rocketmq-topics", Match(protocol="rocketmq"), limit=Limit(messages=Rate(2000)), place="limits.yaml:3"),
    Rule("orders", Match(exchange="orders", routing_key="order.#"), limit=Limit(messages=Rate(500)), place="limits.yaml:9"),
)
TOKENS = {"viewer": "viewer-token-0123456789", "operator": "operator-token-0123456789"}


@dataclass
class Reply:
    """An answer; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def etag(self) -> str:
        return self.headers["etag"]


@dataclass
class ConfiguredToken:
    name: str
    role: str
    file: Path


class Clock:
    """A wall clock that stands still until it is told otherwise."""

    def __init__(self, now: float = 1_795_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@dataclass
class Control:
    """A running control plane and all its parts."""

    address: tuple[str, int]
    gateway: FakeGateway
    store: Store
    folder: Path
    clock: Clock
    stop: trio.CancelScope = field(default_factory=trio.CancelScope)
    probes: tuple[str, int] = ("", 0)  # where the listener for probes is

    @property
    def admin(self) -> Admin:
        assert self.gateway.admin is not None
        return self.gateway.admin

    def token(self, role: str = "admin") -> str:
        return (self.folder / "admin.token").read_text().strip() if role == "admin" else TOKENS[role]

    def fail_at(self, now: int) -> None:
        """The clock of failed attempts (ns) stands at `now`: the next is counted there, however long the machine takes for it.

        At 0 the audit has a line for each: as on no machine, where it counts from the start.
        """
        self.admin.authentication._clock = lambda: now

    async def connect(self) -> trio.SocketStream:
        return await trio.open_tcp_stream(*self.address)

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        role: str | None = "admin",
        headers: dict[str, str] | None = None,
        content_type: str | None = "application/json",
    ) -> Reply:
        """One request on a connection of its own. `body` is sent as JSON unless it is bytes."""
        async with await self.connect() as stream:
            return await request(stream, method, path, body, token=role and self.token(role), headers=headers, content_type=content_type)

    async def say(self, raw: bytes) -> bytes:
        """Send bytes as they are; everything the server says until it closes."""
        async with await self.connect() as stream:
            await stream.send_all(raw)
            return await everything(stream)


async def everything(stream: trio.abc.ReceiveStream) -> bytes:
    found = b""
    with trio.fail_after(HANG_S):
        try:
            while data := await stream.receive_some(65536):
                found += data
        except trio.BrokenResourceError:
            pass  # a reset after the answer
    return found


async def request(
    stream: trio.abc.Stream,
    method: str,
    path: str,
    body: Any = None,
    *,
    token: str | None = None,
    headers: dict[str, str] | None = None,
    content_type: str | None = "application/json",
) -> Reply:
    """One request on `stream`, and its answer."""
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    sent = {"Host": "127.0.0.1"}
    if data:
        sent |= {"Content-Length": str(len(data))} | ({"Content-Type": content_type} if content_type else {})
    if token is not None:
        sent["Authorization"] = f"Bearer {token}"
    connection = h11.Connection(h11.CLIENT)
    out = connection.send(h11.Request(method=method, target=path, headers=list((sent | (headers or {})).items())))
    if data:
        out += connection.send(h11.Data(data=data))
    with trio.fail_after(HANG_S):
        await stream.send_all(out + connection.send(h11.EndOfMessage()))
        return await reply(stream, connection)


async def reply(stream: trio.abc.ReceiveStream, connection: h11.Connection) -> Reply:
    found = Reply(0, {}, b"")
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(bytes(await stream.receive_some(65536)))
        elif isinstance(event, h11.Response):
            found.status = event.status_code
            found.headers = {name.decode(): value.decode() for name, value in event.headers}
        elif isinstance(event, h11.Data):
            found.body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
            return found


@contextmanager
def folder_in_memory(otherwise: Path) -> Iterator[Path]:
    """A folder whose fsync costs nothing, where the machine has one: these tests sync thousands of times, and none depends on the disk."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or not os.access(memory, os.W_OK):
        yield otherwise
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="sluice-") as folder:
        yield Path(folder)


@asynccontextmanager
async def control(
    folder: Path,
    rules: tuple[Rule, ...] = RULES,
    *,
    deadlines: Deadlines | None = None,
    grace: float = 1.0,
    files: Any = None,
    names: tuple[str, ...] = (),
    access: Access | None = None,
    more: Callable[[], list[Any]] = list,
) -> AsyncIterator[Control]:
    """Open the store in `folder` and serve it on a free port of loopback."""
    clock = Clock()
    store = Store.open(folder / "state", rules, clock, files, rule_texts=RuleTexts())
    tokens = []
    for role, token in TOKENS.items():
        path = folder / f"{role}.token"
        path.write_text(token + "\n")
        path.chmod(0o600)
        tokens.append(ConfiguredToken(role, role, path))
    gateway = FakeGateway(store.rules())
    given = replace(access or Access(), tokens=tuple(tokens), names=names)

    def began(admin: Admin) -> None:
        gateway.admin, gateway.access = admin, given

    async def run(task_status: Any) -> None:
        await serve(
            ("127.0.0.1", 0), gateway, store, access=given, probes=("127.0.0.1", 0), more=more(), began=began,
            deadlines=deadlines, grace=grace, wall_clock=clock, task_status=task_status,
        )  # fmt: skip

    try:
        async with trio.open_nursery() as nursery:
            addresses = await nursery.start(run)
            yield Control(addresses[0], gateway, store, folder / "state", clock, nursery.cancel_scope, addresses[-1])
            nursery.cancel_scope.cancel()
    finally:
        store.close()
