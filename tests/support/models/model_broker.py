"""A model broker, and producers that never tire: what a limit on requests in flight does, without a broker, in simulated time.

The broker serves `servers` requests at a time, each for `service_ns`; what comes while all are taken waits in its queue, first come, first
served. So its latency is `service_ns` up to `servers` requests in flight, and grows with each one beyond.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import Final

from limiter.algorithms.base import Algorithm
from limiter.algorithms.slots import ANSWERED, BUSY

MS: Final = 1_000_000
SECOND: Final = 1_000_000_000
STEP: Final = 2 * MS


class ModelBroker:
    """One broker behind one limit, with endless demand. `latencies` and `answered` are of what it has answered since `forget`."""

    def __init__(self, bucket: Algorithm, servers: int, service_ns: int, begins_at: int = 0) -> None:
        slots = bucket.slots()
        assert slots is not None
        self.bucket = bucket
        self.slots = slots
        self.servers = servers
        self.service_ns = service_ns
        self.now = begins_at
        self.silent = False  # it takes requests and answers none
        self.busy_above = 0  # with more in its queue it answers that it is busy, at once; 0: never
        self.demand = 1 << 30  # most requests that the producers have out
        self.answered = 0
        self.refused = 0
        self.latencies: list[int] = []
        self.most_in_flight = 0
        self._queue: deque[int] = deque()  # when each was forwarded
        self._serving: list[tuple[int, int]] = []  # when it will be done, when it was forwarded

    def run(self, seconds: float, each_step: Callable[[int], None] | None = None) -> None:
        """`seconds` of simulated time, in steps of 2 ms: what is done is answered, then as much is sent as may be."""
        for _ in range(int(seconds * SECOND) // STEP):
            self.now += STEP
            self._answer()
            self._send()
            if each_step is not None:
                each_step(self.now)

    def forget(self) -> None:
        """Begin to count anew."""
        self.answered = self.refused = self.most_in_flight = 0
        self.latencies = []

    def latency_ms(self) -> float:
        """The mean since `forget`."""
        return sum(self.latencies) / len(self.latencies) / MS

    def per_second(self, seconds: float) -> float:
        return self.answered / seconds

    def _answer(self) -> None:
        while not self.silent and self._serving and self._serving[0][0] <= self.now:
            _, since = heapq.heappop(self._serving)
            self.latencies.append(self.now - since)
            self.answered += 1
            self._end(since, ANSWERED)
        while not self.silent and self._queue and len(self._serving) < self.servers:
            heapq.heappush(self._serving, (self.now + self.service_ns, self._queue.popleft()))

    def _end(self, since: int, outcome: int) -> None:
        self.slots.taken -= 1
        self.slots.heard_at = self.now
        if outcome == ANSWERED:
            self.slots.hear(self.now - since)
        self.bucket.heard(outcome, 1, since, self.now)

    def _send(self) -> None:
        room = self.demand - self.slots.taken
        count = self.bucket.available(room, 1, 0, self.now) if room > 0 else 0
        if count > 0:
            self.bucket.take(count, 1, 0)
        self.most_in_flight = max(self.most_in_flight, self.slots.taken)
        for _ in range(count):
            if self.busy_above and len(self._queue) >= self.busy_above:
                self.refused += 1
                self._end(self.now, BUSY)
            elif len(self._serving) < self.servers and not self.silent:
                heapq.heappush(self._serving, (self.now + self.service_ns, self.now))
            else:
                self._queue.append(self.now)

    def __repr__(self) -> str:
        return f"<ModelBroker serving={len(self._serving)}/{self.servers} queue={len(self._queue)} {self.bucket}>"
