"""A private redis-server (Debian's) on a free loopback port, in memory only; ready in some 20 ms.

What breaks it: `pause` (SIGSTOP: it takes connections and says nothing), `kill` (SIGKILL: what it knew is gone), `fill_up` (OOM errors).
"""

from __future__ import annotations

import shutil
import signal
from contextlib import suppress
from pathlib import Path

from redis import Redis

from support.processes import LOOPBACK, Process, free_ports
from support.ran import ran, version_by


class RedisServer:
    """One server; a context manager. After `kill` it may be started again, on the same port and empty."""

    def __init__(self, directory: Path, *options: str) -> None:
        """`options` of its command line, e.g. "--requirepass", "secret"."""
        if shutil.which("redis-server") is None:
            raise FileNotFoundError("redis-server is not installed: sh deploy/system-packages.sh redis-server")
        self.directory = directory
        self.options = options
        self.port = free_ports(1)[0]
        self._process: Process | None = None

    @property
    def url(self) -> str:
        return f"redis://{LOOPBACK}:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def start(self) -> RedisServer:
        self.directory.mkdir(parents=True, exist_ok=True)
        words = ["redis-server", "--port", str(self.port), "--bind", LOOPBACK, "--save", "", "--appendonly", "no"]
        log = self.directory / "redis.log"
        log.unlink(missing_ok=True)
        self._process = Process([*words, "--dir", str(self.directory), *self.options], log=log, cwd=self.directory)
        ready = "Ready to accept connections"
        process = self._process
        process.wait_until(lambda: ready in process.output(), within=30, what="redis-server")
        ran("Redis", version_by("redis-server", "--version"))
        return self

    def client(self, **options: object) -> Redis:
        """A client of the test's own."""
        made: Redis = Redis(host=LOOPBACK, port=self.port, socket_timeout=5, **options)  # type: ignore[arg-type]
        return made

    def command(self, *words: str | int) -> object:
        """One command on a connection of its own."""
        with self.client(decode_responses=True) as client:
            return client.execute_command(*words)

    def pause(self) -> None:
        if self._process is not None:
            self._process.signal_tree(signal.SIGSTOP)

    def resume(self) -> None:
        if self._process is not None:
            self._process.signal_tree(signal.SIGCONT)

    def fill_up(self) -> None:
        """From now on whatever needs memory is refused with OOM."""
        self.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
        self.command("CONFIG", "SET", "maxmemory", 1)

    def make_room(self) -> None:
        self.command("CONFIG", "SET", "maxmemory", 0)

    def kill(self) -> None:
        if self._process is not None:
            self.resume()
            self._process.stop(grace=0, number=signal.SIGKILL)

    def __enter__(self) -> RedisServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            self.kill()

    def __repr__(self) -> str:
        state = "running" if self._process is not None and self._process.alive() else "stopped"
        return f"<RedisServer {state} {self.url}>"
