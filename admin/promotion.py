"""Promotion: a rule's candidate becomes its limit, as one live change of the rule.

Other live changes of the rule stay. The change has no end, because an end would take the promoted limit back unasked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace as with_fields

from admin.http.problems import ProblemError
from admin.store.state import NO_CANDIDATE, Burst, StoredOverride, format_time, live
from limiter.units import format_byte_rate, format_duration, format_rate

if TYPE_CHECKING:
    from admin.http.bodies import ChangeContext
    from limiter.limits import Limit
    from limiter.rules.rule import Rule


def promote_candidate(stored: StoredOverride | None, file_rule: Rule, rule: Rule, change_context: ChangeContext) -> StoredOverride:
    """The live change after the promotion of the candidate of `rule`, which is `file_rule` with its live change `stored`.

    Raises ProblemError 409 where that change holds more than a candidate and is to end.
    """
    candidate, wanted = rule.candidate, rule.candidate_limit()
    assert candidate is not None
    assert wanted is not None
    base = stored or StoredOverride()
    if base.expires is not None:
        if with_fields(base, candidate=None, expires=None, by="", at="", reason="") != StoredOverride():
            raise ProblemError(
                409,
                "change-ends",
                f"the rule {rule.name!r} is changed live until {base.expires}, and a promoted limit has no end; "
                "set the change again without `expires`, or take it back, and then promote",
            )
        base = StoredOverride()
    after = with_fields(
        base,
        messages=base.messages if candidate.messages is None else format_rate(candidate.messages),
        bytes=base.bytes if candidate.bytes is None else format_byte_rate(candidate.bytes),
        candidate=NO_CANDIDATE,
        by=change_context.by,
        at=format_time(change_context.now),
        reason=change_context.reason,
    )
    if candidate.burst_ns is not None:
        after = with_fields(after, burst=format_duration(candidate.burst_ns))
    elif candidate.messages_burst is not None or candidate.bytes_burst is not None:
        after = with_fields(after, burst=Burst(candidate.messages_burst, candidate.bytes_burst))
    if capacities(live(after).limit_over(file_rule.limit)) != capacities(wanted):  # bursts as a time and in tokens, over one another
        after = with_fields(after, burst=Burst(wanted.messages_capacity() or None, wanted.bytes_capacity() or None))
    return after


def capacities(limit: Limit) -> tuple[int, int]:
    return limit.messages_capacity(), limit.bytes_capacity()
