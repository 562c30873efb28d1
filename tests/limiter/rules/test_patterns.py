"""Patterns of names."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiter.rules.patterns import (
    EXACT,
    GLOB,
    WORDS,
    Addresses,
    name_pattern,
    name_text,
    plain_address,
    routing_key_pattern,
    split_words,
    words_match,
)
from support.cases import in_one_loop


@in_one_loop
@pytest.mark.parametrize(
    ("pattern", "key", "matches"),
    [  # measured against RabbitMQ: docs/design/amqp.md 3
        ("a.*.b", "a..b", True),
        ("a.*", "a.", True),
        ("*", "", False),
        ("*.#", "", False),
        ("#", "", True),
        ("a.#", "a", True),
        ("a.#.b", "a.b", True),
        ("a.#", "a.b.c", True),
        ("a.#", "ab", False),
        ("#.b", "b", True),
        ("#.b", "a.b", True),
        ("#.b", "a.b.c", False),
        ("*.*", "a", False),
        ("*.*", ".", True),
        ("#.#", "", True),
        ("a.*", "a", False),
        ("order.#", "order.created", True),
        ("order.*", "order.created.eu", False),
        ("*.b.#.d", "a.b.d", True),
        ("#.*.#", "a", True),
        ("#.*.#", "", False),
        ("A.#", "a.b", False),
    ],
)
def test_amqp_words(pattern: str, key: str, matches: bool) -> None:
    assert routing_key_pattern(pattern).kind == WORDS
    assert routing_key_pattern(pattern).matches(key) == matches


def by_recursion(pattern: list[str], words: list[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(by_recursion(pattern[1:], words[skip:]) for skip in range(len(words) + 1))
    return bool(words) and pattern[0] in {"*", words[0]} and by_recursion(pattern[1:], words[1:])


@settings(max_examples=200, deadline=None)
@given(pattern=st.lists(st.sampled_from(["#", "*", "a", "b", ""]), max_size=6), words=st.lists(st.sampled_from(["a", "b", ""]), max_size=6))
def test_words_match_as_the_definition_says(pattern: list[str], words: list[str]) -> None:
    assert words_match(pattern, words) == by_recursion(pattern, words)


def test_every_short_pattern_on_every_short_key() -> None:
    keys = [list(words) for length in range(4) for words in product("ab", repeat=length)]
    for length in range(4):
        for pattern in product("#*ab", repeat=length):
            for words in keys:
                assert words_match(list(pattern), words) == by_recursion(list(pattern), words)


def test_a_hostile_pattern_takes_no_time() -> None:
    assert not words_match(["#", "a"] * 200 + ["b"], ["a"] * 2000)


@pytest.mark.parametrize(
    ("text", "kind"),
    [("order.created", EXACT), ("order.*", WORDS), ("#", WORDS), ("order*", GLOB), ("order#", EXACT), ("[ab].c", GLOB), ("", EXACT)],
)
def test_a_routing_key_pattern_is_exact_words_or_a_glob(text: str, kind: int) -> None:
    assert routing_key_pattern(text).kind == kind


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("%RETRY%*", "%RETRY%group", True),
        ("%RETRY%*", "%RETRY%", True),
        ("%RETRY%*", "x%RETRY%g", False),
        ("order-?", "order-1", True),
        ("order-?", "order-12", False),
        ("order-?", "order-é", True),
        ("[ab]*", "beta", True),
        ("[*]", "*", True),
        ("[*]", "x", False),
        ("*", "", True),
        ("a*", "A1", False),
        ("a*", "a\nb", True),
        ("a.b", "axb", False),
        ("orders", "orders", True),
        ("orders", "orders2", False),
    ],
)
def test_globs_and_exact_names(pattern: str, name: str, matches: bool) -> None:
    assert name_pattern(pattern).matches(name) == matches


def test_bytes_that_are_not_utf8_can_be_matched() -> None:
    assert name_pattern("a?b").matches(name_text(b"a\xffb"))
    assert name_text(b"\xff") != name_text(b"\xfe")


def test_the_empty_key_has_no_words() -> None:
    assert (split_words(""), split_words("."), split_words("a..b")) == ([], ["", ""], ["a", "", "b"])


@pytest.mark.parametrize(
    ("network", "client", "matches"),
    [
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("10.0.0.7", "10.0.0.7", True),
        ("10.0.0.7", "::ffff:10.0.0.7", True),
        ("fd00::/8", "fd00::1", True),
        ("fe80::/10", "fe80::1%eth0", True),
        ("10.0.0.0/8", "fd00::1", False),
        ("10.0.0.0/8", "", False),
        ("0.0.0.0/0", "/run/app.sock", False),
    ],
)
def test_addresses(network: str, client: str, matches: bool) -> None:
    assert Addresses(network).matches(client) == matches


@pytest.mark.parametrize(
    ("client", "plain"), [("::ffff:10.0.0.7", "10.0.0.7"), ("FD00::0:1", "fd00::1"), ("unix", "unix"), ("10.0.0.7", "10.0.0.7")]
)
def test_plain_addresses(client: str, plain: str) -> None:
    assert plain_address(client) == plain


def test_repr() -> None:
    assert repr(name_pattern("a*")) == "<Pattern glob 'a*'>"
    assert repr(Addresses("10.0.0.0/8")) == "<Addresses 10.0.0.0/8>"
