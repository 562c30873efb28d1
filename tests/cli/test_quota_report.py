"""`sluice quotas show TOPIC` and `sluice quotas report`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from limiter.quota_snapshot import Snapshot, dump
from spark_jobs.nights.gateways import drop_long_evidence, split_by_pool
from support.models import quota_evidence

NOW = quota_evidence.snapshot(12)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "quotas.json"
    path.write_bytes(dump(NOW))
    return path


@pytest.fixture(autouse=True)
def live(admin: Any) -> None:
    admin.quotas = json.loads(dump(NOW))


def test_a_word_is_a_topic_and_a_file_is_a_file(sluice: Any, admin: Any, file: Path) -> None:
    ran = sluice("quotas", "show", "mail-00004")
    assert ran.code == 0, ran.err
    assert ran.out.startswith("mail-00004 (rocketmq)\nwhy: ")
    assert len(admin.requests) == 1
    assert sluice("quotas", "show", "mail-00004", "--file", file).out == ran.out
    assert sluice("quotas", "show", file, "--topic", "mail-00004").out == ran.out
    assert len(admin.requests) == 1, "a file needs no gateway"
    assert len(sluice("quotas", "show", file).out.splitlines()) == 13
    assert len(sluice("quotas", "show", "--file", file).out.splitlines()) == 13


def test_a_file_with_a_topics_name_is_the_file_and_topic_says_otherwise(sluice: Any, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mail-00004").write_text("{}")
    assert sluice("quotas", "show", "mail-00004").code == 3
    assert sluice("quotas", "show", "--topic", "mail-00004").code == 0


def test_a_file_that_is_not_there_is_not_taken_for_a_topic(sluice: Any) -> None:
    ran = sluice("quotas", "show", "nowhere.json")
    assert (ran.code, "No such file" in ran.err) == (2, True)
    assert sluice("quotas", "show", "a", "--file", "b", "--topic", "c").code == 2


def test_show_a_topic_as_json(sluice: Any) -> None:
    found = sluice("quotas", "show", "mail-00004", "-o", "json").json
    assert (found["topic"], found["evidence"]["k"]) == ("mail-00004", 1.8)


def test_a_topic_without_a_quota_ends_with_7_and_the_nearest_names(sluice: Any) -> None:
    ran = sluice("quotas", "show", "MAIL")
    assert ran.code == 7
    assert "MAIL has no quota; did you mean mail-00004 or mail-00009?" in ran.err
    assert "lists all that have one" in sluice("quotas", "show", "zzz").err


def test_a_topic_that_is_learning_says_so(sluice: Any) -> None:
    ran = sluice("quotas", "show", "launch")
    assert (ran.code, ran.out.splitlines()[0]) == (0, "launch (rocketmq) has no quota. learning: 1 of 3 active days")


def test_show_only_one_protocol(sluice: Any) -> None:
    assert sluice("quotas", "show", "--protocol", "amqp", "-o", "json").json["quotas"] == []
    assert sluice("quotas", "show", "mail-00004", "--protocol", "amqp").code == 7


def test_a_hostile_name_leaves_the_terminal_alone(sluice: Any) -> None:
    ran = sluice("quotas", "show", quota_evidence.HOSTILE)
    assert ran.code == 0
    assert "\x1b" not in ran.out
    assert "\u202e" not in ran.out


def test_report_writes_every_form_asked_for(sluice: Any, admin: Any, tmp_path: Path, file: Path) -> None:
    outputs = [tmp_path / f"report.{form}" for form in ("html", "md", "json")]
    words = [word for output in outputs for word in ("-o", output)]
    assert sluice("quotas", "report", *words).code == 0
    live = [output.read_bytes() for output in outputs]
    assert sluice("quotas", "report", file, *words).code == 0
    assert [output.read_bytes() for output in outputs] == live
    assert len(admin.requests) == 1
    assert live[0].startswith(b"<!doctype html>")
    assert json.loads(live[2])["topics_with_quota"] == 12


def test_report_with_the_snapshot_before(sluice: Any, tmp_path: Path, file: Path) -> None:
    before, output = tmp_path / "before.json", tmp_path / "report.json"
    before.write_bytes(dump(quota_evidence.before(NOW)))
    assert sluice("quotas", "report", file, "--before", before, "-o", output).code == 0
    assert json.loads(output.read_bytes())["removed"] == [{"protocol": "rocketmq", "topic": "gone"}]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["-o", "report.pdf"], 2, "End its name with .html, .md or .json"),
        (["-o", "nowhere/report.html"], 1, "No such file or directory; nothing more was written"),
        (["gone.json", "-o", "report.html"], 2, "No such file"),
        ([], 2, "--output"),
    ],
)
def test_faults_of_report_name_the_way_out(sluice: Any, words: list[str], code: int, said: str) -> None:
    ran = sluice("quotas", "report", *words)
    assert ran.code == code
    assert said in ran.err
    assert not Path("report.html").exists()


# ---- what a gateway has: the short form ------------------------------------------------------------------------------

NIGHT = replace(NOW, date="2026-11-20")


@pytest.fixture
def state(admin: Any, tmp_path: Path) -> Path:
    """The state of a night that was published, and the gateway as it has it."""
    admin.quotas = json.loads(dump(drop_long_evidence(NIGHT)))
    folder = tmp_path / "state" / "nights" / f"dt={NIGHT.date}"
    folder.mkdir(parents=True)
    (folder / "quotas.json").write_bytes(dump(NIGHT))
    return tmp_path / "state"


def test_what_is_in_force_has_its_28_days_from_the_state(sluice: Any, state: Path, tmp_path: Path) -> None:
    """Gateways have the short form, so `show` and `report` of it drew no chart, and said that nothing was known yet."""
    whole = tmp_path / "whole.json"
    whole.write_bytes(dump(NIGHT))
    with_state = sluice("quotas", "show", "mail-00004", "--state", state)
    assert (with_state.code, with_state.err) == (0, "")
    assert with_state.out.splitlines()[:-3] == sluice("quotas", "show", "mail-00004", "--file", whole).out.splitlines()[:-3]
    assert "busiest second, ━ quota" in with_state.out
    found = sluice("quotas", "show", "mail-00004", "--state", state, "-o", "json").json["evidence"]
    assert len(found["series"]) == len(found["bytes"]["series"]) == 28
    assert sluice("quotas", "report", "--state", state, "-o", tmp_path / "report.json").code == 0
    report = json.loads((tmp_path / "report.json").read_bytes())
    assert report["fleet"]["messages"]["nights28"]["nights"] == 28


def test_without_the_state_it_says_where_the_28_days_are(sluice: Any, state: Path, tmp_path: Path) -> None:
    del state
    for words in (["show", "mail-00004"], ["report", "-o", tmp_path / "report.md"]):
        ran = sluice("quotas", *words)
        assert ran.code == 0
        assert "--state URL reads them from the state of `quotas nightly`" in ran.err


def test_a_gateway_with_a_share_of_the_quotas_keeps_its_own_rates(sluice: Any, admin: Any, state: Path) -> None:
    [mine, _] = split_by_pool(NIGHT, [[SimpleNamespace(name="gw-a")], [SimpleNamespace(name="gw-b")]])  # type: ignore[list-item]
    admin.quotas = json.loads(dump(mine))
    applied = {"gateways": {"http://a": {"name": "gw-a", "sha256": mine.sha256()}, "http://b": "no record"}}
    (state / "nights" / f"dt={NIGHT.date}" / "applied.json").write_text(json.dumps(applied))
    ran = sluice("quotas", "show", "mail-00004", "--state", state, "-o", "json")
    assert (ran.code, ran.err) == (0, "")
    quota = next(each for each in mine.quotas if each.topic == "mail-00004")
    assert quota.messages is not None
    assert ran.json["messages"]["rate"] == quota.messages[0]
    assert len(ran.json["evidence"]["series"]) == 28


@pytest.mark.parametrize(
    ("kept", "live", "said"),
    [
        (replace(NIGHT, code="computed again"), NIGHT, "has other quotas than those in force (sha256 "),
        (None, NIGHT, "quotas.json is not there, so the 28 days"),
        (NIGHT, replace(NIGHT, date=None), "the quotas in force name no night"),
    ],
)
def test_a_state_that_has_other_quotas_lends_them_nothing(
    sluice: Any, admin: Any, state: Path, kept: Snapshot | None, live: Snapshot, said: str
) -> None:
    file = state / "nights" / f"dt={NIGHT.date}" / "quotas.json"
    file.unlink() if kept is None else file.write_bytes(dump(kept))
    admin.quotas = json.loads(dump(drop_long_evidence(live)))
    ran = sluice("quotas", "show", "mail-00004", "--state", state)
    assert (ran.code, said in ran.err) == (0, True), ran.err
    assert "demand of past days: not known yet" in ran.out


def test_a_state_that_cannot_be_read_is_named(sluice: Any, state: Path) -> None:
    assert "unknown scheme ftp" in sluice("quotas", "show", "mail-00004", "--state", "ftp://host/state").err
    (state / "nights" / f"dt={NIGHT.date}" / "quotas.json").write_text("{")
    ran = sluice("quotas", "show", "mail-00004", "--state", state)
    assert (ran.code, "not JSON" in ran.err) == (1, True), ran.err
