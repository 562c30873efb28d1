"""Load on an admin port, of all kinds at once, each at a pace of its own. A program: the one who measures has a process of its own.

    PYTHONPATH=tests python -m support.admin.load PORT TOKEN [CA_FILE]

Reads commands, one a line, and answers each with a line: `begin` with "begun", `end` with what was done since then, as JSON, when all its
connections are closed. It ends with its input. With CA_FILE it speaks TLS.

* connections that ask for the stream and read nothing, a thousand of them if it goes on so long;
* readers of large answers that stall, with as small a buffer as there is;
* requests with the right token, on kept connections: lists, metrics, live changes;
* requests with a wrong token, each on a connection of its own;
* half TLS handshakes, of which nothing more comes.

Each kind comes from an address of its own, so that what is held against one is not held against the others. It runs behind everything else
(`nice`): what is tested is what the gateway does with it, not how two programs share a processor.
"""

from __future__ import annotations

import itertools
import json
import os
import ssl
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any, Final

import h11
import trio

from support.processes import HANG_S

HOST: Final = "127.0.0.1"
STREAMS: Final = 1000  # connections, at most, each time
STREAMS_A_SECOND: Final = 100
STALLED: Final = 8  # readers
READERS: Final = 8  # connections with the right token
READS_A_SECOND: Final = 100
FORGERIES_A_SECOND: Final = 100  # with a wrong token
HANDSHAKES_A_SECOND: Final = 20  # halves
HALF_HELLO: Final = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40)  # a ClientHello of 512 bytes begins, and 51 of it come
PATHS: Final = (
    "/v1/status", "/v1/topics?limit=100&sort=rate", "/v1/status", "/v1/limits?limit=100&sort=used", "/v1/events", "/v1/connections",
    "/v1/status", "/v1/topics?limit=100&q=99", "/v1/listeners", "/v1/limits?limit=500", "/v1/history", "/metrics",
)  # fmt: skip
CHANGES: Final = 13  # one of so many requests with the right token changes a limit

Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]
BROKEN: Final = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError)


class Load:
    """The load on one port. `done` counts what it has done."""

    def __init__(self, port: int, token: str, ca: str | None) -> None:
        self._port = port
        self._token = token
        self._context = None if ca is None else ssl.create_default_context(cafile=ca)
        self.done: Counter[str] = Counter()

    async def run(self) -> None:
        """Until it is cancelled."""
        async with trio.open_nursery() as nursery:
            for _ in range(STALLED):
                nursery.start_soon(self._stalls, "127.0.0.2", "/v1/topics?limit=500", 4096)
            for number in range(READERS):
                nursery.start_soon(self._reads, number)
            nursery.start_soon(self._paced, nursery, FORGERIES_A_SECOND, self._forges)
            nursery.start_soon(self._paced, nursery, HANDSHAKES_A_SECOND, self._half_shakes)
            nursery.start_soon(
                self._paced, nursery, STREAMS_A_SECOND, partial(self._stalls, "127.0.0.5", "/v1/stream?topics=200", 0), STREAMS
            )

    async def _paced(self, nursery: trio.Nursery, rate: int, what: Callable[[], Awaitable[None]], most: int = sys.maxsize) -> None:
        began = trio.current_time()
        for number in itertools.takewhile(lambda number: number < most, itertools.count()):
            nursery.start_soon(what)
            await trio.sleep_until(began + number / rate)

    async def _socket(self, address: str, buffer: int = 0) -> trio.SocketStream:
        """A connection from `address`."""
        sock = trio.socket.socket()
        if buffer:
            sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, buffer)
        try:
            await sock.bind((address, 0))
            await sock.connect((HOST, self._port))
        except BaseException:
            sock.close()
            raise
        return trio.SocketStream(sock)

    async def _connect(self, address: str, buffer: int = 0) -> Stream:
        plain = await self._socket(address, buffer)
        if self._context is None:
            return plain
        try:
            tls = trio.SSLStream(plain, self._context, server_hostname="localhost", https_compatible=True)
            await tls.do_handshake()
        except BaseException:
            plain.socket.close()
            raise
        return tls

    def _head(self, token: str) -> list[tuple[str, str]]:
        return [("Host", "localhost"), ("Authorization", f"Bearer {token}")]

    async def _stalls(self, address: str, path: str, buffer: int) -> None:
        """Ask and read nothing."""
        try:
            stream = await self._connect(address, buffer)
        except BROKEN:
            self.done["stalled: no connection"] += 1
            return
        try:
            head = "".join(f"{name}: {value}\r\n" for name, value in self._head(self._token))
            await stream.send_all(f"GET {path} HTTP/1.1\r\n{head}\r\n".encode())
            self.done[f"stalled {path.partition('?')[0]}"] += 1
            await trio.sleep_forever()
        except BROKEN:
            self.done["stalled: closed"] += 1
        finally:
            await trio.aclose_forcefully(stream)

    async def _ask(self, stream: Stream, talk: h11.Connection, token: str, method: str, path: str, body: bytes = b"") -> int:
        """The status of the answer, which is read to its end."""
        more = [("Content-Length", str(len(body))), ("Content-Type", "application/json")] if body else []
        sent = talk.send(h11.Request(method=method, target=path, headers=[*self._head(token), *more])) or b""
        sent += (talk.send(h11.Data(data=body)) or b"") if body else b""
        await stream.send_all(sent + (talk.send(h11.EndOfMessage()) or b""))
        status = 0
        while True:
            event = talk.next_event()
            if event is h11.NEED_DATA:
                talk.receive_data(bytes(await stream.receive_some(1 << 16)))
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                return status

    async def _reads(self, place: int) -> None:
        """Ask with the right token, again and again, one request after the other."""
        numbers = itertools.count(place, READERS)
        due = trio.current_time()
        while True:
            stream = None
            try:
                stream = await self._connect("127.0.0.3")
                talk = h11.Connection(h11.CLIENT)
                while True:
                    number = next(numbers)
                    if number % CHANGES == 0:
                        path = f"/v1/limits/rocketmq/topic-{number % 500}?force=1"
                        status = await self._ask(stream, talk, self._token, "PUT", path, b'{"messages": "%d000/s"}' % (100 + number % 9))
                        self.done[f"change {status}"] += 1
                    else:
                        status = await self._ask(stream, talk, self._token, "GET", PATHS[number % len(PATHS)])
                        self.done[f"read {status}"] += 1
                    due = max(due + READERS / READS_A_SECOND, trio.current_time())
                    await trio.sleep_until(due)
                    if talk.our_state is not h11.DONE or talk.their_state is not h11.DONE:
                        break
                    talk.start_next_cycle()
            except BROKEN:
                self.done["read: closed"] += 1
                await trio.sleep(READERS / READS_A_SECOND)
            finally:
                if stream is not None:
                    await trio.aclose_forcefully(stream)

    async def _forges(self) -> None:
        """Ask once with a wrong token."""
        try:
            stream = await self._connect("127.0.0.4")
        except BROKEN:
            self.done["forged: no connection"] += 1
            return
        try:
            status = await self._ask(stream, h11.Connection(h11.CLIENT), "x" * 43, "GET", "/v1/topics?limit=500")
            self.done[f"forged {status}"] += 1
        except BROKEN:
            self.done["forged: closed"] += 1
        finally:
            await trio.aclose_forcefully(stream)

    async def _half_shakes(self) -> None:
        try:
            stream = await self._socket("127.0.0.6")
        except BROKEN:
            self.done["half: no connection"] += 1
            return
        try:
            await stream.send_all(HALF_HELLO)
            self.done["half"] += 1
            while await stream.receive_some(1 << 10):
                pass
        except BROKEN:
            self.done["half: closed"] += 1
        finally:
            await trio.aclose_forcefully(stream)


async def obey(load: Load) -> None:
    commands = _lines(trio.lowlevel.FdStream(os.dup(0)))
    async for command in commands:
        if command != "begin":
            continue
        load.done.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load.run)
            print("begun", flush=True)
            async for command_then in commands:
                if command_then == "end":
                    break
            nursery.cancel_scope.cancel()
        print(json.dumps(load.done), flush=True)


async def _lines(source: trio.abc.ReceiveStream) -> Any:
    held = b""
    while data := await source.receive_some(1 << 10):
        held += data
        *whole, held = held.split(b"\n")
        for line in whole:
            yield line.decode()


class Loading:
    """The program, as the test that starts it has it. A context manager."""

    def __init__(self, port: int, token: str, ca: Path | None = None) -> None:
        tests = Path(__file__).resolve().parents[2]
        words = [sys.executable, "-m", "support.admin.load", str(port), token, *([] if ca is None else [str(ca)])]
        self.done: Counter[str] = Counter()
        self._program = Popen(words, stdin=PIPE, stdout=PIPE, text=True, env={**os.environ, "PYTHONPATH": f"{tests.parent}:{tests}"})

    def _say(self, command: str) -> str:
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.write(f"{command}\n")
        self._program.stdin.flush()
        answer = self._program.stdout.readline()
        assert answer, f"the load has ended with {self._program.wait()}"
        return answer

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """The load is on the port meanwhile."""
        self._say("begin")
        yield
        self.done.update(json.loads(self._say("end")))

    def __enter__(self) -> Loading:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.close()
        self._program.wait(HANG_S)
        self._program.stdout.close()

    def __repr__(self) -> str:
        return f"<Loading {dict(self.done)}>"


if __name__ == "__main__":
    os.nice(10)
    trio.run(obey, Load(int(sys.argv[1]), sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None))
