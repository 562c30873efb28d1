"""The candidate: a limit that is only tried. Its verdicts are counted beside those of the enforced limit.

The obvious way to try a limit is a second rule in shadow mode. It needs another level (of one level only one rule holds), and it sees what
the enforced limits let pass: of a limit of 500/s tried at 700/s it can say nothing. So a rule has its candidate beside its limit, with a
bucket and a breaker of its own, which are of the rule's algorithm and times.

**What it sees** is the demand that reaches the bucket: every message of every key that draws from it, once, when it is judged first,

* whatever the enforced limit, the other levels or shadows do with it: it is not told;
* not again when it was held and is judged again (`Request.again`), nor when a client sends again: that is a new message;
* where the cost is known only later (`limiter.reservation`: what a pull brings) at the moment when it is known, as one request;
* not while the rule is in `mode: off`, and not what bypassed the judge.

**Over what it stands**: the rule's limit with the candidate's rates and bursts in place. A published quota or a live change of a key holds
over that, as it would if the candidate were promoted; a key's live change may bring a candidate of its own.

It begins full, counts from nothing when it comes into force or is changed, and is forgotten by a restart, with its counts; a bucket that
the ledger lets go takes its candidate with it. The counts of a rule are kept apart from its buckets, so that they never go back.
`CLIENTS_KEPT` addresses are remembered with their refusals by the Space-Saving algorithm (Metwally et al., 2005): a newcomer takes over the
place, and the count, of the one refused least. So a client with more than one part in `CLIENTS_KEPT` of the refusals is among them, and no
count is too low.

Workers of one gateway each try a part of it (1/N) on what comes to them, and their counts are added (`merge`); so where they are not
equally busy it seems to refuse more than it would. Gateways of a fleet each try all of it, on their own messages alone.

Cost: where no rule in force has a candidate, one comparison per request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from limiter.algorithms import ALGORITHMS
from limiter.buckets.breaker import Breaker

if TYPE_CHECKING:
    from limiter.algorithms.base import Algorithm
    from limiter.limits import Limit, LimitChange
    from limiter.rules.rule import Rule
    from limiter.rules.rule_set import RuleSet

CLIENTS_KEPT: Final = 8  # clients per bucket and per rule; a handful that a person can look at, some 1 kB; a guess


class CandidateCounts:
    """What a candidate would have admitted and refused, in messages, since `since` (monotonic ns; -1: since the first)."""

    __slots__ = ("admitted", "begun", "clients", "refused", "since")

    def __init__(self, since: int) -> None:
        self.begun = since  # when it came into force; -1: at the start
        self.since = since
        self.admitted = 0
        self.refused = 0
        self.clients: dict[str, int] = {}  # address -> messages it would have been refused, at most

    def add(self, admitted: int, refused: int, client: str, now: int) -> None:
        if self.since < 0:
            self.since = now
        self.admitted += admitted
        if refused == 0:
            return
        self.refused += refused
        clients = self.clients
        known = clients.get(client)
        if known is not None:
            clients[client] = known + refused
        elif len(clients) < CLIENTS_KEPT:
            clients[client] = refused
        else:
            least = min(clients, key=clients.__getitem__)
            clients[client] = clients.pop(least) + refused

    def merge(self, admitted: int, refused: int, clients: dict[str, int], since: int) -> None:
        """Add what was counted elsewhere, from `since` on."""
        if self.since < 0 or since < self.since:
            self.since = since
        self.admitted += admitted
        self.refused += refused
        for client, of_client in clients.items():
            self.clients[client] = self.clients.get(client, 0) + of_client
        if len(self.clients) > CLIENTS_KEPT:
            self.clients = dict(sorted(self.clients.items(), key=by_refusals)[:CLIENTS_KEPT])

    def copy(self) -> CandidateCounts:
        other = CandidateCounts(self.since)
        other.admitted = self.admitted
        other.refused = self.refused
        other.clients = dict(sorted(self.clients.items(), key=by_refusals))
        return other

    def __repr__(self) -> str:
        return f"<CandidateCounts refused={self.refused} of {self.admitted + self.refused}>"


def by_refusals(pair: tuple[str, int]) -> tuple[int, str]:
    """Sorts clients: the one refused most first."""
    return -pair[1], pair[0]


class Candidate:
    """The candidate of one bucket: an algorithm of its own, with breaker and counts."""

    __slots__ = ("algorithm", "algorithm_name", "before", "breaker", "counts", "limit")

    def __init__(self, rule: Rule, limit: Limit, now: int) -> None:
        self.algorithm_name = rule.algorithm
        self.limit = limit
        self.algorithm: Algorithm = ALGORITHMS[rule.algorithm](limit, now)
        self.breaker = Breaker(rule.breaker_ns())
        self.counts = CandidateCounts(now)
        self.before: tuple[Limit, CandidateCounts] | None = None  # what was tried before the last change, which may be undone

    def change(self, limit: Limit, now: int) -> None:
        """Go on with another limit: the fill keeps its proportion. Counts begin anew, but for those of the limit of before, which go on."""
        before = self.before
        self.before = self.limit, self.counts
        self.counts = before[1] if before is not None and before[0] == limit else CandidateCounts(now)
        self.algorithm.change(limit, now)
        self.breaker.close()
        self.limit = limit

    def judge(self, count: int, messages: int, size: int, client: str, now: int) -> int:
        """Take for as many of `count` requests alike as would pass, as the enforced limit does it; how many that are."""
        breaker = self.breaker
        algorithm = self.algorithm
        passed = 0
        if breaker.open_until == 0 or not breaker.is_open(now):
            passed = algorithm.available(count, messages, size, now)
        if passed > 0:
            algorithm.take(passed, messages, size)
        if passed < count and breaker.may_open(now):
            breaker.trip(now, algorithm.full_in_ns(messages, size, now))
        self.counts.add(passed * messages, (count - passed) * messages, client, now)
        return passed

    def __repr__(self) -> str:
        return f"<Candidate {self.breaker} {self.algorithm} {self.counts}>"


def next_candidate(before: Candidate | None, rule: Rule, limit: Limit | None, now: int) -> Candidate | None:
    """The candidate to go on with under `rule`, by `limit` (None: none): `before` itself, changed where its limit has changed."""
    if limit is None:
        return None
    if before is None or before.algorithm_name != rule.algorithm:
        return Candidate(rule, limit, now)
    if before.limit != limit:
        before.change(limit, now)
    if before.breaker.open_for_ns != rule.breaker_ns():
        before.breaker = Breaker(rule.breaker_ns())
    return before


class RuleCandidates:
    """The counts of each rule's candidate, over all its buckets. Keys with a candidate of their own are not among them."""

    __slots__ = ("_counts", "_tried")

    def __init__(self) -> None:
        self._counts: dict[str, CandidateCounts] = {}
        self._tried: dict[str, tuple[LimitChange, Limit]] = {}

    def adopt(self, rules: RuleSet, since: int) -> None:
        """Go on under `rules`: counts of what is tried no longer are dropped, those of what is tried from now on begin."""
        counts: dict[str, CandidateCounts] = {}
        tried: dict[str, tuple[LimitChange, Limit]] = {}
        for rule in rules.rules:
            limit = rule.candidate_limit()
            if rule.candidate is None or limit is None:
                continue
            tried[rule.name] = (rule.candidate, limit)
            known = self._counts.get(rule.name)
            same = known is not None and self._tried.get(rule.name) == tried[rule.name]
            counts[rule.name] = known if same and known is not None else CandidateCounts(since)
        self._counts = counts
        self._tried = tried

    def get(self, rule: str) -> CandidateCounts | None:
        return self._counts.get(rule)

    def copies(self) -> dict[str, CandidateCounts]:
        """By rule."""
        return {name: counts.copy() for name, counts in self._counts.items()}

    def __repr__(self) -> str:
        return f"<RuleCandidates {self._counts}>"
