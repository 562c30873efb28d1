"""Confirms: tags translated, multiples cut at the refused, and a model of broker and clients that must never be told a lie."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.messages import ProtocolError
from gateway.protocols.amqp.confirms import Confirms


def test_confirms_pass_untouched_until_the_first_refusal() -> None:
    confirms = Confirms()
    confirms.forward(10)
    assert confirms.confirm(1, False) is None
    assert confirms.confirm(5, True) is None
    assert confirms.confirm(7, False) is None
    assert confirms.outstanding() == 4
    assert confirms.confirm(10, True) is None
    assert confirms.outstanding() == 0


def test_tags_behind_a_refusal_are_moved() -> None:
    confirms = Confirms()
    confirms.forward(2)
    assert confirms.refuse(3) == 3
    confirms.forward(1)
    assert confirms.confirm(3, False) == [(6, False)]
    assert confirms.confirm(2, False) is None


def test_a_multiple_is_cut_at_refused_tags() -> None:
    confirms = Confirms()
    confirms.forward(2)  # client 1, 2
    confirms.refuse(1)  # 3
    confirms.forward(1)  # 4
    confirms.refuse(2)  # 5, 6
    confirms.forward(3)  # 7, 8, 9
    assert confirms.confirm(6, True) == [(2, True), (4, False), (9, True)]


def test_a_multiple_does_not_name_what_was_confirmed_before() -> None:
    confirms = Confirms()
    confirms.refuse(1)
    confirms.forward(4)  # client 2 to 5
    assert confirms.confirm(4, False) == [(5, False)]
    assert confirms.confirm(2, False) == [(3, False)]
    assert confirms.confirm(4, True) == [(4, True)]


def test_nothing_is_said_twice() -> None:
    confirms = Confirms()
    confirms.forward(3)
    assert confirms.confirm(2, False) is None
    assert confirms.confirm(2, False) == []
    assert confirms.confirm(3, True) is None
    assert confirms.confirm(3, True) == []
    assert confirms.confirm(1, False) == []


@pytest.mark.parametrize(("tag", "multiple"), [(0, False), (0, True), (4, False), (4, True), (-1, False)])
def test_a_confirm_for_what_never_was_is_the_brokers_fault(tag: int, multiple: bool) -> None:
    confirms = Confirms()
    confirms.forward(3)
    confirms.refuse(5)
    with pytest.raises(ProtocolError) as caught:
        confirms.confirm(tag, multiple)
    assert caught.value.whose == "broker"


def test_steps_are_forgotten_when_passed() -> None:
    confirms = Confirms()
    for _ in range(10_000):
        confirms.forward(1)
        confirms.refuse(1)
        confirms.confirm(confirms.forwarded, False)
    assert len(confirms.firsts) < 200
    for _ in range(5_000):
        confirms.forward(1)
        confirms.refuse(1)
    assert len(confirms.firsts) >= 4_999
    assert confirms.confirm(confirms.forwarded, True) == [(tag, False) for tag in range(20_001, 30_001, 2)]
    confirms.forward(1)
    confirms.confirm(confirms.forwarded, False)
    assert len(confirms.firsts) == 0
    assert len(confirms.above) == 0


class LiteralClient:
    """Takes confirms at their word: a multiple settles everything outstanding up to its tag. Complains like the strictest client."""

    def __init__(self) -> None:
        self.published = 0
        self.outstanding: set[int] = set()
        self.results: dict[int, bool] = {}

    def publish(self, count: int) -> list[int]:
        tags = list(range(self.published + 1, self.published + count + 1))
        self.published += count
        self.outstanding.update(tags)
        return tags

    def confirmed(self, tag: int, multiple: bool, acked: bool) -> None:
        assert tag in self.outstanding, "a confirm names a tag that is not outstanding"
        settled = {other for other in self.outstanding if other <= tag} if multiple else {tag}
        if multiple:
            assert len(settled) > 1, "a multiple with nothing else outstanding below it"
        for other in settled:
            assert other not in self.results
            self.results[other] = acked
        self.outstanding -= settled


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


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("forward"), st.integers(1, 5)),
        st.tuples(st.just("refuse"), st.integers(1, 3)),
        st.tuples(st.just("ack"), st.integers(0, 30)),
        st.tuples(st.just("nack"), st.integers(0, 30)),
        st.tuples(st.just("ack up to"), st.integers(0, 30)),
        st.tuples(st.just("nack up to"), st.integers(0, 30)),
    ),
    max_size=60,
)


@settings(deadline=None, max_examples=300)
@given(STEPS)
def test_every_publish_gets_the_brokers_own_answer_once(steps: list[tuple[str, int]]) -> None:
    """Acked only if the broker acked that very publish; each answered at most once; nothing outstanding for ever."""
    confirms = Confirms()
    client = LiteralClient()
    at_broker: list[int] = []  # client tags in the order the broker received them: what the broker calls 1, 2, 3 ...
    unconfirmed: list[int] = []  # broker tags
    truth: dict[int, bool] = {}

    def say(tag: int, multiple: bool, acked: bool) -> None:
        for covered in [other for other in unconfirmed if other == tag or (multiple and other < tag)]:
            unconfirmed.remove(covered)
            truth[at_broker[covered - 1]] = acked
        translated = confirms.confirm(tag, multiple)
        if translated is None:  # as it stands
            if multiple and len([other for other in client.outstanding if other <= tag]) == 1:
                multiple = False  # the broker's own choice of words, harmless on a single one
            client.confirmed(tag, multiple, acked)
        else:
            for client_tag, client_multiple in translated:
                client.confirmed(client_tag, client_multiple, acked)

    for step, number in steps:
        if step == "forward":
            at_broker.extend(client.publish(number))
            unconfirmed.extend(range(len(at_broker) - number + 1, len(at_broker) + 1))
            confirms.forward(number)
        elif step == "refuse":
            tags = client.publish(number)
            assert confirms.refuse(number) == tags[0]
            for tag in tags:
                truth[tag] = False
                client.confirmed(tag, False, False)
        elif unconfirmed:
            say(unconfirmed[number % len(unconfirmed)], step.endswith("up to"), step.startswith("ack"))
        assert client.results == truth
        assert confirms.outstanding() == len(unconfirmed)
    if unconfirmed:
        say(unconfirmed[-1], True, True)
    assert client.results == truth
    assert client.outstanding == set()
    assert confirms.outstanding() == 0


@settings(deadline=None, max_examples=200)
@given(st.lists(st.one_of(st.tuples(st.just("forward"), st.integers(1, 6)), st.tuples(st.just("refuse"), st.integers(1, 3)),
                          st.tuples(st.just("ack up to"), st.integers(0, 40))), max_size=60))  # fmt: skip
def test_a_client_that_counts_is_not_told_an_ack_for_a_refusal(steps: list[tuple[str, int]]) -> None:
    """The bug class of amqp.md 1.3 rule 3: uncut multiples made amqp091-go report 2,016 of 2,857 refusals as acked."""
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
            translated = confirms.confirm(tag, True)
            for client_tag, multiple in [(tag, True)] if translated is None else translated:
                client.confirmed(client_tag, multiple, True)
    assert client.results == {tag: tag not in refused for tag in range(1, published + 1)}
