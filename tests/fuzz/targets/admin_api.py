"""What is fuzzed of the admin API as a whole: requests against the real server, store and judge, on a pretended connection.

No answer is 500, nothing is changed by what is refused, and what was changed is on the disk as it is in force.
"""

from __future__ import annotations

import json
import logging
import shutil
from functools import partial
from pathlib import Path

import h11
import trio
from fuzz.scripts import cut, own_folder
from fuzz.targets.admin_http import served

from admin.access import token_files
from admin.app import Admin
from admin.authentication.auth import ValidTokens
from admin.authentication.token_store import TokenStore
from admin.http.peer import Peer
from admin.store.state import decode_state, encode_state
from admin.store.state_directory import STATE
from admin.store.store import Store
from common.durable_files import FileSystem
from config.rule_texts import RuleTexts
from support.admin.admin_client import RULES, Clock
from support.admin.fake_gateway import FakeGateway

TOKEN = b"Bearer admin"  # in an input; the real token is random


class Unsynced(FileSystem):
    """Files of a folder in memory, which no power cut is to survive."""

    def sync(self, handle: int) -> None:
        pass

    def sync_folder(self, path: Path) -> None:
        pass


class Wire(trio.abc.HalfCloseableStream):
    """Gives what a client has said, piece by piece, and then its end; keeps what it is told."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces[::-1]
        self.told = b""

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        return self.pieces.pop() if self.pieces else b""

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        self.told += data

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def send_eof(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class Failures(logging.Handler):
    """What the server has logged as its own fault."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(self.format(record))


class World:
    """An admin API whose state is that of the beginning."""

    def __init__(self) -> None:
        self.folder = own_folder()
        self.clock = Clock()
        self.store = Store.open(self.folder, RULES, self.clock, Unsynced(), rule_texts=RuleTexts())
        self.made = TokenStore(self.folder)
        self.tokens = ValidTokens(token_files(self.folder, ()), self.made, self.clock)
        self.token = b"Bearer " + (self.folder / "admin.token").read_bytes().strip()
        self.files = self._files()

    def _files(self) -> dict[str, bytes]:
        """What stands in the folder, but for lines of requests that were refused."""
        return {path.name: path.read_bytes() for path in self.folder.iterdir() if path.is_file() and not path.name.startswith("refusals")}

    def unchanged(self) -> bool:
        return self.store.revision == 0 and self._files() == self.files

    def close(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)


worlds: list[World] = []  # at most one, as in the beginning


def statuses(told: bytes, methods: list[str]) -> list[int]:
    """The statuses of the answers in `told`, each of which must be whole, and JSON where it says so."""
    found = []
    for number, method in enumerate([*methods, "GET"]):
        while told:
            if number == len(methods) and told.endswith(b"\r\n\r\n"):
                method = "HEAD"  # noqa: PLW2901  -- it was refused, and has the answer to one
            connection = h11.Connection(h11.CLIENT)
            connection.send(h11.Request(method=method, target="/", headers=[("Host", "h")]))
            connection.receive_data(told)
            head = connection.next_event()
            assert isinstance(head, h11.Response | h11.InformationalResponse), f"no answer: {told[:200]!r}"
            if isinstance(head, h11.InformationalResponse):
                told = told[told.index(b"\r\n\r\n") + 4 :]
                continue
            body = b""
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(b"")
                event = connection.next_event()
            while isinstance(event, h11.Data):
                body += bytes(event.data)
                event = connection.next_event()
            found.append(head.status_code)
            kind = dict(head.headers).get(b"content-type", b"")
            if body and kind.partition(b";")[0].endswith(b"json"):
                json.loads(body)
            told = connection.trailing_data[0]
            break
    assert not told, f"more answers than requests: {told[:200]!r}"
    return found


def admin_api(data: bytes) -> None:
    """Requests with and without a good token: no fault of the server's; what is refused, or only tried, changes nothing."""
    if not data:
        return
    world = worlds.pop() if worlds else World()
    try:
        said = data[1:].replace(TOKEN, world.token)
        gateway = FakeGateway(world.store.rules())
        world.store.enforce = gateway.enforce
        admin = Admin(gateway, world.store, world.tokens, world.made, world.clock, lambda: 10**12)
        failures = Failures()
        logger = logging.getLogger("sluice")
        logger.addHandler(failures)
        wire = Wire(cut(said, data[0] and 1 + data[0]))
        try:
            trio.run(partial(admin.server.attend, wire, Peer("127.0.0.1")))
        finally:
            logger.removeHandler(failures)
        assert not failures.found, failures.found
        requests, _ = served([said])
        answers = statuses(wire.told, [head.method for head, _ in requests])
        assert 500 not in answers, answers
        assert len(answers) <= len(requests) + 1
        state = world.store.state
        if all(status >= 400 for status in answers):
            assert world.unchanged(), f"{answers}, but something was changed"
        if world.store.revision:
            stored = (world.folder / STATE).read_bytes()
            assert decode_state(stored) == state, "the file has another state than holds"
            assert encode_state(decode_state(stored)) == stored
            world.close()
            return
        if world.unchanged():
            worlds.append(world)
        else:
            world.close()
    except BaseException:
        world.close()
        raise
