"""The gateway closes a channel: both sides are told, neither hears the other on it any more, and the number can be used again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pamqp import commands

from gateway.pipeline.parts import Part
from limiter.limits import NEVER, Limit, Rate
from limiter.rules.rule_set import Match, Rule, RuleSet
from support.amqp import frames as amqp
from support.wires.conversations import SECOND, Talk, bytewise, randomly, rule

OPEN = amqp.method(1, commands.Channel.Open())
OPEN_OK = amqp.method(1, commands.Channel.OpenOk())
CLOSE_OK = amqp.method(1, commands.Channel.CloseOk())
CLIENT_CLOSES = amqp.method(1, commands.Channel.Close(200, "bye", 0, 0))
BROKER_CLOSES = amqp.method(1, commands.Channel.Close(404, "NOT_FOUND", 60, 40))


def talking(*rules: Rule, confirms: tuple[int, ...] = (), capabilities: dict[str, bool] | None = None) -> Talk:
    talk = Talk("amqp", *rules)
    talk.client(amqp.greeting(channels=(1, 2, 3), confirms=confirms, capabilities=capabilities))
    talk.broker(amqp.broker_opens())
    talk.broker(amqp.opened(1, 2, 3))
    talk.to_broker = talk.to_client = b""
    return talk


def cut(*, confirms: tuple[int, ...] = (), **more: object) -> Talk:
    """A talk whose channel 1 was closed by the gateway a moment ago; what was said until then is forgotten."""
    talk = talking(rule("close", messages=1, burst=1, **more), confirms=confirms)  # type: ignore[arg-type]
    talk.client(amqp.publish(1, "orders") * 2)
    assert names(talk.to_client)[-1] == "Channel.Close"
    talk.to_broker = talk.to_client = b""
    return talk


def names(data: bytes, channel: int = 1) -> list[str]:
    return [frame.name for frame in amqp.read(data) if frame.channel == channel]


def messages(parts: list[Part]) -> int:
    return sum(part.count * part.messages for part in parts)


# ---- what is said ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("confirms", [(), (1,)])
def test_both_sides_are_told_with_the_key_the_limit_and_the_wait(confirms: tuple[int, ...]) -> None:
    talk = talking(rule("close", messages=2, burst=1), confirms=confirms)
    talk.client(amqp.publish(1, "orders", exchange="shop") * 2)
    (close,) = [frame.value for frame in amqp.read(talk.to_client)]
    assert isinstance(close, commands.Channel.Close)
    assert (close.reply_code, close.class_id, close.method_id) == (506, 60, 40)
    assert close.reply_text == "RESOURCE_ERROR - RATE_LIMITED - %2F/shop/orders is over its limit of 2/s of rule all, wait 500 ms"
    assert names(talk.to_broker) == ["Basic.Publish", "ContentHeader", "ContentBody", "Channel.Close"]


@pytest.mark.parametrize("key", ["k" * 255, "ä" * 127])
def test_a_long_name_is_cut_and_the_wait_is_not(key: str) -> None:
    talk = talking(rule("close", messages=1, burst=1, size=10 << 20, name="ü" * 200))
    talk.client(amqp.publish(1, key) * 2)
    (close,) = [frame.value for frame in amqp.read(talk.to_client)]
    assert isinstance(close, commands.Channel.Close)
    assert len(close.reply_text.encode()) <= 255
    assert close.reply_text.startswith("RESOURCE_ERROR - RATE_LIMITED - %2F/amq.default/")
    assert close.reply_text.endswith("is over its limit of 1/s and 10MiB/s of rule " + "ü" * 32 + ", wait 1000 ms")


def test_a_limit_of_nothing_names_no_wait() -> None:
    talk = talking(rule("close", messages=0))
    talk.client(amqp.publish(1, "orders"))
    (close,) = [frame.value for frame in amqp.read(talk.to_client)]
    assert isinstance(close, commands.Channel.Close)
    assert close.reply_text.endswith("is over its limit of 0/s of rule all, nothing passes")


def test_earlier_nacks_come_before_the_close() -> None:
    talk = talking(rule("reject", messages=1, burst=1), confirms=(1,))
    talk.client(amqp.publish(1, "orders") * 3)
    talk.judge.replace(RuleSet((rule("close", messages=1, burst=1),)))
    talk.client(amqp.publish(1, "orders"))
    assert names(talk.to_client) == ["Basic.Nack", "Basic.Nack", "Channel.Close"]


def test_the_other_channels_live_on() -> None:
    talk = talking(rule("close", messages=1, burst=1), confirms=(2,))
    talk.client(amqp.publish(1, "orders") * 2 + amqp.publish(2, "bills") + amqp.ack(3, 1))
    talk.broker(amqp.ack(2, 1) + amqp.deliver(3, b"x"))
    assert names(talk.to_broker, 2) == ["Basic.Publish", "ContentHeader", "ContentBody"]
    assert names(talk.to_broker, 3) == ["Basic.Ack"]
    assert names(talk.to_client, 2) == ["Basic.Ack"]
    assert names(talk.to_client, 3) == ["Basic.Deliver", "ContentHeader", "ContentBody"]


# ---- what is not said any more ---------------------------------------------------------------------------------------------


def test_frames_the_client_still_sends_on_the_channel_go_nowhere() -> None:
    talk = cut()
    large = amqp.publish(1, "bills", b"x" * 30_000, cut=4000)
    talk.client(b"", [*bytewise(amqp.publish(1, "bills")), amqp.ack(1, 1), large])
    assert (talk.to_broker, talk.to_client) == (b"", b"")
    assert talk.holds_nothing()


def test_publishes_decoded_behind_the_refused_one_count_as_abandoned_and_that_one_as_refused() -> None:
    talk = talking(rule("close", messages=1, burst=1))
    talk.client(amqp.publish(1, "orders") * 3 + amqp.publish(1, "bills") * 4)
    refused = {part.key.text: part.key.tally.refused for part in talk.parts if part.key is not None}
    assert refused == {"%2F/amq.default/orders": 2, "%2F/amq.default/bills": 3}
    assert messages(talk.conversation.reports.abandoned) == 1  # of the bills one would have passed


def test_the_rest_of_the_refused_content_is_thrown_away() -> None:
    talk = talking(rule("close", messages=1, burst=1))
    large = amqp.publish(1, "orders", b"x" * 30_000, cut=4000)
    talk.client(amqp.publish(1, "orders") + large[:9000])
    assert names(talk.to_client) == ["Channel.Close"]  # told at once
    sent = talk.to_broker
    talk.client(large[9000:] + CLOSE_OK + amqp.publish(2, "bills"))
    assert names(talk.to_broker[len(sent) :], 2) == ["Basic.Publish", "ContentHeader", "ContentBody"]
    assert names(talk.to_broker[len(sent) :], 1) == []


def test_a_frame_that_flows_through_is_thrown_away_too() -> None:
    talk = Talk("amqp", rule("close", messages=1, burst=1))
    talk.client(amqp.greeting(channels=(1, 2), frame_max=0))
    talk.broker(amqp.broker_opens())
    talk.broker(amqp.opened(1, 2))
    talk.client(amqp.publish(1, "orders"))
    talk.to_broker = b""
    large = amqp.publish(1, "orders", b"x" * (1 << 20), cut=1 << 20)
    talk.client(large, randomly(large, 5))
    assert names(talk.to_broker) == ["Channel.Close"]
    assert talk.conversation.budget.frame_left == 0
    assert talk.conversation.heartbeat() == amqp.HEARTBEAT


@pytest.mark.parametrize("seed", range(3))
def test_frames_the_broker_still_sends_on_the_channel_go_nowhere(seed: int) -> None:
    talk = cut(confirms=(1,))
    late = amqp.ack(1, 1) + amqp.deliver(1, b"y" * 9000, cut=4000) + amqp.method(1, commands.Basic.Cancel("c"))
    other = amqp.deliver(2, b"z" * 5000, cut=1000)
    said = late + other + late + amqp.HEARTBEAT + CLOSE_OK
    talk.broker(said, randomly(said, seed))
    assert talk.to_client == other + amqp.HEARTBEAT
    assert talk.to_broker == b""


def test_a_delivery_under_way_is_completed_before_the_close() -> None:
    talk = talking(rule("close", messages=1, burst=1))
    delivery = amqp.deliver(1, b"y" * 9000, cut=4000)
    talk.broker(delivery[:5000])
    talk.client(amqp.publish(1, "orders") * 2)
    assert names(talk.to_broker)[-1] == "Channel.Close"
    talk.broker(delivery[5000:] + amqp.deliver(1, b"late") + CLOSE_OK)
    assert talk.to_client.startswith(delivery)
    assert names(talk.to_client[len(delivery) :]) == ["Channel.Close"]


def test_a_refused_publish_behind_held_ones_waits_its_turn_before_it_closes() -> None:
    slow = replace(rule("delay", messages=1, burst=1, name="slow"), match=Match(protocol="amqp", routing_key="slow"))
    hard = replace(rule("close", messages=1, burst=1, name="hard"), match=Match(protocol="amqp", routing_key="hard"))
    talk = talking(slow, hard)
    talk.client(amqp.publish(1, "hard") + amqp.publish(1, "slow") * 2 + amqp.publish(1, "hard") * 2)
    assert talk.to_client == b""
    talk.wait(SECOND)
    assert names(talk.to_broker).count("Basic.Publish") == 4
    assert names(talk.to_client) == ["Channel.Close"]
    assert talk.holds_nothing()


@pytest.mark.parametrize("taken", [2, 512], ids=["held", "with the judge"])
def test_what_waits_behind_the_publish_that_closes_is_abandoned_and_the_clients_close_answered(taken: int) -> None:
    slow = replace(rule("delay", messages=1, burst=1, name="slow"), match=Match(protocol="amqp", routing_key="slow"))
    hard = replace(rule("close", messages=0, name="hard"), match=Match(protocol="amqp", routing_key="hard"))
    talk = talking(slow, hard)
    talk.client(amqp.publish(1, "slow") * 2 + amqp.publish(1, "hard") + amqp.publish(1, "free") * 3 + CLIENT_CLOSES)
    assert talk.to_client == b""
    talk.now += SECOND
    talk.settle(talk.conversation.lines.take_due(talk.now, taken))
    assert names(talk.to_client) == ["Channel.Close", "Channel.CloseOk"]
    assert names(talk.to_broker).count("Basic.Publish") == 2
    assert messages(talk.conversation.reports.abandoned) == 3
    assert talk.holds_nothing()
    talk.client(CLOSE_OK)
    talk.broker(CLOSE_OK)
    talk.client(OPEN)
    assert reopened(talk)


def test_a_channel_that_is_opened_again_while_it_is_being_closed_is_forgotten_in_the_end() -> None:
    """The client has not heard of the close yet when it closes the channel itself and opens it again: all that is for nobody."""
    talk = talking(rule("close", messages=1, burst=1))
    talk.client(amqp.publish(1, "orders") * 2 + CLIENT_CLOSES + OPEN + CLIENT_CLOSES)
    assert names(talk.to_broker)[3:] == ["Channel.Close"]
    talk.client(CLOSE_OK)
    talk.broker(CLOSE_OK)
    assert 1 not in talk.conversation.channels  # type: ignore[attr-defined]


def test_a_channel_is_not_forgotten_while_its_next_open_is_decoded_and_not_settled() -> None:
    talk = cut()
    channel = talk.conversation.channels[1]  # type: ignore[attr-defined]
    talk.client(CLOSE_OK)
    parts: list[Part] = []
    assert talk.conversation.decode(OPEN + CLIENT_CLOSES, 0, 512, parts) == len(OPEN + CLIENT_CLOSES)
    talk.broker(CLOSE_OK)
    assert talk.conversation.channels[1] is channel  # type: ignore[attr-defined]
    talk.settle(parts)
    assert names(talk.to_broker) == ["Channel.Open", "Channel.Close"]


# ---- the four ways ---------------------------------------------------------------------------------------------------------


def reopened(talk: Talk, channel: int = 1) -> bool:
    """Whether the number can be used again: a publish passes on a channel opened anew."""
    talk.to_broker = b""
    talk.client(amqp.publish(channel, "fresh"))
    return names(talk.to_broker) == ["Basic.Publish", "ContentHeader", "ContentBody"]


def test_the_client_answers_first_and_its_open_is_held_until_the_broker_has_answered() -> None:
    talk = cut()
    select = amqp.method(1, commands.Confirm.Select(nowait=True))
    again = OPEN + select + amqp.publish(1, "bills") + amqp.ack(1, 3)
    talk.client(CLOSE_OK + again)
    assert talk.to_broker == b""
    assert talk.conversation.lines.holds_close()
    talk.broker(amqp.ack(1, 1) + CLOSE_OK)
    talk.wait(0)
    assert talk.to_broker == again
    assert talk.to_client == b""
    talk.broker(OPEN_OK + amqp.ack(1, 1))
    assert talk.to_client == OPEN_OK + amqp.ack(1, 1)
    assert talk.holds_nothing()
    assert reopened(talk)


@pytest.mark.parametrize("action", ["close", "delay", "block", "spool", "reject"])
def test_what_is_over_its_limit_behind_an_open_that_is_held_goes_on_in_its_time(action: str) -> None:
    """It was due with the open, which is never: then nothing went on that channel any more."""
    talk = cut()
    talk.judge.replace(RuleSet((rule(action, messages=1, burst=1),)))
    talk.client(CLOSE_OK + OPEN + amqp.publish(1, "orders") + amqp.publish(1, "orders"))
    talk.wait(SECOND // 10)
    assert talk.to_broker == b""
    talk.broker(CLOSE_OK)
    talk.broker(OPEN_OK)
    talk.wait(2 * SECOND)
    assert names(talk.to_broker)[:2] == ["Channel.Open", "Channel.Close" if action == "close" else "Basic.Publish"]


def test_the_broker_answers_first_and_the_open_passes_at_once() -> None:
    talk = cut()
    talk.broker(CLOSE_OK)
    assert talk.to_client == b""
    talk.client(CLOSE_OK + OPEN)
    assert talk.to_broker == OPEN
    talk.broker(OPEN_OK)
    assert talk.to_client == OPEN_OK
    assert reopened(talk)


def test_a_channel_that_is_not_opened_again_is_forgotten() -> None:
    for first, second in (("client", "broker"), ("broker", "client")):
        talk = cut()
        for who in (first, second):
            (talk.client if who == "client" else talk.broker)(CLOSE_OK)
        assert (talk.to_client, talk.to_broker) == (b"", b"")
        assert talk.conversation.describe()["channels"] == 2
        assert 1 not in talk.conversation.channels  # type: ignore[attr-defined]


def test_the_client_closes_at_the_same_time() -> None:
    talk = cut()
    talk.client(amqp.publish(1, "bills") + CLIENT_CLOSES)
    assert (talk.to_client, talk.to_broker) == (CLOSE_OK, b"")
    talk.client(CLOSE_OK)
    talk.broker(CLOSE_OK)
    assert (talk.to_client, talk.to_broker) == (CLOSE_OK, b"")
    talk.client(OPEN)
    assert talk.to_broker == OPEN
    assert reopened(talk)


def test_the_clients_close_was_read_together_with_the_refused_publish() -> None:
    talk = talking(rule("close", messages=1, burst=1))
    talk.client(amqp.publish(1, "orders") * 2 + CLIENT_CLOSES)
    assert names(talk.to_client) == ["Channel.Close", "Channel.CloseOk"]
    assert names(talk.to_broker)[3:] == ["Channel.Close"]
    talk.broker(CLOSE_OK)
    talk.client(CLOSE_OK + OPEN)
    assert names(talk.to_broker)[4:] == ["Channel.Open"]


def test_the_clients_close_waits_behind_ours_while_a_delivery_is_under_way() -> None:
    talk = talking(rule("close", messages=1, burst=1))
    delivery = amqp.deliver(1, b"y" * 9000, cut=4000)
    talk.broker(delivery[:5000])
    talk.client(amqp.publish(1, "orders") * 2 + CLIENT_CLOSES)
    talk.broker(delivery[5000:])
    assert names(talk.to_client)[-2:] == ["Channel.Close", "Channel.CloseOk"]
    assert talk.conversation.budget.reply_bytes == 0


@pytest.mark.parametrize("answers_first", [True, False])
def test_the_broker_closes_at_the_same_time_and_gets_its_close_ok(answers_first: bool) -> None:
    talk = cut()
    talk.client(CLOSE_OK + OPEN)
    talk.broker(CLOSE_OK + BROKER_CLOSES if answers_first else BROKER_CLOSES + CLOSE_OK)
    talk.wait(0)
    if answers_first:  # not RabbitMQ's way: after its close-ok the channel is gone, and the close is one of the channel opened since
        assert names(talk.to_client) == ["Channel.Close"]
    else:
        assert (talk.to_client, talk.to_broker) == (b"", CLOSE_OK + OPEN)


def test_the_broker_has_closed_the_channel_before() -> None:
    talk = talking(rule("close", messages=1, burst=1))
    talk.client(amqp.publish(1, "orders"))
    fresh: list[Part] = []
    talk.conversation.decode(amqp.publish(1, "orders"), 0, 100, fresh)
    talk.broker(BROKER_CLOSES)
    talk.to_broker = talk.to_client = b""
    talk.settle(fresh)
    assert (talk.to_broker, talk.to_client) == (b"", b"")


@pytest.mark.parametrize("who", ["client", "broker"])
def test_the_connection_is_closed_in_the_middle_of_it(who: str) -> None:
    talk = cut()
    close, close_ok = amqp.method(0, commands.Connection.Close(200, "bye", 0, 0)), amqp.method(0, commands.Connection.CloseOk())
    talk.client(CLOSE_OK + OPEN)
    if who == "client":
        talk.client(close)
        assert talk.to_broker == b""  # behind the held channel.open
        talk.broker(CLOSE_OK)
        talk.wait(0)
        assert talk.to_broker == OPEN + close
        talk.broker(OPEN_OK + close_ok)
        assert talk.to_client == OPEN_OK + close_ok
    else:
        talk.broker(close)
        talk.client(close_ok)
        talk.wait(0)
        assert (talk.to_client, talk.to_broker) == (close, close_ok)
    assert talk.holds_nothing()
    assert not talk.conversation.lines.holds_close()


def test_a_transaction_is_closed_whole() -> None:
    talk = talking(rule("close", messages=1, burst=1))
    talk.client(amqp.method(1, commands.Tx.Select()) + amqp.publish(1, "orders") * 2 + amqp.method(1, commands.Tx.Commit()))
    assert names(talk.to_broker) == ["Tx.Select", "Basic.Publish", "ContentHeader", "ContentBody", "Channel.Close"]
    assert names(talk.to_client) == ["Channel.Close"]


def test_confirms_count_from_one_again_on_the_channel_opened_anew() -> None:
    talk = cut(confirms=(1,))
    talk.broker(CLOSE_OK)
    talk.client(CLOSE_OK + OPEN + amqp.method(1, commands.Confirm.Select(nowait=True)))
    talk.wait(SECOND)
    talk.to_client = b""
    talk.client(amqp.publish(1, "orders"))
    talk.broker(amqp.ack(1, 1))
    assert talk.to_client == amqp.ack(1, 1)


def test_draining_does_not_wait_for_confirms_of_a_closed_channel() -> None:
    talk = talking(rule("close", messages=1, burst=1), confirms=(1,))
    talk.client(amqp.publish(1, "orders"))
    assert not talk.conversation.settled()
    talk.client(amqp.publish(1, "orders"))
    assert talk.conversation.settled()


# ---- deliveries that a rule holds on the same channel ----------------------------------------------------------------------


def consuming(*, no_ack: bool = False) -> Talk:
    """Channel 1 consumes from `jobs`, one delivery a second, and may publish one message a second."""
    limit = Limit(messages=Rate(1), messages_burst=1)
    talk = talking()  # the rules come behind the consumer, which is so as its client has said
    talk.client(amqp.method(1, commands.Basic.Consume(queue="jobs", consumer_tag="c", nowait=True, no_ack=no_ack)))
    consume = Rule("consume", Match(queue="jobs", operation="consume"), limit=limit, open_for_ns=0)
    talk.judge.replace(RuleSet((rule("close", messages=1, burst=1), consume)))
    talk.to_broker = talk.to_client = b""
    return talk


def jobs(*tags: int) -> bytes:
    return b"".join(amqp.deliver(1, b"j" * 9000, tag=tag, cut=4000) for tag in tags)


@pytest.mark.parametrize("no_ack", [False, True])
def test_held_deliveries_go_nowhere_unless_the_broker_has_forgotten_them(no_ack: bool) -> None:
    talk = consuming(no_ack=no_ack)
    talk.broker(jobs(1, 2, 3))
    assert talk.to_client == jobs(1)
    talk.client(amqp.publish(1, "orders") * 2)
    assert names(talk.to_client[len(jobs(1)) :]) == [*names(jobs(2, 3) if no_ack else b""), "Channel.Close"]
    assert talk.conversation.budget.parked_messages == 0


@pytest.mark.parametrize("no_ack", [False, True])
@pytest.mark.parametrize("cut_at", [50, 90, 3000, 5000, 8500, -1])
def test_half_of_a_held_delivery_does_not_reach_the_client(no_ack: bool, cut_at: int) -> None:
    talk = consuming(no_ack=no_ack)
    talk.broker(jobs(1) + jobs(2)[:cut_at])
    talk.client(amqp.publish(1, "orders") * 2)
    talk.broker(jobs(2)[cut_at:] + jobs(3) + CLOSE_OK + amqp.HEARTBEAT)
    talk.client(CLOSE_OK + OPEN + amqp.method(1, commands.Basic.Consume(queue="jobs", consumer_tag="c", nowait=True)))
    talk.wait(2 * SECOND)
    assert [name for name in names(talk.to_client) if name != "ContentBody"] == ["Basic.Deliver", "ContentHeader", "Channel.Close"]
    talk.to_client = b""
    talk.broker(OPEN_OK + jobs(1))
    talk.wait(SECOND)
    assert talk.to_client == OPEN_OK + jobs(1)
    assert talk.conversation.budget.parked_bytes == 0


@pytest.mark.parametrize("cut_at", [50, 90, 3000, 8500, -1])
def test_whole_deliveries_the_broker_has_forgotten_pass_before_half_of_another(cut_at: int) -> None:
    talk = consuming(no_ack=True)
    talk.broker(jobs(1, 2, 3) + jobs(4)[:cut_at])
    talk.client(amqp.publish(1, "orders") * 2)
    talk.broker(jobs(4)[cut_at:] + jobs(5) + CLOSE_OK)
    assert talk.to_client.startswith(jobs(1, 2, 3))
    assert names(talk.to_client[len(jobs(1, 2, 3)) :]) == ["Channel.Close"]
    delivered = talk.conversation.reports.delivered
    assert sum(one.received for one in delivered) == sum(one.forwarded for one in delivered) + messages(talk.conversation.reports.abandoned)
    assert (talk.conversation.budget.parked_bytes, talk.conversation.budget.parked_messages) == (0, 0)


# ---- as a fallback ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["reject", "delay"])
def test_the_fallback_closes_only_channels_that_cannot_be_refused(action: str) -> None:
    talk = talking(rule(action, messages=1, burst=1, fallback="close", max_delay_ns=SECOND // 2), confirms=(2,))
    talk.client(amqp.publish(2, "orders") * 2 + amqp.publish(1, "orders"))
    talk.wait(SECOND // 2)
    assert names(talk.to_client, 2) == ["Basic.Nack"]
    assert names(talk.to_client, 1) == ["Channel.Close"]
    assert talk.holds_nothing()


def test_a_nack_that_must_wait_its_turn_is_no_reason_to_close() -> None:
    talk = talking(rule("delay", messages=1, burst=1, fallback="close", max_delay_ns=SECOND // 2), confirms=(1,))
    talk.client(amqp.publish(1, "orders") * 2)
    talk.now += SECOND // 4
    talk.client(amqp.publish(1, "orders"))
    talk.wait(SECOND)
    assert "Channel.Close" not in names(talk.to_client)
    assert talk.conversation.budget.next_due == NEVER


def test_the_brokers_close_ok_does_not_wait_for_what_the_clients_connection_close_waits_for() -> None:
    """Else a channel.open goes before it, which costs the connection (504), and what other channels hold with it."""
    slow = Rule("slow", Match(routing_key="slow"), limit=Limit(messages=Rate(1), messages_burst=1), action="delay", open_for_ns=0)
    talk = talking(slow, replace(rule("close", messages=1, burst=1), match=Match(routing_key="orders")))
    talk.client(amqp.publish(2, "slow") * 3 + amqp.publish(1, "orders") * 2)
    talk.to_broker = b""
    talk.client(CLOSE_OK + OPEN + amqp.method(0, commands.Connection.Close(200, "bye", 0, 0)))
    talk.broker(BROKER_CLOSES)
    talk.wait(0)
    assert names(talk.to_broker) == ["Channel.CloseOk"]
    talk.broker(CLOSE_OK)
    for _ in range(4):
        talk.wait(SECOND)
    assert [name for name in amqp.names(talk.to_broker) if "Content" not in name] == [
        "Channel.CloseOk", "Channel.Open", "Basic.Publish", "Basic.Publish", "Connection.Close",
    ]  # fmt: skip
