"""What a client gives back is held at its limit, apart from its channel; and each tag is answered once, with what the client said."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from pamqp import base, commands

from gateway.protocols.amqp.conversation import AmqpConversation
from gateway.protocols.amqp.deliveries.settlements import MAX_SOURCES, Settlements
from limiter.limits import NEVER, Limit, Rate
from limiter.rules.rule_set import Match, Rule, RuleSet
from support.amqp import frames as amqp
from support.amqp.requeue_schedules import play
from support.wires.conversations import SECOND, Talk, bytewise, randomly

MS = SECOND // 1000
SCHEDULES = 400
LONG = 100_000  # 15 minutes, interpreted


def limit(messages: int = 10, *, burst: int = 1, queue: str = "jobs", **more: Any) -> Rule:
    """So many requeues of a queue a second."""
    rate = Limit(messages=Rate(messages), messages_burst=burst)
    return Rule(f"limit {queue}", Match(queue=queue, operation="requeue"), limit=rate, action="delay", **more)


def consuming(*rules: Rule, confirms: tuple[int, ...] = (), deliveries: int = 9, no_ack: bool = False, room: int = 512) -> Talk:
    """Channels 1 and 2 consume from `jobs` (tag j) and `mail` (tag m), and have got so many of `jobs` each."""
    talk = Talk("amqp", *(rules or (limit(),)), room=room)
    talk.client(amqp.greeting(channels=(1, 2), confirms=confirms, frame_max=4096))
    talk.broker(amqp.broker_opens())
    talk.broker(amqp.opened(1, 2))
    for channel in (1, 2):
        for tag, queue in (("j", "jobs"), ("m", "mail")):
            talk.client(said(commands.Basic.Consume(queue=queue, consumer_tag=tag, nowait=True, no_ack=no_ack), channel))
        talk.broker(delivered(channel, *range(1, deliveries + 1)))
    talk.to_broker = talk.to_client = b""
    return talk


def delivered(channel: int, *tags: int, consumer: str = "j", redelivered: bool = False) -> bytes:
    found = []
    for tag in tags:
        method = commands.Basic.Deliver(consumer_tag=consumer, delivery_tag=tag, redelivered=redelivered, exchange="", routing_key="q")
        found.append(amqp.method(channel, method) + amqp.content(channel, b"hello"))
    return b"".join(found)


def said(frame: base.Frame, channel: int = 1) -> bytes:
    return amqp.method(channel, frame)


def nack(tag: int, channel: int = 1, *, multiple: bool = False, requeue: bool = True) -> bytes:
    return said(commands.Basic.Nack(tag, multiple, requeue), channel)


def ack(tag: int, channel: int = 1, *, multiple: bool = False) -> bytes:
    return said(commands.Basic.Ack(tag, multiple), channel)


def told(talk: Talk) -> bytes:
    """What the broker has been told since the last time."""
    data, talk.to_broker = talk.to_broker, b""
    return data


def requeued(talk: Talk) -> list[int]:
    """The tags that the broker has been told to requeue since the last time, and nothing else."""
    frames = amqp.read(told(talk))
    assert all(frame.name == "Basic.Nack" and frame.value.requeue and not frame.value.multiple for frame in frames)
    return [frame.value.delivery_tag for frame in frames]


def splits_at_most(talk: Talk, frames: int) -> None:
    assert isinstance(talk.conversation, AmqpConversation)
    talk.conversation.deliveries.requeues.max_split = frames


def budget(talk: Talk) -> tuple[int, int, int]:
    found = talk.conversation.budget
    return found.held_bytes, found.held_polls, found.next_due


def test_what_is_over_the_limit_waits_and_the_acks_behind_it_do_not() -> None:
    talk = consuming()
    talk.client(nack(1) + nack(2) + ack(3) + nack(4) + amqp.publish(1, "orders") + ack(5))
    assert told(talk) == nack(1) + ack(3) + amqp.publish(1, "orders") + ack(5)
    talk.wait(100 * MS)
    assert told(talk) == nack(2)
    talk.wait(100 * MS)
    assert told(talk) == nack(4)
    assert budget(talk) == (0, 0, NEVER)


def test_the_consumer_whose_requeue_waits_is_known_by_its_tag() -> None:
    talk = consuming()
    talk.client(nack(1))
    (first,) = {part.key for part in talk.parts if part.key is not None and part.key.operation == "requeue"}
    assert first.consumer == ""
    talk.client(nack(2))
    assert first.consumer == "j"


def test_a_rule_for_another_operation_or_queue_does_not_hold_it_and_one_in_shadow_only_counts() -> None:
    publishes = Rule("publishes", Match(queue="jobs"), limit=Limit(messages=Rate(1)))
    talk = consuming(publishes, limit(queue="mail"))
    talk.client(nack(1) + nack(2) + nack(3, multiple=True))
    assert told(talk) == nack(1) + nack(2) + nack(3, multiple=True)
    talk = consuming(limit(mode="shadow"))
    talk.client(nack(1) + nack(2) + nack(3))
    assert told(talk) == nack(1) + nack(2) + nack(3)
    assert talk.parts[-1].shadow_refused == 2


@pytest.mark.parametrize("level", ["vhost", "user", "client", "connection", "rule"])
def test_all_queues_of_a_level_share_its_limit(level: str) -> None:
    rate = Limit(messages=Rate(10), messages_burst=1)
    talk = consuming(Rule("all", Match(operation="requeue"), per=level, limit=rate, action="delay"))
    talk.broker(delivered(2, 10, consumer="m"))
    talk.client(nack(1) + nack(10, 2))
    assert told(talk) == nack(1)
    talk.wait(SECOND)
    assert told(talk) == nack(10, 2)


def test_queues_of_one_channel_do_not_wait_for_each_other() -> None:
    talk = consuming(limit(), limit(queue="mail"))
    talk.broker(delivered(1, 10, 11, consumer="m"))
    talk.client(nack(1) + nack(2) + nack(10) + nack(11))
    assert told(talk) == nack(1) + nack(10)


def test_a_reject_counts_as_a_nack_does() -> None:
    talk = consuming()
    reject = [said(commands.Basic.Reject(tag, True)) for tag in range(1, 4)]
    talk.client(b"".join(reject) + said(commands.Basic.Reject(4, False)))
    assert told(talk) == reject[0] + said(commands.Basic.Reject(4, False))
    talk.wait(SECOND)
    assert told(talk) == reject[1] + reject[2]


# ---- the trap ------------------------------------------------------------------------------------------------------


def test_an_ack_of_many_does_not_acknowledge_what_waits() -> None:
    talk = consuming()
    talk.client(nack(9) + nack(3) + nack(5))
    assert told(talk) == nack(9)
    talk.client(ack(7, multiple=True))
    assert told(talk) == ack(2, multiple=True) + ack(4) + ack(6) + ack(7)
    talk.client(nack(8, multiple=True, requeue=False))
    assert told(talk) == nack(8, requeue=False)
    talk.wait(SECOND)
    assert requeued(talk) == [3, 5]


def test_it_does_not_either_in_the_read_in_which_that_was_said() -> None:
    stream = nack(1) + nack(3) + ack(5, multiple=True) + ack(0, multiple=True)
    rest = ack(4) + ack(5) + ack(6) + ack(7) + ack(8) + ack(9)
    for chunks in (None, bytewise(stream)):
        talk = consuming()
        talk.client(stream, chunks)
        assert told(talk) == nack(1) + ack(2, multiple=chunks is not None) + rest, "in one read nobody knows yet that 1 has gone"
        talk.wait(SECOND)
        assert requeued(talk) == [3]


def test_what_has_gone_does_not_split_an_ack_any_more() -> None:
    talk = consuming()
    talk.client(nack(1) + nack(2))
    talk.wait(SECOND)
    assert requeued(talk) == [1, 2]
    talk.client(ack(7, multiple=True))
    assert told(talk) == ack(7, multiple=True)


def test_a_requeue_of_many_counts_each_and_goes_one_by_one() -> None:
    talk = consuming(limit(burst=2))
    talk.broker(delivered(1, 10, consumer="m"))
    talk.client(ack(2) + nack(0, multiple=True))
    assert told(talk) == ack(2) + nack(1) + nack(3) + nack(10)
    talk.wait(SECOND)
    assert requeued(talk) == [4, 5, 6, 7, 8, 9]
    talk.client(nack(0, multiple=True))
    assert told(talk) == b"", "nothing is left, and RabbitMQ would say nothing"


def test_a_tag_that_is_answered_twice_is_the_brokers_to_judge_in_the_clients_order() -> None:
    for again in (ack(2), nack(2), ack(2, multiple=True)):
        talk = consuming()
        talk.client(nack(1) + nack(2) + nack(3) + again)
        assert told(talk)[: len(nack(1))] == nack(1)
        talk.wait(SECOND)
    talk = consuming()
    talk.client(nack(1) + nack(2) + nack(3))
    told(talk)
    talk.client(ack(2))
    assert told(talk) == nack(2) + nack(3) + ack(2)
    talk.client(nack(99) + said(commands.Basic.Nack(99, True, True)))
    assert told(talk) == nack(99) + nack(99, multiple=True), "an unknown tag"


def test_where_it_is_not_known_what_is_outstanding_what_waits_goes_first() -> None:
    talk = consuming()
    splits_at_most(talk, 3)
    talk.client(nack(1) + nack(2) + ack(9, multiple=True))
    assert told(talk) == nack(1) + nack(2) + ack(9, multiple=True)
    assert budget(talk) == (0, 0, NEVER)
    talk.broker(delivered(1, 10, 11, 12))
    talk.client(nack(10) + nack(11))
    assert told(talk) == b"", "after that it is held again"


def test_a_requeue_of_very_many_waits_in_its_channel() -> None:
    talk = consuming()
    splits_at_most(talk, 3)
    talk.client(nack(5, multiple=True) + ack(6))
    assert told(talk) == b""
    talk.wait(399 * MS)
    assert told(talk) == b"", "five, of which one was the burst"
    talk.wait(2 * MS)
    assert told(talk) == nack(5, multiple=True) + ack(6)


# ---- recover, transactions -----------------------------------------------------------------------------------------


def test_recover_counts_all_that_is_outstanding_and_its_channel_waits() -> None:
    talk = consuming(limit(burst=2))
    recover = said(commands.Basic.Recover(True))
    talk.client(nack(1) + nack(2) + nack(3) + recover + said(commands.Basic.Qos(prefetch_count=3)))
    assert requeued(talk) == [1, 2, 3], "the last goes unpaid, because it was said before"
    talk.wait(599 * MS)
    assert told(talk) == b""
    talk.wait(2 * MS)
    assert told(talk) == recover + said(commands.Basic.Qos(prefetch_count=3))
    talk.broker(said(commands.Basic.RecoverOk()) + said(commands.Basic.QosOk()) + delivered(1, 10, 11, 12, redelivered=True))
    talk.client(ack(11) + ack(0, multiple=True))
    assert told(talk) == ack(11) + ack(12, multiple=True), "the account is sure again"


def test_recover_of_old_goes_one_by_one_and_without_a_requeue_is_the_brokers_to_judge() -> None:
    talk = consuming(limit(burst=2), deliveries=3)
    without = said(commands.Basic.Recover(False))
    talk.client(amqp.raw_frame(1, 1, b"\x00\x3c\x00\x64\x01"))
    assert requeued(talk) == [1, 2]
    talk.client(without)
    assert told(talk) == nack(3) + without


def test_in_a_transaction_it_waits_in_its_place() -> None:
    talk = consuming()
    talk.client(nack(1) + nack(2) + said(commands.Tx.Select()))
    assert told(talk) == nack(1) + nack(2) + said(commands.Tx.Select()), "what was said before is not the transaction's"
    talk.broker(said(commands.Tx.SelectOk()))
    talk.wait(SECOND)
    talk.client(nack(3) + nack(4) + ack(5) + said(commands.Tx.Commit()))
    assert told(talk) == nack(3)
    talk.wait(100 * MS)
    assert told(talk) == nack(4) + ack(5) + said(commands.Tx.Commit())


# ---- ends ----------------------------------------------------------------------------------------------------------


def test_a_closed_channel_drops_what_waits_and_says_nothing_of_it() -> None:
    close = said(commands.Channel.Close(200, "bye", 0, 0))
    talk = consuming()
    talk.client(nack(1) + nack(2) + nack(3) + close + said(commands.Channel.Open()))
    assert told(talk) == nack(1) + close + said(commands.Channel.Open())
    talk.wait(SECOND)
    assert told(talk) == b""
    assert budget(talk) == (0, 0, NEVER)
    assert sum(part.count for part in talk.conversation.reports.abandoned) == 2
    talk = consuming()
    talk.client(nack(1) + nack(2) + nack(1, 2))
    talk.broker(said(commands.Channel.Close(406, "timeout", 0, 0)))
    told(talk)
    talk.wait(SECOND)
    assert told(talk) == nack(1, 2), "the other channel's"


def test_a_closed_connection_does_not_wait_for_it() -> None:
    close = said(commands.Connection.Close(200, "bye", 0, 0), 0)
    talk = consuming()
    talk.client(nack(1) + nack(2) + ack(3) + close)
    assert told(talk) == nack(1) + ack(3) + close
    talk = consuming()
    talk.client(nack(1) + nack(2))
    assert not talk.conversation.lines.holds_close()
    assert isinstance(talk.conversation, AmqpConversation)
    assert talk.conversation.settled(), "a drain does not wait for it"
    assert talk.conversation.describe()["held_channels"] == 0
    talk.conversation.leave()
    assert [part.count for part in talk.conversation.abandon()] == [1]


def test_a_cancelled_consumer_leaves_it_where_it_is() -> None:
    talk = consuming()
    talk.client(nack(1) + nack(2) + said(commands.Basic.Cancel("j")))
    assert told(talk) == nack(1) + said(commands.Basic.Cancel("j"))
    talk.broker(said(commands.Basic.CancelOk("j")))
    talk.wait(SECOND)
    assert requeued(talk) == [2]


def test_it_never_comes_within_a_message() -> None:
    talk = consuming(confirms=(1,))
    publish = amqp.publish(1, "orders", b"x" * 6000, cut=4088)
    last = 6000 - 4088 + 8  # bytes of its last frame
    talk.client(nack(1) + nack(2) + nack(3) + publish[:-last])
    assert told(talk) == nack(1) + publish[:-last]
    talk.wait(SECOND)
    assert told(talk) == b""
    talk.client(publish[-last:] + ack(5))
    assert told(talk) == publish[-last:] + nack(2) + nack(3) + ack(5)


def test_another_limit_lets_it_go() -> None:
    talk = consuming(limit(0))
    talk.client(nack(1) + nack(2) + nack(3))
    told(talk)
    talk.wait(60 * SECOND)
    assert told(talk) == b""
    talk.judge.replace(RuleSet(()))
    talk.conversation.renew_keys()
    talk.wait(SECOND)
    assert requeued(talk) == [1, 2, 3]


def test_a_client_that_never_stops_is_not_read_any_more() -> None:
    """What waits counts against its connection, with what the tags cost."""
    talk = consuming(limit(0), deliveries=5000)
    talk.client(b"".join(nack(tag) for tag in range(1, 5001)))
    assert talk.conversation.budget.held_bytes > 5000 * 100
    assert talk.conversation.budget.held_polls == 5000


def test_a_read_full_of_requeues_is_decoded_as_far_as_there_is_room() -> None:
    """Or one batch would overdraw the reader's credit by all that was read."""
    talk = consuming(limit(1000, burst=1000), deliveries=500, room=64)
    talk.client(b"".join(nack(tag) for tag in range(1, 501)))
    assert max(part.count for part in talk.parts) == 64
    assert requeued(talk) == list(range(1, 501))


# ---- backoff -------------------------------------------------------------------------------------------------------


def looping(talk: Talk, seconds: int, *, redelivered: bool = True) -> list[int]:
    """What is given back is delivered again at once, and given back: how many went back in each second."""
    tag = 9
    counts = []
    talk.client(b"".join(nack(each) for each in range(1, 10)))
    for _ in range(seconds * 100):
        back = len(requeued(talk))
        counts.append(back)
        fresh = range(tag + 1, tag + 1 + back)
        tag += back
        talk.broker(delivered(1, *fresh, redelivered=redelivered))
        talk.client(b"".join(nack(each) for each in fresh))
        talk.wait(10 * MS)
    return [sum(counts[at : at + 100]) for at in range(0, len(counts), 100)]


def test_a_loop_backs_off_and_a_consumer_that_gives_back_what_is_new_does_not() -> None:
    plain = looping(consuming(limit(20)), 20)
    assert all(19 <= each <= 22 for each in plain), plain
    backing_off = looping(consuming(limit(20, backoff_ns=4 * SECOND)), 20)
    assert backing_off[0] > 5
    assert sum(backing_off[10:]) <= 5, "each four seconds what the burst lets go"
    assert sum(backing_off[10:]) >= 2
    assert looping(consuming(limit(20, backoff_ns=4 * SECOND)), 20, redelivered=False) == plain


def test_a_loop_without_end_costs_no_memory() -> None:
    talk = consuming(limit(1000, burst=100))
    looping(talk, 5)
    assert isinstance(talk.conversation, AmqpConversation)
    account = talk.conversation.channels[1].settlements
    assert account is not None
    assert account.delivered > 4000
    assert len(account.pending_heap) < 200
    assert len(account.sources) + len(account.above) < 200
    assert len(talk.conversation.deliveries.requeues.lines) == 1


def test_a_pause_ends_with_other_limits() -> None:
    talk = consuming(limit(10, backoff_ns=3000 * SECOND))
    looping(talk, 20)
    assert talk.conversation.budget.next_due > talk.now + 2 * SECOND
    talk.judge.replace(RuleSet((limit(1000, burst=100),)))
    talk.conversation.lines.limits_changed()
    talk.wait(SECOND)
    assert len(requeued(talk)) > 5


# ---- whose they are ------------------------------------------------------------------------------------------------


def test_it_is_known_whose_each_tag_is() -> None:
    talk = consuming(limit(), limit(queue="mail"), deliveries=0)
    conversation = talk.conversation
    assert isinstance(conversation, AmqpConversation)
    numbers = Random(3)
    owners = [numbers.choice("jm") for _ in range(300)]
    talk.broker(b"".join(delivered(1, tag, consumer=owner) for tag, owner in enumerate(owners, 1)))
    account = conversation.channels[1].settlements
    assert account is not None
    queues = [None if found is None else found.queue[:1].decode() for found in map(account.source_of, range(1, 301))]
    assert queues == owners
    assert account.source_of(301) is None
    talk.client(ack(300, multiple=True))
    talk.broker(delivered(1, 301, consumer="j") + delivered(1, 302, consumer="m"))
    assert len(account.sources) == 2, "those of settled tags go"
    for number in range(MAX_SOURCES):
        account.begin_source(account.sources[number % 2][1], redelivered=False)
        account.delivered += 1
    assert len(account.sources) <= MAX_SOURCES
    assert account.source_of(301) is None, "forgotten: it passes"
    assert Settlements().source_of(1) is None


def test_consumers_without_acknowledgement_that_take_turns_cost_no_memory() -> None:
    talk = consuming(limit(), deliveries=0, no_ack=True)
    talk.broker(b"".join(delivered(1, tag, consumer="jm"[tag % 2]) for tag in range(1, 1000)))
    assert isinstance(talk.conversation, AmqpConversation)
    account = talk.conversation.channels[1].settlements
    assert account is not None
    assert account.delivered == 999
    assert len(account.sources) == 1
    assert account.source_of(500) is None


def test_redelivered_messages_are_counted_by_their_queue() -> None:
    for chunks in (None, 1):
        talk = consuming(limit(), deliveries=2)
        data = delivered(1, 3, 4, redelivered=True) + delivered(1, 5) + delivered(1, 6, redelivered=True)
        talk.broker(data, None if chunks is None else randomly(data, chunks))
        talk.broker(delivered(1, 7, consumer="m", redelivered=True))
        found: dict[str, int] = {}
        for one in talk.conversation.reports.delivered:
            found[one.key.text] = found.get(one.key.text, 0) + one.redelivered
        assert found == {"%2F/amq.default/jobs": 3, "%2F/amq.default/mail": 1}


# ---- schedules -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parks", [False, True])
@pytest.mark.parametrize("schedules", [SCHEDULES, pytest.param(LONG, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_each_tag_is_answered_once_and_with_what_the_client_said(schedules: int, parks: bool) -> None:
    """`parks`: while deliveries wait for a limit of their own, too."""
    numbers = Random(schedules)
    answered = held = 0
    for _ in range(schedules):
        chosen = numbers.getrandbits(48), numbers.randint(1, 3), numbers.randint(5, 70)
        try:
            schedule = play(*chosen, parks=parks)
        except Exception as error:
            error.add_note(f"again with: play(*{chosen}, parks={parks})")
            raise
        answered += schedule.answered
        held += schedule.held > 0 and (schedule.parked > 0 or not parks)
    assert answered > 5 * schedules
    assert held > schedules / 4


@pytest.mark.parametrize(
    ("seed", "lanes", "acts"),
    [
        pytest.param(20, 3, 30, id="tag 0 waits, and comes to mean what has been delivered meanwhile"),
        pytest.param(7584, 1, 34, id="an ack of what waits, and the channel's close behind it in one read"),
        pytest.param(22773, 1, 43, id="recover is let go with a publish while a requeue is with the judge"),
    ],
)
def test_schedules_that_once_failed(seed: int, lanes: int, acts: int) -> None:
    assert play(seed, lanes, acts).answered > 0
