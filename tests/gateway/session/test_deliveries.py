"""What deliveries over their limit ask of a session: a batch of their own for the judge, a broker that is not read, true numbers."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from pamqp import commands

from common.views.connections import HeldView
from gateway.clock import now_ns
from gateway.counting.access_log import AccessLog, Rolling
from gateway.counting.access_log_lines import text_of
from gateway.session import description
from gateway.session.ending import close_gracefully, send_close
from gateway.session.listener_config import ListenerConfig
from gateway.transport.channel_states import FIN_SENT
from limiter.limits import Limit, Rate
from limiter.request import Request
from limiter.rules.rule_set import Match, Rule, RuleSet
from support.amqp import frames as amqp
from support.processes import HANG_S
from support.wires.wires import Decide, Wires

QUEUE = "%2F/amq.default/jobs"


def limit(rate: int = 1, burst: int = 5) -> Rule:
    return Rule("jobs", Match(queue="jobs", operation="consume"), limit=Limit(messages=Rate(rate), messages_burst=burst))


def consuming(
    wires: Wires, queue: str = "jobs", *, confirms: tuple[int, ...] = (), no_ack: bool = False, config: ListenerConfig | None = None
) -> tuple[socket.socket, socket.socket]:
    client, broker = wires.connect("amqp", config=config)
    rules = wires.judge.rules
    wires.judge.replace(RuleSet(()))  # they come behind the consumer, which is so as its client has said: what comes is parked
    client.sendall(amqp.greeting(channels=(1,), confirms=confirms, heartbeat=0 if config else 2))
    broker.sendall(amqp.broker_start() + amqp.method(0, commands.Connection.OpenOk()))
    client.sendall(amqp.method(1, commands.Basic.Consume(queue=queue, consumer_tag="c", nowait=True, no_ack=no_ack)))
    wires.run()
    broker.sendall(amqp.opened(1))
    wires.run()
    wires.judge.replace(RuleSet(rules.rules))
    wires.received(client)
    wires.received(broker)
    return client, broker


def deliveries(first: int, last: int, size: int = 100) -> bytes:
    return b"".join(amqp.deliver(1, b"x" * size, tag=tag) for tag in range(first, last + 1))


def deliver(wires: Wires, broker: socket.socket, data: bytes) -> None:
    """Send all of it, as the gateway takes it."""
    left = memoryview(data)
    broker.setblocking(False)
    while left:
        with suppress(BlockingIOError):
            left = left[broker.send(left) :]
        wires.run()
    broker.setblocking(True)


@pytest.mark.parametrize("threads", [0, 1])
def test_deliveries_are_counted_where_no_rule_limits_them(threads: int) -> None:
    with Wires(limit(), threads=threads) as wires:
        client, broker = consuming(wires, "mail")
        broker.sendall(deliveries(1, 300))
        wires.run()
        assert wires.received(client) == deliveries(1, 300)
        assert wires.totals("amqp", "%2F/amq.default/mail", "consume") == {
            "received": 300, "forwarded": 300, "refused": 0, "dropped": 0, "abandoned": 0, "bypassed": 0, "delayed": 0, "waiting": 0,
        }  # fmt: skip
        assert wires.sweeper.submissions == 0


@pytest.mark.parametrize("threads", [0, 1])
def test_deliveries_over_the_limit_wait_and_acks_and_confirms_go_on(threads: int) -> None:
    with Wires(limit(), threads=threads) as wires:
        client, broker = consuming(wires, confirms=(1,))
        broker.sendall(deliveries(1, 20))
        wires.run()
        assert wires.received(client) == deliveries(1, 5)
        client.sendall(amqp.ack(1, 5, multiple=True) + amqp.publish(1, "orders"))
        wires.run()
        assert amqp.names(wires.received(broker)) == ["Basic.Ack", "Basic.Publish", "ContentHeader", "ContentBody"]
        broker.sendall(amqp.ack(1, 1))
        wires.run()
        assert wires.received(client) == amqp.ack(1, 1)
        totals = wires.totals("amqp", QUEUE, "consume")
        assert (totals["received"], totals["forwarded"], totals["delayed"], totals["waiting"]) == (20, 5, 15, 15)
        assert wires.totals("amqp", "%2F/amq.default/orders")["forwarded"] == 1


def test_held_deliveries_come_as_the_limit_allows_and_at_once_when_it_is_raised() -> None:
    with Wires(limit(rate=200)) as wires:
        client, broker = consuming(wires)
        broker.sendall(deliveries(1, 25))
        wires.until(lambda: wires.session().conversation.budget.parked_messages > 0)
        wires.until(lambda: wires.session().conversation.budget.parked_messages == 0)
        assert wires.received(client) == deliveries(1, 25)
        wires.judge.replace(RuleSet((limit(rate=1),)))
        broker.sendall(deliveries(26, 60))
        wires.until(lambda: wires.session().conversation.budget.parked_messages > 10)
        held_by = description.describe(wires.session(), now_ns()).held_by
        assert held_by == HeldView(rule=limit().name, topic=QUEUE, operation="consume")
        wires.judge.replace(RuleSet((limit(rate=100_000, burst=1000),)))
        wires.until(lambda: wires.session().conversation.budget.parked_messages == 0)
        assert wires.received(client) == deliveries(26, 60)


def test_no_more_is_parked_than_may_be_and_the_broker_is_not_read_meanwhile() -> None:
    hold = 20_000
    with Wires(limit(), hold_bytes=hold) as wires:
        client, broker = consuming(wires)
        broker.setblocking(False)
        stream = deliveries(1, 2000)
        sent = broker.send(stream)
        wires.run()
        session = wires.session()
        assert not session.reads_broker()
        assert hold <= session.conversation.budget.parked_bytes < hold + 262_144
        parked = session.conversation.budget.parked_bytes
        client.sendall(amqp.publish(1, "orders"))
        wires.run()
        assert amqp.names(wires.received(broker))[0] == "Basic.Publish"  # the way up is open
        assert session.conversation.budget.parked_bytes == parked
        wires.judge.replace(RuleSet(()))
        wires.until(lambda: session.conversation.budget.parked_bytes == 0 and not session.upstream.readable)
        got = wires.received(client)
        while len(got) < sent and session.client.backlog:
            wires.run()
            got += wires.received(client)
        assert got == stream[:sent]


def test_near_the_bound_the_broker_is_read_in_small_pieces() -> None:
    hold = 100_000
    with Wires(limit(rate=1), hold_bytes=hold) as wires:
        _, broker = consuming(wires)
        session = wires.session()
        for number in range(40):
            broker.sendall(deliveries(number * 20 + 1, number * 20 + 20))
            wires.run(0.003)
            if not session.reads_broker():
                break
        assert hold <= session.conversation.budget.parked_bytes <= hold + 3 * 4096


def test_a_delivery_larger_than_what_may_be_parked_gets_through() -> None:
    with Wires(limit(rate=20, burst=1), hold_bytes=10_000) as wires:
        client, broker = consuming(wires)
        stream = deliveries(1, 1) + deliveries(2, 3, size=60_000)
        broker.sendall(stream)
        got = b""

        def arrived() -> bool:
            nonlocal got
            got += wires.received(client)
            return len(got) == len(stream)

        wires.until(arrived)
        assert got == stream
        assert wires.session().conversation.budget.parked_bytes == 0


def test_above_the_delivery_watermark_brokers_with_parked_deliveries_are_not_read() -> None:
    with Wires(limit()) as wires:
        _, broker = consuming(wires)
        broker.sendall(deliveries(1, 20))
        wires.run()
        assert wires.session().reads_broker()
        wires.session().listener_config.deliveries_full = True
        assert not wires.session().reads_broker()


def test_a_broker_that_goes_away_is_noticed_although_it_is_not_read() -> None:
    with Wires(limit(rate=1), hold_bytes=2000) as wires:
        client, broker = consuming(wires)
        broker.sendall(deliveries(1, 60))
        wires.run()
        assert not wires.session().reads_broker()
        broker.close()
        wires.until(lambda: wires.session().client.write_state == FIN_SENT)
        client.close()
        wires.until(lambda: bool(wires.ended))
        totals = wires.totals("amqp", QUEUE, "consume")
        assert (totals["received"], totals["forwarded"], totals["abandoned"], totals["waiting"]) == (60, 5, 55, 0)


def test_deliveries_held_when_the_client_goes_are_abandoned() -> None:
    with Wires(limit(rate=0)) as wires:
        client, broker = consuming(wires)
        broker.sendall(deliveries(1, 60))
        wires.run()
        client.close()
        broker.close()
        wires.until(lambda: bool(wires.ended))
        totals = wires.totals("amqp", QUEUE, "consume")
        assert (totals["received"], totals["forwarded"], totals["abandoned"], totals["waiting"]) == (60, 0, 60, 0)


def test_a_slow_judge_reorders_nothing_and_a_failing_one_lets_pass() -> None:
    def failing(decide: Decide) -> Decide:
        def judge(requests: list[Request], now: int) -> None:
            raise RuntimeError("no verdict")

        return judge

    with Wires(limit(), threads=1, wrap=failing) as wires:
        client, broker = consuming(wires)
        broker.sendall(deliveries(1, 50))
        wires.run()
        assert wires.received(client) == deliveries(1, 50)
        totals = wires.totals("amqp", QUEUE, "consume")
        assert (totals["bypassed"], totals["forwarded"]) == (50, 50)


def test_a_cancel_while_the_judge_looks_closes_no_connection() -> None:
    looks = threading.Event()
    goes_on = threading.Event()

    def slow(decide: Decide) -> Decide:
        def judge(requests: list[Request], now: int) -> None:
            looks.set()
            assert goes_on.wait(HANG_S)
            decide(requests, now)

        return judge

    with Wires(limit(), threads=1, wrap=slow) as wires:
        client, broker = consuming(wires)
        client.sendall(amqp.method(1, commands.Basic.Consume(queue="jobs", consumer_tag="d", nowait=True)))
        wires.run()
        wires.received(broker)
        mine, other = deliveries(1, 20), b"".join(amqp.deliver(1, b"x", tag=tag, consumer_tag="d") for tag in range(21, 24))
        broker.sendall(mine + other)
        wires.until(looks.is_set)
        client.sendall(amqp.method(1, commands.Basic.Cancel("c")))
        wires.until(lambda: "Basic.Cancel" in amqp.names(wires.received(broker)))
        assert wires.received(client) == b""
        goes_on.set()
        wires.run()
        assert wires.ended == []
        assert wires.received(client) == mine


# ---- the end of the connection -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("no_ack", [False, True])
def test_a_drain_waits_for_what_the_broker_has_forgotten_and_gives_the_client_time_to_take_it_in(no_ack: bool) -> None:
    with Wires(limit()) as wires:
        client, broker = consuming(wires, no_ack=no_ack)
        broker.sendall(deliveries(1, 20))
        wires.run()
        session = wires.session()
        session.begin_drain()
        assert session.drained(wires.now(), 0) is not no_ack
        wires.enforce(RuleSet(()))
        wires.until(lambda: session.conversation.budget.parked_messages == 0)
        wires.run()
        assert wires.received(client) == deliveries(1, 20)
        assert session.drained(wires.now(), 0) is not no_ack
        wires.stand_still(1)
        assert session.drained(wires.now(), 0)


def test_an_operators_close_first_gives_the_client_the_deliveries_that_the_broker_has_forgotten() -> None:
    with Wires(limit(rate=0)) as wires:
        client, broker = consuming(wires, no_ack=True)
        broker.sendall(deliveries(1, 20))
        wires.run()
        close_gracefully(wires.session(), "closed by an operator", "admin", wires.now())
        wires.run()
        assert wires.received(client) == deliveries(1, 20)
        wires.elapse(0.5)
        assert wires.received(client) == b""
        wires.elapse(1)
        (close,) = amqp.read(wires.received(client))
        assert isinstance(close.value, commands.Connection.Close)
        assert "closed by an operator" in close.value.reply_text
        totals = wires.totals("amqp", QUEUE, "consume")
        assert (totals["forwarded"], totals["abandoned"], totals["waiting"]) == (20, 0, 0)


def test_deliveries_that_a_close_does_not_pass_are_abandoned() -> None:
    with Wires(limit(rate=0)) as wires:
        client, broker = consuming(wires)
        broker.sendall(deliveries(1, 60))
        wires.run()
        send_close(wires.session(), "the gateway is stopping", "drain", wires.now())
        client.close()
        broker.close()
        wires.until(lambda: bool(wires.ended))
        totals = wires.totals("amqp", QUEUE, "consume")
        assert (totals["received"], totals["forwarded"], totals["abandoned"], totals["waiting"]) == (60, 0, 60, 0)


def test_a_connection_with_held_deliveries_is_not_idle() -> None:
    config = ListenerConfig("here", "amqp", 1 << 24, 10_000_000_000, idle_ns=2_000_000_000)
    with Wires(limit(rate=0)) as wires:
        client, broker = consuming(wires, config=config, no_ack=True)  # the broker has forgotten them, so they stay here
        broker.sendall(deliveries(1, 3))
        wires.run()
        wires.elapse(5)
        assert not wires.session().conversation.draining
        wires.enforce(RuleSet(()))
        wires.elapse(5)
        assert wires.received(client).startswith(deliveries(1, 3))
        assert wires.session().conversation.draining


def test_a_refused_content_that_is_kept_for_its_return_counts_as_memory() -> None:
    refusing = Rule("orders", Match(routing_key="orders", operation="produce"), limit=Limit(messages=Rate(0)), open_for_ns=0)
    with Wires(refusing) as wires:
        client, _ = consuming(wires, confirms=(1,))
        session = wires.session()
        content = amqp.publish(1, "orders", b"x" * 200_000, mandatory=True, cut=50_000)
        client.sendall(content[:150_100])
        wires.run()
        assert session.buffered() >= 150_000
        client.sendall(content[150_100:])
        wires.run()
        assert amqp.names(wires.received(client))[-1] == "Basic.Nack"
        assert session.buffered() == 0


def test_publishes_and_deliveries_of_one_client_are_judged_side_by_side() -> None:
    """Both batches may be out at once; each finds its way back."""
    publishes = Rule("publishes", Match(protocol="amqp", routing_key="orders"), limit=Limit(messages=Rate(1), messages_burst=3))
    with Wires(limit(), publishes, threads=1) as wires:
        client, broker = consuming(wires, confirms=(1,))
        client.sendall(amqp.publish(1, "orders") * 10)
        broker.sendall(deliveries(1, 10))
        wires.run()
        assert amqp.names(wires.received(broker)).count("Basic.Publish") == 3
        names = amqp.names(wires.received(client))
        assert (names.count("Basic.Deliver"), names.count("Basic.Nack")) == (5, 7)


def test_the_access_log_tells_what_was_consumed(tmp_path: Path) -> None:
    with Wires(limit()) as wires:
        log = AccessLog(tmp_path, "here", "boot", Rolling(300, 1 << 20, 0))
        wires.accounts.observers.append(log.running.add)
        client, broker = consuming(wires)
        client.sendall(amqp.publish(1, "jobs", b"x" * 7) * 2)
        broker.sendall(deliveries(1, 20))
        wires.run()
        wires.accounts.fold(now_ns())
        log.close_second(1_795_247_411)
        second = log._writer._queue.get_nowait()
        assert second is not None
        text = text_of(second, "here", "boot", 0)
    import json

    lines = {line["operation"]: line for line in map(json.loads, text.splitlines()) if "operation" in line}
    assert {name: (line["topic"], line["messages"], line["bytes"], line["delayed_messages"]) for name, line in lines.items()} == {
        "produce": (QUEUE, 2, 14, 0),
        "consume": (QUEUE, 5, 500, 15),
    }
    assert lines["consume"]["max_100ms_messages"] == 20


@pytest.mark.parametrize("channels", [False, True])
def test_consumers_that_wait_for_one_limit_take_turns(channels: bool) -> None:
    """On two connections, or on two channels of one. One has more than it may have before the other begins."""
    rate = 40
    with Wires(limit(rate, burst=10), hold_bytes=4 << 20) as wires:
        ends = [consuming(wires)]
        if channels:
            client, broker = ends[0]
            client.sendall(amqp.method(2, commands.Channel.Open()))
            client.sendall(amqp.method(2, commands.Basic.Consume(queue="jobs", consumer_tag="d", nowait=True)))
            wires.run()
            broker.sendall(amqp.opened(2))
            wires.run()
            wires.received(client)
        else:
            ends.append(consuming(wires))
        count = rate * 30
        for _, broker in ends:
            more = [amqp.deliver(1, b"x", tag=tag) for tag in range(1, count + 1)]
            if channels:
                more += [amqp.deliver(2, b"x", tag=tag, consumer_tag="d") for tag in range(1, count + 1)]
            deliver(wires, broker, b"".join(more))
        for client, _ in ends:
            wires.received(client)
        got = [0, 0]
        for _ in range(25):
            wires.elapse(1)
            before = sum(got)
            for number, (client, _) in enumerate(ends):
                for each in amqp.read(wires.received(client)):
                    if isinstance(each.value, commands.Basic.Deliver):
                        got[each.channel - 1 if channels else number] += 1
            assert 0.75 * rate <= sum(got) - before <= 1.25 * rate, "the limit holds for both together, and no token is lost"
        assert 0.25 < got[0] / sum(got) < 0.75
