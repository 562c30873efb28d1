"""The hub of all streams (`GET /v1/stream`): makes the snapshot once a second for all of them, and wakes them when there is something new.

The naive way gives each stream a task that asks the gateway once a second: a hundred readers cost a hundred snapshots, and each holds its
own. Here one task makes one snapshot while anybody reads, and a stream holds two numbers: the last event and the last snapshot that it has
sent. What it sends next it fetches when its last write is done, so a slow reader gets the newest snapshot and none in between.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec
import trio
from msgspec.structs import replace

from admin.http.problems import ProblemError
from common import log
from common.descriptors import WHOLE

if TYPE_CHECKING:
    from admin.ports import OperatedGateway
    from admin.views.glance import AdminGlance
    from common.views.snapshot import SnapshotView

MAX_STREAMS_PER_TOKEN: Final = 32  # one token cannot take them all; a guess
LOOK_S: Final = 0.25  # seconds; between two looks for new events, at the gateway's common ticks
LOOKS_PER_SNAPSHOT: Final = 4
FAULT_EVERY_S: Final = 10.0  # seconds; between two log lines of snapshots that fail


class StreamHub:
    """What all streams share."""

    def __init__(
        self, gateway: OperatedGateway, glance: AdminGlance, clock: Callable[[], int] = time.monotonic_ns, most: int = WHOLE.streams
    ) -> None:
        """`clock`: monotonic ns."""
        self._most = most
        self._gateway = gateway
        self._glance = glance
        self._clock = clock
        self.events = gateway.recent_events
        self.snapshot_number = 0
        self.at_event = 0  # the number of the last event when the snapshot was made
        self.closed = False
        self._snapshot: SnapshotView | None = None  # there was none yet
        self._encoded: dict[int, bytes] = {}  # by the number of topics shown
        self._changed = trio.Event()
        self._wanted = trio.Event()
        self._by_token: Counter[str] = Counter()
        self._failed_at = -FAULT_EVERY_S

    @property
    def streams(self) -> int:
        return self._by_token.total()

    def check_room(self, token: str) -> None:
        """Raises ProblemError 503 where no further stream may begin."""
        if self.closed:
            raise ProblemError(503, "too-many-streams", "the gateway is stopping")
        if self.streams >= self._most:
            detail = f"there are {self._most} streams already, and no more are served; poll GET /v1/events and /v1/topics, or end one"
        elif self._by_token[token] >= MAX_STREAMS_PER_TOKEN:
            detail = f"the token {token} has {MAX_STREAMS_PER_TOKEN} streams already, its most; end one, or use another token"
        else:
            return
        raise ProblemError(503, "too-many-streams", detail, headers={"Retry-After": "10"})

    @contextmanager
    def place(self, token: str) -> Iterator[None]:
        self._by_token[token] += 1
        self._wanted.set()
        try:
            yield
        finally:
            self._by_token[token] -= 1
            if not self._by_token[token]:
                del self._by_token[token]

    async def run(self) -> None:
        """Make snapshots and wake streams while there are any."""
        try:
            while True:
                await self._wanted.wait()
                await self._serve()
        finally:
            self.closed = True
            self._wake()

    async def _serve(self) -> None:
        """From the first stream to the end of the last."""
        looks, seen = 0, self.events.last
        while self.streams:
            if looks % LOOKS_PER_SNAPSHOT == 0:
                await self._renew()
            elif seen != self.events.last:
                self._wake()
            seen = self.events.last
            looks += 1
            await trio.sleep_until((trio.current_time() // LOOK_S + 1) * LOOK_S)
        self._wanted = trio.Event()
        self.snapshot_number = 0  # the next stream does not begin with an old one
        self._encoded = {}

    async def _renew(self) -> None:
        try:
            found = await self._glance.added_to(await self._gateway.snapshot(), self._clock())
        except Exception as error:  # the streams go on with events
            if trio.current_time() - self._failed_at >= FAULT_EVERY_S:
                self._failed_at = trio.current_time()
                log.failure("stream_snapshot_failed", error)
        else:
            self._snapshot, self._encoded = found, {}
            self.snapshot_number += 1
            self.at_event = self.events.last
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    def snapshot(self, topics: int) -> bytes:
        """The latest snapshot with so many topics, as JSON; encoded once for all who want as many."""
        if topics not in self._encoded:
            assert self._snapshot is not None
            self._encoded[topics] = msgspec.json.encode(replace(self._snapshot, topics=self._snapshot.topics[:topics]))
        return self._encoded[topics]

    async def wait(self, seconds: float) -> None:
        """Until there is something new, or so many seconds have passed."""
        with trio.move_on_after(seconds):
            await self._changed.wait()

    def __repr__(self) -> str:
        return f"<StreamHub {self.streams} streams, snapshot {self.snapshot_number}>"
