"""`sluice quotas plan|apply|rollback|show|compute`, with exit codes of their own."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def quota(topic: str, rate: float = 100, **more: Any) -> dict[str, Any]:
    return {"protocol": "rocketmq", "topic": topic, "messages": {"rate": rate, "burst": int(rate * 2) or 0}, "evidence": {}, **more}


def snapshot(*quotas: dict[str, Any]) -> dict[str, Any]:
    return {"version": 1, "computed_at": "2026-11-21T01:00:00Z", "code": "0.1.0", "inputs": [], "parameters": {}, "quotas": list(quotas)}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def written(*quotas: dict[str, Any]) -> Path:
        path = tmp_path / "quotas.json"
        path.write_text(json.dumps(snapshot(*quotas)))
        return path

    return written


def test_plan_and_apply_exit_with_0_when_nothing_changes(sluice: Any, admin: Any, write: Any) -> None:
    admin.quotas = snapshot(quota("a"))
    evidence = quota("a", evidence={"days": 9})
    assert sluice("quotas", "plan", write(evidence)).code == 0
    ran = sluice("quotas", "apply", write(evidence), "--yes")
    assert (ran.code, admin.writes()) == (0, [])


def test_plan_exits_with_2_on_changes_and_shows_the_largest_first(sluice: Any, admin: Any, write: Any) -> None:
    admin.quotas = snapshot(quota("a"), quota("b"))
    file = write(quota("a", 110), quota("b", 150, evidence={"reason": "p99 grew"}), quota("c", 5))
    ran = sluice("quotas", "plan", file)
    assert ran.code == 2
    assert [line.split()[1] for line in ran.out.splitlines()[1:]] == ["c", "b", "a"]
    assert "100/s (200) -> 150/s (300)" in ran.out
    assert "p99 grew" in ran.out
    found = sluice("quotas", "plan", file, "-o", "json").json
    assert (found["live"], found["new"], len(found["changes"]), found["guard_rails"]) == (2, 3, 3, [])


def test_beside_a_first_quota_stands_the_limit_now_in_force(sluice: Any, admin: Any, write: Any) -> None:
    admin.topics = [
        {"protocol": "rocketmq", "level": {"per": "topic", "thing": "c", "limit": {"messages": "2000/s", "bytes": "5MiB/s"}}},
        {"protocol": "rocketmq", "level": {"per": "client", "thing": "d", "limit": {"messages": "9/s"}}},
    ]
    head, c, d = sluice("quotas", "plan", write(quota("c", 5), quota("d", 5))).out.splitlines()
    assert "limit now" in head
    assert "messages 2000/s, bytes 5MiB/s" in c
    assert "9/s" not in d


def test_plan_shows_what_is_held_and_apply_publishes_it_held(sluice: Any, admin: Any, write: Any) -> None:
    admin.quotas = snapshot(quota("a"), quota("b"))
    file = write(quota("a", 300), quota("b", 110))
    ran = sluice("quotas", "plan", file)
    assert ran.code == 2
    assert "held: rocketmq a: messages would go from 100/s to 300/s, held at 200/s" in ran.err
    assert sluice("quotas", "plan", file, "-o", "json").json["held"][0]["held"] == 200
    assert sluice("quotas", "plan", file, "--max-ratio", "4").err.count("held") == 0
    assert sluice("quotas", "apply", file, "--yes").code == 0
    assert [each["messages"]["rate"] for each in admin.quotas["quotas"]] == [200, 110]
    assert sluice("quotas", "apply", file, "--yes", "--ignore-guard-rails").code == 8
    assert sluice("quotas", "apply", file, "--yes", "--ignore-guard-rails", "--reason", "campaign").code == 0
    assert admin.quotas["quotas"][0]["messages"]["rate"] == 300


def test_plan_exits_with_3_over_a_guard_rail_and_apply_publishes_nothing(sluice: Any, admin: Any, write: Any) -> None:
    admin.quotas = snapshot(quota("a"))
    file = write()
    ran = sluice("quotas", "plan", file)
    assert ran.code == 3
    assert "guard rail: all 1 quotas would be removed" in ran.err
    assert sluice("quotas", "apply", file, "--yes").code == 8
    assert admin.writes() == []
    assert sluice("quotas", "apply", file, "--yes", "--ignore-guard-rails", "--reason", "away with them").code == 0
    assert admin.quotas["quotas"] == []


@pytest.mark.parametrize("left", [0, 9, 14, 42, 71, 99])
def test_a_guard_rail_names_the_option_that_lets_it_pass(sluice: Any, admin: Any, write: Any, left: int) -> None:
    """Regression: it said what was wrong, and neither what to look at nor how to go on where nothing is."""
    admin.quotas = snapshot(*(quota(f"t{number:03}") for number in range(100)))
    file = write(*(quota(f"t{number:03}", 90) for number in range(left)), quota("new", 1))
    strict = ("--max-changed", "1", "--max-removed", "0", "--max-total", "1")
    ran = sluice("quotas", "plan", file, *strict)
    assert (ran.code, ran.err.count("guard rail: "), ran.err.count("look first whether the access log")) == (3, 3, 3)
    ways = re.findall(r"(--max-\w+) (\d+) lets this pass", ran.err)
    assert {option for option, _ in ways} == {"--max-changed", "--max-removed", "--max-total"}
    ran = sluice("quotas", "plan", file, *(word for way in ways for word in way))
    assert (ran.code, "guard rail" in ran.err) == (2, False), ran.err


@pytest.mark.parametrize(
    ("content", "said", "applied"),
    [
        (None, "No such file", 2),
        ("{", "not JSON", 3),
        ("{}", "version: is missing", 3),
        ('{"version": 1, "computed_at": "x", "code": "y", "quotas": 3}', "quotas: must be a list", 3),
    ],
)
@pytest.mark.parametrize("verb", ["plan", "apply"])
def test_a_file_that_is_no_snapshot_is_an_error_and_nothing_is_asked_of_the_gateway(
    sluice: Any, admin: Any, tmp_path: Path, verb: str, content: str | None, said: str, applied: int
) -> None:
    """Insufficient input to `plan`, which is 5; `apply` has the codes of all verbs."""
    file = tmp_path / "q.json"
    if content is not None:
        file.write_text(content)
    ran = sluice("quotas", verb, file)
    assert ran.code == (5 if verb == "plan" else applied)
    assert said in ran.err
    assert admin.requests == []


def test_plan_exits_with_1_on_errors(sluice: Any, admin: Any, write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(quota("a"))
    assert sluice("quotas", "plan", file, "--admin", "http://127.0.0.1:1").code == 1
    assert sluice("quotas", "plan").code == 1
    assert sluice("quotas", "plan", file, "--nonsense").code == 1
    monkeypatch.setenv("SLUICE_TOKEN", "wrong")
    assert sluice("quotas", "plan", file).code == 1


def test_apply_ends_as_every_verb_does(sluice: Any, admin: Any, write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(quota("a"))
    assert sluice("quotas", "apply", file, "--yes", "--admin", "http://127.0.0.1:1").code == 4
    assert sluice("quotas", "apply", file, "--nonsense").code == 2
    monkeypatch.setenv("SLUICE_TOKEN", "wrong")
    assert sluice("quotas", "apply", file, "--yes").code == 5


@pytest.mark.parametrize("rates", [(100,), (110,)])
def test_apply_exits_with_6_for_another_version_even_where_nothing_would_change(
    sluice: Any, admin: Any, write: Any, rates: tuple[int, ...]
) -> None:
    admin.quotas = snapshot(quota("a"))
    file = write(quota("a", *rates))
    version = sluice("quotas", "plan", file, "-o", "json").json["version"]
    assert sluice("quotas", "apply", file, "--yes", "--if-version", "0123").code == 6
    assert admin.writes() == []
    assert sluice("quotas", "apply", file, "--yes", "--if-version", version).code == 0


def test_apply_writes_against_what_it_planned_from(sluice: Any, admin: Any, write: Any) -> None:
    ran = sluice("quotas", "apply", write(quota("a")), "--yes", "--reason", "nightly")
    assert ran.code == 0, ran.err
    (put,) = admin.writes()
    assert (put.method, put.path, put.query) == ("PUT", "/v1/quotas", {"reason": "nightly"})
    assert put.headers["If-Match"].startswith('"')
    assert put.body["quotas"][0]["topic"] == "a"


def test_apply_exits_with_6_when_the_quotas_changed_in_between(sluice: Any, admin: Any, write: Any) -> None:
    admin.race = lambda: setattr(admin, "quotas", snapshot(quota("other")))
    assert sluice("quotas", "apply", write(quota("a")), "--yes").code == 6
    assert admin.quotas["quotas"][0]["topic"] == "other"


def test_apply_asks_first(sluice: Any, admin: Any, write: Any) -> None:
    ran = sluice("quotas", "apply", write(quota("a")))
    assert ran.code == 2
    assert "add --yes" in ran.err
    assert "added" in ran.out
    assert admin.writes() == []


def test_a_dry_run_publishes_nothing(sluice: Any, admin: Any, write: Any) -> None:
    ran = sluice("quotas", "apply", write(quota("a")), "--dry-run")
    assert ran.code == 0
    assert ran.err.endswith("dry run, nothing is changed; would publish 1 quota\n")
    assert [line.split()[1] for line in ran.out.splitlines()] == ["topic", "a"]
    assert admin.quotas["quotas"] == []


def test_show_says_so_when_no_quotas_are_published(sluice: Any, admin: Any) -> None:
    ran = sluice("quotas", "show")
    assert (ran.code, ran.out, ran.err) == (0, "", "no quotas are published\n")


def test_show(sluice: Any, admin: Any, write: Any) -> None:
    admin.quotas = snapshot(quota("a", 7))
    ran = sluice("quotas", "show")
    assert ran.out.splitlines()[1].split()[:4] == ["rocketmq", "a", "7/s", "14"]
    assert "1 quota, computed 2026-11-21T01:00:00Z" in ran.err
    assert sluice("quotas", "show", "-o", "json").json == admin.quotas
    assert "other" in sluice("quotas", "show", write(quota("other"))).out


def test_rollback_says_to_what_it_goes(sluice: Any, admin: Any) -> None:
    admin.before = {"sha256": "ab" * 32, "quotas": 3, "computed_at": "x", "at": "2026-11-20T01:00:00.000Z", "date": "2026-11-19"}
    ran = sluice("quotas", "rollback", "--yes", "--reason", "too much")
    assert ran.code == 0
    assert "the quotas are back to those of 2026-11-19 (3 quotas, published 2026-11-20T01:00:00.000Z, sha256 abab" in ran.err
    assert [(each.path, each.body) for each in admin.writes() if "dry_run" not in each.query] == [
        ("/v1/quotas:rollback", {"reason": "too much"})
    ]


def test_rollback_exits_with_7_when_no_quotas_were_published(sluice: Any, admin: Any) -> None:
    assert sluice("quotas", "rollback", "--yes").code == 7


def test_status(sluice: Any, admin: Any) -> None:
    assert sluice("quotas", "status").err == "no quotas are in force\nno quotas are tried\n"
    record = {"sha256": "ab", "quotas": 3, "computed_at": "x", "at": "2026-11-21T01:00:00Z", "date": "2026-11-20", "nights": 2}
    topics = [{"protocol": "rocketmq", "topic": "orders", "offered": 90, "refused": 9}]
    counts = {"offered": 100, "refused": 9, "ratio": 0.09, "since": "2026-11-21T01:00:00Z", "topics": topics}
    admin.answers["GET /v1/quotas/status"] = (200, {"published": record, "shadow": record, "realised": counts, "would_refuse": counts})
    ran = sluice("quotas", "status")
    assert "in force: those of 2026-11-20 (3 quotas, published 2026-11-21T01:00:00Z, sha256 ab)\n  refused 9 of 100 messages" in ran.err
    assert "tried, night 2: those of 2026-11-20" in ran.err
    assert "would have refused 9 of 100" in ran.err
    assert ran.out.splitlines()[1].split() == ["rocketmq", "orders", "90", "9"]
    assert sluice("quotas", "status", "-o", "json").json["realised"]["ratio"] == 0.09


@pytest.mark.spark
def test_compute_exits_with_2_on_an_invalid_day(sluice: Any) -> None:
    ran = sluice("quotas", "compute", "--log", "l", "--date", "21.11.2026", "--state", "s", "-o", "q.json")
    assert ran.code == 2
    assert "'21.11.2026' is not a day like 2026-11-20" in ran.err


def test_compute_hands_over_to_the_job(sluice: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []
    commands = ModuleType("spark_jobs.commands")

    def compute(log: str, date: str, state: str, output: str, master: str, **more: Any) -> int:
        calls.append((log, date, state, output, master, more))
        return 5

    commands.compute = compute  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "spark_jobs.commands", commands)
    words = [
        "quotas",
        "compute",
        "--log",
        "s3a://b/l",
        "--date",
        "2026-11-20",
        "--state",
        "s",
        "-o",
        "q.json",
        "--master",
        "local[2]",
        "--target-refused-ppm",
        "300",
        "--capacity",
        "50000",
        "--time-zone",
        "Europe/Berlin",
        "--set",
        "step-up-percent=20",
    ]
    assert sluice(*words).code == 5
    named = {"target_refused_ppm": 300, "capacity_messages": 50000, "time_zone": "Europe/Berlin"}
    none = {"previous": None, "pins": None, "driver_memory": None, "conf": (), "exclude": (), "allow_partial": False}
    assert calls == [("s3a://b/l", "2026-11-20", "s", "q.json", "local[2]", {**none, **named, "step_up_percent": "20"})]
    assert sluice(*words[:-1], "margin").code == 2
    twice = sluice(*words[:-1], "capacity-messages=1")
    assert twice.code == 2
    assert "give one of the two" in twice.err
