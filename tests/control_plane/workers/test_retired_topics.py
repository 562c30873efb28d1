"""What workers counted of topics that they do not show any more: kept while another one knows the topic, and bounded."""

from __future__ import annotations

import pytest

from common.views.topics import TopicView
from control_plane.workers.retired_topics import FORGET_AFTER_S, RetiredTopics


def topic(name: str, received: int, waiting: int = 0) -> TopicView:
    return TopicView(protocol="amqp", topic=name, received=received, forwarded=received - waiting, waiting=waiting)


def received(retired: RetiredTopics) -> dict[str, int]:
    return {item.topic: item.received for some in retired.topics(None) for item in some}


def test_what_one_worker_forgets_is_kept_while_another_knows_it_and_then_in_the_sums() -> None:
    retired = RetiredTopics()
    retired.add_forgotten([topic("a", 3), topic("b", 4)])
    retired.add_forgotten([topic("a", 5)])
    list(retired.forget([[topic("a", 1)], []], 0.0))
    assert (received(retired), retired.sums["received"]) == ({"a": 8}, 4)
    list(retired.forget([[]], 0.0))
    assert (received(retired), retired.sums["received"]) == ({}, 12)


def test_topics_of_a_worker_that_has_ended_stay_until_its_clients_must_have_come_back() -> None:
    retired = RetiredTopics()
    retired.add_ended([topic("a", 3, waiting=1)], 100.0)
    list(retired.forget([[]], 99.0 + FORGET_AFTER_S))
    assert received(retired) == {"a": 3}
    list(retired.forget([[]], 100.0 + FORGET_AFTER_S))
    assert received(retired) == {}
    assert (retired.sums["abandoned"], retired.sums["waiting"]) == (1, 0)


@pytest.mark.slow
def test_a_hundred_thousand_names_leave_nothing_but_their_sums() -> None:
    retired = RetiredTopics()
    for first in range(0, 100_000, 10_000):
        retired.add_forgotten([topic(f"t{number}", 1) for number in range(first, first + 10_000)])
        list(retired.forget([[topic("t0", 1)]], 0.0))
    assert (received(retired), retired.sums["received"]) == ({"t0": 1}, 99_999)
