"""What changes a rule while the gateway runs: a live change of its limit, a published quota, and the roof over that."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from limiter.algorithms import COUNTING
from limiter.algorithms.setting_errors import MAX_CONCURRENT, has_burst
from limiter.limits import UNLIMITED, Limit, LimitChange, Rate, as_change, lower_limit, per_second
from limiter.rules.errors import RuleError
from limiter.rules.rule import LIVE_SETTINGS
from limiter.rules.rule_checks import MOST_PATIENT, check_choices, check_times

if TYPE_CHECKING:
    from limiter.quota_snapshot import Quota
    from limiter.rules.rule import Rule

LEAST_RATE: Final = 1e-6  # per second, one in 11 days; of what is read to six places


@dataclass(frozen=True)
class Override:
    """A live change of one topic's limit, or of one rule's. None keeps what the rule says.

    `expires_at` and `at` are seconds since 1970. Raises RuleError.
    """

    messages: Rate | None = None
    bytes: Rate | None = None
    messages_burst: int | None = None
    bytes_burst: int | None = None
    burst_ns: int | None = None
    concurrent: int | None = None
    action: str | None = None
    reply: str | None = None
    open_for_ns: int | None = None
    max_delay_ns: int | None = None
    mode: str | None = None
    fallback: str | None = None
    candidate: LimitChange | None = None  # an empty one: no candidate, even if the rule has one
    expires_at: float | None = None
    by: str = ""
    at: float = 0.0
    reason: str = ""

    def __post_init__(self) -> None:
        check_choices(self, LIVE_SETTINGS)
        if self.concurrent is not None and not 1 <= self.concurrent <= MAX_CONCURRENT:
            raise RuleError("concurrent", f"{self.concurrent} is outside 1 to {MAX_CONCURRENT}")
        check_times(
            self.open_for_ns, self.max_delay_ns, MOST_PATIENT.name
        )  # the rule or topic it is for may allow less: `RuleSet` checks that
        try:
            self.limit_over(UNLIMITED)
        except ValueError as error:
            raise RuleError("burst", str(error)) from None

    def limit_over(self, base: Limit) -> Limit:
        """The limit where this holds over `base`. A burst given as time replaces the rule's bursts given as tokens."""
        limit = LimitChange(self.messages, self.bytes, self.messages_burst, self.bytes_burst, self.burst_ns).apply_to(base)
        return limit if self.concurrent is None else with_concurrent(limit, self.concurrent)

    def over(self, rule: Rule) -> Rule:
        """`rule` with this change."""
        algorithm, limit = follow_limit(rule.algorithm, self.limit_over(rule.limit))
        said = {name: value for name in (*LIVE_SETTINGS, "open_for_ns") if (value := getattr(self, name)) is not None}
        if limit.limits_nothing() and not rule.needs_no_limit():
            said["mode"] = "off"
        return replace(rule, limit=limit, algorithm=algorithm, candidate=self.candidate_over(rule), **said)

    def candidate_over(self, rule: Rule) -> LimitChange | None:
        """The candidate of `rule` with this change: this one's, else the rule's."""
        if self.candidate is None:
            return rule.candidate
        return None if self.candidate.is_empty() else self.candidate


def with_concurrent(limit: Limit, concurrent: int) -> Limit:
    """`limit` with another number of requests in flight; what `adaptive` says of them stays within it."""
    at_least = None if limit.at_least is None else min(limit.at_least, concurrent)
    start = None if limit.start is None else min(limit.start, concurrent)
    return replace(limit, concurrent=concurrent, at_least=at_least, start=start)


def follow_limit(algorithm: str, limit: Limit) -> tuple[str, Limit]:
    """Algorithm and limit of a rule whose limit was changed: below the slowest rate of its `lag` the limit holds as it is."""
    lag = limit.lag
    if lag is None or limit.messages is None or lag.slowest.per_second <= limit.messages.per_second:
        return algorithm, limit
    return "token_bucket", replace(limit, lag=None)


def fit_to(change: Override, rule: Rule) -> Override:
    """`change` without settings that the rule's algorithm does not use: the file may have changed since it was made."""
    if change.concurrent is not None and rule.algorithm not in COUNTING:
        change = replace(change, concurrent=None)
    if has_burst(rule.algorithm):
        return change
    candidate = change.candidate
    if candidate is not None and not candidate.is_empty():
        candidate = replace(candidate, messages_burst=None, bytes_burst=None, burst_ns=None)
        candidate = None if candidate.is_empty() else candidate
    return replace(change, messages_burst=None, bytes_burst=None, burst_ns=None, open_for_ns=None, candidate=candidate)


def apply_quota(rule: Rule, quota: Quota) -> Rule:
    """`rule` with the limit of a published quota: its rates and bursts where it names them, the rule's elsewhere."""
    if not has_burst(rule.algorithm):
        quota = replace(
            quota,
            messages=None if quota.messages is None else (quota.messages[0], 0),
            bytes=None if quota.bytes is None else (quota.bytes[0], 0),
        )
    tried = rule.candidate_limit()
    candidate = None if tried is None else as_change(quota_limit(tried, quota))  # a quota would hold over a promoted candidate too
    algorithm, limit = follow_limit(rule.algorithm, quota_limit(rule.limit, quota))
    cost = rule.cost if quota.messages is None else None  # a quota counts messages, as the log that it is computed from
    return replace(rule, limit=limit, algorithm=algorithm, candidate=candidate, cost=cost)


def lower_to_roof(rule: Rule, roof: Rule) -> Rule:
    """`rule`, which has a quota's limit, where nothing of it passes the limit of `roof`; itself where nothing does."""
    bursts = has_burst(rule.algorithm)
    tried = rule.candidate_limit()
    candidate = None if tried is None else as_change(lower_limit(tried, roof.limit, bursts=bursts))
    algorithm, limit = follow_limit(rule.algorithm, lower_limit(rule.limit, roof.limit, bursts=bursts))
    return rule if limit == rule.limit else replace(rule, limit=limit, algorithm=algorithm, candidate=candidate)


def quota_limit(limit: Limit, quota: Quota) -> Limit:
    if quota.messages is not None:
        rate, burst = quota.messages
        limit = replace(limit, messages=quota_rate(rate), messages_burst=burst or None)
    if quota.bytes is not None:
        rate, burst = quota.bytes
        limit = replace(limit, bytes=quota_rate(rate), bytes_burst=burst or None)
    return limit


def quota_rate(rate: float) -> Rate:
    """A published rate. Only 0 lets nothing pass: however small another is, it is no less than a rate can be."""
    return per_second(max(rate, LEAST_RATE) if rate > 0 else rate)
