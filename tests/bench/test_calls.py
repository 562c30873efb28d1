"""What a message takes in calls is counted, the same each time, and does not grow without somebody's saying so here."""

from __future__ import annotations

import pytest
from calls import measure

MOST = {  # calls, files; may become less
    ("amqp", "there"): (94, 32), ("amqp", "back"): (51, 17), ("rocketmq", "there"): (96, 32), ("rocketmq", "back"): (33, 11),
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
