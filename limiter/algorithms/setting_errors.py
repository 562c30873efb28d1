"""Settings of a rule that its algorithm does not use, where ignoring them would mislead.

In a file they are faults. A published quota, or a live change of a topic, applies to the rule that the file has by now, which may have
changed: there the settings that do not fit are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from limiter.algorithms import COUNTING, WITHOUT_BURST
from limiter.protocols import PROTOCOL_NAMES

if TYPE_CHECKING:
    from limiter.limits import Limit, LimitChange

MAX_CONCURRENT: Final = 1_000_000  # requests in flight; more is a typing error (guess)
MIN_WARM_UP_NS: Final = 1_000_000  # ns, 1 ms; less is a typing error (guess)
MAX_WARM_UP_NS: Final = 86_400_000_000_000  # ns, a day; more is a typing error (guess)


def names_burst(limit: Limit | LimitChange) -> bool:
    return limit.messages_burst is not None or limit.bytes_burst is not None or limit.burst_ns is not None


def has_burst(algorithm: str) -> bool:
    return algorithm not in WITHOUT_BURST


def setting_error(algorithm: str, limit: Limit, open_for_ns: int | None, candidate: LimitChange | None) -> tuple[str, str] | None:
    """The first field that does not fit, and why, with the way out; None: all fits."""
    if not has_burst(algorithm):
        if names_burst(limit):
            return "limit.burst", f"{algorithm} spaces messages evenly and has no burst; leave it out, or use algorithm: token_bucket"
        if candidate is not None and names_burst(candidate):
            return "candidate.burst", f"{algorithm} spaces messages evenly and has no burst; leave it out"
        if open_for_ns is not None and open_for_ns > 0:
            return "breaker.open_for", f"{algorithm} has no breaker, which would bunch messages again; leave it out, or set 0s"
    if limit.warm_up_ns != 0:
        if algorithm != "warm_up":
            return "warm_up", f"is for algorithm: warm_up, and this rule's is {algorithm}; set algorithm: warm_up, or leave it out"
        if not MIN_WARM_UP_NS <= limit.warm_up_ns <= MAX_WARM_UP_NS:
            return "warm_up.over", f"{limit.warm_up_ns / 1e9:g}s is outside 1ms to 24h; set 10s, for example"
    return None


def lag_setting_error(algorithm: str, limit: Limit, per: str, protocol: str | None, *, published: bool) -> tuple[str, str] | None:
    """The same for the settings of a limit that follows a backlog."""
    lag = limit.lag
    if algorithm != "lag":
        if lag is None:
            return None
        return "lag", f"is for algorithm: lag, and this rule's is {algorithm}; set algorithm: lag, or leave it out"
    if lag is None:
        return (
            "lag",
            "is missing: it names the backlog that the limit follows; add e.g. lag: {group: billing, target: 10000, slowest: 50/s}",
        )
    if limit.messages is None:
        return "limit.messages", "is missing: algorithm: lag needs the highest rate; add e.g. limit: {messages: 1000/s}"
    if per != "topic":
        return "per", f"algorithm: lag follows the backlog of one topic, and this rule's buckets are per {per}; say per: topic"
    if not published:
        return "algorithm", "lag slows publishers down for consumers, and this rule is for consumers; use algorithm: token_bucket"
    backlogs = [names for names in PROTOCOL_NAMES.values() if names.backlog]
    named = [names for names in backlogs if getattr(lag, names.backlog)]
    if len(named) != 1:
        either = " or ".join(f"{names.title} {names.backlog}" for names in backlogs)
        return "lag", f"follows the backlog of one {either}; name one of them"
    if named[0].name != protocol:
        others = ", ".join(f"{names.backlog}: NAME for {names.title}" for names in backlogs if names is not named[0])
        return f"lag.{named[0].backlog}", f"is {named[0].title}'s; say match: {{protocol: {named[0].name}}}, or {others}"
    if lag.slowest.amount == 0 or lag.slowest.per_second > limit.messages.per_second:
        return (
            "lag.slowest",
            f"{lag.slowest} is outside 0/s (excluded) to {limit.messages}, the limit's messages; choose a rate between the two",
        )
    return None


def in_flight_setting_error(algorithm: str, limit: Limit, *, published: bool) -> tuple[str, str] | None:
    """The same for the settings of a limit on requests in flight."""
    concurrent = limit.concurrent
    if algorithm not in COUNTING:
        if concurrent is not None:
            return "limit.concurrent", f"is for algorithm: concurrency or adaptive, and this rule's is {algorithm}; set one of them"
        if limit.at_least is not None or limit.start is not None:
            return "adaptive", f"is for algorithm: adaptive, and this rule's is {algorithm}; set algorithm: adaptive, or leave it out"
        return None
    if not published:
        return "algorithm", f"{algorithm} counts requests of publishers, and this rule is for consumers; use algorithm: token_bucket"
    if concurrent is None:
        return "limit.concurrent", f"is missing: algorithm: {algorithm} needs the most requests in flight; add limit: {{concurrent: 64}}"
    if not 1 <= concurrent <= MAX_CONCURRENT:
        return "limit.concurrent", f"{concurrent} is outside 1 to {MAX_CONCURRENT}; name the most requests in flight, e.g. 64"
    at_least = limit.at_least
    start = limit.start
    if algorithm != "adaptive":
        if at_least is not None or start is not None:
            return "adaptive", f"is for algorithm: adaptive, and this rule's is {algorithm}; set algorithm: adaptive, or leave it out"
        return None
    if at_least is not None and not 1 <= at_least <= concurrent:
        return "adaptive.at_least", f"{at_least} is outside 1 to {concurrent}, the limit's concurrent; lower at_least or raise concurrent"
    if start is not None and not (at_least or 1) <= start <= concurrent:
        return (
            "adaptive.start",
            f"{start} is outside {at_least or 1} (at_least) to {concurrent} (concurrent); choose a number between the two",
        )
    return None
