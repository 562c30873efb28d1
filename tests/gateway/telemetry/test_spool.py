"""What operators see of the spool: status, warnings, metrics and topics, of one process and of several."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import to_builtins

from control_plane.standalone import Standalone
from control_plane.workers import scrapes
from control_plane.workers.named_series import all_named
from gateway.telemetry import spool
from gateway.telemetry.views import merge
from gateway.waiting.disk.waiting_disk import WRITE, DiskJob, WaitingDisk
from support.idle_standalone import idle_standalone

ORDERS = ("amqp", "%2F/orders/", "produce")
OF_ORDERS = 'sluice_topic_spooled_messages{protocol="amqp",topic="%2F/orders/",operation="produce"}'
OF_OTHERS = 'sluice_topic_spooled_messages{protocol="amqp",topic="__other__",operation="produce"}'


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Standalone]:
    with idle_standalone(tmp_path, "spool: {max_size: 16MiB}\n") as made:
        yield made


@pytest.fixture
def disk(standalone: Standalone) -> WaitingDisk:
    return standalone.gateway.disk


def scraped(standalone: Standalone) -> dict[str, float]:
    """Every series of the spool, and its number."""
    families = scrapes.parse("".join(standalone.metrics({})))
    return {series: number for name, family in families.items() if "spool" in name for series, number in family.series.items()}


async def test_topics_are_told_in_slices_with_how_long_they_have_waited(disk: WaitingDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "MAX_TOPICS_PER_SLICE", 2)
    for number, name in enumerate(("a", "b", "c"), 1):
        disk.waiting.count("amqp", name, number, 100 * number)
    disk.waiting.topics["amqp", "a"].since = 4_000_000_000
    slices = list(spool.topics(disk, 6_500_000_000))
    assert [len(each) for each in slices] == [2, 1]
    assert to_builtins(slices[0][0]) == {
        "protocol": "amqp",
        "topic": "a",
        "messages": 1,
        "bytes": 100,
        "disk_messages": 0,
        "disk_bytes": 0,
        "waiting_seconds": 2.5,
    }


async def test_the_status_and_a_topics_own_state_have_what_waits(standalone: Standalone, disk: WaitingDisk) -> None:
    disk.waiting.count("amqp", ORDERS[1], 7, 700)
    standalone.gateway.accounts.totals(*ORDERS)
    standalone.gateway.accounts.totals("amqp", ORDERS[1], "consume")
    assert standalone.status().spool == standalone.spool()
    assert to_builtins(standalone.spool()) == {
        "directory": str(disk.directory), "size_bytes": 16 << 20, "used_bytes": 0, "messages": 7, "disk_messages": 0, "topics": 1,
        "written_bytes": 0, "read_bytes": 0, "damaged_batches": 0, "expired": 0, "full": False, "trouble": None,
    }  # fmt: skip
    assert {item.operation: item.spooled for item in await standalone.topics()} == {"produce": 7, "consume": 0}
    assert [item.topic for item in await standalone.spooled_topics()] == [ORDERS[1]]
    assert standalone.warnings() == []


def test_a_spool_that_cannot_be_written_is_a_warning_and_a_metric(standalone: Standalone, disk: WaitingDisk) -> None:
    disk.directory.parent.mkdir(exist_ok=True)
    disk.directory.write_text("a file where the directory should be")
    writer = WaitingDisk(disk.directory, 1, 1, threads=False)  # the same, without threads that would wait
    writer.submit(DiskJob(None, WRITE, "1"))
    writer.work(WRITE)
    disk.trouble = writer.trouble
    writer.close(1.0)
    (warning,) = standalone.warnings()
    assert warning.startswith(f"spool: it cannot be written ({disk.trouble}); ")
    assert str(disk.directory) in warning
    assert scraped(standalone)["sluice_spool_blocked"] == 1
    disk.trouble = ""
    assert scraped(standalone)["sluice_spool_blocked"] == 0


def test_a_full_spool_is_a_warning_that_names_its_size(standalone: Standalone, disk: WaitingDisk) -> None:
    disk.used = 16 << 20
    disk.out_of_room.append(object())
    (warning,) = standalone.warnings()
    assert warning.startswith("spool: it is full (16777216 of 16777216 bytes, spool.max_size); ")


def test_a_scrape_has_the_spool_and_the_topics_shown_and_all_others_in_one(standalone: Standalone, disk: WaitingDisk) -> None:
    standalone.gateway.accounts.totals(*ORDERS)
    disk.waiting.count("amqp", ORDERS[1], 7, 700)
    disk.waiting.count("amqp", "%2F/hidden/", 5, 500)
    disk.used, disk.written, disk.read, disk.lost_batches, disk.expired = 4096, 8192, 2048, 1, 6
    assert scraped(standalone) == {
        "sluice_spool_bytes": 4096, "sluice_spool_size_bytes": 16 << 20, "sluice_spool_messages": 12, "sluice_spool_disk_messages": 0,
        "sluice_spool_written_bytes_total": 8192, "sluice_spool_read_bytes_total": 2048, "sluice_spool_damaged_batches_total": 1,
        "sluice_spool_blocked": 0, "sluice_spool_expired_messages_total": 6,
        OF_ORDERS: 7, OF_OTHERS: 5,
    }  # fmt: skip


def test_workers_are_summed_in_a_scrape(standalone: Standalone, disk: WaitingDisk) -> None:
    standalone.gateway.accounts.totals(*ORDERS).received = 9
    disk.waiting.count("amqp", ORDERS[1], 7, 700)
    disk.used, disk.trouble = 4096, "No space left on device: /spool"
    families = [scrapes.parse("".join(standalone.metrics({})))]
    disk.trouble = ""
    families.append(scrapes.parse("".join(standalone.metrics({}))))
    summed = scrapes.merge_families([("1", families[0]), ("2", families[1])], {}, all_named())
    series = {each: number for name, family in summed.items() if "spool" in name for each, number in family.series.items()}
    assert (series["sluice_spool_bytes"], series["sluice_spool_size_bytes"], series[OF_ORDERS]) == (8192, 32 << 20, 14)
    assert (series['sluice_spool_blocked{worker="1"}'], series['sluice_spool_blocked{worker="2"}']) == (1, 0)


def test_workers_are_summed_in_a_list(standalone: Standalone, disk: WaitingDisk) -> None:
    disk.waiting.count("amqp", "a", 2, 200)
    disk.waiting.topics["amqp", "a"].since = 0
    views = list(spool.topics(disk, 3_000_000_000))
    first = spool.figures(disk)
    disk.waiting.count("amqp", "b", 1, 100)
    disk.trouble = "No space left on device: /spool"
    views += spool.topics(disk, 2_000_000_000)
    assert {item.topic: (item.messages, item.bytes, item.waiting_seconds) for item in merge("spooled_topics", views)} == {
        "a": (4, 400, 3.0), "b": (1, 100, 0.0),
    }  # fmt: skip
    whole = merge("spool", [first, spool.figures(disk)])
    assert (whole.messages, whole.size_bytes, whole.trouble) == (5, 32 << 20, disk.trouble)
    assert merge("spool", []).messages == 0
