"""A relay that is at fault: late, slow, deaf, cut off, in slivers, or wrong by a byte. It stands on either hop of a gateway.

After Toxiproxy's toxics (its README), which Debian does not package. Needs no root: what a network does below TCP (loss, reordering) is
seen above it as lateness, which `latency_s` and `jitter_s` make. Settings hold from the next read on, for connections that are open, too.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from support.processes import LOOPBACK

READ_BYTES = 65_536
PATIENCE_S = 10.0


@dataclass
class Faults:
    """Of one direction. All off."""

    latency_s: float = 0.0
    jitter_s: float = 0.0  # either way
    bytes_per_s: float = 0.0  # 0: as fast as it goes
    slice_bytes: int = 0  # 0: whole reads
    deaf: bool = False  # what comes is kept, and passed on when this is over: a partition that heals
    corrupt_after: int = -1  # the byte at this place of each connection's stream from now on is another; -1: none
    cut_after: int = -1  # a connection is reset once so many more bytes of it have passed; -1: none


class FaultProxy:
    """Accepts on a free port of loopback and connects to `upstream`. A context manager; leaving it closes everything."""

    def __init__(self, upstream: str, seed: int = 1) -> None:
        host, _, port = upstream.rpartition(":")
        self._upstream = (host, int(port))
        self._random = random.Random(seed)
        self._sock = socket.create_server((LOOPBACK, 0))
        self.address = f"{LOOPBACK}:{self._sock.getsockname()[1]}"
        self.to_broker = Faults()
        self.to_client = Faults()
        self.refuses = False  # new connections are closed at once
        self.accepted = 0
        self._loop = asyncio.new_event_loop()
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def heal(self) -> None:
        """No faults any more."""
        self.to_broker = Faults()
        self.to_client = Faults()
        self.refuses = False

    def reset_all(self) -> None:
        """RST to both sides of all connections."""
        asyncio.run_coroutine_threadsafe(self._reset_all(), self._loop).result(PATIENCE_S)

    async def _reset_all(self) -> None:
        for writer in list(self._open):
            _reset(writer)

    # ---- within its thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, sock=self._sock))
        self._loop.run_forever()
        server.close()
        self._loop.run_until_complete(asyncio.sleep(0.05))  # transports close in the loop's next turns
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if self.refuses:
                _reset(writer)
                return
            try:
                from_broker, to_broker = await asyncio.open_connection(*self._upstream)
            except OSError:
                _reset(writer)
                return
            self._open |= {writer, to_broker}
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._pass(reader, to_broker, "to_broker"))
                    both.create_task(self._pass(from_broker, writer, "to_client"))
            finally:
                self._open -= {writer, to_broker}
                for one in (writer, to_broker):
                    one.close()
        finally:
            self._tasks.discard(task)

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, direction: str) -> None:
        passed = 0
        with suppress(OSError):
            while data := await source.read(READ_BYTES):
                faults: Faults = getattr(self, direction)
                while faults.deaf:
                    await asyncio.sleep(0.02)
                    faults = getattr(self, direction)
                late = faults.latency_s + self._random.uniform(-faults.jitter_s, faults.jitter_s)
                if late > 0:
                    await asyncio.sleep(late)
                if 0 <= faults.corrupt_after - passed < len(data):
                    at = faults.corrupt_after - passed
                    data = data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
                if 0 <= faults.cut_after - passed < len(data):
                    sink.write(data[: faults.cut_after - passed])
                    await sink.drain()
                    _reset(sink)
                    break
                size = faults.slice_bytes or len(data)
                for start in range(0, len(data), size):
                    sink.write(data[start : start + size])
                    await sink.drain()
                    if faults.bytes_per_s:
                        await asyncio.sleep(size / faults.bytes_per_s)
                    elif faults.slice_bytes:
                        await asyncio.sleep(0)
                passed += len(data)
        with suppress(OSError, RuntimeError):
            if sink.can_write_eof():
                sink.write_eof()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        async def end() -> None:
            await self._reset_all()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._loop.stop()

        asyncio.run_coroutine_threadsafe(end(), self._loop)
        self._thread.join(PATIENCE_S)


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    with suppress(OSError, AttributeError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
