"""What a message takes in calls is counted, the same each time, and does not grow without somebody's saying so here."""

from __future__ import annotations

import pytest
from calls import count, measure

from limiter.judge import Judge
from limiter.rules.rule_set import RuleSet
from support.rocketmq import frames as rocketmq
from support.wires.conversations import Talk, rule

MOST = {  # calls, files; may become less
    ("amqp", "there"): (95, 32), ("amqp", "back"): (51, 17), ("rocketmq", "there"): (99, 33), ("rocketmq", "back"): (33, 11),
}  # fmt: skip


@pytest.mark.parametrize("protocol", ["amqp", "rocketmq"])
def test_a_message_takes_no_more_calls_nor_files_than_it_did(protocol: str) -> None:
    found = measure(protocol)
    for way, calls in found.items():
        most = MOST[protocol, way]
        assert calls.total() <= most[0], (way, calls)
        assert len({file for file, _ in calls}) <= most[1], (way, calls)
        assert calls.total() > most[0] // 2, "is the harness what it was?"
    assert found["there"]["gateway/pipeline/handlers/forward.py", "Forward.carry"] == 1
    assert measure(protocol) == found


def test_a_topic_that_is_not_told_apart_is_looked_up_once_a_send() -> None:
    """That is what a flood of invented names costs."""
    judge = Judge(RuleSet((rule(),)), bounds_names=True)
    talk = Talk("rocketmq", judge=judge)
    talk.client(b"".join(rocketmq.send(f"named-{number}", opaque=number) for number in range(5)))
    for new_names in {part.key.origin.new_names for part in talk.parts if part.key is not None}:
        assert new_names is not None
        new_names.empty_at = talk.now  # all are used
    invented = b"".join(rocketmq.send(f"invented-{number}", opaque=number) for number in range(20))
    calls = count(lambda: talk.client(invented))
    assert talk.requests[-20:] == [("__other__", "producers", 1, 200)] * 20
    assert calls["limiter/decisions/origins.py", "Origins.beyond"] == 20
