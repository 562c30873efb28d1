"""Declares, binds, deletes, purges and opens: over their limit they wait in their place, and nothing is refused."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pamqp.commands
import pytest
from pamqp import base, commands

from gateway.pipeline.errors import ProtocolError
from gateway.protocols.amqp.conversation import AmqpConversation
from gateway.protocols.amqp.costly_methods import OPERATION_OF
from gateway.waiting.disk.waiting_disk import WaitingDisk
from limiter.judge import Judge
from limiter.limits import NEVER, Limit, Rate
from limiter.operations import OPERATION_RECORDS
from limiter.rules.cost import Cost
from limiter.rules.errors import RuleError
from limiter.rules.rule_set import Match, Rule, RuleSet
from support.amqp import frames as amqp
from support.amqp.link import over_tcp
from support.wires.conversations import SECOND, Talk
from support.wires.wires import Wires

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MS = SECOND // 1000
METHODS: dict[str, list[base.Frame]] = {
    "declare": [commands.Queue.Declare(queue="q"), commands.Exchange.Declare(exchange="e")],
    "bind": [
        commands.Queue.Bind(queue="q", exchange="e"), commands.Queue.Unbind(queue="q", exchange="e"),
        commands.Exchange.Bind(destination="d", source="e"), commands.Exchange.Unbind(destination="d", source="e"),
    ],
    "delete": [commands.Queue.Delete(queue="q"), commands.Exchange.Delete(exchange="e")],
    "purge": [commands.Queue.Purge(queue="q")],
}  # fmt: skip


def limit(operation: str, messages: int = 10, *, burst: int = 1, per: str = "client", **more: Any) -> Rule:
    rate = Limit(messages=Rate(messages), messages_burst=burst)
    return Rule(f"limit {operation}", Match(operation=operation), per=per, limit=rate, **{"action": "delay", **more})


def talking(*rules: Rule, channels: tuple[int, ...] = (1, 2)) -> Talk:
    talk = Talk("amqp", *rules)
    talk.client(amqp.greeting())
    talk.broker(amqp.broker_opens())
    if channels:
        talk.client(b"".join(said(commands.Channel.Open(), number) for number in channels))
        talk.broker(amqp.opened(*channels))
    talk.to_broker = talk.to_client = b""
    return talk


def said(frame: base.Frame, channel: int = 1) -> bytes:
    return amqp.method(channel, frame)


def told(talk: Talk) -> bytes:
    data, talk.to_broker = talk.to_broker, b""
    return data


@contextmanager
def spooling(folder: Path) -> Iterator[WaitingDisk]:
    disk = WaitingDisk(folder / "spool", 1 << 30, 1, threads=False, least=1_000, most=1_000)
    yield disk
    disk.close(1.0)


def nothing_waits(talk: Talk) -> bool:
    budget = talk.conversation.budget
    return (budget.held_bytes, budget.held_messages, budget.held_polls, budget.next_due) == (0, 0, 0, NEVER)


def leave(talk: Talk) -> None:
    """The client goes without a word, and all that it has said is decoded."""
    talk.conversation.leave()
    talk.conversation.client_gone = True
    if talk.conversation.has_farewells():
        talk.conversation.take_farewells(quiet=False)
        talk.conversation.take_farewells(quiet=True)


@pytest.mark.parametrize("operation", METHODS)
def test_what_is_over_the_limit_waits_with_all_behind_it_on_its_channel_alone(operation: str) -> None:
    talk = talking(limit(operation))
    first, *rest = [said(method) for method in METHODS[operation]] * 3
    talk.client(first + rest[0] + amqp.publish(1, "orders") + amqp.publish(2, "orders"))
    assert told(talk) == first + amqp.publish(2, "orders")
    assert talk.conversation.budget.waiting() == 2, "the method, and the publish behind it: operators see the connection as throttled"
    talk.wait(99 * MS)
    assert told(talk) == b""
    talk.wait(1 * MS)
    assert told(talk) == rest[0] + amqp.publish(1, "orders")
    assert nothing_waits(talk)
    counted = {one.key.operation: one.forwarded for one in talk.conversation.reports.delivered}
    assert counted == {operation: 2}


@pytest.mark.parametrize("operation", METHODS)
def test_other_operations_are_not_counted(operation: str) -> None:
    talk = talking(limit(operation, 0))
    others = b"".join(said(method) for other, methods in METHODS.items() if other != operation for method in methods) * 2
    talk.client(others)
    assert told(talk) == others


def test_opens_wait_and_what_is_said_on_the_channel_with_them() -> None:
    talk = talking(limit("open"), channels=())
    opens = [said(commands.Channel.Open(), number) for number in (1, 2, 3)]
    talk.client(b"".join(opens) + amqp.publish(2, "orders"))
    assert told(talk) == opens[0]
    talk.wait(100 * MS)
    assert told(talk) == opens[1] + amqp.publish(2, "orders")
    talk.wait(100 * MS)
    assert told(talk) == opens[2]
    assert nothing_waits(talk)
    close = said(commands.Channel.Close(200, "", 0, 0))
    talk.wait(SECOND)
    talk.client(close + opens[0] + said(commands.Channel.Close(200, "", 0, 0), 2) + opens[1])
    assert told(talk) == close + opens[0] + said(commands.Channel.Close(200, "", 0, 0), 2)
    talk.broker(said(commands.Channel.CloseOk()) + said(commands.Channel.OpenOk()) + said(commands.Channel.CloseOk(), 2))
    talk.wait(SECOND)
    assert told(talk) == opens[1], "opened anew"


def test_a_channel_that_the_broker_closes_is_opened_anew_later() -> None:
    talk = talking(limit("open", burst=2))
    talk.broker(said(commands.Channel.Close(404, "no queue", 50, 10)))
    talk.client(said(commands.Channel.CloseOk()) + said(commands.Channel.Open()) + amqp.publish(1, "orders"))
    assert told(talk) == said(commands.Channel.CloseOk())
    talk.wait(SECOND)
    assert told(talk) == said(commands.Channel.Open()) + amqp.publish(1, "orders")


def test_opens_of_a_client_that_has_gone_do_not_use_the_limit_up() -> None:
    talk = talking(limit("open", 1), channels=())
    talk.client(b"".join(said(commands.Channel.Open(), number) for number in (1, 2, 3)) + amqp.publish(3, "orders"))
    told(talk)
    leave(talk)
    assert isinstance(talk.conversation, AmqpConversation)
    assert list(talk.conversation.held_parts.by_name) == [3], "what is published there still goes"
    assert sum(part.count for part in talk.conversation.reports.abandoned) == 1


def test_what_a_client_that_has_gone_would_have_declared_does_not_use_the_limit_up() -> None:
    talk = talking(limit("declare", 1), channels=(1, 2, 3))
    declare = said(commands.Queue.Declare(queue="q"))
    talk.client(declare * 100 + said(commands.Queue.Declare(queue="q"), 2) + amqp.publish(2, "q"))
    assert told(talk) == declare
    leave(talk)
    talk.client(amqp.publish(1, "q"))
    talk.wait(SECOND)
    assert told(talk) == said(commands.Queue.Declare(queue="q"), 2) + amqp.publish(2, "q"), "what it has published is not given up"
    assert sum(part.count for part in talk.conversation.reports.abandoned) == 99 + 1
    assert nothing_waits(talk)


def test_of_many_that_wait_the_first_alone_is_judged() -> None:
    talk = talking(limit("declare", 50))
    talk.client(said(commands.Queue.Declare(queue="q")) * 1000)
    told(talk)
    talk.wait(SECOND)
    assert len(amqp.read(told(talk))) == 50
    assert sum(talk.outcomes.values()) < 1000 + 4 * 50


def test_a_topology_of_500_queues_is_declared_late_in_order_and_without_an_error() -> None:
    talk = talking(limit("declare", 50, burst=50))
    names = [f"queue {number}" for number in range(500)]
    answered = 0
    for name in names:  # as libraries do: each waits for its answer
        talk.client(said(commands.Queue.Declare(queue=name, durable=True)))
        while not (data := told(talk)):
            talk.wait(10 * MS)
        assert [frame.value.queue for frame in amqp.read(data)] == [name]
        talk.broker(said(commands.Queue.DeclareOk(name, 0, 0)))
        answered += 1
    took = talk.now - 1_000 * SECOND
    assert answered == 500
    assert 8.9 * SECOND < took < 9.5 * SECOND
    assert amqp.names(talk.to_client) == ["Queue.DeclareOk"] * 500


def test_a_connections_close_waits_for_what_it_has_declared() -> None:
    talk = talking(limit("declare", 10))
    close = said(commands.Connection.Close(200, "bye", 0, 0), 0)
    declares = [said(commands.Queue.Declare(queue=name, nowait=True)) for name in "abc"]
    talk.client(b"".join(declares) + close)
    assert told(talk) == declares[0]
    talk.wait(SECOND)
    assert told(talk) == declares[1] + declares[2] + close


def test_all_operations_of_a_rule_share_a_level_and_shadow_only_counts() -> None:
    talk = talking(limit("declare", per="vhost", mode="shadow"))
    declares = said(commands.Queue.Declare(queue="q")) * 3
    talk.client(declares)
    assert told(talk) == declares
    assert sum(part.shadow_refused for part in talk.parts) == 2


def test_a_publish_and_a_declare_share_a_limit_each_at_its_cost() -> None:
    both = Match(operation=("produce", "declare"))
    cost = Cost(step=100, operations=(("declare", 10),))
    talk = talking(Rule("work", both, per="user", limit=Limit(messages=Rate(10), messages_burst=20), cost=cost))
    talk.client(said(commands.Confirm.Select()))
    talk.broker(said(commands.Confirm.SelectOk()))
    told(talk)
    declare = said(commands.Queue.Declare(queue="q"))
    talk.client(amqp.publish(1, "q", b"x" * 901) + declare + amqp.publish(2, "q", b"x"))
    assert told(talk) == amqp.publish(1, "q", b"x" * 901) + declare
    talk.client(declare)
    talk.wait(100 * MS)
    assert told(talk) == amqp.publish(2, "q", b"x")
    talk.wait(900 * MS - MS)
    assert told(talk) == b""
    talk.wait(MS)
    assert told(talk) == declare, "it has waited for as long as ten tokens take, of which the publish has taken one"
    talk.client(amqp.publish(2, "q", b"x"))
    talk.wait(200 * MS - MS)
    assert told(talk) == b"", "that one is owed"
    talk.wait(MS)
    assert told(talk) == amqp.publish(2, "q", b"x")


def test_an_open_over_its_limit_waits_for_the_brokers_close_ok() -> None:
    """The gateway has closed the channel, and its client opens it again at once, as py-amqp does."""
    closes = Rule("closes", limit=Limit(messages=Rate(1), messages_burst=1), action="close")
    talk = talking(closes, limit("open", burst=2))
    talk.client(amqp.publish(1, "orders") * 2)
    assert amqp.names(told(talk))[-1] == "Channel.Close"
    reopen = said(commands.Channel.Open())
    talk.client(said(commands.Channel.CloseOk()) + reopen)
    talk.wait(10 * SECOND)
    assert told(talk) == b"", "a second channel.open would cost the connection"
    talk.broker(said(commands.Channel.CloseOk()))
    talk.wait(SECOND)
    assert told(talk) == reopen


def test_a_consumer_on_a_channel_whose_open_waits_is_not_cancelled_at_the_broker() -> None:
    talk = talking(limit("open", 1), channels=())
    talk.client(
        said(commands.Channel.Open(), 1) + said(commands.Channel.Open(), 2) + said(commands.Basic.Consume(queue="q", consumer_tag="c"), 2)
    )
    assert amqp.names(told(talk)) == ["Channel.Open"]
    talk.conversation.leave()
    words = talk.conversation.take_farewells(quiet=False) + talk.conversation.take_farewells(quiet=True)
    assert [frame.channel for frame in amqp.read(words) if frame.name == "Basic.Cancel"] in ([], [1])


@pytest.mark.parametrize("operation", ["declare", "open", "get"])
@pytest.mark.parametrize("says_so", [True, False])
def test_a_client_that_gives_up_leaves_nothing(operation: str, *, says_so: bool) -> None:
    """It asks for what never passes, says connection.close or nothing, and goes."""
    asks = {"declare": said(commands.Queue.Declare(queue="q")), "open": said(commands.Channel.Open(), 9), "get": GET}
    rule = Rule("shut", Match(operation=operation), per="client", limit=Limit(messages=Rate(0)), action="delay")
    with Wires(rule) as wires:
        link = over_tcp(wires, heartbeat=10)
        link.say(asks[operation] + (said(commands.Connection.Close(200, "bye", 0, 0), 0) if says_so else b""))
        before = amqp.names(link.at_broker())
        link.client.close()
        wires.run()
        wires.elapse(1)
        assert [name for name in (*before, *amqp.names(link.at_broker())) if name != "Basic.Recover"] == ["Connection.Close"]
        link.answer(said(commands.Connection.CloseOk(), 0))
        link.broker.close()
        wires.run()
        assert not wires.sweeper.sessions


def test_what_a_client_that_is_gone_has_said_behind_an_operation_that_waits_is_not_lost_while_it_lies_unread() -> None:
    """A publish of another channel blocks it when it goes, for longer than its last words are waited for."""
    blocks = Rule("blocks", limit=Limit(messages=Rate(1), messages_burst=1), action="block", open_for_ns=0)
    with Wires(limit("declare", 1), blocks) as wires:
        link = over_tcp(wires)
        link.say(said(commands.Queue.Declare(queue="a")) + said(commands.Queue.Declare(queue="b")) + amqp.publish(2, "a") * 3)
        link.client.sendall(amqp.publish(1, "b") * 3)
        link.client.close()
        wires.run()
        wires.elapse(10)
        names = amqp.names(link.at_broker())
        assert (names.count("Queue.Declare"), names.count("Basic.Publish")) == (2, 6)


def test_a_client_that_is_gone_consumes_no_more_on_a_channel_where_its_declare_waits() -> None:
    slow = Rule("slow", limit=Limit(messages=Rate(1, 3600 * SECOND)), action="delay")
    with Wires(limit("declare"), slow) as wires:
        link = over_tcp(wires)
        link.say(said(commands.Basic.Consume(queue="q", consumer_tag="c"), 2))
        link.answer(said(commands.Basic.ConsumeOk("c"), 2) + amqp.deliver(2, b"x", consumer_tag="c"))
        declare = said(commands.Queue.Declare(queue="d"), 2)
        link.say(amqp.publish(1, "orders") * 2 + declare + declare)
        link.at_broker()
        link.client.close()
        wires.run()
        wires.elapse(1)
        assert [(frame.name, frame.channel) for frame in amqp.read(link.at_broker())] == [("Basic.Cancel", 2), ("Basic.Recover", 2)]
        assert wires.sweeper.sessions, "a publish of the client's waits"


def test_an_operation_held_in_a_line_that_then_spools_is_counted_out(tmp_path: Path) -> None:
    spools = Rule("spools", limit=Limit(messages=Rate(10), messages_burst=1), action="spool", open_for_ns=0)
    with spooling(tmp_path) as disk:
        talk = talking(limit("declare"), spools)
        talk.conversation.context.disk = disk
        declare = said(commands.Queue.Declare(queue="q"))
        talk.client(declare * 2 + amqp.publish(1, "orders") * 5)
        for _ in range(20):
            talk.work()
            talk.wait(100 * MS)
        assert amqp.names(told(talk)).count("Basic.Publish") == 5
        assert disk.waiting.messages == 0


def test_a_publish_that_waits_for_its_turn_is_not_dropped_for_what_is_spooled_behind_it(tmp_path: Path) -> None:
    """On a channel without confirms: nothing can tell its client that it is refused."""
    slow = Rule("slow", Match(routing_key="slow"), limit=Limit(messages=Rate(1, 20 * SECOND)), action="delay", max_delay_ns=SECOND)
    spools = Rule("spools", Match(routing_key="orders"), limit=Limit(messages=Rate(10), messages_burst=1), action="spool", open_for_ns=0)
    with spooling(tmp_path) as disk:
        talk = talking(slow, spools)
        talk.conversation.context.disk = disk
        talk.client(amqp.publish(1, "slow", b"1") + amqp.publish(1, "slow", b"2"))
        talk.wait(2 * SECOND)
        talk.client(amqp.publish(1, "orders", b"3") * 3)
        for _ in range(250):
            talk.work()
            talk.wait(100 * MS)
        assert [frame.value.value for frame in amqp.read(told(talk)) if frame.name == "ContentBody"] == [b"1", b"2", b"3", b"3", b"3"]


# ---- basic.get on an empty queue -----------------------------------------------------------------------------------------

GET = said(commands.Basic.Get(queue="q"))
EMPTY = said(commands.Basic.GetEmpty())


def test_a_get_costs_when_its_queue_was_empty_and_what_is_asked_next_waits() -> None:
    talk = talking(limit("get"))
    talk.client(GET)
    assert told(talk) == GET
    talk.broker(EMPTY)
    talk.client(GET + amqp.publish(1, "orders") + amqp.publish(2, "orders"))
    assert told(talk) == amqp.publish(2, "orders")
    talk.wait(99 * MS)
    assert told(talk) == b""
    talk.wait(1 * MS)
    assert told(talk) == GET + amqp.publish(1, "orders")
    assert nothing_waits(talk)
    assert [(one.key.operation, one.forwarded) for one in talk.conversation.reports.delivered] == [("get", 2)]


def test_over_time_so_many_gets_find_nothing_as_the_limit_says() -> None:
    talk = talking(limit("get", 20, burst=5))
    asked = 0
    while talk.now < 1_010 * SECOND:
        talk.client(GET)
        while not told(talk):
            talk.wait(10 * MS)
        asked += 1
        talk.broker(EMPTY)
    assert 200 <= asked <= 20 * 10 + 5 + 2
    assert amqp.names(talk.to_client) == ["Basic.GetEmpty"] * asked


def test_a_get_that_brings_a_message_costs_no_get() -> None:
    talk = talking(limit("get"))
    for tag in range(1, 51):
        talk.client(GET)
        assert told(talk) == GET
        talk.broker(said(commands.Basic.GetOk(tag, exchange="", routing_key="q", message_count=0)) + amqp.content(1, b"x"))
    assert amqp.names(talk.to_client).count("Basic.GetOk") == 50


def test_however_many_gets_are_asked_at_once_no_more_pass_than_the_limit_says_and_others_do_not_wait_for_them() -> None:
    judge = Judge(RuleSet((limit("get", burst=10, per="user"),)))
    pipelining, other = Talk("amqp", judge=judge), Talk("amqp", judge=judge)
    for talk in (pipelining, other):
        talk.client(amqp.greeting(channels=(1,)))
        talk.broker(amqp.broker_opens() + amqp.opened(1))
        told(talk)
    pipelining.client(GET * 5_000)
    assert told(pipelining) == GET * 10
    pipelining.broker(EMPTY * 10)
    assert told(pipelining) == b""
    other.now = pipelining.now + SECOND
    other.client(GET)
    assert told(other) == GET


def test_a_get_may_be_under_a_limit_on_its_queue_too() -> None:
    talk = talking(limit("get", 1, burst=2), Rule("few", Match(operation="consume"), limit=Limit(messages=Rate(1))))
    talk.client(GET)
    assert told(talk) == GET
    talk.broker(EMPTY)
    talk.client(GET)
    assert told(talk) == GET, "the first cost nothing of the queue's limit"
    talk.broker(EMPTY)
    talk.client(GET)
    assert told(talk) == b""
    talk.wait(SECOND)
    assert told(talk) == GET
    assert amqp.names(talk.to_client) == ["Basic.GetEmpty"] * 2


# ---- connections ---------------------------------------------------------------------------------------------------------

OPEN = said(commands.Connection.Open("/"), 0)
BEFORE_OPEN = amqp.greeting().removesuffix(OPEN)
OPEN_OK = said(commands.Connection.OpenOk(), 0)
UNTIL_OPEN = amqp.broker_opens().removesuffix(OPEN_OK)


def connecting(judge: Judge, data: bytes = BEFORE_OPEN + OPEN) -> Talk:
    """A client that has said `data`, and is known to the broker."""
    talk = Talk("amqp", judge=judge)
    talk.client(data)
    talk.broker(UNTIL_OPEN)
    return talk


def connects(*, action: str = "delay", **more: Any) -> Judge:
    return Judge(RuleSet((limit("connect", 1, per="user", action=action, open_for_ns=0, **more),)))


@pytest.mark.parametrize("data", [BEFORE_OPEN + OPEN, BEFORE_OPEN], ids=["at once", "in its turn"])
def test_a_connection_over_the_limit_waits_and_is_opened_late(data: bytes) -> None:
    judge = connects(max_delay_ns=2 * SECOND)
    first = connecting(judge)
    assert told(first) == BEFORE_OPEN + OPEN
    late = connecting(judge, data)
    late.client((BEFORE_OPEN + OPEN).removeprefix(data) + said(commands.Channel.Open()))
    assert told(late) == BEFORE_OPEN
    late.wait(SECOND - MS)
    assert told(late) == b""
    late.wait(MS)
    assert told(late) == OPEN
    late.broker(OPEN_OK)
    assert told(late) == said(commands.Channel.Open())
    late.broker(said(commands.Channel.OpenOk()))
    late.client(amqp.publish(1, "orders"))
    assert told(late) == amqp.publish(1, "orders")
    assert nothing_waits(late)


@pytest.mark.parametrize(("action", "after"), [("reject", 0), ("delay", 500 * MS)])
def test_a_connection_that_has_waited_long_enough_is_refused_as_by_a_broker_that_is_full(action: str, after: int) -> None:
    judge = connects(action=action, max_delay_ns=500 * MS)
    connecting(judge)
    late = connecting(judge)
    if after:
        late.wait(after - MS)
    with pytest.raises(ProtocolError) as caught:
        late.wait(MS)
    assert told(late) == BEFORE_OPEN
    assert caught.value.cause == "connect_limit"
    (close,) = amqp.read(caught.value.last_frames)
    assert close.value.reply_code == 530
    assert "user guest is over its limit of 1/s of rule limit connect (connections), wait " in close.value.reply_text
    late.conversation.end()
    assert judge.states(late.now)[0].refused == 1


def test_nobody_uses_up_the_limit_of_a_user_whose_name_he_knows() -> None:
    judge = connects()
    for _ in range(5):
        stranger = Talk("amqp", judge=judge)
        stranger.client(BEFORE_OPEN + OPEN)
        assert told(stranger) == BEFORE_OPEN, "not before the broker has let it in"
        stranger.conversation.end()
    assert told(connecting(judge)) == BEFORE_OPEN + OPEN


def test_a_client_that_gives_up_while_it_waits_does_not_use_the_limit_up() -> None:
    judge = connects(max_delay_ns=2 * SECOND)
    connecting(judge)
    gone = connecting(judge)
    leave(gone)
    assert not gone.conversation.lines.holds_close()
    gone.conversation.end()
    assert judge.usage()["origins"] == 1
    patient = connecting(judge)
    patient.wait(SECOND)
    assert told(patient) == BEFORE_OPEN + OPEN


def test_rules_that_change_while_a_connection_waits_let_it_in() -> None:
    judge = connects(max_delay_ns=2 * SECOND)
    connecting(judge)
    late = connecting(judge)
    judge.replace(RuleSet((Rule("own", per="connection", limit=Limit(messages=Rate(1000))),)))
    late.conversation.renew_keys()
    late.wait(100 * MS)
    assert told(late) == BEFORE_OPEN + OPEN
    late.broker(OPEN_OK)
    late.client(said(commands.Channel.Open()))
    late.broker(said(commands.Channel.OpenOk()))
    late.client(amqp.publish(1, "orders"))
    assert told(late) == said(commands.Channel.Open()) + amqp.publish(1, "orders")
    late.conversation.end()


@pytest.mark.parametrize("more", [{"action": "drop"}, {"action": "close"}, {"fallback": "drop"}, {"per": "topic"}])
def test_a_rule_of_connections_only_holds_or_refuses(more: dict[str, Any]) -> None:
    with pytest.raises(RuleError, match="operation: connect"):
        limit("connect", **more)


def method_name(number: int) -> str:
    """As the specification writes it, by pamqp's own tables: `queue.declare`."""
    method: Any = pamqp.commands.INDEX_MAPPING[number]
    return str(method.name).lower()


def test_each_operation_stands_for_the_methods_that_its_record_names() -> None:
    found: dict[str, set[str]] = {}
    for number, operation in OPERATION_OF.items():
        found.setdefault(operation, set()).add(method_name(number))
    assert found == {name: set(record.methods) for name, record in OPERATION_RECORDS.items() if record.methods}


@pytest.mark.parametrize(
    ("match", "more", "field"),
    [
        ({}, {"per": "topic"}, "per"),
        ({"queue": "jobs"}, {}, "match.queue"),
        ({}, {"action": "drop"}, "action"),
        ({}, {"backoff_ns": SECOND}, "backoff"),
    ],
)
def test_what_does_not_fit_is_refused(match: dict[str, str], more: dict[str, Any], field: str) -> None:
    with pytest.raises(RuleError) as refused:
        Rule("declares", Match(operation="declare", **match), limit=Limit(messages=Rate(5)), **{"per": "client", **more})
    assert refused.value.field == field


def test_behind_what_is_spooled_they_keep_their_place_and_are_not_judged(tmp_path: Path) -> None:
    """A file would make a publish of them; they go as slowly as what is before them."""
    spools = Rule("spools", Match(routing_key="orders"), limit=Limit(messages=Rate(10), messages_burst=1), action="spool", open_for_ns=0)
    declare, publish = said(commands.Queue.Declare(queue="q")), amqp.publish(1, "orders", b"x" * 500)
    disk = WaitingDisk(tmp_path / "spool", 1 << 30, 1, threads=False, least=1_000, most=1_000)
    talk = talking(spools, limit("declare", 0))
    talk.disk = talk.conversation.context.disk = disk
    talk.client(publish * 10 + declare * 2 + publish)
    assert told(talk) == publish
    for _ in range(30):
        talk.work()
        talk.wait(100 * MS)
    assert told(talk) == publish * 9 + declare * 2 + publish
    assert nothing_waits(talk)
    disk.close(1.0)
