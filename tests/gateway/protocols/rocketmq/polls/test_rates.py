"""What a limit on a topic's consumers does over minutes of virtual time: the rate, fairness among queues, and how often clients ask.

The bounds. In T seconds at most ``burst + rate * T`` messages pass, and the rest of one answer (32), which a bucket that lacks some of it
may go into debt for. Pulls that wait at the broker have nothing reserved: a flood that begins at once brings one answer of each on top.
What that costs is paid later, but never for longer than DEBT_NS. A queue waits no longer than the others of its topic need for an answer
each, at the limit's rate.
"""

from __future__ import annotations

from functools import partial

import pytest

from limiter.decisions.reserve_and_settle import DEBT_NS
from limiter.limits import Limit, Rate
from limiter.rules.rule_set import Match, Rule
from support.models.consuming import Consuming
from support.wires.conversations import SECOND

CONSUME = Match(protocol="rocketmq", operation="consume")
BATCH = 32
BUSY = 20  # requests per second and queue: fewer than these, or it is a hot loop
ASKS_S = 0.2  # a poll that is kept asks every 100 ms, whoever was first may just have left


def limit(messages: int | None = None, size: int | None = None) -> Rule:
    rates = Limit(messages=None if messages is None else Rate(messages), bytes=None if size is None else Rate(size))
    return Rule("slow", match=CONSUME, limit=rates)


def most(rate: int, seconds: float) -> float:
    return rate + rate * seconds + BATCH


@pytest.mark.parametrize(
    ("rate", "queues", "clients", "seconds"),
    [
        (1, 1, 1, 180), (1, 4, 2, 300), (1, 16, 4, 540), (5, 4, 1, 120), (5, 16, 8, 150), (50, 16, 1, 60), (100, 8, 8, 30),
        (1000, 16, 4, 5), (10_000, 1, 1, 1), (10_000, 16, 4, 1),
    ],
)  # fmt: skip
def test_a_backlog_is_consumed_at_the_limits_rate_and_every_queue_gets_its_share(
    rate: int, queues: int, clients: int, seconds: int
) -> None:
    world = Consuming(limit(rate), queues=queues, clients=clients, backlog=10**9)
    world.begin()
    world.run(seconds)
    assert 0.95 * rate * seconds - BATCH <= world.came() <= most(rate, seconds)
    if seconds >= 120:
        window = 60
        for start in range(0, seconds - window, window // 2):
            assert world.came(start, start + window) <= most(rate, window)
    share = queues * BATCH / rate
    assert max(map(world.longest_gap_s, world.queues)) <= share + queues * ASKS_S
    loops = [queue for queue in world.queues if (queue.asked - len(queue.arrivals)) / seconds >= BUSY]
    assert loops == []


@pytest.mark.parametrize("rate", [1, 5, 50])
def test_idle_consumers_and_a_trickle_below_the_limit_are_not_slowed_and_a_flood_after_it_costs_a_bounded_time(rate: int) -> None:
    queues = 16
    world = Consuming(limit(rate), queues=queues, clients=4)
    world.begin()
    world.run(30)
    assert all(queue.parked for queue in world.queues), "an idle topic's pulls wait at the broker, not here"
    assert sum(queue.empty for queue in world.queues) == 0
    (state,) = world.judge.states(world.now)
    assert state.fill == 1, "and nothing is reserved for them"

    made = max(rate * 20 // 2, 1)
    for number in range(made):
        queue = world.queues[number % queues]
        world.at(world.now + number * 20 * SECOND // made, partial(world.produce, queue, 1))
    world.run(20)
    assert world.came() == made
    assert sum(queue.empty for queue in world.queues) == 0

    world.run(20)
    before = (world.now - world.start) / SECOND
    for queue in world.queues:
        world.at(world.now, partial(world.produce, queue, 10**9))
    world.run(0)
    at_once = queues * min(BATCH, rate)
    assert world.came(before) == at_once, "one answer of each pull that waits at the broker"
    world.run(60)
    assert world.came(before) <= most(rate, 60) + at_once
    next_at = min(at for queue in world.queues for at, _ in queue.arrivals if at > before * SECOND)
    assert next_at - before * SECOND <= DEBT_NS + max(rate, BATCH) * SECOND // rate, "a debt, and a full bucket or what an answer needs"


def test_bytes_are_limited_likewise() -> None:
    rate = 5_000  # bodies of 10 bytes: 500 messages
    world = Consuming(limit(size=rate), queues=4, clients=2, backlog=10**9)
    world.begin()
    world.run(20)
    assert 0.95 * rate * 20 <= 10 * world.came() <= rate + rate * 20 + 10 * BATCH


def test_a_rate_of_zero_is_a_standstill_without_a_hot_loop() -> None:
    world = Consuming(limit(0), queues=4, clients=2, backlog=10**9)
    world.begin()
    world.run(60)
    assert world.came() == 0
    assert {queue.asked for queue in world.queues} == {7}, "the first, and one after every 9 s"


def test_two_levels_both_hold_and_a_poll_that_waits_for_one_blocks_no_other_at_the_other() -> None:
    """All clients have one address here: the topic has 100/s, its consumers together 20/s."""
    shared = Rule("shy", match=CONSUME, limit=Limit(messages=Rate(20)), per="client")
    world = Consuming(limit(100), shared, queues=4, backlog=10**9)
    world.begin()
    world.run(60)
    assert 0.95 * 20 * 60 - BATCH <= world.came() <= most(20, 60)


def test_a_client_that_goes_away_while_it_is_first_in_line_holds_the_others_up_for_a_moment_only() -> None:
    world = Consuming(limit(8), queues=4, clients=4, backlog=10**9)
    world.begin()
    world.run(30)
    gone = world.talks[0].conversation
    gone.abandon()
    gone.end()
    before = world.came()
    world.run(60)
    assert world.came() - before >= 0.95 * 8 * 60 - 2 * BATCH
