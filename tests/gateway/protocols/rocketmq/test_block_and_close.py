"""Actions block and close: the connection is not read for as long as clients wait, or it is closed and the request stays unanswered."""

from __future__ import annotations

from limiter.limits import NEVER
from support.rocketmq import frames as rocketmq
from support.wires.conversations import SECOND, Talk, rule


def sends(*opaques: int, topic: str = "orders") -> bytes:
    return b"".join(rocketmq.send(topic, opaque=opaque) for opaque in opaques)


# ---- block -------------------------------------------------------------------------------------------------------------


def test_sends_that_may_pass_in_time_pass_and_the_client_is_read_again() -> None:
    talk = Talk("rocketmq", rule("block", messages=1, burst=1))
    talk.client(sends(1, 2, 3))
    assert (talk.conversation.budget.blocking, talk.to_broker) == (1, sends(1))
    talk.wait(SECOND)
    assert talk.conversation.budget.blocking == 1
    talk.wait(SECOND)
    assert talk.to_broker == sends(1, 2, 3)
    assert (talk.conversation.budget.blocking, talk.to_client) == (0, b"")
    assert talk.holds_nothing()


def test_sends_that_may_not_pass_before_clients_give_up_are_refused() -> None:
    talk = Talk("rocketmq", rule("block", messages=0))
    talk.client(sends(1, 2))
    talk.wait(5 * SECOND // 2 - 1)
    assert talk.to_client == b""
    talk.wait(1)
    answers = [rocketmq.read_response(frame) for frame in rocketmq.split_frames(talk.to_client)]
    assert [answer["opaque"] for answer in answers] == [1, 2]
    assert talk.conversation.budget.blocking == 0
    assert talk.holds_nothing()


def test_a_send_that_only_waits_behind_a_blocked_one_is_no_reason_of_its_own() -> None:
    talk = Talk("rocketmq", rule("block", messages=1, burst=1, topic="orders"))
    talk.client(sends(1, 2) + sends(3, topic="free"))
    assert talk.conversation.budget.blocking == 1
    assert talk.to_broker == sends(1) + sends(3, topic="free")


def test_giving_up_blocks_nobody() -> None:
    talk = Talk("rocketmq", rule("block", messages=0))
    talk.client(sends(1, 2))
    assert sum(part.count for part in talk.conversation.abandon()) == 2
    assert (talk.conversation.budget.blocking, talk.conversation.budget.next_due) == (0, NEVER)


# ---- close -------------------------------------------------------------------------------------------------------------


def test_the_connection_is_to_be_closed_and_nobody_is_answered() -> None:
    talk = Talk("rocketmq", rule("close", messages=1, burst=1, topic="orders"))
    talk.client(sends(1, 2, 3) + sends(4, topic="free"))
    assert talk.conversation.reports.close_reason == "orders is over its limit (rule all)"
    assert (talk.to_broker, talk.to_client) == (sends(1), b"")
    refused = {part.key.text: part.key.tally.refused for part in talk.parts if part.key is not None}
    assert refused == {"orders": 2, "free": 0}
    assert sum(part.count for part in talk.conversation.reports.abandoned) == 1  # its sender sees the connection end, not an answer


def test_the_rest_of_a_large_refused_send_goes_nowhere() -> None:
    talk = Talk("rocketmq", rule("close", messages=0))
    large = rocketmq.send("orders", opaque=1, body=b"x" * 3_000_000)
    talk.client(b"", [large[at : at + 100_000] for at in range(0, len(large), 100_000)])
    assert (talk.to_broker, talk.to_client) == (b"", b"")
    assert talk.conversation.reports.close_reason
