"""A conversation that says what it was asked to do, and does what it is told to: for tests of the handlers and the actions."""

from __future__ import annotations

from typing import Any

from gateway.counting.accounts import Accounts
from gateway.pipeline.context import ConversationContext
from gateway.pipeline.conversation import REFUSED, Conversation
from gateway.pipeline.handlers.rate_limit import RateLimit
from gateway.pipeline.parts import EXPIRED, REQUEST, Part
from gateway.pipeline.pipeline import Batch
from gateway.waiting.lines import BLOCKING, IN_MEMORY, PAGED, Lines
from gateway.waiting.stage import Wait
from limiter.buckets.bucket import Bucket
from limiter.credit import Credit
from limiter.judge import Judge
from limiter.limits import Limit, Rate
from limiter.request import Request
from limiter.rules.rule_set import Match, Rule, RuleSet
from limiter.topics import amqp_topic

MS = 1_000_000  # ns
NOW = 1_000_000 * MS


class Recorded(Conversation):
    """`said` is what it was asked, in order. It can do all, unless `unable` names a way to hold, or `outcomes` what `refuse` returns."""

    def __init__(self, judge: Judge) -> None:
        super().__init__(ConversationContext(judge, "here", "10.0.0.7", 1, 1 << 20, 1 << 20, connection=7))
        self.said: list[tuple[str, Part, int]] = []
        self.unable: set[str] = set()
        self.outcome = REFUSED
        self.closed = REFUSED
        self.behind: set[Part] = set()  # what waits behind something spooled
        self.overtaking: set[Part] = set()
        self.turns_had: dict[Part, bool] = {}  # of what was to be held
        self.runs: list[tuple[int, int]] = []  # `lifetimes`: how many requests, and ns
        self.lines = RecordedLines(self)

    def admit(self, part: Part) -> None:
        self.said.append(("admit", part, part.count))

    def split(self, part: Part, count: int) -> Part:
        head = Part(REQUEST, part.ordering_key, part.data, part.start, part.start + count, part.key, count, part.messages, part.size)
        part.split_into(head)
        return head

    def refuse(self, part: Part) -> int:
        self.said.append(("refuse expired" if part.unjudged == EXPIRED else "refuse", part, part.count))
        return self.outcome

    def close(self, part: Part) -> int:
        self.said.append(("close", part, part.count))
        return self.closed

    def drop(self, part: Part) -> bool:
        return self.can("drop", part, part.count)

    def can(self, what: str, part: Part, figure: int) -> bool:
        if what not in self.unable:
            self.said.append((what, part, figure))
        return what not in self.unable


class RecordedLines(Lines):
    """Nothing waits here: it says what it was asked."""

    def __init__(self, recorded: Recorded) -> None:
        super().__init__(recorded.context, recorded.budget, recorded.reports)
        self.recorded = recorded

    def hold(self, part: Part, due: int, manner: int = IN_MEMORY) -> bool:
        self.recorded.turns_had[part] = self.had_turn
        return self.recorded.can({IN_MEMORY: "hold", BLOCKING: "block", PAGED: "spool"}[manner], part, due)

    def postpone(self, part: Part, now: int) -> bool:
        return self.recorded.can("postpone", part, now)

    def lifetimes(self, part: Part) -> list[tuple[Part, int]]:
        return [(self.recorded.split(part, count) if count < part.count else part, lifetime) for count, lifetime in self.recorded.runs]

    def waits_behind(self, part: Part) -> bool:
        return part in self.recorded.behind

    def would_overtake(self, part: Part) -> bool:
        return part in self.recorded.overtaking

    def may_expire(self, part: Part) -> bool:
        return "expire" not in self.recorded.unable

    def patience_with(self, part: Part) -> int:
        return 300 * MS


class Desk:
    """A `RateLimit` and a `Wait` with their conversation and accounts, under one rule of an action."""

    def __init__(self, action: str = "reject", *, credit: int = 100, **rule: Any) -> None:
        self.rule = Rule("r", Match(), limit=Limit(messages=Rate(10)), action=action, **rule)
        judge = Judge(RuleSet((self.rule,)))
        origin = judge.origin("amqp", "here", "10.0.0.7", "shop", b"/", 1)
        self.key, self.other = (judge.key(origin, name, amqp_topic(b"/", b"", name)) for name in (b"orders", b"bills"))
        probe: list[Request] = [Part(REQUEST, 1, b"", 0, 0, key, 1, 1) for key in (self.key, self.other)]
        judge.decide(probe, NOW)
        self.conversation = Recorded(judge)
        self.accounts = Accounts()
        self.reader, self.forwarder = Credit(credit, 1), Credit(credit, 1)
        self.limit = RateLimit(self.conversation)
        self.handler = Wait(self.conversation, self.reader, self.forwarder, self.accounts)
        self.asked: list[Part] = []  # what the last `settle` asked of the judge

    @property
    def bucket(self) -> Bucket:
        bucket: Bucket = self.key.buckets[0]
        return bucket

    def part(self, passed: int = 0, count: int = 1, messages: int = 1, wait_ms: int = 30, line: int = 1, *, other: bool = False) -> Part:
        """`count` requests of which the judge has let `passed` pass."""
        key = self.other if other else self.key
        part = Part(REQUEST, line, bytes(count), 0, count, key, count, messages, 100)
        part.passed = passed
        if passed < count:
            part.rule, part.bucket, part.wait_ns = self.rule, key.buckets[0], wait_ms * MS
        return part

    def settle(self, *parts: Part, now: int = NOW) -> list[tuple[str, Part, int]]:
        """What the conversation is asked to do about `parts`, which have their verdicts."""
        batch = Batch(None, b"", now)
        batch.parts = list(parts)
        self.limit.carry(batch)
        self.asked = batch.requests
        assert self.handler.carry(batch)
        said, self.conversation.said = self.conversation.said, []
        return said
