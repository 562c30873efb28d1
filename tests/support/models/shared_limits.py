"""Limits that several members share, whoever the members are: loads, and what one process lets pass of the same."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from limiter.algorithms.slots import ANSWERED
from limiter.in_flight import Ending, Flight
from limiter.judge import Judge
from limiter.limits import SECOND, Limit, Rate
from limiter.operations import DECLARE, PRODUCE
from limiter.request import Request
from limiter.rules.cost import Cost
from limiter.rules.match import Match
from limiter.rules.rule import Rule
from limiter.rules.rule_set import RuleSet
from support.models.asking import ask, key_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from limiter.keys import Key

MS = 1_000_000

Load = list[tuple[int, list[int]]]  # milliseconds, and what each member is offered in each of them


def rule_of(algorithm: str, rate: int) -> Rule:
    """One that is warm after two seconds, where it warms up, and has no breaker."""
    limit = Limit(messages=Rate(rate), warm_up_ns=2 * SECOND if algorithm == "warm_up" else 0)
    return Rule("all", Match(), per="topic", limit=limit, algorithm=algorithm, open_for_ns=0)


def everywhere(members: int, offer: int, seconds: int) -> Load:
    return [(1000 * seconds, [offer] * members)]


def moving(members: int, offer: int, seconds: int) -> Load:
    """At one member, each second at another one."""
    return [(1000, [offer if member == second % members else 0 for member in range(members)]) for second in range(seconds)]


def passed_in_one_process(rule: Rule, loads: Sequence[Load]) -> list[int]:
    """How many messages of each load pass, one load after the other, where one process judges them all."""
    judge, now = Judge(RuleSet((rule,)), 1000), 10**12
    key = key_of(judge, "orders")
    found = []
    for load in loads:
        passed = 0
        for milliseconds, offers in load:
            for _ in range(milliseconds):
                passed += ask(judge, key, now, sum(offers)).passed
                now += MS
        found.append(passed)
    return found


class InFlight:
    """The requests of one member that the broker has not answered."""

    def __init__(self, judge: Judge, latency_ms: int) -> None:
        self._judge = judge
        self._latency_ns = latency_ms * MS
        self._flights: deque[tuple[int, Flight, int]] = deque()
        self.count = 0

    def offer(self, key: Key, count: int, now: int) -> int:
        """What is due is answered, and so many more are offered; how many of them passed."""
        while self._flights and self._flights[0][0] <= now:
            _, flight, ended = self._flights.popleft()
            self._judge.free_slots([Ending(flight, ended, ANSWERED)], now)
            self.count -= ended
        request = ask(self._judge, key, now, count)
        if request.flight is not None:
            request.flight.since = now
            self._flights.append((now + self._latency_ns, request.flight, request.passed))
            self.count += request.passed
        return request.passed


COST = Cost(step=100, operations=((DECLARE, 10),))


def work(rate: int) -> Rule:
    """A user's messages and declares under one limit."""
    match = Match(protocol="rocketmq", operation=(PRODUCE, DECLARE))
    return Rule("work", match, per="user", limit=Limit(messages=Rate(rate)), open_for_ns=0, cost=COST)


class Spender:
    """One member's client: a flood of messages that cost three each, or declares at ten, one after the other, each held until it passes."""

    def __init__(self, judge: Judge, operation: str) -> None:
        self.key = key_of(judge, "orders", user="shop", operation=operation)
        self.spent = 0
        self.longest_ns = 0  # that a declare was held
        self._judge = judge
        self._held: Request | None = None
        self._since = 0

    def step(self, now: int) -> None:
        request = self._held
        if request is None:
            declares = self.key.operation == DECLARE
            request = Request(self.key, 1 if declares else 5, 1, 0 if declares else 250)
            self._since = now
        self._judge.decide([request], now)
        request.again = True
        self._held = request if request.passed == 0 and self.key.operation == DECLARE else None
        self.spent += request.passed * COST.of(self.key.operation, 1, request.size)
        self.longest_ns = max(self.longest_ns, now - self._since)
