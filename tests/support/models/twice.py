"""What the tests of requests that are judged together have in common: rules by level, and what there is to say of two judges' buckets."""

from __future__ import annotations

from hypothesis import strategies as st

from limiter.judge import Judge
from support.models.asking import SECOND, Limit, Match, Rate, Rule

BEGIN = 50 * SECOND
MS = SECOND // 1000
BESIDE = Rule("beside", per="vhost", limit=Limit(messages=Rate(10**15)), mode="shadow")  # never refuses; its keys do not go in runs
TOPICS = ("orders", "bills", "mail")


def rules_of(levels: dict[str, tuple[Limit, int]], *, protects: bool, largest: int | None) -> list[Rule]:
    rules = [
        Rule(per, per=per, limit=limit, open_for_ns=0 if per == "listener" else open_for_ns, max_message_size=largest)
        for per, (limit, open_for_ns) in levels.items()
    ]
    return [*rules, Rule("mine", Match(topic=TOPICS[0]), limit=Limit(messages=Rate(70)), protected=True)] if protects else rules


def counts(judge: Judge, now: int) -> list[tuple[object, ...]]:
    """What there is to say of each level."""
    told = ("per", "thing", "fill", "wait_ns", "breaker", "admitted", "admitted_bytes", "over_limit", "last_refused_at")
    found = [tuple(getattr(state, name) for name in told) for state in judge.states(now) if state.per != BESIDE.per]
    return sorted(found, key=repr)


some_rates = st.none() | st.builds(
    Rate, st.sampled_from([0, 1, 3, 50, 1000, 2_000_003, 7_000_000_001, 10**14 + 1]), st.sampled_from([SECOND, 7 * SECOND])
)
some_limits = st.builds(Limit, messages=some_rates, bytes=some_rates, messages_burst=st.none() | st.integers(1, 40)).filter(
    lambda limit: not limit.limits_nothing()
)
some_levels = st.dictionaries(
    st.sampled_from(["topic", "client", "user", "listener"]),
    st.tuples(some_limits, st.sampled_from([0, SECOND // 100, SECOND])),
    min_size=1,
)
