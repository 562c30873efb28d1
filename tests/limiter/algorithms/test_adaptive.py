"""Adaptive concurrency against a model broker, in simulated time: what its header promises."""

from __future__ import annotations

from math import sqrt

import pytest

from limiter.algorithms import ALGORITHMS
from limiter.algorithms.gradient import BUSY_FACTOR, MIN_GRADIENT, PROBE_NS, SILENCE_NS, SMOOTHING, STALE_NS, TOLERANCE, Gradient
from limiter.algorithms.slots import ANSWERED, BUSY, FAILED, Slots
from limiter.limits import Limit
from support.models.model_broker import MS, SECOND, ModelBroker

SERVERS = 60
SERVICE_NS = 20 * MS
CAPACITY = SERVERS * SECOND // SERVICE_NS  # 3,000/s


def broker(servers: int = SERVERS, concurrent: int = 1000, start: int | None = None, at_least: int | None = None) -> ModelBroker:
    return ModelBroker(ALGORITHMS["adaptive"](Limit(concurrent=concurrent, start=start, at_least=at_least), 0), servers, SERVICE_NS)


def settled() -> ModelBroker:
    """A broker at rest under endless demand."""
    model = broker()
    model.run(20)
    model.forget()
    return model


def test_it_begins_at_start_and_finds_the_broker_within_fifteen_seconds() -> None:
    model = broker()
    assert model.slots.most == 20
    model.run(0.05)
    assert model.slots.most == 20  # one window has not passed
    model.run(15)
    model.forget()
    model.run(5)
    assert SERVERS <= model.slots.most < 2 * SERVERS
    assert model.per_second(5) > 0.98 * CAPACITY


def test_at_rest_nearly_all_of_the_broker_is_used_at_less_than_twice_its_latency() -> None:
    model = settled()
    model.run(60)
    assert model.per_second(60) > 0.98 * CAPACITY
    assert model.latency_ms() < 2 * SERVICE_NS / MS
    assert model.most_in_flight < 2 * SERVERS


def test_latency_does_not_creep_up_under_a_load_that_never_ends_as_it_does_where_it_is_smoothed_over_minutes() -> None:
    model = settled()
    model.run(100)
    model.forget()
    model.run(20)
    assert model.latency_ms() < 2 * SERVICE_NS / MS

    limit, long_ns = 20.0, float(SERVICE_NS)  # Gradient2 as it is published, on the same broker
    for _ in range(700):  # windows of 100 ms
        short = max(SERVICE_NS, limit / CAPACITY * SECOND)
        long_ns += (short - long_ns) * 2 / 601
        gradient = max(MIN_GRADIENT, min(1.0, TOLERANCE * long_ns / short))
        limit = min(1000.0, limit + (limit * gradient + sqrt(limit) - limit) * SMOOTHING)
    assert limit / CAPACITY * SECOND > 4 * SERVICE_NS


def test_a_broker_that_becomes_slow_is_learned_anew_and_its_recovery_too() -> None:
    model = settled()
    model.service_ns = 4 * SERVICE_NS
    model.run(25)
    model.forget()
    model.run(10)
    assert model.per_second(10) > 0.95 * CAPACITY / 4
    assert model.latency_ms() < 2 * 4 * SERVICE_NS / MS
    model.service_ns = SERVICE_NS
    model.run(20)
    model.forget()
    model.run(10)
    assert model.per_second(10) > 0.98 * CAPACITY
    assert model.latency_ms() < 2 * SERVICE_NS / MS


def test_a_broker_that_loses_most_of_its_capacity_keeps_a_short_queue() -> None:
    model = settled()
    model.servers = SERVERS // 10
    model.run(15)
    model.forget()
    model.run(10)
    assert model.per_second(10) > 0.98 * CAPACITY / 10
    assert model.latency_ms() < 2.5 * SERVICE_NS / MS


def test_when_nothing_answers_it_falls_to_the_least_and_grows_again_with_the_answers() -> None:
    model = settled()
    model.silent = True
    model.run(SILENCE_NS / SECOND - 0.1)
    assert model.slots.most > SERVERS
    model.run(0.3)
    assert model.slots.most == 4
    model.run(60)
    assert model.slots.most == 4
    model.silent = False
    model.run(20)
    model.forget()
    model.run(5)
    assert model.per_second(5) > 0.98 * CAPACITY


def test_slots_given_up_by_dead_sessions_let_the_next_pass_although_nothing_ever_answered() -> None:
    bucket = ALGORITHMS["adaptive"](Limit(concurrent=100), 0)
    slots = bucket.slots()
    assert slots is not None
    bucket.take(bucket.available(1000, 1, 0, 0), 1, 0)
    later = SILENCE_NS + 1
    assert bucket.available(1, 1, 0, later) == 0
    slots.taken = 0  # as `flight.give_back` leaves it
    assert bucket.available(1000, 1, 0, later) == 4


def test_a_busy_broker_is_relieved_at_once_and_one_round_of_busy_answers_counts_once() -> None:
    bucket = ALGORITHMS["adaptive"](Limit(concurrent=1000, start=100), 0)
    slots = bucket.slots()
    assert slots is not None
    for _ in range(50):
        bucket.heard(BUSY, 1, 10 * MS, 20 * MS)
    assert slots.most == int(100 * BUSY_FACTOR)
    bucket.heard(BUSY, 1, 21 * MS, 30 * MS)
    assert slots.most == int(100 * BUSY_FACTOR * BUSY_FACTOR)


def test_a_broker_that_says_it_is_busy_is_soon_hardly_ever_told_to_say_so() -> None:
    model = broker(start=1000)
    model.busy_above = 50
    model.run(10)
    model.forget()
    model.run(60)
    assert model.refused < model.answered / 1000
    assert model.per_second(60) > 0.85 * CAPACITY


def test_the_bounds_hold_whatever_is_measured() -> None:
    model = broker(servers=1, concurrent=50, start=30, at_least=7)
    model.run(30, lambda _: bounded(model, 7, 50))
    model = broker(servers=1000, concurrent=50, start=30, at_least=7)
    model.run(30, lambda _: bounded(model, 7, 50))
    assert model.slots.most == 50
    for _ in range(100):
        model.now += MS
        model.bucket.heard(BUSY, 1, model.now, model.now)
    assert model.slots.most == 7


def bounded(model: ModelBroker, least: int, most: int) -> None:
    assert least <= model.slots.most <= most


@pytest.mark.parametrize(
    ("limit", "begins"),
    [
        (Limit(concurrent=1000), 20),
        (Limit(concurrent=10), 10),
        (Limit(concurrent=2), 2),
        (Limit(concurrent=1000, at_least=50), 50),
        (Limit(concurrent=1000, start=3), 4),
        (Limit(concurrent=1000, at_least=1, start=1), 1),
    ],
)
def test_where_it_begins(limit: Limit, begins: int) -> None:
    assert ALGORITHMS["adaptive"](limit, 0).available(10_000, 1, 0, 0) == begins


def test_a_producer_that_sends_little_moves_nothing() -> None:
    model = broker()
    model.demand = 5
    model.run(20)
    assert model.slots.most == 20


def test_latency_that_is_not_its_own_doing_becomes_the_measure() -> None:
    """Others fill the broker's queue while this key sends little; when it sends much, it does not starve for it."""
    model = broker()
    model.demand = 5
    model.run(5)
    model.service_ns = 10 * SERVICE_NS
    model.run(10)
    model.demand = 1 << 30
    model.run(2)
    assert model.slots.most > 20


def test_errors_say_nothing_about_latency() -> None:
    bucket = ALGORITHMS["adaptive"](Limit(concurrent=1000, start=100), 0)
    slots = bucket.slots()
    assert slots is not None
    now = 0
    for _ in range(1000):
        now += MS
        bucket.take(min(bucket.available(1, 1, 0, now), 1), 1, 0)
        slots.taken -= 1
        bucket.heard(FAILED, 1, now, now)
    assert slots.most == 100


def test_after_a_minute_of_silence_it_measures_anew_and_may_be_forgotten() -> None:
    bucket = ALGORITHMS["adaptive"](Limit(concurrent=1000, start=100), 0)
    slots = bucket.slots()
    assert slots is not None
    bucket.heard(ANSWERED, 100, 1, SECOND)
    bucket.heard(BUSY, 1, SECOND, SECOND)
    slots.heard_at = SECOND
    low = slots.most
    assert low < 100
    assert not bucket.is_full(2 * SECOND)
    assert bucket.available(1000, 1, 0, 2 * SECOND) == low
    idle = SECOND + STALE_NS + 1
    assert bucket.is_full(idle)
    assert bucket.available(1000, 1, 0, idle) == 100


def test_other_bounds_keep_what_was_found_within_them() -> None:
    model = settled()
    found = model.slots.most
    model.bucket.change(Limit(concurrent=900), model.now)
    assert model.slots.most == found
    model.bucket.change(Limit(concurrent=50), model.now)
    assert model.slots.most == 50
    assert model.bucket.available(1, 1, 0, model.now) == 0  # more are in flight: none passes until they are answered
    model.bucket.change(Limit(concurrent=900, at_least=500), model.now)
    assert model.slots.most == 500


def test_a_clock_that_was_set_back_is_no_silence_for_ever() -> None:
    bucket = ALGORITHMS["adaptive"](Limit(concurrent=1000, start=100), 3600 * SECOND)
    slots = bucket.slots()
    assert slots is not None
    bucket.take(bucket.available(10, 1, 0, 3600 * SECOND), 1, 0)
    assert bucket.available(1, 1, 0, SECOND) == 1
    assert bucket.available(1, 1, 0, 2 * SECOND + SILENCE_NS) == 0  # it is noticed by the new time: 10 are in flight, 4 may be
    assert slots.most == 4


def test_a_probe_costs_one_window_in_fifty() -> None:
    model = settled()
    halved = [0]

    def look(_: int) -> None:
        halved[0] += model.slots.most <= SERVERS

    model.run(4 * PROBE_NS / SECOND, look)
    assert 0 < halved[0] < 4 * 125  # steps of 2 ms


def test_after_the_clock_was_set_back_it_goes_on_measuring() -> None:
    bucket = ALGORITHMS["adaptive"](Limit(concurrent=1000), 3600 * SECOND)
    slots = bucket.slots()
    assert slots is not None
    bucket.take(bucket.available(1, 1, 0, SECOND), 1, 0)
    before = slots.most
    bucket.heard(BUSY, 0, SECOND, SECOND + MS)
    assert slots.most == int(before * BUSY_FACTOR)


def test_requests_that_are_answered_together_count_as_many_and_as_long_as_one_by_one() -> None:
    """Two brokers whose answers differ only in how many come at once: the slow ones weigh as many as they are."""
    found = []
    for together in (1, 25):
        gradient, slots = Gradient(Limit(concurrent=1000), 0), Slots(20, 0)
        slots.take(20, 0)
        for step in range(1, 200):
            latency = 20 * MS if step % 50 else 400 * MS
            for _ in range(25 // together):
                gradient.heard(slots, ANSWERED, together, step * 20 * MS - latency + SECOND, step * 20 * MS + SECOND)
        found.append((slots.most, repr(gradient)))
    assert found[0] == found[1]
