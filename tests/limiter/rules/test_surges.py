"""Surges: which topics ask for more within the day, how far, and for how long."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from limiter.quota_snapshot import Quota
from limiter.rules.hourly_raise import HourlyRaise, raise_rate
from limiter.rules.surges import DECAY, MARGIN, SLICE, Surges
from limiter.topics import TopicName, amqp_topic, rocketmq_topic

ORDERS = rocketmq_topic(b"orders")
PLACE = ("rocketmq", "orders")
QUOTAS = {ORDERS: Quota("rocketmq", "orders", messages=(10, 100), bytes=(1000, 10_000), hourly_messages=3.0, hourly_bytes=3.0)}


def look(surges: Surges, mean: float, quotas: Mapping[TopicName, Quota] = QUOTAS, seconds: float = 10, size: float = 0.0) -> bool:
    list(surges.look({PLACE: (mean, size)} if mean else {}, quotas, seconds))
    return surges.changed


def looks(*means: float) -> tuple[list[float], list[bool]]:
    """What `orders` asks for after each look, 0 where that is no more than its quota, and whether it has changed."""
    surges = Surges()
    wanted, changed = [], []
    for mean in means:
        changed.append(look(surges, mean))
        wanted.append(surges.wanted.get(PLACE, (0.0, 0.0))[0])
    return wanted, changed


def test_what_stays_below_the_quota_asks_for_nothing() -> None:
    assert looks(5, 6.6, 5, 0) == ([0, 0, 0, 0], [False] * 4)


def test_a_surge_asks_for_half_as_much_again_as_its_peak() -> None:
    assert looks(5, 20, 25, 25) == ([0, 30, 37.5, 37.5], [False, True, True, False])


def test_small_steps_change_nothing() -> None:
    assert looks(20, 22, 18, 23.9) == ([30, 30, 30, 30], [True, False, False, False])


def test_after_the_surge_it_falls_and_is_gone_within_a_minute() -> None:
    wanted, _ = looks(25, *[5.0] * 6)
    assert wanted == pytest.approx([37.5 * DECAY**at for at in range(6)] + [0])
    assert MARGIN * 25 * DECAY**5 > 10


def test_a_look_that_comes_late_counts_for_several() -> None:
    surges = Surges()
    look(surges, 25.0)
    assert look(surges, 5.0, seconds=60.0)
    assert surges.wanted == {}


def test_what_is_gone_is_forgotten() -> None:
    surges = Surges()
    look(surges, 25.0)
    for _ in range(40):
        look(surges, 0.0)
    assert repr(surges) == "<Surges wanted=0 followed=0>"


def test_topics_without_a_quota_are_not_followed() -> None:
    surges = Surges()
    list(surges.look({("rocketmq", "other"): (1e6, 1e9)}, QUOTAS))
    assert not surges.changed
    assert repr(surges) == "<Surges wanted=0 followed=0>"


def test_quotas_published_meanwhile_are_those_that_are_raised() -> None:
    surges = Surges()
    look(surges, 25.0)
    larger = {ORDERS: Quota("rocketmq", "orders", messages=(50, 500), hourly_messages=3.0)}
    assert look(surges, 25.0, larger)
    assert surges.wanted == {}


def test_a_group_of_topics_surges_under_its_own_name() -> None:
    group = amqp_topic(b"/", b"events", b"order.#")
    quotas = {group: Quota("amqp", group.text(), messages=(10, 10), hourly_messages=3.0)}
    surges = Surges()
    list(surges.look({("amqp", "%2F/events/order.#"): (20.0, 0.0)}, quotas))
    assert surges.changed
    (pairs,) = HourlyRaise({}, 4.0, surges.wanted).raise_all(quotas)
    assert [(before.messages, after.messages) for before, after in pairs] == [((10, 10), (30.0, 30))]


def test_the_larger_of_hour_and_surge_holds_below_the_bound_and_above_the_published_rate() -> None:
    assert raise_rate((10, 100), 3.0, 5.0, 4.0, 12.0) == (15.0, 150)
    assert raise_rate((10, 100), 3.0, 2.0, 4.0, 12.0) == (12.0, 120)
    assert raise_rate((10, 100), 3.0, 2.0, 4.0, 60.0) == (40.0, 400)
    assert raise_rate((10, 100), 3.0, 0.0, 4.0, 9.0) == (10, 100)
    assert raise_rate((10, 100), None, 0.0, 4.0, 60.0) == (10, 100), "a person has set it"
    assert raise_rate((0, 0), 3.0, 0.0, 4.0, 60.0) == (0, 0)


def test_each_dimension_surges_by_itself() -> None:
    surges = Surges()
    look(surges, 5.0, size=2000.0)
    found = HourlyRaise({}, 4.0, surges.wanted).raise_quota(QUOTAS[ORDERS], "orders")
    assert found is not None
    assert (found.messages, found.bytes) == ((10, 100), (3000.0, 30_000))


def test_many_topics_are_looked_at_in_slices() -> None:
    quotas = {rocketmq_topic(b"t%d" % number): Quota("rocketmq", f"t{number}", messages=(10, 10)) for number in range(2 * SLICE)}
    means = {("rocketmq", f"t{number}"): (20.0, 0.0) for number in range(2 * SLICE)}
    surges = Surges()
    assert len(list(surges.look(means, quotas))) == 4, "the quotas and the topics"
    assert len(surges.wanted) == 2 * SLICE
