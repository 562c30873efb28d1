"""Looking at a queue, against a broker of a few lines that says what a real one hardly ever does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pamqp import commands

from gateway.broker_load.amqp import AmqpSource
from gateway.broker_load.source import BacklogError
from limiter.limits import Lag, Rate
from support.brokers.queue_broker import Broker, Said, declared

LAG = Lag(100, Rate(1), queue="jobs")


@pytest.fixture
def brokers() -> Iterator[list[Broker]]:
    made: list[Broker] = []
    yield made
    for broker in made:
        broker.close()


def source(brokers: list[Broker], *answers: Said) -> AmqpSource:
    brokers.append(Broker(*answers))
    return AmqpSource(brokers[-1].upstreams, "/", lambda: ("sluice", "secret"))


async def test_one_connection_serves_many_looks_and_heartbeats_and_alarms_are_passed_over(brokers: list[Broker]) -> None:
    heartbeat = b"\x08\0\0\0\0\0\0\xce"
    one = source(brokers, [heartbeat, (0, commands.Connection.Blocked("low on memory")), declared(7)], [declared(9)])
    assert [await one.backlog("", LAG), await one.backlog("", LAG)] == [7, 9]
    assert brokers[0].connections == 1
    assert "Connection.TuneOk" in brokers[0].heard
    one.close()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ((1, commands.Channel.Close(404, "NOT_FOUND - no queue 'jobs'", 50, 10)), "404 NOT_FOUND - no queue 'jobs'"),
        ((0, commands.Connection.Close(320, "CONNECTION_FORCED", 0, 0)), "320 CONNECTION_FORCED"),
        ((1, commands.Queue.PurgeOk(1)), "Queue.PurgeOk where DeclareOk was expected"),
        (b"\x01\0\x01\0\0\0\x04\0\x32\xff\xff\xce", "not understood"),
        (b"\x01\0\x01\x7f\0\0\0", "announced a frame of"),
        (b"\x08\0\0\0\0\0\0\xce" * 200, "100 things and no DeclareOk"),
    ],
)
async def test_an_unexpected_answer_ends_the_connection_with_the_reason(brokers: list[Broker], said: object, words: str) -> None:
    one = source(brokers, [said])  # type: ignore[list-item]
    with pytest.raises(BacklogError, match=words):
        await one.backlog("", LAG)
    assert one.channel is None


async def test_a_broker_that_has_closed_is_dialled_again_at_the_next_look(brokers: list[Broker]) -> None:
    one = source(brokers, [declared(7)])
    assert await one.backlog("", LAG) == 7
    with pytest.raises(BacklogError):
        await one.backlog("", LAG)
    assert await one.backlog("", LAG) == 7
    one.close()
