"""Lines take turns, and one that has to wait for its turn costs nothing meanwhile."""

from __future__ import annotations

from time import process_time

from support.rocketmq import frames as rocketmq
from support.wires.conversations import SECOND, Talk, rule


def waiting(keys: int, each: int = 1) -> Talk:
    """A talk in which so many sends of so many keys wait."""
    talk = Talk("rocketmq", rule("delay", messages=0))
    talk.client(b"".join(rocketmq.send(f"t{opaque % keys}", b"x", opaque=opaque) for opaque in range(keys * each)))
    return talk


def test_lines_that_are_due_take_turns_however_little_room_there_is() -> None:
    talk = waiting(5, each=3)
    conversation = talk.conversation
    now = talk.now + SECOND
    taken: list[str] = []
    for _ in range(15):
        for part in conversation.lines.take_due(now, 1):
            assert part.key is not None
            taken.append(part.key.text[-2:])
            conversation.refuse(part)
    assert taken == ["t0", "t1", "t2", "t3", "t4"] * 3
    assert talk.holds_nothing()


def test_each_message_of_a_batch_counts_as_held_until_all_of_it_is_over() -> None:
    talk = Talk("rocketmq", rule("delay", messages=0))
    talk.client(
        rocketmq.send("orders", rocketmq.batch_body(*[b"x"] * 5), code=320, batch=True, opaque=1) + rocketmq.send("orders", b"x", opaque=2)
    )
    assert talk.conversation.budget.held_messages == 6
    for part in talk.conversation.lines.take_due(talk.now + SECOND, 10):
        talk.conversation.refuse(part)
    assert talk.holds_nothing()


def test_one_request_costs_no_more_where_ten_thousand_lines_are_due() -> None:
    """As an answer that frees a slot takes it: everything that waits for one is due by then."""
    few, many = waiting(50), waiting(10_000)
    assert cost_of_turns(many) < 20 * cost_of_turns(few)


def cost_of_turns(talk: Talk) -> float:
    """Processor time of a hundred requests that are taken one by one, and refused again; the least of three times."""
    conversation = talk.conversation
    costs = []
    for _ in range(3):
        before = process_time()
        for _ in range(100):
            talk.now += 1000
            (part,) = conversation.lines.take_due(talk.now + SECOND, 1)
            assert conversation.lines.hold(part, talk.now + SECOND // 10)
        costs.append(process_time() - before)
    return min(costs)
