"""Columns: messages of several keys judged by their sums have the verdicts, the buckets and the counts of messages judged one by one."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.pipeline.mixing import Mixing
from gateway.protocols.amqp.mixed_publishes import MixedPublishes
from limiter.columns import Columns
from limiter.judge import Judge
from limiter.keys import Key
from limiter.limits import SECOND
from limiter.request import Request, UnjudgedError
from support.amqp import frames as amqp
from support.builds import build_of
from support.models.asking import Limit, Match, Rate, Rule, RuleSet, key_of
from support.models.twice import BEGIN, MS, TOPICS, counts, rules_of, some_levels

Message = tuple[int, int]  # topic, bytes


def mixed_of(keys: list[Key], messages: list[Message], kind: type[MixedPublishes] = MixedPublishes) -> MixedPublishes:
    """Messages that are asked for together."""
    columns = Columns()
    for topic, size in messages:
        columns.add(keys[topic], 1, size)
    columns.close()
    data = b"".join([amqp.publish(1, TOPICS[topic], bytes(size)) for topic, size in messages])
    mixed = kind(1, data, 0, len(data), columns, len(messages), Mixing(mixes=True))
    mixed.wait_ns, mixed.bypassed = 7, True  # of the verdict before
    return mixed


def verdicts(requests: Iterable[Request]) -> list[tuple[object, ...]]:
    """Of each message. What a rule refuses is told apart by who refused it, and for how long."""
    found: list[tuple[object, ...]] = []
    for request in requests:
        if isinstance(request, MixedPublishes):
            pieces = request.pieces or (request.make_pieces() if request.passed < request.count else None)
            found += verdicts(pieces) if pieces else [(1, 0, None, request.bypassed)] * request.passed
        else:
            named = None if request.rule is None or request.bucket is None else (request.rule.name, request.bucket.owner_text())
            passed = [(1, 0, None, request.bypassed)] * request.passed
            found += passed + [(0, request.wait_ns, named, request.bypassed)] * (request.count - request.passed)
    return found


class Twice:
    """Two judges of the same rules: one is asked for all messages of a read together, one for each."""

    def __init__(self, *rules: Rule) -> None:
        self.together, self.singly = Judge(RuleSet(rules)), Judge(RuleSet(rules))
        self.keys = [[key_of(judge, name, user="shop") for name in TOPICS] for judge in (self.together, self.singly)]

    def replace(self, *rules: Rule) -> None:
        self.together.replace(RuleSet(rules))
        self.singly.replace(RuleSet(rules))

    def ask(self, messages: list[Message], now: int) -> MixedPublishes:
        mixed = mixed_of(self.keys[0], messages)
        self.together.decide([mixed], now)
        apart = [Request(self.keys[1][topic], 1, 1, size) for topic, size in messages]
        for request in apart:
            self.singly.decide([request], now)
        assert verdicts([mixed]) == verdicts(apart)
        assert self.together.checks() == self.singly.checks()
        assert counts(self.together, now) == counts(self.singly, now)
        return mixed


def refusals_of(mixed: MixedPublishes) -> list[tuple[str, str, int, int]]:
    """By which rule, of which topic, how many messages and bytes."""
    assert mixed.pieces is None
    assert mixed.columns is not None
    found = [(each.rule.name, each.of_key.key.text.rpartition("/")[2], int(each.count), int(each.size)) for each in mixed.columns.refusals]
    assert mixed.count - mixed.passed == sum(count for _, _, count, _ in found) == sum(each.refused for each in mixed.columns.sums)
    return found


messages_of_a_read = st.lists(st.tuples(st.integers(0, 2), st.sampled_from([200, 200, 0, 1, 999])), min_size=1, max_size=25)
reads = st.lists(
    st.tuples(
        st.sampled_from([0, 1, MS, 30 * MS, SECOND, 100 * SECOND, -MS, -3 * SECOND]) | st.integers(0, SECOND),
        messages_of_a_read,
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=200, deadline=None)
@given(levels=some_levels, other=some_levels, batches=reads, protects=st.booleans(), largest=st.sampled_from([None, None, 200, 999]))
@example(  # a share's credit in a window is that of its first message
    levels={"listener": (Limit(bytes=Rate(10_000)), 0)},
    other={"topic": (Limit(messages=Rate(3)), 0)},
    batches=[(0, [(0, 999), (1, 1), (0, 1), (2, 0)], False), (MS, [(0, 999)] * 25, False), (SECOND // 10, [(1, 999), (0, 1)] * 4, False)],
    protects=False,
    largest=None,
)
def test_columns_are_judged_as_one_by_one(
    levels: dict[str, tuple[Limit, int]],
    other: dict[str, tuple[Limit, int]],
    batches: list[tuple[int, list[Message], bool]],
    protects: bool,
    largest: int | None,
) -> None:
    """Over levels that add up, largest messages, breakers, debts, caps, clocks going back, other rules."""
    twice = Twice(*rules_of(levels, protects=protects, largest=largest))
    now = BEGIN
    for later, messages, swaps in batches:
        now += later
        if swaps:
            levels, other = other, levels
            twice.replace(*rules_of(levels, protects=protects, largest=None))
        twice.ask(messages, now)


def test_what_does_not_fit_is_refused_by_rows() -> None:
    twice = Twice(
        Rule("topics", limit=Limit(messages=Rate(10)), open_for_ns=0), Rule("client", per="client", limit=Limit(bytes=Rate(3000)))
    )
    assert refusals_of(twice.ask([(0, 100), (1, 100), (0, 100)], BEGIN)) == []
    mixed = twice.ask([(0, 100), (1, 100)] * 9, BEGIN)
    assert (mixed.passed, refusals_of(mixed)) == (17, [("topics", TOPICS[0], 1, 100)])
    assert [piece.passed for piece in mixed.make_pieces()] == [1] * 16 + [0, 1]
    assert refusals_of(twice.ask([(2, 500), (2, 500)], BEGIN)) == []


def test_what_is_refused_for_one_time_is_one_refusal() -> None:
    """Of a shut topic, or while a breaker is open, and though the others pass; where bytes are limited each size has a time of its own."""
    twice = Twice(
        Rule("shut", Match(topic=TOPICS[0]), limit=Limit(messages=Rate(0))),
        Rule("few", Match(topic=TOPICS[1]), limit=Limit(messages=Rate(3)), open_for_ns=SECOND),
        Rule("client", per="client", limit=Limit(bytes=Rate(10**6))),
    )
    messages = [(topic, 200 + number) for number in range(9) for topic in (0, 1, 2)]
    for few in (6, 9):
        assert [told[:3] for told in refusals_of(twice.ask(messages, BEGIN))] == [("shut", TOPICS[0], 9), ("few", TOPICS[1], few)]
    twice.replace(Rule("bytes", Match(topic=TOPICS[0]), limit=Limit(bytes=Rate(500)), open_for_ns=0))
    assert [told[2] for told in refusals_of(twice.ask([(0, 400), (1, 1), (0, 300), (0, 300), (0, 250), (1, 1), (0, 300)], BEGIN))] == [
        2,
        1,
        1,
    ]


def test_a_breaker_that_opens_in_between_is_the_reason_of_what_comes_after() -> None:
    twice = Twice(
        Rule("few", Match(topic=TOPICS[0]), limit=Limit(messages=Rate(10_000), messages_burst=1), open_for_ns=0),
        Rule("client", per="client", limit=Limit(bytes=Rate(1000)), open_for_ns=SECOND),
    )
    mixed = twice.ask([(0, 1), (0, 1), (1, 1000), (0, 1)], BEGIN)
    assert refusals_of(mixed) == [("few", TOPICS[0], 1, 1), ("client", TOPICS[1], 1, 1000), ("client", TOPICS[0], 1, 1)]


def test_the_caps_shares_are_those_of_messages_asked_for_one_by_one() -> None:
    cap = Rule("cap", per="listener", limit=Limit(messages=Rate(300), bytes=Rate(1_000_000)))
    twice = Twice(cap)
    passed = cuts = 0
    for turn in range(200):
        messages = [(which, 200 + 300 * (number % 3)) for number in range(9) for which in (0, 1, 2) if number < (1, 2, 9)[which]]
        mixed = twice.ask(messages[: 4 if turn < 50 else 12], BEGIN + turn * 7 * MS)
        cuts += mixed.pieces is not None
        passed += sum(bool(verdict[0]) for verdict in verdicts([mixed]))
    assert 0 < cuts < 200
    assert 300 < passed < 900


@pytest.mark.parametrize("rules", [[], [Rule("cap", per="listener", limit=Limit(bytes=Rate(10**9)))]])
def test_a_debt_too_deep_for_a_native_integer_refuses_as_any(rules: list[Rule]) -> None:
    """A publish may announce 2**62 bytes and name three copies: it passes a full bucket, which owes the rest."""
    judge = Judge(RuleSet((Rule("client", per="client", limit=Limit(bytes=Rate(1000)), open_for_ns=0), *rules)))
    keys = [key_of(judge, topic) for topic in TOPICS]
    huge = Request(keys[0], 1, 1, 2**62)
    huge.copies = [keys[1], keys[2], key_of(judge, "copy")]
    judge.decide([huge], BEGIN)
    assert huge.passed == 1
    mixed = mixed_of(keys, [(0, 100), (1, 100), (0, 101)])
    judge.decide([mixed], BEGIN + SECOND)
    assert [piece.passed for piece in mixed.pieces or mixed.make_pieces()] == [0, 0, 0]


def test_a_burst_too_large_for_a_native_integer_lets_pass_as_any() -> None:
    judge = Judge(RuleSet((Rule("client", per="client", limit=Limit(bytes=Rate(9 * 10**14), burst_ns=86_400 * SECOND)),)))
    keys = [key_of(judge, topic) for topic in TOPICS]
    mixed = mixed_of(keys, [(0, 100), (1, 100), (0, 101)])
    judge.decide([mixed], BEGIN)
    assert (mixed.passed, mixed.pieces) == (3, None)


def test_keys_under_no_rule_pass_unseen() -> None:
    twice = Twice(Rule("mine", Match(topic=TOPICS[0]), limit=Limit(messages=Rate(2))))
    assert twice.ask([(1, 5), (0, 5), (2, 5)], BEGIN).pieces is None
    assert twice.together.checks()["ok"] == 1


@pytest.mark.parametrize("mode", ["shadow", "enforce"])
def test_a_rule_that_looks_at_each_message_cuts(mode: str) -> None:
    twice = Twice(Rule("slow", limit=Limit(messages=Rate(2)), algorithm="pacing" if mode == "enforce" else "token_bucket", mode=mode))
    assert twice.ask([(1, 5), (0, 5)], BEGIN).pieces is not None


@pytest.mark.skipif(build_of("limiter.judge")[0] == "compiled", reason="interpreted classes cannot inherit from compiled ones")
def test_where_the_judge_fails_in_the_middle_what_was_judged_keeps_its_verdict() -> None:
    judge = Judge(RuleSet((Rule("topics", limit=Limit(messages=Rate(1)), max_message_size=1),)))
    keys = [key_of(judge, name) for name in TOPICS]

    class Broken(MixedPublishes):
        """The judge fails on the second of them, since it looks at the third."""

        def make_pieces(self) -> list[Request]:
            return [*super().make_pieces()[::2], "no request"]  # type: ignore[list-item]

    mixed = mixed_of(keys, [(0, 1), (0, 2), (1, 1)], Broken)
    with pytest.raises(UnjudgedError, match="number 0"):
        judge.decide([mixed], BEGIN)
    assert mixed.columns is not None
    assert mixed.columns.judged == 1
    assert mixed.pieces is not None
    assert mixed.pieces[0].passed == 1
    after = mixed_of(keys, [(1, 1), (2, 1)])
    judge.decide([after], BEGIN)
    assert after.passed == 2, "nothing was left of what was asked before"
