"""Declares, binds, deletes, purges and opens: over their limit they wait in their place, and nothing is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pamqp.commands
import pytest
from pamqp import base, commands

from gateway.protocols.amqp.conversation import AmqpConversation
from gateway.protocols.amqp.costly_methods import OPERATION_OF
from gateway.waiting.disk.waiting_disk import WaitingDisk
from limiter.limits import NEVER, Limit, Rate
from limiter.operations import OPERATION_RECORDS
from limiter.rules.cost import Cost
from limiter.rules.rule import RuleError
from limiter.rules.rule_set import Match, Rule
from support.amqp import frames as amqp
from support.wires.conversations import SECOND, Talk

if TYPE_CHECKING:
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


def nothing_waits(talk: Talk) -> bool:
    budget = talk.conversation.budget
    return (budget.held_bytes, budget.held_messages, budget.held_polls, budget.next_due) == (0, 0, 0, NEVER)


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
    talk.conversation.leave()
    assert isinstance(talk.conversation, AmqpConversation)
    assert list(talk.conversation.held_parts.by_name) == [3], "what is published there still goes"
    assert sum(part.count for part in talk.conversation.reports.abandoned) == 1


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
    talk.wait(SECOND - MS)
    assert told(talk) == b""
    talk.wait(MS)
    assert told(talk) == declare


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
