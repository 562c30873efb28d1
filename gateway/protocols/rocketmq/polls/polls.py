"""Polls: what one client asks messages with, from the request to the last byte of its answer.

The naive way to limit a consumer, to answer "nothing there" or "busy", makes most clients ask again at once, some two thousand times a
second (`docs/design/rocketmq.md` 3.3). So a poll over the limit is **held** here, as the broker itself would keep it, and goes on when its
turn comes::

    client's poll ── prepare ──► judge: reserves what the answer is likely to bring ── passes ──► sent ──► broker
                        ▲          │ over the limit                                                          │
                        │          ▼                                                                         ▼
                        └── due ─ held ── its client's patience is over ──► empty answer          PollAnswer, as it passes:
                                                                                                  messages are counted
    judge ◄── settled: what came, instead of what was reserved ◄──────────────────────────────────────┘

* A poll whose topic no rule looks at passes at once, and is only known by its opaque; its answer's messages are counted all the same.
* A reservation that the broker has kept for QUIET_AFTER_NS without an answer is given back: idle consumers cost nothing.
* An answer is never delayed or altered. What it brings beyond the reservation goes into debt, 10 s of the rate at most: a deeper debt is
  forgiven (`limiter/reservation.py`).
* A poll that says it is one-way is limited as any other, for brokers answer some of them; the gateway itself gives it no answer.
* When the connection ends, what its polls had reserved stays taken, at most what they asked for in the last QUIET_AFTER_NS.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from gateway.pipeline.empties import NO_ITEMS, added
from gateway.pipeline.parts import PLAIN, Part
from gateway.pipeline.reports import Delivered
from gateway.protocols.rocketmq.outstanding import AnswerWatcher, Outstanding
from gateway.protocols.rocketmq.polls.empty_answers import empty_answer
from gateway.protocols.rocketmq.polls.held import HeldPolls
from gateway.protocols.rocketmq.polls.queues import MAX_ANSWER_BYTES, QUIET_AFTER_NS, PollQueue, PollQueues
from gateway.protocols.rocketmq.polls.stored_messages import StoredMessages
from gateway.protocols.rocketmq.polls.terms import NOTIFICATION, POPS, PollTerms
from gateway.protocols.rocketmq.requests import Poll
from limiter.keys import Key
from limiter.limits import NEVER
from limiter.reservation import Reservation

FOUND: Final = 0
OFFSETS: Final = (b"minOffset", b"maxOffset", b"suggestWhichBrokerId")
JSON_OFFSETS: Final = tuple(b'"%b":"' % name for name in OFFSETS)
BINARY_OFFSETS: Final = tuple(b"\0%c%b\0\0\0" % (len(name), name) for name in OFFSETS)  # the length of the number follows, then the number
BRACE: Final = 123  # `{`: how JSON begins, and no binary header, whose code would be above 31,000


class Settlement(Part):
    """What the judge is told about a reservation; see `limiter.reservation.settle`."""

    def __init__(self, key: Key, reservation: Reservation, answers: int, messages: int, size: int) -> None:
        super().__init__(PLAIN, 0, b"", 0, 0, key, answers, messages, size)
        self.reservation = reservation


class PollAnswer(AnswerWatcher):
    """The answer to one poll: counts what it brings."""

    __slots__ = ("bypassed", "counted", "held", "key", "polls", "queue", "reservation", "sent_at", "stored")

    def __init__(self, polls: Polls, key: Key) -> None:
        self.polls = polls
        self.key = key
        self.reservation: Reservation | None = None  # where it is limited
        self.queue: PollQueue | None = None
        self.counted = False  # the poll is one of its queue's `unanswered`
        self.held = False  # the poll was
        self.bypassed = False  # the poll went on without a verdict
        self.sent_at = 0  # monotonic ns, where there is a reservation
        self.stored: StoredMessages | None = None

    def begin(self, code: int, size: i64, data: bytes, start: i64, end: i64) -> bool:
        if self.queue is not None:
            self.polls.note_offsets(self.queue, data, start, end)
        if code != FOUND or size == 0:
            self.polls.finish_answer(self, 0, 0)
            return False
        self.stored = StoredMessages()
        return True

    def body(self, data: bytes, start: i64, end: i64, last: bool) -> None:  # noqa: FBT001  -- positional for speed
        stored = self.stored
        assert stored is not None
        messages = stored.messages
        size = stored.bytes
        again = stored.redelivered
        stored.add(data, start, end)
        if stored.messages != messages or stored.bytes != size:  # an inner batch says its size before its number
            self.polls.count_messages(self, stored.messages - messages, stored.bytes - size, stored.redelivered - again)
        if last:
            self.polls.finish_answer(self, stored.messages, stored.bytes)


class Polls:
    """The polls of one connection."""

    def __init__(self, outstanding: Outstanding) -> None:
        self.outstanding = outstanding
        self.queues = PollQueues()
        self.held = HeldPolls()
        self.sent: list[PollAnswer] = NO_ITEMS  # with a reservation, in the order they were sent
        self.settlements: list[Part] = NO_ITEMS  # for the judge
        self.ask_due = NEVER  # monotonic ns at which `ask` has something
        self.delivered: list[Delivered] = NO_ITEMS  # for the session to count
        self.limited = 0  # polls that a rule looked at, so far
        self.empty = 0  # of them answered by the gateway: nothing for now

    def prepare(self, poll: Poll, terms: PollTerms) -> None:
        """A rule looks at this poll: it has to reserve before it goes on."""
        self.limited += 1
        poll.terms = terms
        key = poll.key
        assert key is not None
        if poll.code == NOTIFICATION:  # brings nothing; has a place in line of its own, apart from the pops
            queue = self.queues.of(key, -3 - terms.queue)  # below -1, which is any queue, of a pop
            poll.reservation = Reservation(0, 0, queue.place())
        else:
            queue = self.queues.of(key, terms.queue)
            others = 1 if poll.unanswered else queue.unanswered  # no client's library sends a one-way one: the most
            messages, size = self.queues.expects(key, queue, terms.max_messages, others)
            poll.reservation = Reservation(messages, size, queue.place())
            if is_counted(poll):
                queue.unanswered += 1
        poll.queue = queue

    def send(self, poll: Poll) -> None:
        """`poll` goes to the broker."""
        key = poll.key
        if key is None:
            self.outstanding.track_poll(poll.opaque, None)
            return
        answer = PollAnswer(self, key)
        repeated = poll.opaque in self.outstanding.polls
        remembered = self.outstanding.track_poll(poll.opaque, answer)
        queue = poll.queue
        reservation = poll.reservation
        if queue is None or reservation is None:
            return
        queue.since = 0
        if poll.order == queue.waiting:
            queue.waiting = 0
        if poll.due:
            self.held.go_on(key, poll.due)
        if poll.code == NOTIFICATION:
            return
        answer.counted = is_counted(poll)
        answer.queue = queue
        answer.reservation = reservation
        answer.held = poll.again
        answer.bypassed = poll.bypassed
        # What the others bring is not counted, so what was expected stays taken: many polls at once could else take more than the limit.
        if remembered and reservation.taken and (reservation.messages > 0 or reservation.size > 0):
            answer.sent_at = reservation.asked_at
            self.sent = added(self.sent, answer)
            self._update_due()
        elif repeated:  # nobody sees its answer
            if answer.counted:
                queue.unanswered -= 1
            if reservation.taken and poll.terms is not None:  # the most that it could bring
                settlement = Settlement(key, reservation, 0, poll.terms.max_messages, MAX_ANSWER_BYTES)
                self.settlements = added(self.settlements, settlement)
                self._update_due()

    def hold(self, poll: Poll, due: int) -> None:
        """Keep `poll`, which is over its limit, until `due`."""
        queue = poll.queue
        reservation = poll.reservation
        assert queue is not None
        assert reservation is not None
        if queue.since == 0:
            queue.since = reservation.since
        self.held.hold(poll, due)
        if queue.waiting == 0:
            queue.waiting = poll.order

    def take_due(self, now: int, room: int) -> list[Poll]:
        """Held ones that are to be judged again; what they reserve is what is expected by now."""
        taken = self.held.take_due(now, room)
        for poll in taken:
            key = poll.key
            terms = poll.terms
            queue = poll.queue
            reservation = poll.reservation
            assert key is not None
            assert terms is not None
            assert queue is not None
            assert reservation is not None
            if poll.code != NOTIFICATION:
                others = 1 if poll.unanswered else queue.unanswered - 1
                reservation.messages, reservation.size = self.queues.expects(key, queue, terms.max_messages, others)
        return taken

    def answer_empty(self, poll: Poll) -> bytes:
        """The answer to a held poll whose client can wait no longer; b"" to a one-way one."""
        key = poll.key
        terms = poll.terms
        queue = poll.queue
        assert key is not None
        assert terms is not None
        assert queue is not None
        if poll.order == queue.waiting:
            queue.waiting = 0
        if is_counted(poll):
            queue.unanswered -= 1
        self.held.go_on(key, poll.due)
        self.empty += 1
        return b"" if poll.unanswered else empty_answer(poll.code, poll.opaque, terms.offset, queue, self.queues.broker)

    # ---- answers ---------------------------------------------------------------------------------------------------

    def note_offsets(self, queue: PollQueue, data: bytes, start: i64, end: i64) -> None:
        """Note what the answer's header `data[start:end]` says of its queue, for an empty answer of our own later."""
        binary = data[start] != BRACE
        names = BINARY_OFFSETS if binary else JSON_OFFSETS
        skipped: i64 = 1 if binary else 0
        minimum = number_after(data, names[0], skipped, start, end)
        if minimum >= 0:
            queue.minimum = minimum
        maximum = number_after(data, names[1], skipped, start, end)
        if maximum >= 0:
            queue.maximum = maximum
        broker = number_after(data, names[2], skipped, start, end)
        if broker >= 0:
            queue.broker = broker
            self.queues.broker = broker

    def count_messages(self, answer: PollAnswer, messages: int, size: int, redelivered: int) -> None:
        """`messages` more have passed on their way to the client; so many of them had been given back before."""
        key = answer.key
        self.delivered = added(self.delivered, Delivered(key, messages, messages, size, redelivered))
        reservation = answer.reservation
        if reservation is not None:
            if answer.held:
                key.tally.delayed += messages
            if answer.bypassed:
                key.tally.bypassed += messages
            if reservation.shadows:
                key.tally.shadow_refused += messages

    def finish_answer(self, answer: PollAnswer, messages: int, size: int) -> None:
        """The whole answer has passed, with that many messages and bytes."""
        reservation = answer.reservation
        queue = answer.queue
        if reservation is None or queue is None:
            return
        answer.sent_at = -1
        if answer.counted:
            queue.unanswered -= 1
        self.queues.learn(answer.key, queue, messages, size)
        if reservation.taken and (messages > 0 or reservation.messages > 0 or reservation.size > 0):
            self.settlements = added(self.settlements, Settlement(answer.key, reservation, 1, messages, size))
        self._update_due()

    def ask(self, now: int) -> list[Part]:
        """What is to be settled now."""
        sent = self.sent
        while sent and (sent[0].sent_at < 0 or sent[0].sent_at + QUIET_AFTER_NS <= now):
            answer = sent.pop(0)
            reservation = answer.reservation
            queue = answer.queue
            if answer.sent_at >= 0 and answer.stored is None and reservation is not None and queue is not None:
                self.queues.mark_quiet(answer.key, queue)
                self.settlements = added(self.settlements, Settlement(answer.key, reservation, 0, 0, 0))
        settlements = self.settlements
        self.settlements = NO_ITEMS
        self._update_due()
        return settlements

    def _update_due(self) -> None:
        sent = self.sent
        while sent and sent[0].sent_at < 0:
            sent.pop(0)
        if self.settlements:
            self.ask_due = 0
        else:
            self.ask_due = sent[0].sent_at + QUIET_AFTER_NS if sent else NEVER

    def __repr__(self) -> str:
        return f"<Polls held={self.held} sent={len(self.sent)}>"


def is_counted(poll: Poll) -> bool:
    """Whether it is a pull that the broker answers, by its queue's number alone."""
    return poll.code not in POPS and not poll.unanswered


def number_after(data: bytes, name: bytes, skipped: i64, start: i64, end: i64) -> int:
    """The number that stands `skipped` bytes behind `name` in the header `data[start:end]`; -1: there is none."""
    at: i64 = data.find(name, start, end)
    if at < 0:
        return -1
    at += len(name) + skipped
    number: i64 = 0
    first: i64 = at
    while at < end and at - first < 18:
        digit: i64 = data[at]
        if digit < 48 or digit > 57:
            break
        number = number * 10 + digit - 48
        at += 1
    return -1 if at == first else number
