"""Talk: a conversation driven without a loop, the way the handlers drive it, with the real judge and the real actions.

What goes to the broker and to the client is collected as bytes, in the order a session would send it. Time stands still unless moved.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING

from gateway.pipeline.actions.spool import expire
from gateway.pipeline.actions.table import apply_action
from gateway.pipeline.context import ConversationContext
from gateway.pipeline.conversation import REFUSED
from gateway.pipeline.parts import EXPIRED, POSTPONED, REQUEST, cut_all, pieces_of
from gateway.pipeline.routes import Routes
from gateway.protocols import PROTOCOLS
from gateway.waiting.disk.queue import PagedQueue
from gateway.waiting.disk.waiting_disk import READ, WRITE
from limiter.judge import Judge
from limiter.limits import NEVER, Limit, Rate
from limiter.rules.rule_set import Match, Rule, RuleSet

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gateway.pipeline.conversation import Conversation
    from gateway.pipeline.parts import Part
    from gateway.waiting.disk.waiting_disk import WaitingDisk
    from limiter.request import Request

SECOND = 1_000_000_000
MAX_FRAME = 16 << 20
HOLD_BYTES = 1 << 20


def rule(
    action: str = "reject",
    *,
    messages: int = 2,
    burst: int | None = None,
    name: str = "all",
    reply: str = "flow_control",
    protocol: str | None = None,
    topic: str | None = None,
    max_delay_ns: int = SECOND,
    fallback: str = "delay",
    size: int | None = None,
) -> Rule:
    """A rule per topic without breaker, so that its arithmetic is plain."""
    limit = Limit(messages=Rate(messages), messages_burst=burst, bytes=None if size is None else Rate(size))
    match = Match(protocol=protocol, topic=topic)
    return Rule(
        name=name, match=match, limit=limit, action=action, reply=reply, open_for_ns=0, max_delay_ns=max_delay_ns, fallback=fallback
    )


class Ports(Routes):
    """Leads each broker to a port of its own from 20911 on, in the order they become known."""

    def __init__(self) -> None:
        self.ports: dict[tuple[str, int], int] = {}
        self.addresses: dict[tuple[str, int], str] = {}  # as routes have said last
        self.answers: list[tuple[str, str]] = []  # (result, detail)
        self.registrations: list[int] = []  # codes of those refused

    def find(self, broker: str, number: int, address: str) -> str:
        self.addresses[broker, number] = address
        port = self.ports.setdefault((broker, number), 20911 + len(self.ports))
        return f"gateway.example:{port}"

    def find_known(self, address: str) -> str:
        return next((self.find(*broker, address) for broker, known in self.addresses.items() if known == address), "")

    def note_answer(self, result: str, detail: str, client: str) -> None:
        self.answers.append((result, detail))

    def note_refusal(self, code: int, client: str) -> None:
        self.registrations.append(code)


class Talk:
    """One client, one broker, one conversation between them; and a disk without threads, if there is one to spool to."""

    def __init__(
        self,
        protocol: str,
        *rules: Rule,
        judge: Judge | None = None,
        max_frame: int = MAX_FRAME,
        hold_bytes: int = HOLD_BYTES,
        room: int = 512,
        routes: Routes | None = None,
        disk: WaitingDisk | None = None,
        mixes: bool = False,
    ) -> None:
        self.judge = judge or Judge(RuleSet(rules))
        self.conversation: Conversation = PROTOCOLS[protocol].conversation(
            ConversationContext(
                self.judge, "listener", "10.0.0.7", 40_000, max_frame, hold_bytes, routes=routes or Ports(), mixes_requests=mixes
            )
        )
        self.disk = self.conversation.context.disk = disk
        self.outcomes: Counter[tuple[str, int]] = Counter()  # by action: what became of the parts that it was applied to
        self.room = room
        self.now = 1_000 * SECOND
        self.rest = b""
        self.to_broker = b""
        self.to_client = b""
        self.forwarded = 0  # messages
        self.requests: list[tuple[str, str | None, int, int]] = []  # (key, group, messages, bytes) of each request decoded
        self.parts: list[Part] = []  # all parts decoded
        self.later = False  # verdicts on deliveries come when `verdict` is called, before the broker's next bytes
        self.asked: list[Part] = []  # deliveries with the judge until then

    def client(self, data: bytes, chunks: Iterable[bytes] | None = None) -> None:
        """The client sends `data`, in these chunks."""
        for chunk in [data] if chunks is None else chunks:
            self.rest += chunk
            while len(self.rest) >= self.conversation.need and not self.conversation.postpones_decoding:
                parts: list[Part] = []
                position = self.conversation.decode(self.rest, 0, self.room, parts)
                assert 0 <= position <= len(self.rest)
                self.rest = self.rest[position:]
                self.parts.extend(parts)
                self.settle(parts)
                if position == 0:
                    break

    def broker(self, data: bytes, chunks: Iterable[bytes] | None = None) -> None:
        """The broker sends `data`, in these chunks."""
        postponed = self.conversation.postpones_decoding
        for chunk in [data] if chunks is None else chunks:
            out: list[bytes] = []
            self.conversation.relay(chunk, out)
            self.to_client += b"".join(out)
            self.ask()
            self.flush()
        if postponed:  # what the client has sent before comes next, however this was cut
            self.client(b"")

    def ask(self) -> None:
        """Deliveries that need a verdict get it."""
        while not self.asked and self.conversation.budget.ask_due <= self.now:
            self.asked = self.conversation.ask(self.now)
            if not self.later:
                self.verdict()

    def verdict(self) -> None:
        """The deliveries with the judge, if any, get their verdict."""
        requests: list[Request] = list(self.asked)
        if requests:
            self.asked = []
            self.judge.decide(requests, self.now)
            self.conversation.deliver(self.now)

    def settle(self, parts: list[Part]) -> None:
        """As `gateway.pipeline.handlers.rate_limit` does."""
        conversation = self.conversation
        for part in parts:
            if part.columns is not None:
                for row in part.columns.rows:
                    of = part.columns.sums[row & 0xFFFF].key
                    self.requests.extend([(of.text, None if of.group is None else of.group.decode(), 1, row >> 32)] * (row >> 16 & 0xFFFF))
            elif part.kind == REQUEST and part.deadline == 0 and not part.paid:
                key = part.key
                assert key is not None
                group = None if key.group is None else key.group.decode()
                self.requests.extend([(key.text, group, part.messages, part.size)] * part.count)
        if conversation.lines.has_paged:
            parts = cut_all(parts)
            conversation.lines.mark_unjudged(parts, self.now)
        requests: list[Request] = [part for part in parts if part.kind == REQUEST and not part.paid and part.unjudged == 0]
        self.judge.decide(requests, self.now)
        waiting = pieces_of(parts)[::-1]
        while waiting:
            part = waiting.pop()
            if part.columns is not None and part.passed < part.count:
                refusals = part.columns.refusals
                if any(refusal.rule.action != "reject" for refusal in refusals) or not conversation.settle_rows(part):
                    part.cut()
                    waiting += pieces_of([part])[::-1]
                else:
                    self.outcomes["reject", REFUSED] += len(refusals)
                continue
            if part.unjudged == POSTPONED:
                part.unjudged = 0
                part.deadline = NEVER
                if not conversation.lines.postpone(part, self.now):
                    conversation.admit(part)
                continue
            if part.unjudged == EXPIRED:
                part.unjudged = 0
                expire(conversation, part, self.now)
                continue
            if part.kind != REQUEST or part.paid or part.passed >= part.count:
                conversation.admit(part)
                continue
            if part.passed > 0:
                head = conversation.split(part, part.passed)
                conversation.admit(head)
            outcome = apply_action(conversation, part, self.now)
            assert part.rule is not None
            self.outcomes[part.rule.action, outcome] += 1
        self.flush()

    def work(self) -> None:
        """The disk does what it is told, and the spool's queues hear of it, until there is nothing left to do."""
        disk = self.disk
        while disk is not None and (disk.work(WRITE) or disk.work(READ)):
            for job in disk.collect():
                assert isinstance(job.owner, PagedQueue)
                job.owner.finish_job(job)
            for _ in range(len(disk.out_of_room)):
                waiting = disk.out_of_room.popleft()
                assert isinstance(waiting, PagedQueue)
                waiting.resume_writing()

    def wait(self, nanoseconds: int) -> None:
        """Let time pass; what comes due is judged again."""
        end = self.now + nanoseconds
        conversation = self.conversation
        while min(conversation.budget.next_due, conversation.budget.ask_due) <= end:
            if conversation.budget.ask_due < conversation.budget.next_due:
                self.now = max(self.now, conversation.budget.ask_due)
                self.ask()
                self.flush()
                continue
            self.now = max(self.now, conversation.budget.next_due)
            self.settle(conversation.lines.take_due(self.now, 256))
        self.now = end

    def tick(self) -> None:
        """As `gateway.session.deadlines` does, a few times a second."""
        if self.conversation.tick(self.now):
            self.flush()

    def flush(self) -> None:
        conversation = self.conversation
        self.forwarded += sum(part.count * part.messages for part in conversation.outbox if part.kind == REQUEST)
        self.to_broker += b"".join(part.data[part.start : part.end] for part in conversation.outbox)
        conversation.outbox = []
        self.to_client += conversation.take_replies()

    def holds_nothing(self) -> bool:
        conversation = self.conversation
        return (conversation.budget.held_bytes, conversation.budget.held_messages, conversation.budget.next_due) == (0, 0, NEVER)


def bytewise(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def randomly(data: bytes, seed: int) -> list[bytes]:
    """`data` in pieces of a random few bytes to a few hundred."""
    random = Random(seed)
    pieces = []
    while data:
        size = random.choice((1, 2, 3, 7, 30, 200, 700))
        pieces.append(data[:size])
        data = data[size:]
    return pieces


def say_close(conversation: Conversation, reason: str) -> tuple[bytes, bytes]:
    """The gateway closes the connection, as `gateway.session.ending.send_close` does: what the client is told, and the broker."""
    to_client = conversation.close_client(reason)
    to_broker = conversation.last_words(reason)
    conversation.draining = True
    return to_client, to_broker
