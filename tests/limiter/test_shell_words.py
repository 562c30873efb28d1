"""Words of commands that are shown: a shell takes them for what they are, and people can read them."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.shell_words import joined, quoted


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("orders", "orders"),
        ("订单", "订单"),
        ("order.*", "'order.*'"),
        ("", "''"),
        ("the broker's disk", '"the broker\'s disk"'),
        ('say "no"', "'say \"no\"'"),
        ("it's $5", "'it'\"'\"'s $5'"),
    ],
)
def test_a_word_is_quoted_where_a_shell_wants_it(word: str, shown: str) -> None:
    assert quoted(word) == shown


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=4))
def test_a_shell_reads_the_words_back(words: list[str]) -> None:
    assert shlex.split(joined(words)) == words
