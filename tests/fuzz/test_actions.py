"""The talks of both protocols meet every action there is, and each does its own work in them: a list of their own once left two out."""

from __future__ import annotations

from collections import Counter

import pytest
from fuzz.inputs import known
from fuzz.scripts import LETTERS, letters_of
from fuzz.targets import amqp, rocketmq

from gateway.pipeline.actions.counting import HELD
from gateway.pipeline.actions.table import ACTIONS
from gateway.pipeline.conversation import DROPPED, REFUSED

TALKS = {"amqp_talk": amqp.talk_of, "rocketmq_talk": rocketmq.talk_of}
DONE = {"reject": REFUSED, "delay": HELD, "block": HELD, "drop": DROPPED, "close": REFUSED, "spool": HELD}  # what only this action does


def test_every_action_has_a_name_of_its_own() -> None:
    assert LETTERS.keys() == ACTIONS.keys()
    assert len({*LETTERS.values(), "x"}) == len(ACTIONS) + 1
    assert letters_of(["delay", "drop", "deposit"]) == {"delay": "d", "drop": "r", "deposit": "e"}


@pytest.mark.parametrize("name", TALKS)
def test_the_corpus_meets_every_action_and_each_limits_in_its_own_way(name: str) -> None:
    outcomes: Counter[tuple[str, int]] = Counter()
    written = 0
    for data in known(name):
        talk = TALKS[name](data)
        assert talk.disk is not None
        written += talk.disk.written
        outcomes += talk.outcomes
    assert DONE.keys() == ACTIONS.keys()
    assert [action for action, outcome in DONE.items() if not outcomes[action, outcome]] == []
    assert written, "what is spooled goes through files"
