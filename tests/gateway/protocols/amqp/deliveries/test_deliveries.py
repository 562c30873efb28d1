"""Deliveries a rule limits: held in order, never lost, overtaken by nothing but confirms, and given up where nobody wants them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pamqp import base, commands

from gateway.protocols.amqp.conversation import AmqpConversation
from limiter.limits import NEVER, Limit, LimitChange, Rate
from limiter.rules.rule_set import Match, Rule, RuleSet
from support.amqp import frames as amqp
from support.cases import in_one_loop
from support.wires.conversations import SECOND, Talk, bytewise, randomly, say_close

MS = SECOND // 1000
LARGE = 50_000  # bytes of a body; several frames at frame_max 4096


def limit(queue: str = "jobs", *, messages: int | None = 10, size: int | None = None, burst: int = 1, mode: str = "enforce") -> Rule:
    """So many deliveries of a queue a second."""
    rate = Limit(messages=None if messages is None else Rate(messages), messages_burst=burst, bytes=None if size is None else Rate(size))
    return Rule(f"limit {queue}", Match(queue=queue, operation="consume"), limit=rate, mode=mode)


def consuming(*rules: Rule, no_ack: bool = False, confirms: tuple[int, ...] = (1,), **more: Any) -> Talk:
    """Channels 1 and 2 consume from `jobs` (tag j) and `mail` (tag m), so far without a delivery.

    The rules come later, so the consumers are as their client has said and not as the gateway would have them (`test_windows.py`): what is
    parked here is what it could not keep at the broker.
    """
    talk = Talk("amqp", **more)
    talk.client(amqp.greeting(channels=(1, 2), confirms=confirms, frame_max=4096))
    talk.broker(amqp.broker_opens())
    talk.broker(amqp.opened(1, 2))
    for channel in (1, 2):
        for tag, queue in (("j", "jobs"), ("m", "mail")):
            talk.client(amqp.method(channel, commands.Basic.Consume(queue=queue, consumer_tag=tag, nowait=True, no_ack=no_ack)))
    talk.judge.replace(RuleSet(rules or (limit(),)))
    talk.to_broker = talk.to_client = b""
    return talk


def jobs(channel: int, *tags: int, size: int = 5) -> bytes:
    return b"".join(amqp.deliver(channel, b"%c" % (tag % 256) * size, tag=tag, consumer_tag="j", cut=4088) for tag in tags)


def mail(channel: int, *tags: int, size: int = 5) -> bytes:
    return b"".join(amqp.deliver(channel, b"m" * size, tag=tag, consumer_tag="m", cut=4088) for tag in tags)


def said(frame: base.Frame, channel: int = 1) -> bytes:
    return amqp.method(channel, frame)


def recover_async(channel: int = 1, *, requeue: bool = True) -> bytes:
    return said(commands.Basic.Recover(requeue=requeue), channel).replace(b"\0\x3c\0\x6e", b"\0\x3c\0\x64")


def heard(talk: Talk) -> bytes:
    """What the client has got since the last time."""
    data, talk.to_client = talk.to_client, b""
    return data


def counts(talk: Talk) -> dict[str, int]:
    """What the conversation has reported of `jobs`, and what it holds."""
    found = dict.fromkeys(("received", "forwarded", "bytes", "delayed", "abandoned"), 0)
    keys = set()
    for one in talk.conversation.reports.delivered:
        if one.key.text.endswith("/jobs"):
            keys.add(one.key)
            found["received"] += one.received
            found["forwarded"] += one.forwarded
            found["bytes"] += one.size
    found["delayed"] = sum(key.tally.delayed for key in keys)
    found["abandoned"] = sum(part.count for part in talk.conversation.reports.abandoned if part.key in keys)
    return found


def nothing_parked(talk: Talk) -> bool:
    conversation = talk.conversation
    return (conversation.budget.parked_bytes, conversation.budget.parked_messages, conversation.budget.ask_due) == (0, 0, NEVER)


def test_deliveries_over_the_limit_wait_and_come_in_order_at_its_rate() -> None:
    talk = consuming()
    talk.broker(jobs(1, 1, 2, 3, 4))
    assert heard(talk) == jobs(1, 1)
    assert (talk.conversation.budget.parked_messages, talk.conversation.budget.held_messages) == (3, 0)
    talk.wait(99 * MS)
    assert heard(talk) == b""
    talk.wait(1 * MS)
    assert heard(talk) == jobs(1, 2)
    talk.wait(200 * MS)
    assert heard(talk) == jobs(1, 3, 4)
    assert nothing_parked(talk)
    assert counts(talk) == {"received": 4, "forwarded": 4, "bytes": 20, "delayed": 3, "abandoned": 0}


@pytest.mark.parametrize("seed", range(4))
def test_it_does_not_matter_how_the_brokers_bytes_are_cut(seed: int) -> None:
    stream = jobs(1, 1, 2) + jobs(1, 3, size=LARGE) + mail(1, 4) + jobs(2, 1) + said(commands.Basic.CancelOk("x")) + jobs(1, 5, size=0)
    talk = consuming()
    talk.broker(stream, randomly(stream, seed) if seed else bytewise(stream))
    talk.wait(2 * SECOND)
    assert amqp.per_channel(heard(talk)) == amqp.per_channel(stream)
    assert nothing_parked(talk)


def test_a_queue_nobody_limits_passes_as_one_piece() -> None:
    talk = consuming()
    stream = mail(1, *range(1, 100)) + mail(2, 1, size=LARGE)
    out: list[bytes] = []
    talk.conversation.relay(stream, out)
    assert len(out) == 1
    assert out[0] is stream


def test_other_channels_and_the_connection_go_on() -> None:
    talk = consuming()
    others = amqp.HEARTBEAT + mail(2, 1) + said(commands.Basic.QosOk(), 2) + amqp.ack(2, 1)
    talk.broker(jobs(1, 1, 2) + others)
    assert heard(talk) == others + jobs(1, 1)  # they do not even wait for the verdict


@pytest.mark.parametrize(
    "behind",
    [
        mail(1, 9),
        said(commands.Basic.CancelOk("x")),
        said(commands.Basic.ConsumeOk("x")),
        said(commands.Basic.GetEmpty()),
        said(commands.Basic.Cancel("m", nowait=True)),
        said(commands.Queue.DeclareOk("q", 0, 0)),
        amqp.deliver(1, b"whose?", consumer_tag="unknown"),
        said(commands.Basic.GetOk(9, exchange="x", routing_key="y", message_count=0)) + amqp.content(1, b"whose?"),
    ],
)
def test_methods_of_its_channel_keep_their_place_behind_it(behind: bytes) -> None:
    talk = consuming()
    talk.broker(jobs(1, 1, 2) + behind + jobs(1, 3))
    assert heard(talk) == jobs(1, 1)
    talk.wait(SECOND)
    assert heard(talk) == jobs(1, 2) + behind + jobs(1, 3)
    assert nothing_parked(talk)


def test_confirms_and_returned_messages_overtake() -> None:
    talk = consuming()
    talk.client(amqp.publish(1, "orders") * 2)
    returned = said(commands.Basic.Return(312, "NO_ROUTE", "", "orders")) + amqp.content(1, b"hello" * 2000, cut=4088)
    talk.broker(jobs(1, 1, 2))
    assert heard(talk) == jobs(1, 1)
    talk.broker(returned + amqp.ack(1, 1) + jobs(1, 3) + amqp.nack(1, 2))
    assert heard(talk) == returned + amqp.ack(1, 1) + amqp.nack(1, 2)
    talk.wait(SECOND)
    assert heard(talk) == jobs(1, 2, 3)


def test_a_due_delivery_waits_until_a_returned_message_is_complete() -> None:
    talk = consuming()
    returned = said(commands.Basic.Return(312, "NO_ROUTE", "", "orders")) + amqp.content(1, b"hello" * 2000, cut=4088)
    talk.broker(jobs(1, 1, 2))
    talk.broker(returned[:-20])
    talk.wait(SECOND)
    assert heard(talk) == jobs(1, 1) + returned[:-20]
    talk.broker(returned[-20:])
    assert heard(talk) == returned[-20:] + jobs(1, 2)


def test_the_gateways_replies_do_not_fall_into_a_delivery_the_client_is_getting() -> None:
    publishes = Rule("publishes", Match(protocol="amqp", routing_key="orders"), limit=Limit(messages=Rate(1), messages_burst=1))
    talk = consuming(limit(), publishes)
    large = jobs(1, 1, size=LARGE)
    talk.broker(large[:-20])
    talk.client(amqp.publish(1, "orders"))
    talk.client(amqp.publish(1, "orders"))
    assert heard(talk) == large[:-20]
    talk.broker(large[-20:])
    assert heard(talk) == large[-20:] + amqp.nack(1, 2)


def test_the_gateways_replies_need_not_wait_for_a_delivery_that_waits() -> None:
    publishes = Rule("publishes", Match(protocol="amqp", routing_key="orders"), limit=Limit(messages=Rate(1), messages_burst=1))
    talk = consuming(limit(), publishes)
    large = jobs(1, 2, size=LARGE)
    talk.broker(jobs(1, 1) + large[:-20])
    talk.client(amqp.publish(1, "orders") * 2)
    assert heard(talk) == jobs(1, 1) + amqp.nack(1, 2)
    talk.wait(SECOND)
    assert heard(talk) == large[:-20]
    talk.broker(large[-20:])
    assert heard(talk) == large[-20:]
    assert nothing_parked(talk)


def test_a_due_delivery_waits_for_the_end_of_another_channels_frame() -> None:
    talk = consuming()
    other = mail(2, 1, size=4000)
    talk.broker(jobs(1, 1, 2))
    talk.broker(other[:-100])
    talk.wait(SECOND)
    assert heard(talk) == jobs(1, 1) + other[:-100]
    talk.broker(other[-100:])
    assert heard(talk) == other[-100:] + jobs(1, 2)


@in_one_loop
@pytest.mark.parametrize("cut", range(1, 260, 13))
def test_a_delivery_that_is_not_complete_when_its_turn_comes_flows_on(cut: int) -> None:
    second = jobs(1, 2, size=200)
    talk = consuming()
    talk.broker(jobs(1, 1) + second[:cut])
    talk.wait(SECOND)
    talk.broker(second[cut:] + mail(2, 1))
    got = heard(talk)
    assert amqp.per_channel(got) == {1: jobs(1, 1) + second, 2: mail(2, 1)}
    assert nothing_parked(talk)


def test_verdicts_by_bytes_know_the_size_before_the_body_is_there() -> None:
    talk = consuming(limit(messages=None, size=1000))
    large = jobs(1, 2, size=LARGE)
    talk.broker(jobs(1, 1, size=1000) + large[:200])
    assert heard(talk) == jobs(1, 1, size=1000)
    talk.wait(SECOND)
    assert heard(talk) == large[:200]
    talk.broker(large[200:])
    assert heard(talk) == large[200:]


def test_the_limit_is_one_for_all_channels_of_the_queue() -> None:
    talk = consuming(limit(burst=3))
    talk.broker(jobs(1, 1, 2) + jobs(2, 1, 2))
    assert heard(talk) == jobs(1, 1, 2) + jobs(2, 1)
    talk.wait(100 * MS)
    assert heard(talk) == jobs(2, 2)


def test_a_delivery_that_passes_behind_one_that_waits_is_judged_once() -> None:
    talk = consuming(limit(), limit("mail", messages=1))
    talk.broker(jobs(1, 1, 2) + mail(1, 3) + mail(2, 1))
    assert heard(talk) == jobs(1, 1)
    talk.wait(100 * MS)
    assert heard(talk) == jobs(1, 2) + mail(1, 3)
    talk.wait(SECOND)
    assert heard(talk) == mail(2, 1)


def test_shadow_counts_and_holds_nothing() -> None:
    talk = consuming(limit(mode="shadow"))
    talk.broker(jobs(1, 1, 2, 3))
    assert heard(talk) == jobs(1, 1, 2, 3)
    (key,) = {one.key for one in talk.conversation.reports.delivered}
    assert (key.tally.shadow_refused, key.tally.delayed) == (2, 0)


def test_deliveries_that_wait_pass_when_their_rule_is_gone() -> None:
    talk = consuming(limit(messages=1))
    talk.broker(jobs(1, 1, 2, 3))
    assert heard(talk) == jobs(1, 1)
    talk.judge.replace(RuleSet(()))
    talk.wait(SECOND // 2)
    assert heard(talk) == jobs(1, 2, 3)
    assert nothing_parked(talk)
    out: list[bytes] = []
    data = jobs(1, 4)
    talk.conversation.relay(data, out)
    assert out == [data]


def test_a_rule_that_is_new_holds_from_the_next_delivery_on() -> None:
    talk = consuming(limit("other"))
    talk.broker(jobs(1, 1, 2, 3))
    assert heard(talk) == jobs(1, 1, 2, 3)
    talk.judge.replace(RuleSet((limit(),)))
    talk.broker(jobs(1, 4, 5))
    assert heard(talk) == jobs(1, 4)


def test_a_cancelled_consumer_gets_the_deliveries_on_their_way_before_cancel_ok() -> None:
    talk = consuming(limit(), limit("mail"))
    talk.broker(jobs(1, 1, 2, 3) + mail(2, 1, 2))
    talk.client(said(commands.Basic.Cancel("j")))
    talk.flush()
    talk.broker(jobs(1, 4) + said(commands.Basic.CancelOk("j")))
    assert amqp.per_channel(heard(talk)) == {1: jobs(1, 1, 2, 3, 4) + said(commands.Basic.CancelOk("j")), 2: mail(2, 1)}
    talk.client(said(commands.Basic.Consume(queue="jobs", consumer_tag="j", nowait=True)))
    talk.broker(jobs(1, 5))
    assert heard(talk) == b""  # as limited as before, and three of the four are still to be paid
    talk.wait(399 * MS)
    assert heard(talk) == mail(2, 2)
    talk.wait(1 * MS)
    assert heard(talk) == jobs(1, 5)


def test_what_comes_for_a_cancelled_consumer_before_cancel_ok_is_charged_as_well() -> None:
    talk = consuming()
    talk.client(said(commands.Basic.Cancel("j")))
    talk.broker(jobs(1, 1, 2, 3) + jobs(1, 4, size=LARGE))
    talk.broker(said(commands.Basic.CancelOk("j")))
    assert heard(talk) == jobs(1, 1, 2, 3) + jobs(1, 4, size=LARGE) + said(commands.Basic.CancelOk("j"))
    talk.broker(jobs(2, 5))
    talk.wait(399 * MS)
    assert heard(talk) == b""
    talk.wait(1 * MS)
    assert heard(talk) == jobs(2, 5)


def cycle(talk: Talk, first: int, count: int) -> int:
    """Consume, get `count` deliveries from the broker in one read, cancel; how many the client has got by then, cancel-ok included."""
    talk.client(said(commands.Basic.Consume(queue="jobs", consumer_tag="j", nowait=True)))
    talk.broker(jobs(1, *range(first, first + count)))
    talk.client(said(commands.Basic.Cancel("j")))
    talk.broker(said(commands.Basic.CancelOk("j")))
    return delivered(talk)


def delivered(talk: Talk) -> int:
    return amqp.names(heard(talk)).count("Basic.Deliver")


def test_a_shadow_and_a_candidate_count_what_a_cancelled_consumer_gets() -> None:
    shadow = Rule("shadow", Match(operation="consume"), limit=Limit(messages=Rate(1), messages_burst=3), mode="shadow", per="client")
    tried = replace(limit(), candidate=LimitChange(messages=Rate(5), messages_burst=5))
    talk = consuming(tried, shadow)
    assert cycle(talk, 1, 10) == 10
    (key,) = {one.key for one in talk.conversation.reports.delivered}
    assert key.tally.shadow_refused == 7
    counts = talk.judge.candidates(talk.now)["limit jobs"]
    assert (counts.admitted, counts.refused) == (5, 5)


def test_deliveries_that_the_broker_has_forgotten_are_charged_when_they_pass_before_the_end() -> None:
    talk = consuming(no_ack=True)
    talk.broker(jobs(1, *range(20)))
    talk.broker(said(commands.Channel.Close(404, "no", 60, 80)))
    assert delivered(talk) == 20
    talk.broker(jobs(2, 1))
    talk.wait(1900 * MS)
    assert heard(talk) == b""
    talk.wait(100 * MS)
    assert heard(talk) == jobs(2, 1)


def test_a_consumer_that_is_cancelled_while_the_judge_looks_gets_what_is_parked_with_the_verdict_after() -> None:
    talk = consuming(limit(), limit("mail"))
    talk.later = True
    talk.broker(jobs(1, 1, 2) + mail(1, 3, 4) + jobs(1, 5))
    assert sum(part.count for part in talk.asked) == 5
    talk.client(said(commands.Basic.Cancel("j")))
    assert heard(talk) == b""
    talk.verdict()
    talk.flush()
    assert heard(talk) == jobs(1, 1)
    talk.ask()
    talk.verdict()
    talk.flush()
    assert heard(talk) == jobs(1, 2) + mail(1, 3)
    talk.broker(said(commands.Basic.CancelOk("j")))
    talk.later = False
    talk.wait(SECOND)
    assert heard(talk) == mail(1, 4) + jobs(1, 5) + said(commands.Basic.CancelOk("j"))
    assert nothing_parked(talk)


def test_a_consumer_is_limited_until_its_cancel_goes_on_to_the_broker() -> None:
    hold = Rule("hold", Match(routing_key="orders", operation="produce"), limit=Limit(messages=Rate(1), messages_burst=1), action="delay")
    talk = consuming(limit(), hold, confirms=())
    talk.client(amqp.publish(1, "orders") * 2 + said(commands.Basic.Cancel("j")))
    talk.broker(jobs(1, 1, 2, 3))
    assert heard(talk) == jobs(1, 1)
    assert "Basic.Cancel" not in amqp.names(talk.to_broker)
    talk.wait(150 * MS)
    assert heard(talk) == jobs(1, 2)
    talk.judge.replace(RuleSet((limit(messages=0),)))
    talk.wait(SECOND)
    assert amqp.names(talk.to_broker)[-1] == "Basic.Cancel"
    assert heard(talk) == jobs(1, 3)
    assert nothing_parked(talk)


# ---- memory ------------------------------------------------------------------------------------------------------------


def test_small_ones_that_wait_do_not_keep_the_large_reads_they_came_in() -> None:
    talk = consuming(limit(messages=1))
    for tag in range(1, 40, 2):
        talk.broker(mail(2, tag, size=LARGE) + jobs(1, tag, tag + 1) + said(commands.Basic.QosOk()) + mail(2, tag + 1, size=LARGE))
    parking = talk.conversation.deliveries.parked[1].parking  # type: ignore[attr-defined]
    reads = {id(one.part.data): len(one.part.data) for one in parking.parked_parts}
    assert talk.conversation.budget.parked_messages == 39
    assert sum(reads.values()) <= 2 * talk.conversation.budget.parked_bytes


# ---- ends --------------------------------------------------------------------------------------------------------------


def test_deliveries_that_the_broker_repeats_are_given_up_when_it_closes_the_channel() -> None:
    talk = consuming()
    closed = said(commands.Channel.Close(406, "PRECONDITION_FAILED", 60, 80))
    talk.broker(jobs(1, 1, 2, 3) + said(commands.Basic.QosOk()))
    talk.broker(closed)
    assert heard(talk) == jobs(1, 1) + said(commands.Basic.QosOk()) + closed
    assert nothing_parked(talk)
    assert counts(talk) == {"received": 3, "forwarded": 1, "bytes": 5, "delayed": 2, "abandoned": 2}


@pytest.mark.parametrize("end", ["channel", "connection", "close", "lost"])
def test_deliveries_that_the_broker_has_forgotten_pass_before_the_end(end: str) -> None:
    talk = consuming(no_ack=True)
    talk.broker(jobs(1, 1, 2, 3))
    assert heard(talk) == jobs(1, 1)
    close = said(commands.Connection.Close(320, "bye", 0, 0), 0) if end == "connection" else said(commands.Channel.Close(406, "no", 60, 80))
    if end == "close":
        got = say_close(talk.conversation, "bye")[0]
    elif end == "lost":
        got = talk.conversation.tell_broker_lost("bye")
    else:
        talk.broker(close)
        got = heard(talk)
        assert got.endswith(close)
    assert got.startswith(jobs(1, 2, 3))
    assert len(amqp.read(got)) == 7
    assert talk.conversation.budget.parked_bytes == 0
    assert counts(talk)["forwarded"] == 3


@pytest.mark.parametrize("end", ["close", "lost"])
@pytest.mark.parametrize("cut", [30, 100, 4000, LARGE, -1])
def test_half_of_a_delivery_does_not_pass_before_the_end(end: str, cut: int) -> None:
    talk = consuming(no_ack=True)
    talk.broker(jobs(1, 1, 2) + jobs(1, 3, size=LARGE)[:cut])
    assert heard(talk) == jobs(1, 1)
    got = say_close(talk.conversation, "bye")[0] if end == "close" else talk.conversation.tell_broker_lost("bye")
    assert got.startswith(jobs(1, 2))
    assert amqp.names(got[len(jobs(1, 2)) :]) == ["Connection.Close"]
    assert talk.conversation.budget.parked_bytes == 0
    found = counts(talk)
    assert found["received"] == found["forwarded"] + found["abandoned"]


def test_nothing_passes_into_a_returned_message_before_the_end() -> None:
    returned = said(commands.Basic.Return(312, "NO_ROUTE", "", "orders")) + amqp.content(1, b"r" * 10)
    talk = consuming(no_ack=True)
    talk.broker(jobs(1, 1, 2))
    talk.broker(returned[:-18])
    assert heard(talk) == jobs(1, 1) + returned[:-18]
    assert amqp.names(say_close(talk.conversation, "bye")[0]) == ["Connection.Close"]
    assert counts(talk)["abandoned"] == 1


@pytest.mark.parametrize("no_ack", [False, True])
def test_a_client_that_closes_the_channel_gets_nothing_more_of_it_but_close_ok_at_once(no_ack: bool) -> None:
    talk = consuming(no_ack=no_ack)
    talk.broker(jobs(1, 1, 2) + jobs(1, 3, size=LARGE)[:-20])
    assert heard(talk) == jobs(1, 1)
    talk.client(said(commands.Channel.Close(200, "", 0, 0)))
    assert nothing_parked(talk)
    talk.broker(jobs(1, 3, size=LARGE)[-20:] + jobs(1, 4) + mail(2, 1) + said(commands.Channel.CloseOk()) + mail(2, 2))
    assert heard(talk) == mail(2, 1) + said(commands.Channel.CloseOk()) + mail(2, 2)
    assert counts(talk) == {"received": 4, "forwarded": 1, "bytes": 5, "delayed": 2, "abandoned": 3}
    talk.client(said(commands.Channel.Open()) + said(commands.Basic.Consume(queue="jobs", consumer_tag="j", nowait=True)))
    talk.wait(SECOND)
    talk.broker(said(commands.Channel.OpenOk()) + jobs(1, 1))
    assert heard(talk) == said(commands.Channel.OpenOk()) + jobs(1, 1)


def test_a_delivery_the_client_is_getting_is_finished_although_it_closes_the_channel() -> None:
    large = jobs(1, 1, size=LARGE)
    talk = consuming()
    talk.broker(large[:-20])
    talk.client(said(commands.Channel.Close(200, "", 0, 0)))
    talk.broker(large[-20:] + jobs(1, 2) + said(commands.Channel.CloseOk()))
    assert heard(talk) == large + said(commands.Channel.CloseOk())


def test_a_client_that_closes_the_connection_does_not_wait_for_its_limit() -> None:
    talk = consuming()
    talk.broker(jobs(1, 1, 2, 3))
    heard(talk)
    talk.client(said(commands.Connection.Close(200, "", 0, 0), 0))
    assert nothing_parked(talk)
    talk.broker(jobs(1, 4) + said(commands.Connection.CloseOk(), 0))
    assert heard(talk) == said(commands.Connection.CloseOk(), 0)


def test_a_verdict_for_a_channel_closed_meanwhile_changes_nothing() -> None:
    talk = consuming()
    out: list[bytes] = []
    talk.conversation.relay(jobs(1, 1, 2), out)
    asked = talk.conversation.ask(talk.now)
    talk.client(said(commands.Channel.Close(200, "", 0, 0)))
    talk.judge.decide(list(asked), talk.now)
    talk.conversation.deliver(talk.now)
    talk.flush()
    assert (out, heard(talk)) == ([], b"")
    assert nothing_parked(talk)


def test_deliveries_parked_when_the_client_is_gone_are_counted() -> None:
    talk = consuming()
    talk.broker(jobs(1, 1, 2, 3))
    assert sum(part.count for part in talk.conversation.abandon()) == 2
    assert nothing_parked(talk)


def test_a_body_frame_without_its_end_is_the_brokers_fault_also_where_it_is_collected() -> None:
    from gateway.pipeline.errors import ProtocolError

    wrong = jobs(1, 2)[:-1] + b"\x00"
    for cut in (len(wrong), len(wrong) - 3):
        talk = consuming()
        with pytest.raises(ProtocolError, match="0xCE"):
            talk.broker(b"", (jobs(1, 1) + wrong[:cut], wrong[cut:]))


# ---- everything outstanding ------------------------------------------------------------------------------------------------


def settled(talk: Talk) -> list[tuple[str, int, bool]]:
    """What the client has settled at the broker since the last time: method, tag, multiple."""
    data, talk.to_broker = talk.to_broker, b""
    return [(frame.name, frame.value.delivery_tag, frame.value.multiple) for frame in amqp.read(data)]


def everything(method: type = commands.Basic.Ack) -> bytes:
    return said(method(delivery_tag=0, multiple=True))


@pytest.mark.parametrize("method", [commands.Basic.Ack, commands.Basic.Nack])
def test_settling_everything_settles_what_the_client_has_got(method: type) -> None:
    talk = consuming(limit(burst=3))
    talk.broker(jobs(1, 1, 2, 3, 4) + jobs(1, 5, size=LARGE) + mail(1, 6))
    talk.client(everything(method))
    assert settled(talk) == [(f"Basic.{method.__name__}", 3, True)]
    talk.client(everything(method))
    assert settled(talk) == []  # there is nothing more that it has seen
    talk.wait(150 * MS)
    talk.client(everything(method))
    assert settled(talk) == [(f"Basic.{method.__name__}", 4, True)]
    talk.wait(SECOND)
    talk.client(everything(method) + amqp.publish(1, "orders"))
    assert talk.to_broker == said(method(delivery_tag=6, multiple=True)) + amqp.publish(1, "orders")
    assert nothing_parked(talk)


def test_everything_is_the_last_one_that_is_still_outstanding() -> None:
    """RabbitMQ answers a tag that is settled already with 406, also with `multiple`."""
    talk = consuming(limit(burst=6))
    talk.broker(jobs(1, *range(1, 10)))
    one = said(commands.Basic.Ack(6)) + said(commands.Basic.Reject(5)) + said(commands.Basic.Ack(2, multiple=True))
    talk.client(one + everything())
    assert talk.to_broker == one + said(commands.Basic.Ack(4, multiple=True))
    talk.client(everything())
    assert talk.to_broker == one + said(commands.Basic.Ack(4, multiple=True))


def test_a_client_that_has_seen_nothing_settles_nothing() -> None:
    talk = consuming(limit(messages=0))
    talk.broker(jobs(1, 1, 2))
    talk.client(everything())
    assert talk.to_broker == b""


def test_everything_means_what_the_client_has_got_also_where_no_rule_looks_at_it() -> None:
    """It may wait behind a publish, and would settle what has come meanwhile."""
    talk = consuming(limit("other"))
    talk.broker(jobs(1, 1, 2, 3))
    talk.client(everything())
    assert talk.to_broker == said(commands.Basic.Ack(3, multiple=True))


@pytest.mark.parametrize("how", ["no_ack", "tx", "recovered"])
def test_everything_passes_as_it_is_where_the_account_is_not_sure(how: str) -> None:
    talk = consuming(limit(), no_ack=how == "no_ack")
    before = {"tx": said(commands.Tx.Select()), "recovered": said(commands.Basic.Recover(requeue=True))}.get(how, b"")
    if how == "tx":
        talk = consuming(confirms=())
    talk.client(before)
    talk.broker(jobs(1, 1, 2, 3))
    talk.client(everything())
    assert talk.to_broker == before + everything()
    talk.judge.replace(RuleSet((limit(),)))
    talk.client(everything())
    assert talk.to_broker == before + everything() * 2


def test_a_channel_opened_anew_counts_from_one() -> None:
    talk = consuming(limit(burst=5))
    talk.broker(jobs(1, 1, 2, 3))
    consume = said(commands.Basic.Consume(queue="jobs", consumer_tag="j"))
    talk.client(said(commands.Channel.Close(200, "", 0, 0)) + said(commands.Channel.Open()) + consume)
    talk.broker(jobs(1, 4, 5) + said(commands.Channel.CloseOk()) + said(commands.Channel.OpenOk()) + said(commands.Basic.ConsumeOk("j")))
    talk.broker(jobs(1, 1, 2, 3))
    talk.to_broker = b""
    talk.client(everything())
    assert settled(talk) == [("Basic.Ack", 2, True)]


@pytest.mark.parametrize("order", ["sa", "as", "aas", "sas"])
def test_each_recover_ok_is_for_the_one_that_waits_for_it(order: str) -> None:
    """Also on a channel that has not consumed before."""
    talk = consuming(confirms=())
    said_by_client = {"s": said(commands.Basic.Recover(requeue=True), 3), "a": recover_async(3)}
    talk.client(said(commands.Channel.Open(), 3) + said_by_client["s"] + said(commands.Basic.Consume(queue="jobs", consumer_tag="k"), 3))
    talk.to_broker = b""
    talk.client(b"".join(said_by_client[each] for each in order))
    assert talk.to_broker == said_by_client["s"] * len(order)
    heard(talk)
    for each in "s" + order:
        talk.broker(said(commands.Basic.RecoverOk(), 3))
        assert heard(talk) == (said(commands.Basic.RecoverOk(), 3) if each == "s" else b"")


def test_a_recover_ok_of_the_clients_is_not_taken_for_that_of_the_channel_which_leaves() -> None:
    """What comes behind it is covered by the gateway's recover: given back one by one it would be settled twice (406)."""
    talk = consuming()
    talk.broker(jobs(1, 1, 2))
    talk.client(said(commands.Basic.Recover(requeue=True)))
    conversation = talk.conversation
    assert isinstance(conversation, AmqpConversation)
    conversation.deliveries.leaving.leave_all(conversation.channels, 2047)
    words = conversation.deliveries.leaving.take_words(quiet=True)
    assert amqp.names(words).count("Basic.Recover") >= 1
    talk.broker(said(commands.Basic.RecoverOk()) + jobs(1, 3, 4))
    leave = conversation.channels[1].leave
    assert leave is not None
    assert leave.late == []
    talk.broker(said(commands.Basic.RecoverOk()) + jobs(1, 5))
    assert leave.late == [5]


def test_a_recover_async_without_requeue_is_the_brokers_to_judge() -> None:
    talk = consuming()
    talk.client(recover_async(requeue=False))
    assert talk.to_broker == recover_async(requeue=False)


@pytest.mark.parametrize("no_ack", [False, True])
@pytest.mark.parametrize("waits_for_answer", [True, False])
def test_what_is_parked_when_the_broker_recovers_is_dropped_because_it_comes_again(no_ack: bool, waits_for_answer: bool) -> None:
    """The client of basic.recover-async gets no answer."""
    talk = consuming(no_ack=no_ack)
    talk.broker(jobs(1, 1, 2) + jobs(2, 1))
    recover = said(commands.Basic.Recover(requeue=True))
    talk.client(recover if waits_for_answer else recover_async())
    assert talk.to_broker == recover
    talk.broker(jobs(1, 3, size=LARGE) + said(commands.Basic.QosOk()) + said(commands.Basic.RecoverOk()))
    recovered = said(commands.Basic.RecoverOk()) if waits_for_answer else b""
    talk.broker(jobs(1, 4, 5))
    first = heard(talk)
    assert first.startswith(jobs(1, 1))
    talk.wait(SECOND)
    got = first + heard(talk)
    if no_ack:  # the broker has forgotten those
        whole = jobs(1, 1, 2) + jobs(1, 3, size=LARGE) + said(commands.Basic.QosOk()) + recovered + jobs(1, 4, 5)
    else:
        whole = jobs(1, 1) + said(commands.Basic.QosOk()) + recovered + jobs(1, 4, 5)
    assert amqp.per_channel(got) == {1: whole, 2: jobs(2, 1)}
    assert nothing_parked(talk)
    found = counts(talk)
    assert found["received"] == found["forwarded"] + found["abandoned"]
