"""Lists of thousands are told in slices: a request for all connections or topics does not keep the loop from its turn."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import chain
from pathlib import Path

import pytest
import trio

from admin.http import slices
from common.views.connections import ConnectionView
from control_plane.standalone import Standalone
from gateway.app import Gateway
from gateway.clock import now_ns
from gateway.counting.accounts import OTHER, Place
from gateway.counting.topic_index import MOST_IN_RUN
from gateway.session import description
from gateway.session.session import Session
from gateway.telemetry import status
from limiter.keys import Key, Origin
from limiter.rules.sender import Sender
from limiter.topics import rocketmq_topic
from support.idle_standalone import idle_standalone
from support.wires.wires import Wires


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Standalone]:
    """One with five connections, the third of which is RocketMQ's."""
    with idle_standalone(tmp_path) as made, Wires() as wires:
        for protocol in ("amqp", "amqp", "rocketmq", "amqp", "amqp"):
            wires.connect(protocol)
        own, made.gateway.sweeper = made.gateway.sweeper, wires.sweeper
        yield made
        made.gateway.sweeper = own


@pytest.fixture
def gateway(standalone: Standalone) -> Gateway:
    return standalone.gateway


@pytest.fixture
def described(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the connections that were described."""
    del gateway
    found: list[int] = []
    describe = description.describe

    def noted(session: Session, now: int) -> ConnectionView:
        found.append(session.number)
        return describe(session, now)

    monkeypatch.setattr(description, "describe", noted)
    return found


def test_connections_are_known_without_being_described(gateway: Gateway, described: list[int]) -> None:
    assert gateway.connections() == {1: "amqp", 2: "amqp", 3: "rocketmq", 4: "amqp", 5: "amqp"}
    assert described == []


async def test_requested_connections_are_described_in_the_order_of_the_request(standalone: Standalone, described: list[int]) -> None:
    items = await standalone.describe_connections([4, 9, 3])
    assert [(item.id, item.protocol) for item in items] == [(4, "amqp"), (3, "rocketmq")]
    assert described == [4, 3]


def test_a_connection_that_ends_between_two_slices_is_left_out(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "MAX_CONNECTIONS_PER_SLICE", 2)
    parts = status.connections(gateway, [1, 2, 3, 4, 5])
    items = next(parts)
    gateway.sweeper.sessions[3].abort("client", "")
    gateway.sweeper.end(gateway.sweeper.sessions[3])
    items += chain.from_iterable(parts)
    assert [item.id for item in items] == [1, 2, 4, 5]


def test_no_slice_is_longer_than_its_maximum(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "MAX_CONNECTIONS_PER_SLICE", 2)
    monkeypatch.setattr(status, "MAX_TOPICS_PER_SLICE", 3)
    for number in range(7):
        gateway.accounts.totals("amqp", f"key{number}")
    assert [len(part) for part in status.connections(gateway, [1, 2, 3, 4, 5])] == [2, 2, 1]
    assert [len(part) for part in status.topics(gateway)] == [3, 3, 1]


async def test_the_numbers_of_topics_are_those_of_their_descriptions(standalone: Standalone) -> None:
    for number, name in enumerate("abc"):
        totals = standalone.gateway.accounts.totals("amqp", name)
        totals.received = 7 * number
        totals.forwarded = 5 * number
        totals.rates = (4.0 * number, 3.0 * number, 2.0 * number, 100.0 * number)
        standalone.gateway.accounts._moving.append(totals)
    described = {(item.protocol, item.topic, item.operation): item for item in await standalone.topics()}
    for name in ("received_per_second", "forwarded_per_second", "refused_per_second", "bytes_per_second", "waiting"):
        assert await standalone.topic_numbers(name) == {
            place: getattr(item, name) for place, item in described.items() if item.topic != "a"
        }
    assert [place[1] for place in await standalone.topic_numbers("moving")] == ["b", "c"]
    wanted = [("amqp", "c", "produce"), ("amqp", "gone", "produce")]
    assert await standalone.topic_numbers("moving", wanted) == {("amqp", "c", "produce"): 18.0}
    assert await standalone.topic_numbers("moving", [*wanted, ("amqp", "a", "produce")]) == {("amqp", "c", "produce"): 18.0}
    assert await standalone.topic_places() == [list(described)]


def test_topics_for_which_there_is_no_room_are_warned_of(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway.accounts, "_most", 2)
    now = now_ns()
    for name in ("a", "b"):
        gateway.accounts.totals("amqp", name, now=now).last_seen = now
    assert status.warnings(gateway) == []
    assert gateway.accounts.totals("amqp", "c", now=now).text == OTHER
    (warning,) = status.warnings(gateway)
    assert "gateway.max_topics" in warning
    gateway.accounts.crowded_at = now - status.CROWDED_NS
    assert status.warnings(gateway) == []


def test_a_topic_that_comes_in_between_two_slices_does_no_harm(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "MAX_TOPICS_PER_SLICE", 1)
    for name in "abc":
        gateway.accounts.totals("amqp", name)
    parts = status.topics(gateway)
    items = next(parts)
    gateway.accounts.totals("amqp", "d")
    items += chain.from_iterable(parts)
    assert [item.topic for item in items] == ["a", "b", "c"]


async def test_the_loop_has_a_turn_after_each_slice(standalone: Standalone, described: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "MAX_CONNECTIONS_PER_SLICE", 2)
    steps: list[list[int]] = []

    class Steps(trio.abc.Instrument):
        def after_task_step(self, task: trio.lowlevel.Task) -> None:
            if described and described not in steps:
                steps.append(described.copy())

    instrument = Steps()
    trio.lowlevel.add_instrument(instrument)
    await standalone.describe_connections([1, 2, 3, 4, 5])
    trio.lowlevel.remove_instrument(instrument)
    assert steps == [[1, 2], [1, 2, 3, 4], [1, 2, 3, 4, 5]]


async def test_a_search_gives_the_loop_a_turn_between_two_lists_of_the_index(
    standalone: Standalone, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3 * MOST_IN_RUN):
        standalone.gateway.accounts.totals("amqp", f"key{number}")
    steps, most, seen = 0, 0, 0
    find = standalone.gateway.find_topics

    def counted(protocol: str | None, text: str) -> Generator[None, None, list[list[Place]]]:
        nonlocal steps
        work = find(protocol, text)
        while True:
            try:
                next(work)
            except StopIteration as end:
                found: list[list[Place]] = end.value
                return found
            steps += 1
            yield

    class Steps(trio.abc.Instrument):
        def after_task_step(self, task: trio.lowlevel.Task) -> None:
            nonlocal most, seen
            del task
            most, seen = max(most, steps - seen), steps

    monkeypatch.setattr(standalone.gateway, "find_topics", counted)
    monkeypatch.setattr(slices, "SLICE_S", 0.0)  # as where each list takes that long
    instrument = Steps()
    trio.lowlevel.add_instrument(instrument)
    (found,) = await standalone.topic_places("amqp", f"KEY{MOST_IN_RUN + 7}")
    trio.lowlevel.remove_instrument(instrument)
    assert found == [("amqp", f"key{MOST_IN_RUN + 7}", "produce")]
    assert (steps >= 3, most) == (True, 1)


async def test_what_a_limit_in_shadow_mode_would_have_refused_is_known_of_topics_at_rest(standalone: Standalone) -> None:
    accounts = standalone.gateway.accounts
    origin = Origin("rocketmq", Sender("rocket", "10.0.0.7", None), b"")
    for number in range(3):
        accounts.tally_of(Key(origin, rocketmq_topic(b"t%d" % number), None, "produce")).shadow_refused = 2 * number
    accounts.fold(1)
    places = [("rocketmq", f"t{number}", "produce") for number in range(3)]
    assert await standalone.topic_numbers("shadow_refused") == {places[1]: 2.0, places[2]: 4.0}
    assert await standalone.topic_numbers("shadow_refused", places[:2]) == {places[1]: 2.0}
    assert await standalone.topic_numbers("shadow_refused", [*places, places[0]]) == {places[1]: 2.0, places[2]: 4.0}
    accounts._forget(accounts.topics[places[2]], 1)
    assert await standalone.topic_numbers("shadow_refused") == {places[1]: 2.0}
