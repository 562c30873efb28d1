"""`sluice spool`: what waits on disk, as a list and of one topic."""

from __future__ import annotations

from typing import Any

import pytest

from cli.spool import describe_whole, in_words, spooling_rate

JOBS = "%2F/amq.default/jobs"
FIGURES = {
    "size_bytes": 10 << 30, "used_bytes": 1536 << 20, "messages": 1_600_000, "disk_messages": 1_500_000, "topics": 2,
    "written_bytes": 9, "read_bytes": 9, "damaged_batches": 0, "full": False, "trouble": None,
}  # fmt: skip


def waiting(topic: str, messages: int) -> dict[str, Any]:
    return {
        "protocol": "amqp",
        "topic": topic,
        "messages": messages,
        "bytes": 1024 * messages,
        "disk_messages": messages // 3,
        "disk_bytes": 1024 * (messages // 3),
        "waiting_seconds": 95.5,
    }


def test_the_list_is_asked_for_by_most_messages_and_told_with_the_whole(sluice: Any, admin: Any) -> None:
    admin.topics, admin.spool = [waiting(JOBS, 1_200_000), waiting("%2F/orders/created", 400)], FIGURES
    ran = sluice("spool", "list")
    head, first, second = ran.out.splitlines()
    assert head.split() == ["protocol", "topic", "messages", "bytes", "disk", "messages", "waiting", "s"]
    assert first.split() == ["amqp", JOBS, "1200000", "1228800000", "400000", "95.5"]
    assert second.split()[1:3] == ["%2F/orders/created", "400"]
    assert ran.err == "spool: 1.6M messages wait, 1.5M of them on disk; 1.5 GiB of 10 GiB used\n"
    assert admin.requests[0].query["sort"] == "messages"


def test_the_list_is_filtered_sorted_and_had_by_programs(sluice: Any, admin: Any) -> None:
    admin.topics = [waiting(JOBS, 3)]
    assert sluice("spool", "list", "-q", "job", "--sort", "wait", "--limit", "4", "-o", "json").json == admin.topics
    assert {name: admin.requests[0].query[name] for name in ("q", "sort", "limit")} == {"q": "job", "sort": "wait", "limit": "4"}
    assert sluice("spool", "list", "-o", "csv").out.splitlines() == [
        "protocol,topic,messages,bytes,disk_messages,waiting_s", f"amqp,{JOBS},3,3072,1,95.5",
    ]  # fmt: skip
    assert "messages: 3" in sluice("spool", "list", "-o", "yaml").out


def test_nothing_that_waits_is_said_in_words(sluice: Any, admin: Any) -> None:
    admin.spool = {**FIGURES, "messages": 0, "used_bytes": 0}
    ran = sluice("spool", "list")
    assert (ran.code, len(ran.out.splitlines())) == (0, 1), "the header alone"
    assert "nothing waits in the spool; messages over a limit wait there where their rule says `action: spool`" in ran.err
    assert "no topic that waits in the spool has abc in its name" in sluice("spool", "list", "-q", "abc").err


def test_what_is_wrong_with_the_spool_is_told_with_the_list() -> None:
    assert describe_whole({}) == [], "a gateway before there was a spool"
    lines = describe_whole({**FIGURES, "trouble": "No space left on device: /spool", "full": True, "damaged_batches": 2})
    assert lines[1].startswith("it cannot be written: No space left on device: /spool; ")
    assert lines[2].startswith("it is full (spool.max_size)")
    assert lines[3].startswith("2 batches could not be read back")


def test_one_topic_is_shown_with_its_limit_and_when_it_is_gone(sluice: Any, admin: Any) -> None:
    admin.topics = [waiting("%2F/orders/created", 9), waiting(JOBS, 1500)]
    level = {"per": "topic", "action": "spool", "mode": "enforce", "limit": {"messages": "100/s", "messages_per_second": 100.0}}
    admin.answers["GET /v1/limits/amqp/%2F/amq.default/jobs"] = (200, {"levels": [level]})
    shown = sluice("spool", "show", "amqp", "/", "amq.default", "jobs", "-o", "json").json
    assert shown == {**waiting(JOBS, 1500), "messages_per_second": 100.0, "gone_in_seconds": 15.0}
    assert in_words(shown) == {
        "topic": "/ amq.default jobs", "messages": "1.5k", "on disk": "500", "bytes": "1.46 MiB", "waiting for": "1min 36s",
        "limit": "100/s", "gone in": "15s",
    }  # fmt: skip


def test_a_topic_of_which_nothing_waits_is_no_error(sluice: Any, admin: Any) -> None:
    ran = sluice("spool", "show", "amqp", "/", "orders", "created")
    assert (ran.code, ran.err) == (0, "nothing of this topic waits in the spool; no rule spools it\n")
    assert ran.out.splitlines()[1].split() == ["messages", "0"]
    assert admin.requests[0].query["topic"] == "%2F/orders/created"


def test_what_is_no_topic_says_what_to_do(sluice: Any, admin: Any) -> None:
    client = sluice("spool", "show", "client", "10.0.0.7")
    short = sluice("spool", "show", "amqp", "/")
    assert [ran.code for ran in (client, short)] == [2, 2]
    assert "sluice connections list -q 10.0.0.7" in client.err
    assert "a key of AMQP is" in short.err
    assert admin.requests == []


@pytest.mark.parametrize(
    ("levels", "rate"),
    [
        ([], None),
        ([{"per": "topic", "action": "reject", "mode": "enforce", "limit": {"messages_per_second": 5.0}}], None),
        ([{"per": "topic", "action": "spool", "mode": "shadow", "limit": {"messages_per_second": 5.0}}], None),
        ([{"per": per, "action": "spool", "mode": "enforce", "limit": {"messages_per_second": rate}}
          for per, rate in (("topic", 50.0), ("rule", None), ("rule", 7.0), ("client", 1.0))], 7.0),
    ],
)  # fmt: skip
def test_the_tightest_limit_that_spools_says_how_fast_it_drains(levels: list[dict[str, Any]], rate: float | None) -> None:
    assert spooling_rate({"levels": levels}) == rate


def test_a_rocketmq_topic_is_shown_by_its_name(sluice: Any, admin: Any) -> None:
    admin.topics = [{**waiting("%RETRY%workers", 5), "protocol": "rocketmq"}]
    admin.answers["GET /v1/limits/rocketmq/%25RETRY%25workers"] = (200, {"levels": []})
    assert sluice("spool", "show", "rocketmq", "%RETRY%workers", "-o", "json").json["messages"] == 5
