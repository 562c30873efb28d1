"""What the gateway makes of a consumer that a rule limits: a window of its own at the broker, away while nothing passes.

On a real broker: `tests/end_to_end/test_rabbitmq_windows.py`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pamqp import base, commands, header

from gateway.pipeline.errors import ProtocolError
from gateway.pipeline.parts import Part
from gateway.protocols.amqp.conversation import AmqpConversation
from limiter.judge import Judge
from limiter.limits import Limit, Rate
from limiter.rules.rule_set import Match, Rule, RuleSet
from support.amqp import frames as amqp
from support.wires.conversations import SECOND, Talk

CONSUME = commands.Basic.Consume
OKS = commands.Basic.QosOk()


def limit(messages: int | None = 10, *, size: int | None = None, burst: int | None = 1, per_ns: int = SECOND) -> Rule:
    rate = None if messages is None else Rate(messages, per_ns)
    limit = Limit(messages=rate, messages_burst=None if messages is None else burst, bytes=None if size is None else Rate(size))
    return Rule("jobs", Match(queue="jobs", operation="consume"), limit=limit, open_for_ns=0)


def talking(*rules: Rule, judge: Judge | None = None) -> Talk:
    talk = Talk("amqp", *rules, judge=judge)
    talk.client(amqp.greeting(channels=(1,), frame_max=4096))
    talk.broker(amqp.broker_opens())
    talk.broker(amqp.opened(1))
    talk.to_broker = talk.to_client = b""
    return talk


def says(talk: Talk, *said: base.Frame) -> list[Any]:
    """What goes to the broker when the client says that."""
    talk.client(b"".join(amqp.method(1, one) for one in said))
    return to_broker(talk)


def to_broker(talk: Talk) -> list[Any]:
    talk.wait(0)
    data, talk.to_broker = talk.to_broker, b""
    return [frame.value for frame in amqp.read(data)]


def answers(talk: Talk, *said: base.Frame) -> list[str]:
    """What the client gets of these answers of the broker's."""
    talk.to_client = b""
    talk.broker(b"".join(amqp.method(1, one) for one in said))
    return amqp.names(talk.to_client)


def consuming(rule: Rule, *, prefetch: int = 0, **more: Any) -> tuple[Talk, str]:
    """A client that consumes from `jobs` by tag `c`; and its tag at the broker."""
    talk = talking(rule)
    if prefetch:
        says(talk, commands.Basic.Qos(prefetch_count=prefetch))
        answers(talk, OKS)
    said = says(talk, CONSUME(queue="jobs", consumer_tag="c", **more))
    answers(talk, *(OKS for one in said if one.name == "Basic.Qos"), commands.Basic.ConsumeOk("c"))
    return talk, "c"


def names(frames: list[Any]) -> list[str]:
    return [frame.name for frame in frames]


def deliver(talk: Talk, tag: str, *numbers: int, size: int = 5) -> list[Any]:
    """The broker delivers these; what the client gets at once."""
    talk.to_client = b""
    talk.broker(b"".join(amqp.deliver(1, b"x" * size, tag=number, consumer_tag=tag, cut=4088) for number in numbers))
    return [frame.value for frame in amqp.read(talk.to_client) if frame.name == "Basic.Deliver"]


def change(talk: Talk, *rules: Rule) -> list[Any]:
    """Other rules are in force; what goes to the broker."""
    talk.judge.replace(RuleSet(rules), talk.now)
    assert talk.conversation.lines.follows_limits()
    talk.conversation.lines.limits_changed()
    return to_broker(talk)


@pytest.mark.parametrize(("prefetch", "window"), [(0, 10), (11, 10), (10, None), (3, None), (1, None)])
def test_a_limited_consumer_has_what_passes_in_a_second_unless_its_own_prefetch_is_less(prefetch: int, window: int | None) -> None:
    talk = talking(limit())
    if prefetch:
        assert names(says(talk, commands.Basic.Qos(prefetch_count=prefetch))) == ["Basic.Qos"]
        assert answers(talk, OKS) == ["Basic.QosOk"]
    said = says(talk, CONSUME(queue="jobs", consumer_tag="c"), CONSUME(queue="mail", consumer_tag="m"))
    if window is None:
        assert names(said) == ["Basic.Consume", "Basic.Consume"]
        return
    assert names(said) == ["Basic.Qos", "Basic.Consume", "Basic.Qos", "Basic.Consume"]
    assert (said[0].prefetch_count, said[2].prefetch_count) == (window, prefetch)
    assert answers(talk, OKS, commands.Basic.ConsumeOk("c"), OKS, commands.Basic.ConsumeOk("m")) == ["Basic.ConsumeOk"] * 2


def test_those_that_share_a_limit_share_the_window() -> None:
    talk = talking(limit())
    windows = [says(talk, CONSUME(queue="jobs", consumer_tag=tag, nowait=True))[0].prefetch_count for tag in ("a", "b", "c")]
    assert windows == [10, 5, 4]
    says(talk, commands.Basic.Cancel("a", nowait=True), commands.Basic.Cancel("b", nowait=True), commands.Basic.Cancel("c", nowait=True))
    assert says(talk, CONSUME(queue="jobs", consumer_tag="d"))[0].prefetch_count == 10
    talk.conversation.end()
    assert talk.judge.origins.consumers == {}


def test_one_whose_client_is_gone_shares_nothing_any_more() -> None:
    talk = talking(limit())
    says(talk, CONSUME(queue="jobs", consumer_tag="a", nowait=True))
    talk.conversation.leave()
    change(talk, limit(20))
    assert talk.judge.origins.consumers == {}


def test_a_limit_of_bytes_asks_for_few_until_it_knows_their_size() -> None:
    talk = talking(limit(None, size=41_000))
    assert says(talk, CONSUME(queue="jobs", consumer_tag="c"))[0].prefetch_count == 10


def test_one_without_acknowledgement_is_acknowledged_as_it_passes() -> None:
    talk, tag = consuming(limit(), no_ack=True)
    assert [one.delivery_tag for one in deliver(talk, tag, 1, 2)] == [1]
    (ack,) = to_broker(talk)
    assert (ack.name, ack.delivery_tag) == ("Basic.Ack", 1)
    talk.wait(SECOND // 10)
    assert [one.delivery_tag for one in to_broker(talk)] == [2]
    assert not talk.conversation.keeps_forgotten()


def test_one_without_acknowledgement_is_acknowledged_also_when_its_client_has_cancelled_it() -> None:
    talk, tag = consuming(limit(), no_ack=True)
    deliver(talk, tag, 1, 2, 3)
    to_broker(talk)
    assert names(says(talk, commands.Basic.Cancel("c"))) == ["Basic.Cancel", "Basic.Ack"]  # what waits passes at once
    assert len(deliver(talk, tag, 4)) == 1
    assert [one.delivery_tag for one in to_broker(talk)] == [4]
    assert answers(talk, commands.Basic.CancelOk("c")) == ["Basic.CancelOk"]


def test_beside_a_consumer_that_acknowledges_only_its_own_are() -> None:
    talk, tag = consuming(limit(1000, burst=10), no_ack=True)
    says(talk, CONSUME(queue="mail", consumer_tag="m"))
    answers(talk, commands.Basic.ConsumeOk("m"))
    deliver(talk, "m", 1)
    deliver(talk, tag, 2, 3)
    assert [(one.delivery_tag, one.multiple) for one in to_broker(talk)] == [(2, False), (3, False)]
    deliver(talk, "m", 4)
    (ack,) = says(talk, commands.Basic.Ack(0, multiple=True))
    assert (ack.delivery_tag, ack.multiple) == (4, True)


def test_beside_a_limited_consumer_one_without_acknowledgement_whose_tag_the_gateway_makes_leaves_tag_0_as_it_is() -> None:
    talk, _ = consuming(limit())
    (consume,) = says(talk, CONSUME(queue="mail", no_ack=True, nowait=True))
    deliver(talk, consume.consumer_tag, 1)
    (ack,) = says(talk, commands.Basic.Ack(0, multiple=True))
    assert ack.delivery_tag == 0


@pytest.mark.parametrize("rule", [limit(0, burst=None), limit(1, per_ns=60 * SECOND)])
def test_where_nothing_passes_for_long_the_broker_is_asked_for_the_queue_alone(rule: Rule) -> None:
    talk = talking(rule)
    deliver(talk, "c")
    talk.judge.decide([], talk.now)
    (sought,) = says(talk, CONSUME(queue="jobs", consumer_tag="c"))
    assert (sought.name, sought.queue, sought.passive) == ("Queue.Declare", "jobs", True)
    assert answers(talk, commands.Queue.DeclareOk("jobs", 5, 0)) == ["Basic.ConsumeOk"]


@pytest.mark.parametrize("nowait", [False, True])
def test_a_consumer_of_nothing_comes_when_its_limit_does(nowait: bool) -> None:
    talk = talking(limit(0, burst=None))
    says(talk, CONSUME(queue="jobs", consumer_tag="c", nowait=nowait))
    assert answers(talk, commands.Queue.DeclareOk("jobs", 5, 0)) == ([] if nowait else ["Basic.ConsumeOk"])
    assert to_broker(talk) == []
    waits = talk.conversation.lines.first_waiting()
    assert waits is not None
    assert waits.rule is not None
    assert (talk.conversation.budget.waiting(), waits.rule.name) == (1, "jobs")
    qos, consume, _ = change(talk, limit())
    assert talk.conversation.budget.waiting() == 0
    assert (qos.prefetch_count, consume.queue, consume.nowait) == (10, "jobs", True)
    assert answers(talk, OKS, OKS) == []
    talk.wait(SECOND // 10)
    assert [one.consumer_tag for one in deliver(talk, consume.consumer_tag, 1)] == ["c"]


def test_a_consumer_of_nothing_is_refused_as_the_broker_refuses_it() -> None:
    talk = talking(limit(0, burst=None))
    says(talk, CONSUME(queue="jobs", consumer_tag="c"))
    talk.to_client = b""
    talk.broker(amqp.method(1, commands.Channel.Close(404, "NOT_FOUND - no queue 'jobs' in vhost '/'", 50, 10)))
    (close,) = [frame.value for frame in amqp.read(talk.to_client)]
    assert (close.reply_code, close.class_id, close.method_id) == (404, 60, 20)


def test_an_exclusive_consumer_of_nothing_is_refused_by_the_broker_where_there_is_another() -> None:
    talk = talking(limit(0, burst=None))
    says(talk, CONSUME(queue="jobs", consumer_tag="c", exclusive=True))
    assert answers(talk, commands.Queue.DeclareOk("jobs", 5, 1)) == []
    (consume,) = to_broker(talk)
    assert (consume.exclusive, consume.nowait) == (True, False)
    close = commands.Channel.Close(403, "ACCESS_REFUSED - queue 'jobs' in vhost '/' in exclusive use", 60, 20)
    assert answers(talk, close) == ["Channel.Close"]
    assert talk.conversation.budget.waiting() == 0


def test_a_tag_in_use_is_refused_also_where_the_broker_does_not_know_it() -> None:
    talk = talking(limit(0, burst=None))
    says(talk, CONSUME(queue="jobs", consumer_tag="c"))
    with pytest.raises(ProtocolError, match="attempt to reuse consumer tag 'c'"):
        says(talk, CONSUME(queue="jobs", consumer_tag="c"))


def test_a_client_that_cancels_what_the_broker_does_not_know_is_answered_by_it() -> None:
    talk = talking(limit(0, burst=None))
    says(talk, CONSUME(queue="jobs", consumer_tag="c"))
    answers(talk, commands.Queue.DeclareOk("jobs", 5, 0))
    assert names(says(talk, commands.Basic.Cancel("c"))) == ["Basic.Cancel"]
    assert talk.conversation.budget.waiting() == 0
    assert answers(talk, commands.Basic.CancelOk("c")) == ["Basic.CancelOk"]
    assert change(talk, limit()) == []


def test_a_limit_that_becomes_nothing_takes_the_consumer_away_and_gives_back_what_waits() -> None:
    talk, tag = consuming(limit())
    assert len(deliver(talk, tag, 1, 2, 3)) == 1
    said = change(talk, limit(0, burst=None))
    assert names(said) == ["Basic.Cancel", "Basic.Nack", "Basic.Nack"]
    assert [(one.delivery_tag, one.multiple, one.requeue) for one in said[1:]] == [(2, False, True), (3, False, True)]
    assert deliver(talk, tag, 4, size=9000) == []  # on its way
    assert [one.delivery_tag for one in to_broker(talk)] == [4]
    assert answers(talk, commands.Basic.CancelOk("c")) == []
    talk.wait(100 * SECOND)
    assert (to_broker(talk), talk.conversation.budget.parked_bytes) == ([], 0)
    _, consume, _ = change(talk, limit())
    assert consume.consumer_tag != "c"
    talk.wait(SECOND // 10)
    assert [one.consumer_tag for one in deliver(talk, consume.consumer_tag, 5)] == ["c"]
    (cancel,) = says(talk, commands.Basic.Cancel("c"))
    assert cancel.consumer_tag == consume.consumer_tag
    talk.to_client = b""
    talk.broker(amqp.method(1, OKS) * 2 + amqp.method(1, commands.Basic.CancelOk(consume.consumer_tag)))
    assert [frame.value.consumer_tag for frame in amqp.read(talk.to_client)] == ["c"]


def test_what_is_half_there_when_it_goes_back_does_not_reach_the_client() -> None:
    talk, tag = consuming(limit())
    deliver(talk, tag, 1)
    whole = amqp.deliver(1, b"x" * 9000, tag=2, consumer_tag=tag, cut=4088)
    for cut in (20, 80, 5000):
        talk, tag = consuming(limit())
        deliver(talk, tag, 1)
        talk.to_client = b""
        talk.broker(whole[:cut])
        assert names(change(talk, limit(0, burst=None))) == ["Basic.Cancel", *(["Basic.Nack"] if cut > 20 else [])]
        talk.broker(whole[cut:] + amqp.method(1, commands.Basic.CancelOk("c")) + amqp.HEARTBEAT)
        assert talk.to_client == amqp.HEARTBEAT
        assert names(to_broker(talk)) == ([] if cut > 20 else ["Basic.Nack"])
        assert talk.conversation.budget.parked_bytes == 0


def test_a_limit_of_less_than_one_in_two_seconds_takes_one_at_a_time() -> None:
    talk = talking(limit(1, per_ns=10 * SECOND))
    says(talk, CONSUME(queue="jobs", consumer_tag="c"))
    answers(talk, commands.Queue.DeclareOk("jobs", 5, 0))
    for number in range(1, 4):
        qos, consume, _ = to_broker(talk)
        assert qos.prefetch_count == 1
        assert len(deliver(talk, consume.consumer_tag, number)) == 1
        (cancel,) = to_broker(talk)  # before the client can acknowledge it
        assert cancel.name == "Basic.Cancel"
        says(talk, commands.Basic.Ack(number))
        answers(talk, OKS, OKS, commands.Basic.CancelOk(consume.consumer_tag))
        assert to_broker(talk) == []
        talk.wait(10 * SECOND)


@pytest.mark.parametrize("nowait", [False, True])
def test_consumers_that_are_away_are_remembered_within_bounds(nowait: bool) -> None:
    talk = talking(limit(0, burst=None))
    conversation = talk.conversation
    assert isinstance(conversation, AmqpConversation)
    consumers = conversation.deliveries.consumers
    consumers.max_kept = 10
    for number in range(20):
        if names(says(talk, CONSUME(queue="jobs", consumer_tag=str(number), nowait=nowait))) == ["Queue.Declare"]:
            answers(talk, commands.Queue.DeclareOk("jobs", 5, 0))
    assert consumers.kept == len(consumers.subscriptions()) == 10
    change(talk, limit())
    assert consumers.kept == 10


def test_their_arguments_count_by_their_kilobytes() -> None:
    talk = talking(limit(0, burst=None))
    conversation = talk.conversation
    assert isinstance(conversation, AmqpConversation)
    says(talk, CONSUME(queue="jobs", consumer_tag="c", arguments={"a": "x" * 3000}))
    answers(talk, commands.Queue.DeclareOk("jobs", 5, 0))
    assert conversation.deliveries.consumers.kept == 3
    says(talk, commands.Basic.Cancel("c"))
    assert conversation.deliveries.consumers.kept == 0


@pytest.mark.parametrize("prefetch", [1, 3])
def test_a_client_that_has_its_prefetch_unsettled_gets_no_more(prefetch: int) -> None:
    talk = away(limit(1, per_ns=10 * SECOND), prefetch=prefetch)
    for number in range(1, prefetch + 1):
        _, consume, _ = to_broker(talk)
        assert len(deliver(talk, consume.consumer_tag, number)) == 1
        answers(talk, OKS, OKS, commands.Basic.CancelOk(consume.consumer_tag))
        assert names(to_broker(talk)) == ["Basic.Cancel"]
        talk.wait(10 * SECOND)
    talk.wait(100 * SECOND)
    assert to_broker(talk) == []
    says(talk, commands.Basic.Ack(1))
    talk.wait(SECOND)
    assert names(to_broker(talk)) == ["Basic.Qos", "Basic.Consume", "Basic.Qos"]


def test_one_that_was_there_with_its_own_prefetch_comes_when_its_client_has_settled_some() -> None:
    talk, tag = consuming(limit(10, burst=3), prefetch=3)
    assert len(deliver(talk, tag, 1, 2, 3)) == 3
    assert names(change(talk, limit(0, burst=None))) == ["Basic.Cancel"]
    answers(talk, commands.Basic.CancelOk("c"))
    assert change(talk, limit(10, burst=3)) == []
    says(talk, commands.Basic.Ack(1))
    talk.wait(SECOND)
    assert names(to_broker(talk)) == ["Basic.Qos", "Basic.Consume", "Basic.Qos"]


def away(rule: Rule, *, prefetch: int = 0, judge: Judge | None = None, queue: str = "jobs") -> Talk:
    """A client whose consumer of `queue` has begun away from the broker."""
    talk = talking(rule, judge=judge)
    if prefetch:
        says(talk, commands.Basic.Qos(prefetch_count=prefetch))
        answers(talk, OKS)
    says(talk, CONSUME(queue=queue, consumer_tag="c"))
    answers(talk, commands.Queue.DeclareOk(queue, 5, 0))
    return talk


def test_of_those_that_share_such_a_limit_and_a_queue_one_comes_at_a_time() -> None:
    first = away(limit(1, per_ns=10 * SECOND))
    others = [away(limit(1, per_ns=10 * SECOND), judge=first.judge) for _ in range(3)]
    talks = [first, *others]
    for number in range(1, 6):
        for talk in talks:
            talk.wait(10 * SECOND)
        there = [(talk, said[1].consumer_tag) for talk in talks if (said := to_broker(talk))]
        ((talk, tag),) = there
        for other in talks:
            other.wait(100 * SECOND)  # the queue is empty for long
            assert to_broker(other) == []
        assert len(deliver(talk, tag, number)) == 1
        assert names(says(talk, commands.Basic.Ack(number))) == ["Basic.Cancel", "Basic.Ack"]
        answers(talk, OKS, OKS, commands.Basic.CancelOk(tag))
        if number == 3:
            talk.conversation.end()
            talks.remove(talk)
    for talk in talks:
        talk.conversation.end()
    assert first.judge.origins.comers == {}
    assert first.judge.origins.fetches == {}


def test_one_at_an_empty_queue_lets_those_of_other_queues_come() -> None:
    shared = Rule(
        "all", Match(operation="consume"), per="listener", limit=Limit(messages=Rate(1, 10 * SECOND), messages_burst=1), open_for_ns=0
    )
    talk = away(shared)
    assert names(to_broker(talk)) == ["Basic.Qos", "Basic.Consume", "Basic.Qos"]
    other = away(shared, judge=talk.judge, queue="mail")
    assert to_broker(other) == []
    other.wait(SECOND // 2)
    assert names(to_broker(other)) == ["Basic.Qos", "Basic.Consume", "Basic.Qos"]


def test_a_fast_limit_that_slow_ones_share_lets_each_come() -> None:
    fast = Rule("all", Match(operation="consume"), per="listener", limit=Limit(messages=Rate(1000)), open_for_ns=0)
    slow = Rule("slow", Match(operation="consume"), limit=Limit(messages=Rate(1, 10 * SECOND), messages_burst=1), open_for_ns=0)
    judge = Judge(RuleSet((fast, slow)))
    for queue in ("jobs", "mail", "logs"):
        talk = away(slow, judge=judge, queue=queue)
        assert names(to_broker(talk)) == ["Basic.Qos", "Basic.Consume", "Basic.Qos"]


def test_a_limit_that_comes_and_goes_holds_for_a_consumer_that_is_there() -> None:
    talk = talking()
    says(talk, commands.Basic.Qos(prefetch_count=1000))
    answers(talk, OKS)
    assert names(says(talk, CONSUME(queue="jobs", consumer_tag="c"))) == ["Basic.Consume"]
    answers(talk, commands.Basic.ConsumeOk("c"))
    assert len(deliver(talk, "c", 1, 2, 3)) == 3
    assert names(change(talk, limit())) == ["Basic.Cancel"]
    assert deliver(talk, "c", 4, 5) == []
    assert names(to_broker(talk)) == ["Basic.Nack", "Basic.Nack"]
    answers(talk, commands.Basic.CancelOk("c"))
    qos, consume, after = to_broker(talk)
    assert (qos.prefetch_count, after.prefetch_count) == (10, 1000)
    assert len(deliver(talk, consume.consumer_tag, 6, 7)) == 1
    qos, again, _, cancel = change(talk)
    assert (qos.prefetch_count, cancel.consumer_tag) == (1000, consume.consumer_tag)
    talk.wait(SECOND)
    answers(talk, OKS, OKS, OKS, OKS, commands.Basic.CancelOk(consume.consumer_tag))
    assert [one.consumer_tag for one in deliver(talk, again.consumer_tag, 8, 9, 10)] == ["c"] * 3


def test_what_came_before_it_was_begun_anew_goes_back_too() -> None:
    talk, tag = consuming(limit())
    assert len(deliver(talk, tag, 1, 2, 3)) == 1
    _, again, _, cancel = change(talk, limit(1000, burst=1))
    assert cancel.consumer_tag == "c"
    talk.broker(amqp.method(1, OKS) * 2 + amqp.deliver(1, b"x" * 5, tag=4, consumer_tag="c"))  # on its way
    said = change(talk, limit(0, burst=None))
    assert said[0].consumer_tag == again.consumer_tag
    assert [one.delivery_tag for one in said[1:]] == [2, 3, 4]
    assert deliver(talk, "c", 5) == deliver(talk, again.consumer_tag, 6) == []
    assert [one.delivery_tag for one in to_broker(talk)] == [5, 6]
    assert answers(talk, commands.Basic.CancelOk("c"), commands.Basic.CancelOk(again.consumer_tag)) == []
    assert talk.conversation.budget.parked_bytes == 0


def test_a_cancel_does_not_overtake_what_it_cancels() -> None:
    talk, _ = consuming(limit())
    parts: list[Part] = []
    talk.conversation.decode(amqp.method(1, commands.Basic.Cancel("c")), 0, 512, parts)  # settled behind the change of the limit
    talk.judge.replace(RuleSet((limit(1000),)), talk.now)
    talk.conversation.lines.limits_changed()
    talk.settle(parts)
    said = to_broker(talk)
    assert names(said) == ["Basic.Qos", "Basic.Consume", "Basic.Qos", "Basic.Cancel", "Basic.Cancel"]
    assert [one.consumer_tag for one in said[3:]] == ["c", said[1].consumer_tag]


def test_a_client_that_keeps_a_window_unsettled_gets_another() -> None:
    talk, tag = consuming(limit(10, burst=30), prefetch=25)
    assert len(deliver(talk, tag, *range(1, 11))) == 10
    assert to_broker(talk) == []
    talk.wait(SECOND // 2)
    qos, consume, _, cancel = to_broker(talk)
    assert (qos.prefetch_count, cancel.consumer_tag) == (10, "c")
    assert len(deliver(talk, consume.consumer_tag, *range(11, 21))) == 10
    talk.wait(SECOND // 2)
    qos, consume, _, _ = to_broker(talk)
    assert qos.prefetch_count == 5  # as many as the client asked for in all
    assert len(deliver(talk, consume.consumer_tag, *range(21, 26))) == 5
    talk.wait(5 * SECOND)
    assert to_broker(talk) == []
    says(talk, commands.Basic.Ack(25, multiple=True))
    talk.wait(5 * SECOND)
    assert to_broker(talk) == []


def test_a_prompt_client_keeps_its_window() -> None:
    talk, tag = consuming(limit(10, burst=30))
    for number in range(1, 31):
        deliver(talk, tag, number)
        assert names(says(talk, commands.Basic.Ack(number))) == ["Basic.Ack"]
    talk.wait(5 * SECOND)
    assert to_broker(talk) == []


def test_in_a_transaction_all_is_as_the_client_says() -> None:
    talk = talking(limit())
    says(talk, commands.Tx.Select())
    answers(talk, commands.Tx.SelectOk())
    assert names(says(talk, CONSUME(queue="jobs", consumer_tag="c", no_ack=True))) == ["Basic.Consume"]
    answers(talk, commands.Basic.ConsumeOk("c"))
    assert change(talk, limit(0, burst=None)) == []


def test_a_transaction_begins_behind_what_the_gateway_has_made_of_consumers() -> None:
    talk, tag = consuming(limit(), no_ack=True)
    assert len(deliver(talk, tag, 1, 2, 3)) == 1
    to_broker(talk)
    qos, consume, _, cancel, select = says(talk, commands.Tx.Select())
    assert (qos.prefetch_count, consume.no_ack, cancel.consumer_tag, select.name) == (0, True, "c", "Tx.Select")
    answers(talk, commands.Tx.SelectOk(), OKS, OKS)
    assert names(says(talk, commands.Tx.Commit())) == ["Tx.Commit"]
    talk.wait(SECOND)  # meanwhile RabbitMQ takes nothing on that channel (504)
    assert to_broker(talk) == []
    assert "Tx.CommitOk" in answers(talk, commands.Tx.CommitOk())
    assert [one.delivery_tag for one in to_broker(talk)] == [2, 3]


def test_a_consumer_that_begins_right_behind_a_transaction_is_as_the_client_says() -> None:
    """Both in one read. What the gateway acknowledged would be the client's to commit."""
    talk = talking(limit())
    said = says(talk, commands.Tx.Select(), CONSUME(queue="jobs", consumer_tag="c", no_ack=True, nowait=True))
    assert names(said) == ["Tx.Select", "Basic.Consume"]
    assert said[1].no_ack
    assert len(deliver(talk, "c", 1)) == 1
    assert to_broker(talk) == []


def test_an_exclusive_consumer_is_as_the_client_says_in_a_transaction() -> None:
    talk, _ = consuming(limit(), prefetch=25, exclusive=True)
    assert names(says(talk, commands.Tx.Select())) == ["Basic.Cancel", "Tx.Select"]
    answers(talk, commands.Tx.SelectOk(), commands.Basic.CancelOk("c"))
    qos, consume, _ = to_broker(talk)
    assert (qos.prefetch_count, consume.exclusive) == (25, True)


def test_a_queue_that_goes_with_its_last_consumer_is_not_left() -> None:
    talk = talking()
    says(talk, commands.Queue.Declare(queue="jobs", auto_delete=True))
    answers(talk, commands.Queue.DeclareOk("jobs", 0, 0))
    says(talk, CONSUME(queue="jobs", consumer_tag="c"))
    answers(talk, commands.Basic.ConsumeOk("c"))
    assert names(change(talk, limit())) == ["Basic.Qos", "Basic.Consume", "Basic.Qos", "Basic.Cancel"]
    assert change(talk, limit(0, burst=None)) == []


@pytest.mark.parametrize(("name", "queue"), [("jobs", "jobs"), ("", "jobs"), ("", "")])
@pytest.mark.parametrize("declared", [{"auto_delete": True}, {"arguments": {"x-expires": 1000}}])
@pytest.mark.parametrize("no_ack", [False, True])
def test_a_queue_that_goes_without_a_consumer_has_one_at_0_per_second_too(
    name: str, queue: str, declared: dict[str, Any], no_ack: bool
) -> None:
    talk = talking(limit(0, burst=None))
    says(talk, commands.Queue.Declare(queue=name, **declared))
    answers(talk, commands.Queue.DeclareOk("jobs", 0, 0))
    qos, consume, _ = says(talk, CONSUME(queue=queue, consumer_tag="c", no_ack=no_ack))
    assert (qos.prefetch_count, consume.no_ack) == (1, False)
    answers(talk, OKS, commands.Basic.ConsumeOk("c"), OKS)
    assert deliver(talk, "c", 1) == to_broker(talk) == []
    qos, consume, _, cancel = change(talk, limit())
    assert (qos.prefetch_count, cancel.consumer_tag) == (10, "c")


def test_an_exclusive_consumer_of_such_a_queue_has_its_own_prefetch_from_the_start() -> None:
    talk = talking(limit())
    says(talk, commands.Queue.Declare(queue="jobs", auto_delete=True), commands.Basic.Qos(prefetch_count=25))
    answers(talk, commands.Queue.DeclareOk("jobs", 0, 0), OKS)
    assert names(says(talk, CONSUME(queue="jobs", consumer_tag="c", exclusive=True))) == ["Basic.Consume"]
    answers(talk, commands.Basic.ConsumeOk("c"))
    assert change(talk, limit(0, burst=None)) == change(talk, limit()) == []


def test_one_that_was_there_before_0_per_second_keeps_one_message_here_of_such_a_queue() -> None:
    talk = talking()
    says(talk, commands.Queue.Declare(queue="jobs", auto_delete=True))
    answers(talk, commands.Queue.DeclareOk("jobs", 0, 0))
    says(talk, CONSUME(queue="jobs", consumer_tag="c"))
    answers(talk, commands.Basic.ConsumeOk("c"))
    qos, consume, _, cancel = change(talk, limit(0, burst=None))
    assert (qos.prefetch_count, cancel.consumer_tag) == (1, "c")
    change(talk, limit(1, per_ns=10 * SECOND))
    answers(talk, OKS, OKS, commands.Basic.CancelOk("c"))
    assert len(deliver(talk, consume.consumer_tag, 1)) == 1
    talk.wait(SECOND // 2)  # the client waits for more before it settles it
    qos, again, _, cancel = to_broker(talk)
    assert (qos.prefetch_count, cancel.consumer_tag) == (1, consume.consumer_tag)
    assert deliver(talk, again.consumer_tag, 2) == []


@pytest.mark.parametrize(
    ("declared", "arguments"), [({"x-queue-type": "stream"}, {}), ({}, {"x-stream-offset": "first"}), ({}, {"x-stream-offset": 7})]
)
def test_a_stream_is_consumed_as_the_client_says(declared: dict[str, Any], arguments: dict[str, Any]) -> None:
    talk = talking(limit())
    says(talk, commands.Queue.Declare(queue="jobs", durable=True, arguments=declared), commands.Basic.Qos(prefetch_count=100))
    answers(talk, commands.Queue.DeclareOk("jobs", 0, 0), OKS)
    assert names(says(talk, CONSUME(queue="jobs", consumer_tag="c", arguments=arguments))) == ["Basic.Consume"]
    answers(talk, commands.Basic.ConsumeOk("c"))
    talk.to_client = b""
    talk.broker(b"".join([frame for tag in (1, 2, 3) for frame in delivery(tag, of_stream=True)]))
    assert amqp.names(talk.to_client).count("Basic.Deliver") == 1
    assert names(to_broker(talk)) == ["Queue.Declare"]
    assert answers(talk, commands.Queue.DeclareOk("jobs", 0, 0)) == []
    assert change(talk, limit(0, burst=None)) == change(talk, limit(1000, burst=1)) == []
    talk.to_client = b""
    talk.wait(SECOND)
    assert amqp.names(talk.to_client).count("Basic.Deliver") == 2
    change(talk, limit(0, burst=None))
    assert names(says(talk, CONSUME(queue="jobs", consumer_tag="d", arguments=arguments))) == ["Basic.Consume"]


def test_what_the_gateway_says_waits_for_the_end_of_the_clients_message() -> None:
    talk, tag = consuming(limit())
    deliver(talk, tag, 1, 2)
    publish = amqp.publish(1, "orders", b"x" * 9000, cut=4000)
    talk.client(publish[:5000])
    talk.judge.replace(RuleSet((limit(0, burst=None),)), talk.now)
    talk.conversation.lines.limits_changed()
    talk.wait(0)
    assert "Basic.Cancel" not in amqp.names(talk.to_broker[: len(publish)])
    talk.client(publish[5000:])
    talk.wait(0)
    assert talk.to_broker.startswith(publish)
    assert amqp.names(talk.to_broker[len(publish) :]) == ["Basic.Cancel", "Basic.Nack"]


def test_what_the_gateway_acknowledges_goes_before_what_the_client_says_behind_its_message() -> None:
    talk, tag = consuming(limit(1000, burst=10), no_ack=True)
    says(talk, CONSUME(queue="mail", consumer_tag="m"))
    answers(talk, commands.Basic.ConsumeOk("m"))
    publish = amqp.publish(1, "orders", b"x" * 9000, cut=4000)
    talk.client(publish[:5000])
    deliver(talk, tag, 1)
    deliver(talk, "m", 2)
    talk.client(publish[5000:] + amqp.method(1, commands.Basic.Ack(2, multiple=True)))
    talk.wait(0)
    acks = [frame.value for frame in amqp.read(talk.to_broker[len(publish) :])]
    assert [(one.delivery_tag, one.multiple) for one in acks] == [(1, False), (2, True)]


def test_a_get_over_its_limit_waits_and_is_then_answered_as_of_an_empty_queue() -> None:
    talk = talking(limit(2))
    got = amqp.method(1, commands.Basic.GetOk(1, exchange="x", routing_key="y", message_count=0)) + amqp.content(1, b"hello")
    assert names(says(talk, commands.Basic.Get(queue="jobs"), commands.Basic.Get(queue="jobs"))) == ["Basic.Get"]
    talk.to_client = b""
    talk.broker(got)
    assert talk.to_client == got
    talk.wait(SECOND // 2)
    assert names(to_broker(talk)) == ["Basic.Get"]
    assert answers(talk, commands.Basic.GetEmpty()) == ["Basic.GetEmpty"]
    assert names(says(talk, commands.Basic.Get(queue="jobs"))) == ["Basic.Get"]  # an empty queue costs nothing
    answers(talk, commands.Basic.GetEmpty())
    change_to_nothing(talk)
    assert says(talk, commands.Basic.Get(queue="jobs")) == []
    talk.to_client = b""
    talk.wait(SECOND)
    assert amqp.names(talk.to_client) == ["Basic.GetEmpty"]
    conversation = talk.conversation
    assert isinstance(conversation, AmqpConversation)
    key = conversation.deliveries.consumers.key_of(b"jobs")
    assert key is not None
    assert (key.tally.refused, key.tally.received) == (1, 1)


def change_to_nothing(talk: Talk) -> None:
    talk.judge.replace(RuleSet((limit(0, burst=None),)), talk.now)


def test_a_get_behind_a_held_publish_keeps_its_place() -> None:
    held = Rule("orders", Match(routing_key="orders"), limit=Limit(messages=Rate(1), messages_burst=1), open_for_ns=0)
    talk = talking(held, limit())
    talk.client(amqp.publish(1, "orders") * 2 + amqp.method(1, commands.Basic.Get(queue="jobs")))
    assert names(to_broker(talk)).count("Basic.Get") == 0
    talk.wait(SECOND)
    assert names(to_broker(talk))[-1] == "Basic.Get"


def delivery(tag: int, *, of_stream: bool) -> list[bytes]:
    """The frames of a message for consumer `c`."""
    properties = commands.Basic.Properties(headers={"x-stream-offset": tag} if of_stream else {"id": tag})
    deliver = commands.Basic.Deliver(consumer_tag="c", delivery_tag=tag, exchange="", routing_key="jobs")
    return [
        amqp.method(1, deliver),
        amqp.method(1, header.ContentHeader(body_size=1, properties=properties)),
        amqp.raw_frame(3, 1, b"x"),
    ]  # fmt: skip


@pytest.mark.parametrize("known", [3, 0])
def test_a_message_of_a_stream_whose_header_is_to_come_is_not_given_back(known: int) -> None:
    """RabbitMQ would end the connection (540), and all that waits for the client that has gone would be lost."""
    held = Rule("orders", Match(routing_key="orders"), limit=Limit(messages=Rate(1, 1000 * SECOND), messages_burst=1), action="delay",
                open_for_ns=0, max_delay_ns=8 * SECOND)  # fmt: skip
    talk = talking(held)
    says(talk, commands.Basic.Qos(prefetch_count=100), CONSUME(queue="jobs", consumer_tag="c"))
    answers(talk, OKS, commands.Basic.ConsumeOk("c"))
    for tag in range(1, known + 1):
        talk.broker(b"".join(delivery(tag, of_stream=True)))
    talk.client(amqp.publish(1, "orders") * 3)
    to_broker(talk)
    method, content_header, body = delivery(known + 1, of_stream=True)
    talk.broker(method)
    conversation = talk.conversation
    assert isinstance(conversation, AmqpConversation)
    leaving = conversation.deliveries.leaving
    leaving.leave_all(conversation.channels, 10)
    assert amqp.names(leaving.take_words(quiet=True)) == ["Basic.Cancel"]
    talk.broker(content_header + body)
    assert amqp.names(leaving.take_words(quiet=True)) == []


def test_a_message_of_a_queue_goes_back_whatever_its_headers_say() -> None:
    """What an application has read from a stream, it may publish with all its headers."""
    talk, _ = consuming(limit(1))
    talk.broker(b"".join(delivery(1, of_stream=False)))
    change(talk, limit(0, burst=None))
    for tag in (2, 3):
        talk.broker(b"".join(delivery(tag, of_stream=tag == 3)))
        assert names(to_broker(talk)) == ["Basic.Nack"]


@pytest.mark.parametrize("of_stream", [False, True])
def test_a_first_message_whose_header_is_to_come_keeps_its_consumer(of_stream: bool) -> None:
    """Whether it can be given back, its header says; where that may be a copy, the broker."""
    talk, tag = consuming(limit(1), prefetch=5)
    method, *rest = delivery(1, of_stream=of_stream)
    talk.broker(method)
    assert change(talk, limit(0, burst=None)) == []
    talk.broker(b"".join(rest))
    talk.wait(0)
    if of_stream:
        assert names(to_broker(talk)) == ["Queue.Declare"]
        assert answers(talk, commands.Queue.DeclareOk("jobs", 1, 0)) == []
        assert names(to_broker(talk)) == []
    else:
        assert [(one.name, one.consumer_tag if one.name == "Basic.Cancel" else 0) for one in to_broker(talk)] == [
            ("Basic.Cancel", tag),
            ("Basic.Nack", 0),
        ]


@pytest.mark.parametrize("arguments", [{}, {"x-stream-offset": "first"}])
def test_a_header_that_was_copied_from_a_stream_leaves_a_queue_its_window(arguments: dict[str, Any]) -> None:
    talk, _ = consuming(limit(1), prefetch=5, arguments=arguments)
    talk.broker(b"".join(delivery(1, of_stream=True) + delivery(2, of_stream=True)))
    (asked,) = to_broker(talk)
    assert (asked.name, asked.queue, asked.passive) == ("Queue.Declare", "jobs", True)
    talk.client(amqp.method(1, commands.Queue.Declare(queue="mine", passive=True)))
    to_broker(talk)
    assert answers(talk, commands.Queue.DeclareOk("jobs", 0, 1)) == []
    change(talk, limit(0, burst=None))
    conversation = talk.conversation
    assert isinstance(conversation, AmqpConversation)
    assert conversation.deliveries.lot.budget.parked_messages == 0
    assert answers(talk, commands.Queue.DeclareOk("mine", 0, 0)) == ["Queue.DeclareOk"]


def test_a_copied_header_that_comes_behind_the_cancel_waits_here() -> None:
    """Nobody can be asked then: it may be a stream's, which would cost the connection."""
    talk, tag = consuming(limit(1), prefetch=5)
    assert names(change(talk, limit(0, burst=None))) == ["Basic.Cancel"]
    talk.broker(b"".join(delivery(1, of_stream=True) + delivery(2, of_stream=False)))
    assert names(to_broker(talk)) == []
    answers(talk, commands.Basic.CancelOk(tag))
    talk.to_client = b""
    change(talk, limit(10))
    talk.wait(SECOND)
    assert amqp.names(talk.to_client).count("Basic.Deliver") >= 1


# ---- beside another consumer -----------------------------------------------------------------------------------------------


def of_queue(queue: str, messages: int, *, burst: int | None = 1) -> Rule:
    limit = Limit(messages=Rate(messages), messages_burst=burst)
    return Rule(queue, Match(queue=queue, operation="consume"), limit=limit, open_for_ns=0)


def two_consumers(a: Rule, b: Rule) -> Talk:
    """Of the queues a and b, by the tags A and B, on one channel."""
    talk = talking(a, b)
    says(talk, commands.Basic.Qos(prefetch_count=5))
    answers(talk, OKS)
    for queue in ("a", "b"):
        says(talk, CONSUME(queue=queue, consumer_tag=queue.upper()))
        answers(talk, commands.Basic.ConsumeOk(queue.upper()))
    return talk


def test_what_a_client_says_of_all_it_has_is_of_none_that_waits_here() -> None:
    """Behind it another's has gone back to its queue, and is counted among what was delivered."""
    talk = two_consumers(of_queue("a", 10), of_queue("b", 10))
    assert [each.delivery_tag for each in deliver(talk, "A", 1) + deliver(talk, "B", 2)] == [1, 2]
    assert deliver(talk, "B", 3) + deliver(talk, "A", 4) == []
    gone = change(talk, of_queue("a", 0, burst=None), of_queue("b", 10))
    assert [getattr(frame, "delivery_tag", None) for frame in gone if frame.name == "Basic.Nack"] == [4]
    (acked,) = says(talk, commands.Basic.Ack(0, True))
    assert (acked.delivery_tag, acked.multiple) == (2, True)


def test_a_delivery_whose_method_has_come_is_whole_when_another_consumer_goes_away() -> None:
    talk = two_consumers(of_queue("a", 1), of_queue("b", 100, burst=100))
    deliver(talk, "A", 1)
    method, *content = amqp.read(amqp.deliver(1, b"x" * 5, tag=3, consumer_tag="B"))
    talk.broker(amqp.deliver(1, b"x" * 5, tag=2, consumer_tag="A") + method.raw)
    assert "Basic.Cancel" in names(change(talk, of_queue("a", 0, burst=None), of_queue("b", 100, burst=100)))
    talk.to_client = b""
    talk.broker(b"".join(frame.raw for frame in content))
    talk.wait(0)
    assert amqp.names(talk.to_client) == ["Basic.Deliver", "ContentHeader", "ContentBody"]


@pytest.mark.parametrize("messages", [100, 0])
def test_a_consumer_of_direct_reply_to_is_had_as_the_client_asks(messages: int) -> None:
    """RabbitMQ closes the channel of one that would acknowledge, or comes a second time."""
    burst = 100 if messages else None
    talk = talking(
        Rule("each", Match(operation="consume", protocol="amqp"), per="user", limit=Limit(messages=Rate(messages), messages_burst=burst))
    )
    name = "amq.rabbitmq.reply-to"
    (asked,) = says(talk, CONSUME(queue=name, consumer_tag="c", no_ack=True))
    assert (asked.name, asked.queue, asked.no_ack) == ("Basic.Consume", name, True)
    answers(talk, commands.Basic.ConsumeOk("c"))
    assert (
        change(talk, Rule("each", Match(operation="consume", protocol="amqp"), per="user", limit=Limit(messages=Rate(1, 60 * SECOND))))
        == []
    )


class FullQueues:
    """A connection that consumes queues in which there is always one more message, and acknowledges each."""

    def __init__(self, judge: Judge, queues: list[str]) -> None:
        self.talk = talking(judge=judge)
        self.queue_of: dict[int, str] = {}
        self.got: Counter[str] = Counter()
        self.talk.client(b"".join(amqp.method(1, CONSUME(queue=queue, consumer_tag=queue)) for queue in queues))

    def step(self, ns: int) -> None:
        self.talk.wait(ns)
        while self.talk.to_broker or self.talk.to_client:
            said, self.talk.to_broker = self.talk.to_broker, b""
            self.talk.broker(b"".join(self._answer(frame.value) for frame in amqp.read(said)))
            got, self.talk.to_client = self.talk.to_client, b""
            for frame in amqp.read(got):
                if frame.name == "Basic.Deliver":
                    self.got[self.queue_of[frame.value.delivery_tag]] += 1
                    self.talk.client(amqp.ack(1, frame.value.delivery_tag))
            self.talk.wait(0)

    def _answer(self, asked: Any) -> bytes:
        if asked.name == "Basic.Qos":
            return amqp.method(1, OKS)
        if asked.name == "Queue.Declare":
            return amqp.method(1, commands.Queue.DeclareOk(asked.queue, 10, 0))
        if asked.name == "Basic.Cancel":
            return b"" if asked.nowait else amqp.method(1, commands.Basic.CancelOk(asked.consumer_tag))
        if asked.name != "Basic.Consume":
            return b""
        self.queue_of[len(self.queue_of) + 1] = asked.queue
        delivery = amqp.deliver(1, b"x" * 5, tag=len(self.queue_of), consumer_tag=asked.consumer_tag)
        return (b"" if asked.nowait else amqp.method(1, commands.Basic.ConsumeOk(asked.consumer_tag))) + delivery


@pytest.mark.parametrize("connections", [[["a", "b"]], [["a"], ["b"], ["c"]]], ids=["one connection", "three"])
def test_queues_of_one_slow_limit_take_turns(connections: list[list[str]]) -> None:
    limit = Limit(messages=Rate(20, 60 * SECOND), messages_burst=1)
    judge = Judge(RuleSet((Rule("few", Match(operation="consume", protocol="amqp"), per="user", limit=limit, open_for_ns=0),)))
    all_of = [FullQueues(judge, queues) for queues in connections]
    for _ in range(20 * 120):
        for each in all_of:
            each.step(SECOND // 20)
    got = sum((each.got for each in all_of), Counter())
    assert sum(got.values()) in (40, 41)
    assert max(got.values()) - min(got[queue] for queues in connections for queue in queues) <= 2


def test_a_consumer_without_acknowledgement_that_goes_away_within_a_delivery_gives_nothing_back() -> None:
    """The broker has forgotten that delivery, and closes the channel of whoever gives it back."""
    talk = talking(of_queue("b", 1))
    says(talk, commands.Basic.Qos(prefetch_count=5))
    answers(talk, OKS)
    says(talk, CONSUME(queue="a", consumer_tag="A", no_ack=True))
    answers(talk, commands.Basic.ConsumeOk("A"))
    says(talk, CONSUME(queue="b", consumer_tag="B"))
    answers(talk, commands.Basic.ConsumeOk("B"))
    deliver(talk, "A", 1)
    deliver(talk, "B", 2)
    method, *content = amqp.read(amqp.deliver(1, b"x" * 5, tag=4, consumer_tag="A"))
    talk.broker(amqp.deliver(1, b"x" * 5, tag=3, consumer_tag="B") + method.raw)
    gone = change(talk, of_queue("b", 1), of_queue("a", 0, burst=None))
    assert [frame.delivery_tag for frame in gone if frame.name == "Basic.Nack"] == []
    talk.broker(b"".join(frame.raw for frame in content))
    assert [frame.delivery_tag for frame in to_broker(talk) if frame.name == "Basic.Nack"] == []


def without_ack(*rules: Rule) -> Talk:
    """A client that consumes from `jobs`, limited, without acknowledgement."""
    talk = talking(of_queue("jobs", 100, burst=100), *rules)
    says(talk, CONSUME(queue="jobs", consumer_tag="c", no_ack=True))
    answers(talk, OKS, commands.Basic.ConsumeOk("c"), OKS)
    return talk


def test_what_has_been_passed_on_is_acknowledged_before_the_gateway_closes_its_channel() -> None:
    """In the same turn."""
    shut = Rule("shut", Match(routing_key="k"), limit=Limit(messages=Rate(1), messages_burst=1), action="close", open_for_ns=0)
    talk = without_ack(shut)
    assert len(deliver(talk, "c", 1, 2, 3)) == 3
    talk.client(amqp.publish(1, "k") * 2)
    said = to_broker(talk)
    assert said[-1].name == "Channel.Close"
    assert max((frame.delivery_tag for frame in said if frame.name == "Basic.Ack"), default=0) == 3


def test_what_has_been_passed_on_is_acknowledged_before_a_close_that_comes_right_behind_a_large_publish() -> None:
    talk = without_ack()
    large = amqp.publish(1, "k", b"z" * 20_000, cut=4088)
    talk.client(large[:9000])
    assert len(deliver(talk, "c", 1, 2, 3)) == 3
    talk.wait(SECOND)
    talk.client(large[9000:] + amqp.method(1, commands.Channel.Close(200, "", 0, 0)))
    talk.wait(SECOND)
    said = [frame.value for frame in amqp.read(talk.to_broker) if frame.name in ("Basic.Ack", "Channel.Close")]
    assert said[-1].name == "Channel.Close"
    assert max((frame.delivery_tag for frame in said[:-1]), default=0) == 3


# ---- what the client recovers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [5, 9000])
def test_what_a_recover_covers_is_not_acknowledged_by_the_gateway_and_comes_once(size: int) -> None:
    """RabbitMQ answers a tag that it has taken back with 406, and delivers the message again."""
    talk, tag = consuming(limit(1000, burst=1000), no_ack=True)
    assert len(deliver(talk, tag, 1)) == 1
    assert names(says(talk, commands.Basic.Qos(prefetch_count=7), commands.Basic.Recover(True))) == [
        "Basic.Ack",
        "Basic.Qos",
        "Basic.Recover",
    ]
    whole = b"".join(amqp.deliver(1, b"x" * size, tag=number, consumer_tag=tag, cut=4088) for number in (2, 3))
    talk.to_client = b""
    for at in range(0, len(whole), 4000):
        talk.broker(whole[at : at + 4000])
        talk.wait(0)
    assert (talk.to_client, to_broker(talk)) == (b"", [])
    assert answers(talk, OKS, commands.Basic.RecoverOk()) == ["Basic.QosOk", "Basic.RecoverOk"]
    assert [one.delivery_tag for one in deliver(talk, tag, 4, 5, size=size)] == [4, 5]
    assert max(one.delivery_tag for one in to_broker(talk)) == 5
    assert talk.conversation.budget.parked_bytes == 0


def test_what_a_recover_covers_is_not_given_back_besides() -> None:
    talk, tag = consuming(limit())
    assert len(deliver(talk, tag, 1, 2)) == 1
    assert names(says(talk, commands.Basic.Recover(True))) == ["Basic.Recover"]
    assert names(change(talk, limit(0, burst=None))) == ["Basic.Cancel"]
    assert deliver(talk, tag, 3) == []
    assert to_broker(talk) == []
    assert answers(talk, commands.Basic.RecoverOk()) == ["Basic.RecoverOk"]
    assert deliver(talk, tag, 4) == []
    assert [(one.name, one.delivery_tag) for one in to_broker(talk)] == [("Basic.Nack", 4)]


def test_what_has_come_before_a_recover_is_answered_is_not_with_the_client_any_more() -> None:
    """It would count against the client's prefetch for ever, and a consumer that is away would not come again."""
    talk, tag = consuming(limit(), prefetch=1)
    assert len(deliver(talk, tag, 1)) == 1
    says(talk, commands.Basic.Ack(1), commands.Basic.Recover(True))
    talk.wait(SECOND)
    assert len(deliver(talk, tag, 2)) == 1  # it was on its way
    answers(talk, commands.Basic.RecoverOk())
    assert "Basic.Cancel" in names(change(talk, limit(0, burst=None)))
    answers(talk, commands.Basic.CancelOk(tag))
    assert "Basic.Consume" in names(change(talk, limit()))


@pytest.mark.parametrize("arguments", [{}, {"x-stream-offset": "first"}])
def test_what_waits_of_a_stream_when_the_broker_recovers_is_passed_on(arguments: dict[str, Any]) -> None:
    """RabbitMQ goes on behind it: what a recover covers of a stream is settled, and does not come again."""
    talk, _ = consuming(limit(), prefetch=5, arguments=arguments)
    talk.to_client = b""
    talk.broker(b"".join(b"".join(delivery(tag, of_stream=True)) for tag in (1, 2, 3)))
    says(talk, commands.Basic.Recover(True))
    talk.broker(b"".join(delivery(4, of_stream=True)) + amqp.method(1, commands.Basic.RecoverOk()))
    talk.wait(SECOND)
    told = amqp.names(talk.to_client)
    assert [told.count(name) for name in ("Basic.Deliver", "ContentHeader", "ContentBody", "Basic.RecoverOk")] == [4, 4, 4, 1]
    assert talk.conversation.budget.parked_bytes == 0


# ---- the gateway's close behind an answer that is to come ------------------------------------------------------------------

CLOSES = Rule("closes", Match(routing_key="k"), limit=Limit(messages=Rate(1, 3600 * SECOND)), action="close", open_for_ns=0)


def test_the_brokers_own_close_is_answered_where_the_gateways_waits_to_be_told() -> None:
    """The client publishes before it has select-ok; something that it asked for before costs it the channel."""
    talk = talking(CLOSES)
    talk.client(
        amqp.method(1, commands.Queue.Declare(queue="missing", passive=True)) + amqp.method(1, commands.Confirm.Select())
        + amqp.publish(1, "k") * 2
    )  # fmt: skip
    assert names(to_broker(talk))[-1] == "Channel.Close"
    talk.to_client = b""
    talk.broker(amqp.method(1, commands.Channel.Close(404, "NOT_FOUND", 50, 10)))
    assert amqp.names(talk.to_client) == ["Channel.Close"]
    assert names(to_broker(talk)) == ["Channel.CloseOk"]
    talk.client(amqp.method(1, commands.Channel.CloseOk()))
    talk.broker(amqp.method(1, commands.Channel.CloseOk()))
    talk.client(amqp.method(1, commands.Channel.Open()))
    assert names(to_broker(talk)) == ["Channel.Open"]


def test_what_waits_to_be_told_is_told_when_the_broker_answers_the_gateways_close() -> None:
    talk = talking(of_queue("jobs", 1), CLOSES)
    says(talk, commands.Basic.Qos(prefetch_count=1))
    answers(talk, OKS)
    says(talk, CONSUME(queue="jobs", consumer_tag="c"))
    answers(talk, OKS, commands.Basic.ConsumeOk("c"), OKS)
    deliver(talk, "c", 1)
    says(talk, commands.Basic.Ack(1))
    assert deliver(talk, "c", 2) == [], "it waits, and what comes behind it"
    talk.client(amqp.method(1, commands.Confirm.Select()))
    talk.to_client = b""
    talk.broker(amqp.method(1, commands.Confirm.SelectOk()))
    talk.client(amqp.publish(1, "k") * 2)
    assert names(to_broker(talk))[-1] == "Channel.Close"
    talk.broker(amqp.method(1, commands.Channel.CloseOk()))
    talk.wait(SECOND)
    assert amqp.names(talk.to_client)[-2:] == ["Confirm.SelectOk", "Channel.Close"]
    talk.client(amqp.method(1, commands.Channel.CloseOk()) + amqp.method(1, commands.Channel.Open()))
    assert names(to_broker(talk)) == ["Channel.Open"]
