"""Confirms: tags translated, multiples cut at the refused, at a cost that does not grow with the number of messages.

That nobody is ever told a lie is played out with whole conversations in `test_confirm_schedules.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from random import Random
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from librt.strings import BytesWriter

from gateway.pipeline.errors import ProtocolError
from gateway.protocols.amqp.confirms import TRIM_AFTER_STEPS, Confirms
from gateway.protocols.amqp.frames import BASIC_ACK
from support.builds import build_of


def confirm(confirms: Confirms, tag: int, multiple: bool) -> list[tuple[int, bool]] | None:
    """The broker acks: None where its frame is right as it stands, else tag and `multiple` of each frame said instead."""
    said = BytesWriter()
    if confirms.confirm(tag, multiple, said, 258, BASIC_ACK):
        assert len(said) == 0
        return None
    data = said.getvalue()
    frames = [data[at : at + 21] for at in range(0, len(data), 21)]
    told = [(int.from_bytes(frame[11:19], "big"), frame[19] == 1) for frame in frames]
    assert frames == [
        b"\x01\x01\x02\x00\x00\x00\x0d\x00\x3c\x00\x50" + tag.to_bytes(8, "big") + bytes([more]) + b"\xce" for tag, more in told
    ]
    return told


def test_confirms_pass_untouched_until_the_first_refusal() -> None:
    confirms = Confirms()
    confirms.forward(10)
    assert confirm(confirms, 1, False) is None
    assert confirm(confirms, 5, True) is None
    assert confirm(confirms, 7, False) is None
    assert confirms.outstanding() == 4
    assert confirm(confirms, 10, True) is None
    assert confirms.outstanding() == 0


def test_tags_behind_a_refusal_are_moved() -> None:
    confirms = Confirms()
    confirms.forward(2)
    assert confirms.refuse(3) == 3
    confirms.forward(1)
    assert confirm(confirms, 3, False) == [(6, False)]
    assert confirm(confirms, 2, False) is None


def test_a_multiple_is_cut_at_refused_tags() -> None:
    confirms = Confirms()
    confirms.forward(2)  # client 1, 2
    confirms.refuse(1)  # 3
    confirms.forward(1)  # 4
    confirms.refuse(2)  # 5, 6
    confirms.forward(3)  # 7, 8, 9
    assert confirm(confirms, 6, True) == [(2, True), (4, False), (9, True)]


def test_a_multiple_does_not_name_what_was_confirmed_before() -> None:
    confirms = Confirms()
    confirms.refuse(1)
    confirms.forward(4)  # client 2 to 5
    assert confirm(confirms, 4, False) == [(5, False)]
    assert confirm(confirms, 2, False) == [(3, False)]
    assert confirm(confirms, 4, True) == [(4, True)]


def test_no_confirm_is_sent_twice() -> None:
    confirms = Confirms()
    confirms.forward(3)
    assert confirm(confirms, 2, False) is None
    assert confirm(confirms, 2, False) == []
    assert confirm(confirms, 3, True) is None
    assert confirm(confirms, 3, True) == []
    assert confirm(confirms, 1, False) == []


@pytest.mark.parametrize(("tag", "multiple"), [(0, False), (0, True), (4, False), (4, True), (-1, False)])
def test_a_confirm_for_what_never_was_is_the_brokers_fault(tag: int, multiple: bool) -> None:
    confirms = Confirms()
    confirms.forward(3)
    confirms.refuse(5)
    with pytest.raises(ProtocolError) as caught:
        confirm(confirms, tag, multiple)
    assert caught.value.whose == "broker"


def test_steps_are_forgotten_when_passed() -> None:
    confirms = Confirms()
    for _ in range(10_000):
        confirms.forward(1)
        confirms.refuse(1)
        confirm(confirms, confirms.forwarded, False)
    assert len(confirms.firsts) < 200
    for _ in range(5_000):
        confirms.forward(1)
        confirms.refuse(1)
    assert len(confirms.firsts) >= 4_999
    assert confirm(confirms, confirms.forwarded, True) == [(tag, False) for tag in range(20_001, 30_001, 2)]
    confirms.forward(1)
    confirm(confirms, confirms.forwarded, False)
    assert len(confirms.firsts) == 0
    assert len(confirms.above) == 0


@pytest.mark.parametrize("seed", range(6))
def test_confirms_name_their_publishes_while_passed_refusals_are_forgotten(seed: int) -> None:
    """Something is always outstanding, so each run of refusals is a step; acks come in order, out of order and as multiples."""
    random = Random(seed)
    window = random.choice((2, 20, 300))
    confirms = Confirms()
    outstanding: dict[int, int] = {}  # client tag of each broker tag
    published = forgotten = 0
    while forgotten < 4:
        for _ in range(random.randint(1, 3)):
            published += 1
            outstanding[confirms.forwarded + 1] = published
            confirms.forward(1)
        if random.random() < 0.7:
            refused = random.randint(1, 3)
            assert confirms.refuse(refused) == published + 1
            published += refused
        while len(outstanding) > window:
            brokers = list(outstanding)[:-1]
            multiple = random.random() < 0.3
            tag = brokers[random.randrange(min(5, len(brokers)))] if random.random() < 0.8 else random.choice(brokers)
            covered = [other for other in brokers if other <= tag] if multiple else [tag]
            steps = len(confirms.firsts)
            translated = confirm(confirms, tag, multiple)
            forgotten += len(confirms.firsts) < steps
            expected = [outstanding.pop(other) for other in covered]
            named: list[int] = []
            for client_tag, up_to in [(tag, multiple)] if translated is None else translated:
                named += [other for other in expected if other <= client_tag and other not in named] if up_to else [client_tag]
            assert named == expected


def lines_of(call: Callable[[], object]) -> int:
    """How many lines of `confirms.py` one call executes."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.endswith("amqp/confirms.py"):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def with_runs(runs: int, between: int) -> Confirms:
    """`runs` runs of refusals, `between` publishes before each and one behind the last; nothing confirmed yet."""
    confirms = Confirms()
    for _ in range(runs):
        confirms.forward(between)
        confirms.refuse(7)
    confirms.forward(1)
    return confirms


@pytest.mark.slow
@pytest.mark.skipif(build_of("gateway.protocols.amqp.confirms")[0] == "compiled", reason="compiled code has no lines to count")
def test_the_cost_of_a_confirm_depends_on_the_runs_of_refusals_it_covers_not_on_the_messages() -> None:
    few, many = with_runs(10, 3), with_runs(10, 300_000)
    assert lines_of(lambda: confirm(many, many.forwarded, True)) == lines_of(lambda: confirm(few, few.forwarded, True)) <= 12 * 16
    singly = with_runs(1_000, 50)
    in_order = [lines_of(partial(confirm, singly, tag, False)) for tag in range(1, singly.forwarded + 1)]
    assert sum(in_order) / len(in_order) < 30, "confirms in order cost a few lines each, the forgetting of passed steps included"
    scattered = with_runs(1_000, 50)
    scattered_lines = [lines_of(partial(confirm, scattered, tag, False)) for tag in range(scattered.forwarded, 1, -7)]
    assert max(scattered_lines) < 25 + 5 * (1_000).bit_length(), "the runs before it are found by halving"


def test_a_translated_multiple_is_one_confirm_for_each_stretch_between_refusals() -> None:
    confirms = with_runs(40, 1_000)
    translated = confirm(confirms, confirms.forwarded, True)
    assert translated is not None
    assert len(translated) == 41


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 6)), max_size=400))
def test_no_more_is_remembered_than_the_outstanding_runs_of_refusals(rounds: list[tuple[int, int, int]]) -> None:
    """Steps, and beside them what was confirmed out of order; `TRIM_AFTER_STEPS` passed steps may linger, or as many as there are."""
    confirms = Confirms()
    runs: list[int] = []  # for each run of refusals, how many had been forwarded before it
    for forwarded, refused, confirmed in rounds:
        if forwarded:
            confirms.forward(forwarded)
        if refused and (not runs or runs[-1] != confirms.forwarded):
            runs.append(confirms.forwarded)
        confirms.refuse(refused)
        for tag in range(confirms.low + 1, min(confirms.low + confirmed, confirms.forwarded) + 1):
            confirm(confirms, tag, False)
        outstanding = [before for before in runs if before > confirms.low]
        assert len(confirms.firsts) - confirms.first <= len(outstanding)
        assert len(confirms.firsts) <= max(TRIM_AFTER_STEPS, 2 * len(outstanding)) + 1
        assert len(confirms.above) == 0


class CountingClient:
    """amqp091-go's confirms.go: counts, keeps what comes early, and lets a multiple overrule what it kept."""

    def __init__(self) -> None:
        self.expecting = 1
        self.early: dict[int, bool] = {}
        self.results: dict[int, bool] = {}

    def confirmed(self, tag: int, multiple: bool, acked: bool) -> None:
        if multiple:
            while self.expecting < tag:
                self.results[self.expecting] = acked
                self.expecting += 1
        if self.expecting == tag:
            self.results[tag] = acked
            self.expecting += 1
        else:
            self.early[tag] = acked
        while self.expecting in self.early:
            self.results[self.expecting] = self.early.pop(self.expecting)
            self.expecting += 1


@settings(deadline=None, max_examples=200)
@given(st.lists(st.one_of(st.tuples(st.just("forward"), st.integers(1, 6)), st.tuples(st.just("refuse"), st.integers(1, 3)),
                          st.tuples(st.just("ack up to"), st.integers(0, 40))), max_size=60))  # fmt: skip
def test_a_client_that_counts_is_not_told_an_ack_for_a_refusal(steps: list[tuple[str, int]]) -> None:
    """The bug class of docs/design/amqp.md 1.3 rule 3: uncut multiples made amqp091-go report 2,016 of 2,857 refusals as acked."""
    confirms = Confirms()
    client = CountingClient()
    published = 0
    refused: set[int] = set()
    for step, number in [*steps, ("forward", 1), ("ack up to", -1)]:
        if step == "forward":
            published += number
            confirms.forward(number)
        elif step == "refuse":
            first = confirms.refuse(number)
            published += number
            for tag in range(first, first + number):
                refused.add(tag)
                client.confirmed(tag, False, False)
        elif confirms.forwarded > confirms.low:
            tag = confirms.forwarded if number < 0 else confirms.low + 1 + number % (confirms.forwarded - confirms.low)
            translated = confirm(confirms, tag, True)
            for client_tag, multiple in [(tag, True)] if translated is None else translated:
                client.confirmed(client_tag, multiple, True)
    assert client.results == {tag: tag not in refused for tag in range(1, published + 1)}
