"""Consumers and a broker in virtual time, with real conversations and a real judge between them: what a limit does to a topic's pulls.

Nothing waits and nothing is random: the next event is always the earliest one, and the broker answers after ANSWER_NS. Clients are the
greediest there are: they ask again the moment they are answered, whatever the answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count, pairwise
from typing import TYPE_CHECKING

from limiter.judge import Judge
from limiter.rules.rule_set import RuleSet
from support.rocketmq.frames import read_response, split_frames
from support.rocketmq.stored_messages import found, nothing_found, pull, stored
from support.wires.conversations import SECOND, Talk

if TYPE_CHECKING:
    from collections.abc import Callable

    from limiter.rules.rule_set import Rule

ANSWER_NS = 2_000_000
ENTRY = stored(b"x" * 10, properties="")


@dataclass
class Queue:
    """One queue of the topic, as one client consumes it."""

    client: int
    number: int
    backlog: int = 0
    offset: int = 0
    opaque: int = 0
    most: int = 0  # messages, as the gateway has asked for
    parked: bool = False  # a pull waits at the broker
    asked: int = 0  # requests
    empty: int = 0  # answers of the gateway's
    arrivals: list[tuple[int, int]] = field(default_factory=list)  # (ns since the start, messages) of each answer that brought some


class Consuming:
    """`clients` connections that share `queues` queues of one topic evenly, under `rules`."""

    def __init__(self, *rules: Rule, queues: int, clients: int = 1, backlog: int = 0, batch: int = 32, suspend_ms: int = 15_000) -> None:
        self.judge = Judge(RuleSet(rules))
        self.talks = [Talk("rocketmq", judge=self.judge) for _ in range(clients)]
        self.queues = [Queue(number % clients, number, backlog) for number in range(queues)]
        self.batch = batch
        self.suspend_ms = suspend_ms
        self.start = self.now = self.talks[0].now
        self.opaques = count(1)
        self.asking: dict[tuple[int, int], Queue] = {}  # (client, opaque): whose request it is
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.order = count()

    def at(self, when: int, what: Callable[[], None]) -> None:
        heappush(self.events, (when, next(self.order), what))

    # ---- the clients -----------------------------------------------------------------------------------------------

    def ask(self, queue: Queue) -> None:
        queue.opaque = next(self.opaques)
        queue.asked += 1
        self.asking[queue.client, queue.opaque] = queue
        data = pull(queue=queue.number, offset=queue.offset, opaque=queue.opaque, most=self.batch, suspend_ms=self.suspend_ms)
        self.talks[queue.client].client(data)

    def hear(self, client: int) -> None:
        """What has come for the client: it asks again, whatever it is."""
        talk = self.talks[client]
        data, talk.to_client = talk.to_client, b""
        for frame in split_frames(data):
            queue = self.asking.pop((client, int(str(read_response(frame)["opaque"]))))
            own = not queue.parked
            queue.parked = False
            messages = (len(frame) - 8 - int.from_bytes(frame[5:8], "big")) // len(ENTRY)
            if messages > 0:
                queue.arrivals.append((self.now - self.start, messages))
                queue.offset += messages
            elif own:
                queue.empty += 1
            self.at(self.now, partial(self.ask, queue))

    # ---- the broker ------------------------------------------------------------------------------------------------

    def hear_requests(self, client: int) -> None:
        talk = self.talks[client]
        data, talk.to_broker = talk.to_broker, b""
        for frame in split_frames(data):
            queue = self.asking[client, int(str(read_response(frame)["opaque"]))]
            queue.parked = True
            queue.most = int(str(read_response(frame)["extFields"]["maxMsgNums"]))  # type: ignore[index]
            opaque = queue.opaque
            answered_at = self.now + (ANSWER_NS if queue.backlog > 0 else self.suspend_ms * SECOND // 1000)
            self.at(answered_at, partial(self.answer, queue, opaque))

    def answer(self, queue: Queue, opaque: int) -> None:
        if queue.opaque != opaque or not queue.parked:
            return  # was answered when a message came
        messages = min(queue.backlog, queue.most)
        queue.backlog -= messages
        frame = found(opaque, *[ENTRY] * messages) if messages else nothing_found(opaque)
        self.talks[queue.client].broker(frame)

    def produce(self, queue: Queue, messages: int) -> None:
        """Messages come into `queue`; a pull that waits there gets them."""
        queue.backlog += messages
        if queue.parked:
            self.answer(queue, queue.opaque)

    # ---- time ------------------------------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        end = self.now + int(seconds * SECOND)
        while True:
            dues = [min(talk.conversation.budget.next_due, talk.conversation.budget.ask_due) for talk in self.talks]
            soonest = min(dues)
            event = self.events[0][0] if self.events else end + 1
            self.now = max(self.now, min(soonest, event))
            if self.now > end:
                self.now = end
                break
            for talk in self.talks:
                talk.now = self.now
            if event <= soonest:
                heappop(self.events)[2]()
            else:
                self.talks[dues.index(soonest)].wait(0)
            for client in range(len(self.talks)):
                if self.talks[client].to_broker:
                    self.hear_requests(client)
                if self.talks[client].to_client:
                    self.hear(client)

    def begin(self) -> None:
        """Every queue is asked for the first time."""
        for queue in self.queues:
            self.at(self.now, partial(self.ask, queue))

    # ---- what was seen ---------------------------------------------------------------------------------------------

    def came(self, since_s: float = 0.0, until_s: float = 1e9) -> int:
        """Messages that came between these seconds since the start."""
        return sum(messages for queue in self.queues for at, messages in queue.arrivals if since_s * SECOND <= at < until_s * SECOND)

    def longest_gap_s(self, queue: Queue) -> float:
        """The longest time in which nothing came from `queue`, from the start to now."""
        times = [0, *(at for at, _ in queue.arrivals), self.now - self.start]
        return max(later - earlier for earlier, later in pairwise(times)) / SECOND
