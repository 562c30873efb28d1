"""What operators see of the spool: status, warnings, metrics and topics, of one process and of several."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.pipeline.spool_orders import Pause, SpoolControl
from gateway.settings import ConfigError, load
from gateway.settings.rule_texts import RuleTexts
from gateway.spool.disk import WRITE, Job, SpoolDisk
from gateway.standalone import Standalone
from gateway.telemetry import spool
from gateway.workers import scrapes
from gateway.workers.named_series import all_named
from limiter.limits import NEVER
from support.idle_standalone import CONFIGURATION, idle_standalone

ORDERS = ("amqp", "%2F/orders/", "produce")
OF_ORDERS = 'sluice_topic_spooled_messages{protocol="amqp",topic="%2F/orders/",operation="produce"}'
OF_OTHERS = 'sluice_topic_spooled_messages{protocol="amqp",topic="__other__",operation="produce"}'


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Standalone]:
    with idle_standalone(tmp_path, "spool: {max_size: 16MiB}\n") as made:
        yield made


@pytest.fixture
def disk(standalone: Standalone) -> SpoolDisk:
    return standalone.gateway.spool


def scraped(standalone: Standalone) -> dict[str, float]:
    """Every series of the spool, and its number."""
    families = scrapes.parse("".join(standalone.metrics({})))
    return {series: number for name, family in families.items() if "spool" in name for series, number in family.series.items()}


async def test_topics_are_told_in_slices_with_how_long_they_have_waited(disk: SpoolDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "MAX_TOPICS_PER_SLICE", 2)
    for number, name in enumerate(("a", "b", "c"), 1):
        disk.count("amqp", name, number, 100 * number)
    disk.topics["amqp", "a"].since = 4_000_000_000
    slices = list(spool.topics(disk, SpoolControl(), 6_500_000_000))
    assert [len(each) for each in slices] == [2, 1]
    assert slices[0][0] == {"protocol": "amqp", "topic": "a", "messages": 1, "bytes": 100, "waiting_seconds": 2.5, "paused": None}


async def test_the_status_and_a_topics_own_state_have_what_waits(standalone: Standalone, disk: SpoolDisk) -> None:
    disk.count("amqp", ORDERS[1], 7, 700)
    standalone.gateway.accounts.totals(*ORDERS)
    standalone.gateway.accounts.totals("amqp", ORDERS[1], "consume")
    assert standalone.status()["spool"] == standalone.spool() == {
        "directory": str(disk.directory), "size_bytes": 16 << 20, "used_bytes": 0, "messages": 7, "topics": 1, "written_bytes": 0,
        "read_bytes": 0, "damaged_batches": 0, "given_up": 0, "expired": 0, "paused": [], "full": False, "trouble": None, "commits": 0,
        "uncommitted_bytes": 0, "replaying_bytes": 0, "replayed_messages": 0, "set_aside_messages": 0, "set_aside_damages": 0,
        "replay_trouble": None, "accepted": 0, "accepted_refused": 0, "accepted_lost": 0,
        "accepted_given_up": 0,
    }  # fmt: skip
    assert {item["operation"]: item["spooled"] for item in await standalone.topics()} == {"produce": 7, "consume": 0}
    assert [item["topic"] for item in await standalone.spooled_topics()] == [ORDERS[1]]
    assert standalone.warnings() == []


def test_a_spool_that_cannot_be_written_is_a_warning_and_a_metric(standalone: Standalone, disk: SpoolDisk) -> None:
    disk.directory.parent.mkdir(exist_ok=True)
    disk.directory.write_text("a file where the directory should be")
    writer = SpoolDisk(disk.directory, 1, 1, threads=False)  # the same, without threads that would wait
    writer.submit(Job(None, WRITE, "1"))
    writer.work(WRITE)
    disk.trouble = writer.trouble
    writer.close(1.0)
    (warning,) = standalone.warnings()
    assert warning.startswith(f"spool: it cannot be written ({disk.trouble}); ")
    assert str(disk.directory) in warning
    assert scraped(standalone)["sluice_spool_blocked"] == 1
    disk.trouble = ""
    assert scraped(standalone)["sluice_spool_blocked"] == 0


def test_a_replay_that_waits_is_a_warning_and_says_why(standalone: Standalone, disk: SpoolDisk) -> None:
    disk.replay.troubles = ["rabbit /: its broker cannot be reached"]
    (warning,) = standalone.warnings()
    assert warning == "spool: messages of a durable rule cannot be replayed for now: rabbit /: its broker cannot be reached"
    assert standalone.spool()["replay_trouble"] == "rabbit /: its broker cannot be reached"


def test_a_full_spool_is_a_warning_that_names_its_size(standalone: Standalone, disk: SpoolDisk) -> None:
    disk.used = 16 << 20
    disk.out_of_room.append(object())
    (warning,) = standalone.warnings()
    assert warning.startswith("spool: it is full (16777216 of 16777216 bytes, spool.max_size); ")


async def test_a_pause_is_told_until_it_is_over(standalone: Standalone, disk: SpoolDisk) -> None:
    """Of a topic of which nothing waits, too."""
    disk.count("amqp", ORDERS[1], 7, 700)
    await standalone.pause_spool(("amqp", ORDERS[1]), {"until": None, "ends": "", "reason": "repairs", "by": "alice"})
    standalone.gateway.shared.spool_control.paused["amqp", "soon"] = Pause(NEVER, "2026-11-26T12:00:00.000Z", "a test", "bob")
    told = {item["topic"]: (item["messages"], item["paused"]) for item in await standalone.spooled_topics()}
    assert told == {
        ORDERS[1]: (7, {"until": None, "reason": "repairs", "by": "alice"}),
        "soon": (0, {"until": "2026-11-26T12:00:00.000Z", "reason": "a test", "by": "bob"}),
    }
    assert standalone.spool()["paused"] == [ORDERS[1], "soon"]
    assert standalone.warnings() == [
        f"spool: {ORDERS[1]} is paused until it is resumed, by alice (repairs); `sluice spool resume` ends it",
        "spool: soon is paused until 2026-11-26T12:00:00.000Z, by bob (a test); `sluice spool resume` ends it",
    ]
    assert scraped(standalone)["sluice_spool_paused_topics"] == 2
    standalone.gateway.shared.spool_control.paused["amqp", "soon"].until = 1
    assert await standalone.resume_spool(("amqp", ORDERS[1]))
    assert await standalone.resume_spool(("amqp", "soon")) is False, "it is over"
    assert standalone.warnings() == []


def test_a_scrape_has_the_spool_and_the_topics_shown_and_all_others_in_one(standalone: Standalone, disk: SpoolDisk) -> None:
    standalone.gateway.accounts.totals(*ORDERS)
    disk.count("amqp", ORDERS[1], 7, 700)
    disk.count("amqp", "%2F/hidden/", 5, 500)
    disk.used, disk.written, disk.read, disk.lost_batches, disk.commits = 4096, 8192, 2048, 1, 6
    counts = disk.replay
    counts.waiting_bytes, counts.replayed, counts.set_aside, counts.damages, counts.expired, counts.waiting = 512, 40, 3, 2, 6, 1
    control = standalone.gateway.shared.spool_control
    control.accepted, control.accepted_refused, control.accepted_lost, control.accepted_given_up = 9, 2, 3, 1
    assert scraped(standalone) == {
        "sluice_spool_bytes": 4096, "sluice_spool_size_bytes": 16 << 20, "sluice_spool_messages": 12,
        "sluice_spool_written_bytes_total": 8192, "sluice_spool_read_bytes_total": 2048, "sluice_spool_damaged_batches_total": 1,
        "sluice_spool_blocked": 0, "sluice_spool_commits_total": 6, "sluice_spool_replaying_bytes": 512, "sluice_spool_waiting_replays": 1,
        "sluice_spool_replayed_messages_total": 40, "sluice_spool_set_aside_messages_total": 3, "sluice_spool_set_aside_damages_total": 2,
        "sluice_spool_paused_topics": 0, "sluice_spool_given_up_messages_total": 0, "sluice_spool_expired_messages_total": 6,
        "sluice_spool_accepted_messages_total": 9, "sluice_spool_accepted_refused_messages_total": 2,
        "sluice_spool_accepted_lost_messages_total": 3, "sluice_spool_accepted_given_up_messages_total": 1,
        OF_ORDERS: 7, OF_OTHERS: 5,
    }  # fmt: skip


def test_workers_are_summed_in_a_scrape(standalone: Standalone, disk: SpoolDisk) -> None:
    standalone.gateway.accounts.totals(*ORDERS).received = 9
    disk.count("amqp", ORDERS[1], 7, 700)
    disk.used, disk.trouble = 4096, "No space left on device: /spool"
    families = [scrapes.parse("".join(standalone.metrics({})))]
    disk.trouble = ""
    families.append(scrapes.parse("".join(standalone.metrics({}))))
    summed = scrapes.merged([("1", families[0]), ("2", families[1])], {}, all_named())
    series = {each: number for name, family in summed.items() if "spool" in name for each, number in family.series.items()}
    assert (series["sluice_spool_bytes"], series["sluice_spool_size_bytes"], series[OF_ORDERS]) == (8192, 32 << 20, 14)
    assert (series['sluice_spool_blocked{worker="1"}'], series['sluice_spool_blocked{worker="2"}']) == (1, 0)


def test_workers_are_summed_in_a_list(standalone: Standalone, disk: SpoolDisk) -> None:
    control = SpoolControl()
    disk.count("amqp", "a", 2, 200)
    disk.topics["amqp", "a"].since = 0
    views = list(spool.topics(disk, control, 3_000_000_000))
    first = spool.figures(disk, control)
    disk.count("amqp", "b", 1, 100)
    disk.trouble = "No space left on device: /spool"
    views += spool.topics(disk, control, 2_000_000_000)
    assert {item["topic"]: (item["messages"], item["bytes"], item["waiting_seconds"]) for item in spool.summed_topics(views)} == {
        "a": (4, 400, 3.0), "b": (1, 100, 0.0),
    }  # fmt: skip
    whole = spool.summed([first, spool.figures(disk, control)])
    assert (whole["messages"], whole["size_bytes"], whole["trouble"]) == (5, 32 << 20, disk.trouble)
    assert spool.summed([]) == {}


def test_a_live_rule_is_told_what_a_file_is_told(tmp_path: Path) -> None:
    """Without a login nobody could publish durable messages again."""
    text = {"match": {"protocol": "amqp"}, "limit": {"messages": "7/s"}, "action": "spool", "durable": True}
    live = RuleTexts().read("bursts", text)
    with idle_standalone(tmp_path) as made:
        (fault,) = made.rule_faults(live)
        assert made.rule_faults(RuleTexts().read("bursts", {**text, "durable": False})) == []
        assert made.rule_faults(RuleTexts().read("bursts", {**text, "match": {"listener": "other*"}})) == []
    file = tmp_path / "sluice.yaml"
    file.write_text(CONFIGURATION.replace("[{name: all, limit: {messages: 100/s}}]", json.dumps([{"name": "bursts", **text}])))
    with pytest.raises(ConfigError) as raised:
        load(file, {})
    assert fault.field == "durable"
    assert fault.message in str(raised.value)
