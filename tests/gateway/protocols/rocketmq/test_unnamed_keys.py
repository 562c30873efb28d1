"""Sends of a client that has no new name left (`limiter.new_names`)."""

from __future__ import annotations

from limiter.judge import Judge
from limiter.limits import Limit, Rate
from limiter.rules.rule import Rule
from limiter.rules.rule_set import RuleSet
from support.rocketmq.frames import send
from support.wires.conversations import Talk


def test_a_group_that_is_no_text_is_one_also_where_names_are_not_told_apart() -> None:
    """What stands in a key goes to workers, answers and files as UTF-8."""
    judge = Judge(RuleSet((Rule("group", per="group", limit=Limit(messages=Rate(5))),)), bounds_names=True)
    talk = Talk("rocketmq", judge=judge)
    talk.client(send(topic="first"))
    (origin,) = {part.key.origin for part in talk.parts if part.key is not None}
    assert origin.new_names is not None
    while origin.new_names.take(talk.now):
        pass
    talk.client(send(topic="other", binary=True, group="GRPX").replace(b"GRPX", b"\xff\xfeAB"))
    key = talk.parts[-1].key
    assert key is not None
    assert key.group == "��AB".encode()
