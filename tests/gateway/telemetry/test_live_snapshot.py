"""The snapshot of the streams: sums over all topics, and those with most trouble; of one process and of several alike."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio.testing

from control_plane.standalone import Standalone
from gateway.data_plane import LocalPlane
from gateway.telemetry import live_snapshot, refused_clients, status
from gateway.workers.wire import StateReport
from gateway.workers.worker import encode
from support.idle_standalone import idle, idle_parent, written

CONFIGURATION = """\
gateway: {name: one, state_directory: state}
listeners: [{name: rabbit, protocol: amqp, bind: "127.0.0.1:0", upstream: "127.0.0.1:1"}]
access_log: off
"""


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Standalone]:
    with idle(written(tmp_path, CONFIGURATION)) as made:
        yield made


def traffic(standalone: Standalone, topic: str, received: int, refused: int, waiting: int = 0) -> None:
    accounts = standalone.gateway.accounts
    totals = accounts.totals("amqp", topic)
    for each in (totals, accounts.everything):
        each.received += received
        each.refused += refused
        each.forwarded += received - refused - waiting
        each.bytes += 100 * received
    if not totals.moving:
        totals.moving = True
        accounts._moving.append(totals)


def tick(standalone: Standalone) -> None:
    for _ in standalone.gateway.accounts.tick(1.0):
        pass


async def test_the_worst_topics_come_first_and_idle_ones_are_left_out(standalone: Standalone) -> None:
    traffic(standalone, "quick", 500, 0)
    traffic(standalone, "refused", 50, 20)
    traffic(standalone, "refused-more", 50, 30)
    traffic(standalone, "stuck", 5, 0, waiting=5)
    standalone.gateway.accounts.totals("amqp", "idle")
    tick(standalone)
    found = await standalone.snapshot()
    assert [topic.topic for topic in found.topics] == ["refused-more", "refused", "stuck", "quick"]
    assert (found.topics_known, found.totals["received"], found.totals["refused"], found.totals["waiting"]) == (5, 605, 50, 5)
    assert (found.rates["received_per_second"], found.rates["refused_per_second"]) == (605.0, 50.0)
    assert (found.name, found.connections, found.ready) == ("one", 0, False)
    assert found.memory.full is False
    assert (found.over, found.over_total) == ([], 0)


async def test_many_topics_are_summed_in_slices_and_only_the_worst_described(
    standalone: Standalone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_snapshot, "SLICE_TOPICS", 100)
    monkeypatch.setattr(live_snapshot, "MAX_TOPICS", 7)
    for number in range(1000):
        traffic(standalone, f"t{number}", number + 1, number)
    tick(standalone)
    described: list[str] = []
    real = refused_clients.consumer_group

    def noted(protocol: str, topic: str) -> str | None:
        described.append(topic)
        return real(protocol, topic)

    monkeypatch.setattr(status, "consumer_group", noted)
    found = await standalone.snapshot()
    slices = len(list(live_snapshot.gather_moving(standalone.gateway)))
    assert [topic.topic for topic in found.topics] == [f"t{number}" for number in range(999, 992, -1)]
    assert len(described) == 7
    assert slices >= 10


async def test_totals_do_not_go_back_when_topics_are_forgotten(standalone: Standalone) -> None:
    traffic(standalone, "orders", 100, 40)
    before = await standalone.snapshot()
    accounts = standalone.gateway.accounts
    accounts._forget(accounts.topics["amqp", "orders", "produce"], 1)
    after = await standalone.snapshot()
    assert after.totals == before.totals
    assert (before.topics_known, after.topics_known) == (1, 0)


async def test_several_processes_are_summed_to_what_one_would_show(
    standalone: Standalone, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    del autojump_clock
    traffic(standalone, "drained", 5, 0, waiting=5)
    for _ in range(20):  # until it has not received anything for long
        tick(standalone)
    traffic(standalone, "orders", 100, 40)
    traffic(standalone, "bills", 10, 0)
    traffic(standalone, "drained", 0, 0, waiting=-5)
    tick(standalone)
    alone = await standalone.snapshot()
    plane = LocalPlane(standalone.gateway)
    views = {name: encode(plane.view(name)) for name in ("status", "overhead", "listeners", "topics", "over")}
    folder = tmp_path / "several"
    folder.mkdir()
    with idle_parent(written(folder, CONFIGURATION.replace("name: one", "name: one, workers: 2"))) as parent:
        for child in parent.children.values():
            child.take(StateReport(1, views, []))
        parent.retired_topics.sums.update(dict.fromkeys(live_snapshot.COUNTS, 3))
        both = await parent.snapshot()
    assert {name: 2 * count + 3 for name, count in alone.totals.items()} == both.totals, "with what is forgotten"
    assert both.rates == {name: 2 * rate for name, rate in alone.rates.items()}, "what passes of a backlog when nothing comes, too"
    assert both.rates["refused_per_second"] == 80.0
    assert [(topic.topic, topic.refused) for topic in both.topics] == [("orders", 80), ("bills", 0)]
    assert both.topics_known == 3
