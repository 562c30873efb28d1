"""Covering is never claimed where it is not so: against the matcher itself, over random matches and messages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiter.rules.match import Match
from limiter.rules.matching import Matcher
from limiter.rules.sender import Sender
from limiter.rules.shadowed import covers, find_contradiction
from limiter.rules.subject import Subject
from limiter.topics import amqp_topic, rocketmq_topic
from support.cases import in_one_loop

names = st.sampled_from(["a", "ab", "a*", "*", "?b", "[a]b", "abc*", "b"])
words = st.sampled_from(["a", "a.b", "a.*", "a.#", "#", "*", "a.*.c", "#.c", "a*", "a.b.#", "a.b*"])
senders = {
    "listener": names | st.lists(names, min_size=1, max_size=3).map(tuple),
    "user": names,
    "client": st.sampled_from(["10.0.0.1", "10.0.0.0/8", "10.0.0.0/31", "::1", "0.0.0.0/0"]),
    "operation": st.sampled_from(["produce", "consume"]),
}
amqp_matches = st.fixed_dictionaries(
    {}, optional={**senders, "vhost": names, "exchange": names, "routing_key": words, "protocol": st.just("amqp")}
)
rocketmq_topics = st.sampled_from(["a", "ab", "a*", "*", "shop%a", "shop%*", "%RETRY%shop%a", "%RETRY%*", "TBW102", "rmq_sys_x"])
rocketmq_matches = st.fixed_dictionaries(
    {},
    optional={
        **senders,
        "topic": rocketmq_topics,
        "group": names,
        "namespace": st.sampled_from(["shop", "s*", "*"]),
        "protocol": st.just("rocketmq"),
    },
)


def legal(fields: dict[str, Any]) -> Match | None:
    try:
        return Match(**fields)
    except ValueError:
        return None


matches = (amqp_matches | rocketmq_matches).map(legal).filter(lambda match: match is not None)
maybe_name = st.none() | st.sampled_from(["a", "ab", "abc", "bb", "b", ""])
subjects = st.builds(
    lambda name, listener, client, user, group, operation: Subject(name, name.text(), Sender(listener, client, user), group, operation),
    st.builds(
        amqp_topic,
        st.sampled_from([b"a", b"ab", b"/"]),
        st.sampled_from([b"", b"a", b"ab"]),
        st.sampled_from([b"", b"a", b"a.b", b"a.b.c"]),
    )
    | st.sampled_from(["a", "ab", "shop%a", "%RETRY%shop%a", "TBW102", "rmq_sys_x", "b"]).map(lambda text: rocketmq_topic(text.encode())),
    st.sampled_from(["a", "ab", "b"]),
    st.sampled_from(["10.0.0.1", "10.0.0.2", "10.1.1.1", "::1", "192.168.0.1", "unix"]),
    maybe_name,
    st.none() | st.sampled_from([b"a", b"ab"]),
    st.sampled_from(["produce", "consume"]),
)


@settings(max_examples=400, deadline=None)
@given(wide=matches, narrow=matches, per=st.sampled_from(["topic", "client", "exchange", "group"]), met=st.lists(subjects, max_size=12))
def test_a_covered_rule_matches_nothing_that_its_cover_does_not(wide: Match, narrow: Match, per: str, met: list[Subject]) -> None:
    if covers(wide, narrow, per):
        first, second = Matcher(wide, per), Matcher(narrow, per)
        for subject in met:
            assert first.matches(subject) or not second.matches(subject)


@settings(max_examples=300, deadline=None)
@given(match=matches, met=st.lists(subjects, max_size=12))
def test_a_contradictory_match_matches_nothing(match: Match, met: list[Subject]) -> None:
    if find_contradiction(match) is not None:
        assert not any(Matcher(match, "topic").matches(subject) for subject in met)


@in_one_loop
@pytest.mark.parametrize(
    ("wide", "narrow", "covered"),
    [
        ({}, {"exchange": "orders"}, True),
        ({"exchange": "orders"}, {}, False),
        ({"exchange": "orders"}, {"exchange": "orders", "user": "shop"}, True),
        ({"exchange": "o*"}, {"exchange": "ord*"}, True),
        ({"exchange": "*"}, {"vhost": "/"}, True),
        ({"listener": ("rabbit", "b*")}, {"listener": ("backup", "rabbit")}, True),
        ({"listener": ("rabbit", "backup")}, {"listener": ("rabbit", "other")}, False),
        ({"listener": ("rabbit", "backup")}, {}, False),
        ({"listener": ("rabbit", "*")}, {}, True),
        ({"user": "*"}, {"vhost": "/"}, False),
        ({"user": "*"}, {"user": "s?"}, True),
        ({"routing_key": "#"}, {"exchange": "e"}, True),
        ({"routing_key": "*"}, {"exchange": "e"}, False),
        ({"routing_key": "a.#"}, {"routing_key": "a.*.c"}, True),
        ({"routing_key": "a.#"}, {"routing_key": "b.#"}, False),
        ({"exchange": ""}, {"queue": "q"}, True),
        ({"exchange": "amq.default", "routing_key": "q"}, {"queue": "q"}, True),
        ({"protocol": "amqp"}, {"vhost": "/"}, True),
        ({"protocol": "amqp"}, {"topic": "orders"}, False),
        ({"operation": "produce"}, {}, True),
        ({"operation": "consume"}, {}, False),
        ({"client": "10.0.0.0/8"}, {"client": "10.0.0.1"}, True),
        ({"client": "10.0.0.1"}, {"client": "10.0.0.0/8"}, False),
        ({"topic": "*"}, {"topic": "TBW102"}, False),  # a system topic
    ],
)
def test_covering(wide: dict[str, Any], narrow: dict[str, Any], covered: bool) -> None:
    assert covers(Match(**wide), Match(**narrow), "topic") is covered
