"""The talks of both protocols meet every action there is, and each does its own work in them: a list of their own once left two out."""

from __future__ import annotations

from collections import Counter

import pytest
from fuzz.inputs import known
from fuzz.scripts import LETTERS, letters_of
from fuzz.seeds import talk_seeds
from fuzz.targets import amqp, rocketmq

from gateway.pipeline.actions.counting import HELD
from gateway.pipeline.actions.table import ACTIONS
from gateway.pipeline.conversation import DROPPED, REFUSED
from limiter.rules.actions import ACTION_RECORDS

TALKS = {"amqp_talk": amqp.talk_of, "rocketmq_talk": rocketmq.talk_of}
DONE = {  # what each does by itself
    record.name: HELD if record.holds else DROPPED if record.situation == "dropped" else REFUSED for record in ACTION_RECORDS.values()
}


def test_every_action_has_a_name_of_its_own() -> None:
    assert LETTERS.keys() == ACTIONS.keys()
    assert len({*LETTERS.values(), "x"}) == len(ACTIONS) + 1
    assert letters_of(["delay", "drop", "deposit"]) == {"delay": "d", "drop": "r", "deposit": "e"}


@pytest.mark.parametrize("name", TALKS)
def test_talks_meet_every_action_and_each_limits_in_its_own_way(name: str) -> None:
    outcomes: Counter[tuple[str, int]] = Counter()
    written = 0
    for data in [*known(name), *(data for target, data in talk_seeds() if target == name)]:  # the corpus may be older than an action
        talk = TALKS[name](data)
        assert talk.disk is not None
        written += talk.disk.written
        outcomes += talk.outcomes
    assert [action for action, outcome in DONE.items() if not outcomes[action, outcome]] == []
    assert written, "what is spooled goes through files"
