"""Words of commands that are shown: a shell takes them for what they are, and people can read them."""

from __future__ import annotations

import os
import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.output import clean
from common.shell_words import command, join_words, quote_word
from common.unsafe_characters import UNSAFE
from support.processes import HANG_S


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
        ("orders\x1b]", r"$'orders\x1b]'"),
        ("it's \\ \u202e\x85\udcff", r"$'it\'s \\ \u202e\u0085\xff'"),
    ],
)
def test_a_word_is_quoted_where_a_shell_wants_it(word: str, shown: str) -> None:
    assert quote_word(word) == shown


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12).filter(lambda word: not UNSAFE.search(word)), max_size=4))
def test_a_shell_reads_the_words_back(words: list[str]) -> None:
    assert shlex.split(join_words(words)) == words


def test_bash_reads_words_back_that_would_do_something_where_they_are_shown() -> None:
    """A terminal is shown none of these characters, so cleaning takes nothing out: `x y\x1b[` lost a quote, and a word behind it ran."""
    unsafe = [char for char in map(chr, range(1, 0x10000)) if UNSAFE.match(char) and not 0xD800 <= ord(char) < 0xE000]
    names = ["x y\x1b[", "b", ";echo pwned;#", *(f"{char}a'\\x41\\" for char in unsafe), *map(os.fsdecode, (b"\xff1", b"\xe2\x80"))]
    line = join_words(names)
    assert clean(line) == line
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    said = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, env=environment, timeout=HANG_S, check=True)
    assert said.stdout.split(b"\0")[:-1] == [*map(os.fsencode, names)]


def test_a_word_that_would_be_an_option_comes_behind_them() -> None:
    """RocketMQ allows the topic `-x`; of the command that was shown for it the terminal said "No such option"."""
    assert command("why", ("rocketmq", "a b")) == "sluice why rocketmq 'a b'"
    assert command("limits set", ("rocketmq", "orders"), "--messages 1/s") == "sluice limits set rocketmq orders --messages 1/s"
    assert command("limits set", ("rocketmq", "-x"), "--messages 1/s") == "sluice limits set --messages 1/s -- rocketmq -x"
    assert command("limits get", ("amqp", "/", "--yes", "k")) == "sluice limits get -- amqp / --yes k"
