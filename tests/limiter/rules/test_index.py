"""The rule index: names the rules that may match, and never leaves one out."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiter.rules.anchors import anchors_of
from limiter.rules.index import RuleIndex
from limiter.rules.match import Match
from limiter.rules.matching import Matcher
from limiter.rules.patterns import Pattern, name_pattern, routing_key_pattern
from limiter.rules.sender import Sender
from limiter.rules.shadowed import covers
from limiter.rules.subject import Subject
from limiter.topics import TopicName, amqp_topic, rocketmq_topic

letters = st.text("ab.*?#[]!-", max_size=9)
words = st.lists(st.sampled_from(["a", "b", "ab", "", "*", "#", "a*", "?b", "[ab]"]), max_size=5).map(".".join)
patterns = letters | words
names = st.text("ab.-]", max_size=8) | st.lists(st.sampled_from(["a", "b", "ab", ""]), max_size=5).map(".".join)
clients = st.sampled_from(["10.0.0.1", "10.0.7.1", "10.1.0.1", "2001:db8::1", "2001:db8:0:1::1", "::ffff:10.0.0.1", "", "/run/socket"])
networks = st.sampled_from(
    ["10.0.0.0/8", "10.0.0.0/16", "10.0.0.1", "0.0.0.0/0", "2001:db8::/48", "2001:db8::/64", "::/0", "::ffff:0:0/96"]
)


def subject(name: TopicName, client: str | None = None, user: str | None = None, group: bytes | None = None) -> Subject:
    return Subject(name, name.text(), Sender(None, client, user), group)


def holding(matchers: list[Matcher], asked: Subject, candidates: list[int]) -> int:
    return next((at for at in candidates if matchers[at].matches(asked)), -1)


amqp_matches = st.builds(
    Match,
    vhost=st.none() | patterns,
    exchange=st.none() | patterns,
    routing_key=st.none() | patterns,
    user=st.none() | patterns,
    client=st.none() | networks,
)
rocketmq_matches = st.builds(
    Match,
    topic=st.none() | patterns,
    group=st.none() | patterns,
    namespace=st.none() | patterns,
    user=st.none() | patterns,
    client=networks,
)
subjects = st.builds(
    subject,
    st.builds(amqp_topic, names.map(str.encode), names.map(str.encode), names.map(str.encode)) | names.map(str.encode).map(rocketmq_topic),
    st.none() | clients,
    st.none() | names,
    st.none() | names.map(str.encode),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(amqp_matches | rocketmq_matches, max_size=12), st.lists(subjects, min_size=1, max_size=4))
def test_the_first_of_the_candidates_that_matches_is_the_first_of_all(matches: list[Match], asked: list[Subject]) -> None:
    matchers = [Matcher(match, "rule") for match in matches]
    index = RuleIndex(list(range(len(matchers))), matchers)
    for each in asked:
        candidates = index.candidates(each)
        assert candidates == sorted(set(candidates))
        assert holding(matchers, each, candidates) == holding(matchers, each, list(range(len(matchers))))


@settings(max_examples=250, deadline=None)
@given(patterns, names)
@pytest.mark.parametrize("compile_pattern", [name_pattern, routing_key_pattern])
def test_a_name_that_matches_has_every_anchor(compile_pattern: object, text: str, name: str) -> None:
    pattern: Pattern = compile_pattern(text)  # type: ignore[operator]
    if not pattern.matches(name):
        return
    for _, kind, literal in anchors_of("topic", pattern):
        has = {"exact": literal == name, "prefix": name.startswith(literal), "suffix": name.endswith(literal)}
        has |= {"word": literal in name.split("."), "gram": literal in name}
        assert has[kind], (text, name, kind, literal)


def compared(matches: list[Match], asked: Subject, per: str = "topic") -> int:
    matchers = [Matcher(match, per) for match in matches]
    return len(RuleIndex(list(range(len(matchers))), matchers).candidates(asked))


@pytest.mark.parametrize(
    "spelt",
    ["team{}.*", "*.team{}", "order.*.team{}.#", "#.team{}.error", "*-team{}-*", "team{}?", "[ab]-team{}", "%RETRY%team{}-*"],
    ids=str,
)
def test_of_a_thousand_patterns_a_name_is_compared_with_next_to_none(spelt: str) -> None:
    matches = [Match(routing_key=spelt.format(1000 + number)) for number in range(1000)]
    for asked in ("team1500.x", "order.eu.team1500.x", "x.team1500.error", "none.of.them", "a-team1500-b", "team1500x"):
        assert compared(matches, subject(amqp_topic(b"/", b"orders", asked.encode()))) <= 20


def test_networks_users_and_exchanges_are_looked_up_too() -> None:
    networks = [Match(client=f"10.{number // 250}.{number % 250}.0/24") for number in range(1000)]
    assert compared(networks, subject(rocketmq_topic(b"t"), "10.2.7.99"), "client") == 1
    assert compared(networks, subject(rocketmq_topic(b"t"), None), "client") == 0
    users = [Match(protocol="amqp", user=f"user{number}") for number in range(1000)]
    assert compared(users, subject(amqp_topic(b"/", b"e", b"k"), user="user7")) == 1
    both = [Match(exchange="orders", routing_key=f"k{number}.*") for number in range(1000)]
    assert compared(both, subject(amqp_topic(b"/", b"orders", b"k7.x"))) == 1


def test_the_anchor_that_fewest_share_is_taken() -> None:
    """All begin alike, and their middles differ."""
    matches = [Match(routing_key=f"order.*.k{number}.#") for number in range(1000)]
    assert compared(matches, subject(amqp_topic(b"/", b"orders", b"order.eu.k7.x"))) == 1


def test_a_pattern_with_nothing_literal_is_always_compared() -> None:
    matches = [Match(topic="*"), Match(topic="a*"), Match(topic="??*"), Match(topic="b*")]
    matchers = [Matcher(match, "topic") for match in matches]
    index = RuleIndex([0, 1, 2, 3], matchers)
    assert index.candidates(subject(rocketmq_topic(b"bcd"))) == [0, 2, 3]
    assert repr(index) == "<RuleIndex {'topic': <FieldIndex 2 by prefix>} and 2 asked always>"


@settings(max_examples=400, deadline=None)
@given(
    wide=st.lists(amqp_matches | rocketmq_matches, max_size=8),
    narrow=amqp_matches | rocketmq_matches,
    per=st.sampled_from(["topic", "client", "user", "rule"]),
)
def test_every_rule_that_covers_another_is_found_by_the_texts_of_that(wide: list[Match], narrow: Match, per: str) -> None:
    matchers = [Matcher(match, per) for match in wide]
    found = RuleIndex([*range(len(wide))], matchers).candidates_of(Matcher(narrow, per).texts())
    assert {at for at, match in enumerate(wide) if covers(match, narrow, per)} <= set(found)
