"""Topics in the order of their names: whatever comes and goes, and in the midst of a search."""

from __future__ import annotations

import random
from collections.abc import Generator
from itertools import chain, pairwise
from typing import Any
from urllib.parse import unquote

from hypothesis import given
from hypothesis import strategies as st

from gateway.counting.topic_index import MOST_IN_RUN, TopicIndex
from limiter.topics import amqp_topic, rocketmq_topic
from support.steps import result

Steps = Generator[None, None, list[list[Any]]]
Place = tuple[str, str, str]
# Of these ß is ss in lower case, İ two letters, the long s and Kelvin's sign are s and k; \ud83d is no character.
ODD = "aSk/ \n\0%.~ßßİ\u017f\u212aé订😀0F"
NAMES = st.binary(max_size=3) | st.text(st.sampled_from(ODD), max_size=6).map(str.encode) | st.just(b"%41\xffB" * 90)
AMQP = st.builds(amqp_topic, NAMES, NAMES, NAMES)
TOPICS = st.builds(
    lambda name, operation: (name.protocol, name.text(), operation),
    AMQP | NAMES.map(rocketmq_topic),
    st.sampled_from(["produce", "consume"]),
)
WORDS = st.text(st.sampled_from(ODD + "sbB2e4\ud83d\ufffd"), max_size=4)


def all_in(index: TopicIndex) -> list[Place]:
    return [*chain.from_iterable(result(index.find(None, "")))]


def has(place: Place, protocol: str | None, text: str) -> bool:
    """Whether a search finds a topic, said plainly."""
    name = place[1]
    readings = (name.casefold(), unquote(name).casefold())
    return protocol in (None, place[0]) and all(any(word in each for each in readings) for word in text.casefold().split())


@given(
    topics=st.sets(TOPICS, max_size=40),
    protocol=st.sampled_from([None, "amqp", "rocketmq", "mqtt"]),
    words=st.lists(WORDS, max_size=2).map(" ".join),
)
def test_a_search_finds_what_each_name_by_itself_has(topics: set[Place], protocol: str | None, words: str) -> None:
    """Names are searched as one text for each run: no name may be found for what its neighbour has, nor be missed."""
    index = TopicIndex()
    for place in topics:
        index.add(place)
    for text in (words, "", words):  # what is kept of the first search is asked again
        found = result(index.find(protocol, text))
        assert [*chain.from_iterable(found)] == sorted(place for place in topics if has(place, protocol, text))
        assert all(found), "no list is empty"


def test_strasse_finds_what_is_written_with_one_letter() -> None:
    """Words of plain letters were not looked for in names as people read them, until November 2026."""
    index = TopicIndex()
    name = amqp_topic(b"/", "Straße".encode(), b"k").text()
    index.add(("amqp", name, "produce"))
    assert [result(index.find(None, text)) for text in ("strasse", "STRASSE", "straße", "%c3%9f")] == [[[("amqp", name, "produce")]]] * 4


def test_a_name_with_the_end_of_a_line_does_not_shift_the_others() -> None:
    """RocketMQ's names stand as they came. Until November 2026 a search missed what stood behind one, or found its neighbour."""
    index = TopicIndex()
    places = [("rocketmq", name, "produce") for name in ("a\nb\nc", "one", "two")]
    for place in places:
        index.add(place)
    assert [result(index.find(None, word)) for word in ("two", "one", "b")] == [[[places[2]]], [[places[1]]], [[places[0]]]]


def test_whatever_comes_and_goes_the_lists_are_in_order_and_neither_long_nor_many() -> None:
    chance = random.Random(7)
    index, there = TopicIndex(), set[Place]()
    for aim in (5000, 300, 4000, 40, 0, 3):
        while len(there) != aim:
            place = ("rocketmq", f"t{chance.randrange(9000)}", "produce")
            if len(there) < aim and place not in there:
                index.add(place)
                there.add(place)
            elif len(there) > aim and place in there:
                index.remove(place)
                there.remove(place)
        runs = result(index.find(None, ""))
        assert [*chain.from_iterable(runs)] == sorted(there)
        assert max(map(len, runs), default=0) <= MOST_IN_RUN
        assert all(len(one) + len(other) > MOST_IN_RUN // 2 for one, other in pairwise(runs))


def test_names_that_come_in_their_order_fill_half_of_each_list_at_least() -> None:
    index = TopicIndex()
    for number in range(10_000):
        index.add(("rocketmq", f"t{number:05}", "produce"))
    assert len(result(index.find(None, ""))) <= 2 * 10_000 // MOST_IN_RUN


def test_a_search_takes_a_step_for_each_list_and_finds_what_there_was_when_it_began() -> None:
    chance = random.Random(7)
    index = TopicIndex()
    there = [("rocketmq", f"t{number:05}", "produce") for number in range(4000)]
    for place in there:
        index.add(place)
    lists = result(index.find(None, ""))
    for _ in range(3):  # the later ones in names that are kept, of lists of which some have changed
        steps = 0

        def meddled(search: Steps) -> Steps:
            """The same work, between whose steps topics come and go."""
            nonlocal steps
            while True:
                try:
                    next(search)
                except StopIteration as end:
                    found: list[list[Any]] = end.value
                    return found
                steps += 1
                gone = chance.choice(all_in(index))
                index.remove(gone)
                index.add(("rocketmq", f"t{chance.randrange(4000):05}7new{steps}", "produce"))
                if chance.randrange(2):
                    index.add(gone)
                yield

        wanted = [place for place in all_in(index) if "7" in place[1]]
        assert [*chain.from_iterable(result(meddled(index.find(None, "7"))))] == wanted
        assert steps >= 4000 // MOST_IN_RUN
    assert [*chain.from_iterable(lists)] == [("rocketmq", f"t{number:05}", "produce") for number in range(4000)], "they never change"


def test_of_very_long_names_nothing_is_kept() -> None:
    index = TopicIndex()
    for number in range(400):
        index.add(("rocketmq", f"{number}{'n' * 300}", "produce"))
    assert [[place[1][:3] for place in run] for run in result(index.find(None, "n 399"))] == [["399"]]
    assert {(run.names, run.read) for run in index._runs} == {("", "")}
