"""The three forms of a report: the same facts, escaped, self-contained, equal bytes for equal input; what is not known is said to be."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from limiter.quota_snapshot import Quota, Snapshot, dump, load
from spark_jobs.method.pins import describe_over_capacity
from spark_jobs.report import write_reports
from spark_jobs.report.digest import MAX_CHARTS, digest, rank_topics
from spark_jobs.report.page import hash_of
from spark_jobs.report.reading import read_topics
from spark_jobs.report.style import SCRIPT, STYLE
from support.models import quota_evidence

ROOT = Path(__file__).parents[3]
NOW = quota_evidence.snapshot(60)
BEFORE = quota_evidence.before(NOW)


def texts(snapshot: Snapshot, before: Snapshot | None = None, **more: Mapping[str, Any]) -> dict[str, str]:
    return {name: data.decode().replace("&nbsp;", " ") for name, data in write_reports(snapshot, before, **more).items()}


def test_equal_input_gives_equal_bytes() -> None:
    again = load(dump(NOW))
    assert write_reports(NOW, BEFORE) == write_reports(again, load(dump(BEFORE)))


def test_no_spark_and_no_numpy_is_imported() -> None:
    script = "import sys, spark_jobs.report, spark_jobs.report.text; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert not {"pyspark", "numpy", "pandas", "pyarrow", "gateway"} & set(loaded)


@pytest.mark.parametrize("name", ["report.html", "report.md", "report.json"])
def test_the_forms_say_the_same(name: str) -> None:
    text = texts(NOW, BEFORE, plan={"outcome": "Published to 2 gateways.", "guard_rails": []})[name]
    assert "Published to 2 gateways." in text
    for topic in ("mail-00004", "launch", "billing", "gone"):
        assert topic in text.replace("\\", "")
    assert "not known yet" not in text


QUESTIONS = ("What needs me?", "What will be refused tomorrow", "Why did my quota change?")


def test_the_fleet_comes_first_then_the_three_questions() -> None:
    for name in ("report.html", "report.md"):
        text = texts(NOW, BEFORE)[name]
        line = (
            "Expected to be refused on Sat 21 Nov: 0.019 % of the messages; the target is 0.1 %. 61 topics: 58 as computed, "
            "2 held, 1 learning; safety factor k 1.8 (bytes 2.1). 1 incident left out of what is learned."
        )
        text = text.replace("<b class=good>", "").replace("messages</b>", "messages")
        places = [text.index(found) for found in (line, *QUESTIONS, "All topics together", "What the words mean")]
        assert places == sorted(places)


def test_changes_are_in_order_of_the_messages_that_they_are_worth() -> None:
    changes = json.loads(texts(NOW, BEFORE)["report.json"])["changes"]
    worth = [abs(change["messages"]["rate"] - (change["messages"]["rate_before"] or 0)) for change in changes]
    assert worth == sorted(worth, reverse=True)
    assert [change["topic"] for change in changes if change["new"]] == [NOW.quotas[-1].topic]
    assert json.loads(texts(NOW, BEFORE)["report.json"])["removed"] == [{"protocol": "rocketmq", "topic": "gone"}]


def test_a_large_topic_that_was_halved_comes_before_many_small_ones_that_doubled() -> None:
    """findings.md 8, 6: the largest topic, halved, was row 40, below fifteen topics of a message a minute."""
    small = [Quota("rocketmq", f"small-{at:02}", messages=(0.05, 3)) for at in range(40)]
    now = Snapshot("2026-11-21T00:00:00Z", "x", quotas=(*small, Quota("rocketmq", "large", messages=(500, 5000))))
    before = [replace(each, messages=(0.02, 3)) for each in small]
    found = texts(now, replace(now, quotas=(*before, Quota("rocketmq", "large", messages=(1000, 10_000)))))
    assert json.loads(found["report.json"])["look_at_first"][0] == {"protocol": "rocketmq", "topic": "large"}
    for name in ("report.html", "report.md"):
        changes = found[name].partition(QUESTIONS[2])[2]
        assert "1k/s \u2192 500/s (\u00d7 0.5)" in changes
        assert changes.index("large") < changes.replace("\\", "").index("small-00")


def test_three_topics_come_first_refused_and_changed_in_turn() -> None:
    twin = json.loads(texts(NOW, BEFORE)["report.json"])
    first = [each["topic"] for each in twin["look_at_first"]]
    changed = [each["topic"] for each in twin["changes"]]
    assert len(first) == len(set(first)) == 3
    assert first[1] == changed[0], "it is worth the most messages"
    refused = {each["topic"]: each["messages"]["nights28"] for each in twin["topics"]}
    over = [topic for topic, nights in refused.items() if nights["refused"] > 0.001 * nights["offered"]]
    assert {first[0], first[2]} <= set(over)
    calm = {"target_refused_ppm": 500_000}
    assert json.loads(texts(replace(NOW, night=NOW.night | calm), NOW)["report.json"])["look_at_first"] == []


def night_of(refused: float, hours: list[int], nights: int = 7) -> dict[str, Any]:
    of = {"nights": nights, "offered": 700_000, "refused": refused, "reserved": 9e6}
    return {"nights7": of, "nights28": of | {"nights": 28, "offered": 2_800_000}, "refused_hours": hours}


def test_what_will_be_refused_names_the_topics_and_their_hours() -> None:
    busy, quiet, day = [0] * 24, [0] * 24, [5] * 24
    busy[10] = busy[11] = 500
    quiet[23], quiet[0], quiet[5] = 30, 60, 5
    evidence = {"busy": night_of(1400, busy), "night": night_of(95, quiet), "all day": night_of(70, day), "never": night_of(0, [])}
    quotas = tuple(Quota("rocketmq", topic, messages=(5, 50), evidence=found) for topic, found in evidence.items())
    found = texts(Snapshot("2026-11-21T00:00:00Z", "x", parameters={"target_refused_ppm": 1000}, quotas=quotas))
    for name in ("report.html", "report.md"):
        text = found[name].partition(QUESTIONS[1])[2].partition(QUESTIONS[2])[0]
        assert "In the mean 0.014 % of the messages, as in the last 28 days: each day was judged" in text
        rows = [re.sub("<[^>]*>|[|()]", " ", row).split("rocketmq") for row in re.split("\n|<tr>", text) if "in the log" in row]
        assert [[" ".join(cell.split()) for cell in row] for row in rows] == [
            ["busy", "1.4k 0.05 % in the log of the last 7 days 100 % from 10:00 to 12:00"],
            ["night", "95 0.00339 % in the log of the last 7 days 94.7 % from 23:00 to 01:00"],
            ["all day", "70 0.0025 % in the log of the last 7 days 83.3 % from 00:00 to 20:00"],
        ]
        assert "never" not in text
    assert json.loads(found["report.json"])["topics"][0]["messages"]["refused_hours"] == busy


@pytest.mark.parametrize(
    ("promise", "said"),
    [
        ([500, 2000], "Over the next 28 days together it will be 0.05 % to 0.2 %, in nine of ten cases."),
        ([50, 5000], "it will be 0.005 % to 0.5 %, in nine of ten cases. So the target of 0.1 % may be missed"),
        ([0, 5000], "it will be at most 0.5 %, in nine of ten cases. So the target of 0.1 % may be missed"),
    ],
)
def test_the_report_promises_the_range_that_it_can(promise: list[int], said: str) -> None:
    quota = Quota("rocketmq", "a", messages=(5, 50), evidence=night_of(1400, [5] * 24))
    night: Any = {"target_refused_ppm": 1000, "promise_ppm": {"messages": promise, "bytes": None}}
    found = texts(Snapshot("2026-11-21T00:00:00Z", "x", quotas=(quota,), night=night))
    for name in ("report.html", "report.md"):
        text = found[name].partition(QUESTIONS[1])[2].partition(QUESTIONS[2])[0]
        assert said in text
        assert ("may be missed" in text) is ("may be missed" in said)
    assert json.loads(found["report.json"])["promise"] == [each / 1e6 for each in promise]


@pytest.mark.parametrize(("evidence", "said"), [(28, True), (100, False), (None, False)])
def test_few_topics_are_promised_an_upper_end_and_told_why(evidence: int | None, said: bool) -> None:
    quota = Quota("rocketmq", "a", messages=(5, 50), evidence=night_of(1400, [5] * 24))
    night: Any = {"target_refused_ppm": 1000, "promise_ppm": {"messages": [0, 9000]}, "evidence": {"messages": evidence}}
    found = texts(Snapshot("2026-11-21T00:00:00Z", "x", quotas=(quota,), night=night))
    sentence = "at most 0.9 %, in nine of ten cases. So the target of 0.1 % may be missed: "
    why = "what is known is worth 28 nights of one topic, so a single event decides."
    for name in ("report.html", "report.md"):
        assert sentence in found[name]
        assert (sentence + why in found[name]) is said


@pytest.mark.parametrize(("nights", "said"), [(13, True), (14, False)])
def test_before_fourteen_nights_nothing_is_promised_and_that_is_said(nights: int, said: bool) -> None:
    evidence = night_of(1400, [5] * 24)
    evidence["nights28"] |= {"nights": nights}
    quota = Quota("rocketmq", "a", messages=(5, 50), evidence=evidence)
    found = texts(Snapshot("2026-11-21T00:00:00Z", "x", quotas=(quota,), night={"promise_ppm": {"messages": None}}))
    sentence = "For the month to come nothing can be foreseen yet: 14 nights are needed."
    assert [sentence in found[name] for name in ("report.html", "report.md")] == [said] * 2


def test_what_will_be_refused_is_one_figure_wherever_it_stands() -> None:
    """It stood as 0.0198 % (7 nights), 0.2 % (28) and 0.0178 % (the days that they were learned from), over topics that made up none."""
    evidence = {f"t{at}": night_of(70 * at, [0] * 24) for at in range(1, 4)}
    for each in evidence.values():
        each["nights28"] |= {"refused": 10 * each["nights7"]["refused"]}
        each["series"] = [[f"2026-11-{day:02}", 5, 50, each["nights28"]["refused"] / 2 if day in {3, 9} else 0, 9] for day in range(1, 29)]
    quotas = tuple(Quota("rocketmq", topic, messages=(5, 50), evidence=found) for topic, found in evidence.items())
    night: Any = {"target_refused_ppm": 100, "realised_ppm": {"messages": 12}}
    found = texts(Snapshot("2026-11-21T00:00:00Z", "x", quotas=quotas, night=night), plan={"judged": "It would have refused 0.07 %."})
    for name in ("report.html", "report.md"):
        top = re.sub(" +", " ", re.sub("<[^>]*>|[|]", " ", found[name].partition("<body>")[2] or found[name]).partition(QUESTIONS[2])[0])
        said = re.findall(r"([\d.]+ %) (?:of the messages|in the last 28 days)", top)
        assert said == ["0.05 %"] * 3, "in the line, where the target is missed, and in the section"
        assert "nothing was refused on 26 of the 28 days, and the worst (Mon 9 Nov) lost 2.1k of 4.2k." in top
        rows = re.findall(r"t\d \(?rocketmq\)? ([\d.k]+) [\d.]+ % nothing on 26 of the 28 days; most on Mon 9 Nov: [\d.k]+", top)
        assert sorted(rows) == ["1.4k", "2.1k", "700"], "4.2k in all"
        assert "0.07 %" not in top
        assert "0.07 %" in found[name], "a check, at the end"
    assert json.loads(found["report.json"])["expected"] == {"share": 0.0005, "messages": 150, "lowered": False}


def test_what_is_lowered_is_foreseen_from_what_it_would_have_refused() -> None:
    """Pins beyond the capacity left each other topic its least rate, and 0.2 % was expected where 4.5 % came."""
    quotas = tuple(
        Quota("rocketmq", topic, messages=(rate, 50), evidence=night_of(1400, []) | {"lower": 20.0, "target": 25.0, "upper": 30.0})
        for topic, rate in (("cut", 5), ("cut more", 1), ("whole", 25))
    )
    most = [{"protocol": "rocketmq", "topic": "cut more", "refused": 9000, "worst": "2026-11-20"}]
    night: Any = {"target_refused_ppm": 1000, "lowered_ppm": 45_100, "lowered_topics": most, "promise_ppm": {"messages": [500, 2000]}}
    parameters: Any = {"capacity_messages": 31}
    found = texts(Snapshot("2026-11-21T00:00:00Z", "x", parameters=parameters, quotas=quotas, night=night))
    for name in ("report.html", "report.md"):
        text = found[name].partition(QUESTIONS[1])[2].partition(QUESTIONS[2])[0]
        assert "About 4.51 % of the messages, because the capacity of 31/s leaves most topics less than they need: tonight" in text
        assert "The quotas of the nights before refused 0.05 % of the last 28 days. No share is promised of the month to come." in text
        assert text.index("cut more") < text.replace("cut more", "--------").index("cut")
        assert re.findall(r"(?:<td>|\| )([\d.]+k), most on Fri 20 Nov", text) == ["9k"], "of the topic that the night knows"
        top = re.sub("<[^>]*>", "", found[name]).partition(QUESTIONS[0])[0]
        assert "Expected to be refused tomorrow: 4.51 % of the messages; the target is 0.1 %. In the last 28 days it was 0.05 %." in top
        assert "whole" not in text
    mild = texts(Snapshot("2026-11-21T00:00:00Z", "x", quotas=quotas, night={**night, "lowered_ppm": 900}))["report.md"]
    assert "nothing is done" not in mild
    assert "In the mean 0.05 % of the messages" in mild
    assert "2 topics get less than needed" in mild


def test_a_missed_target_is_red_over_every_horizon_that_is_shown() -> None:
    """findings.md 8, 6: a green 0.066 % over 7 nights stood above an unmarked 1.46 % over 28."""
    evidence = night_of(460, [])
    evidence["nights28"]["refused"] = 40_880
    quota = Quota("rocketmq", "t", messages=(5, 50), evidence=evidence)
    night: dict[str, Any] = {"target_refused_ppm": 1000, "realised_ppm": {"messages": 2000}}
    found = texts(Snapshot("2026-11-21T00:00:00Z", "x", quotas=(quota,), night=night))
    assert re.findall(r"<b class=(\w+)>([\d.]+ %[^<]*)</b>", found["report.html"]) == [("bad", "1.46 % of the messages")]
    said = "More was refused than the target of 0.1 %: 1.46 % in the last 28 days, 0.2 % in the last day."
    assert all(said in found[name].partition(QUESTIONS[1])[0] for name in ("report.html", "report.md"))


@pytest.mark.parametrize(
    ("refused", "nights", "careful"), [(900, 28, True), (940, 28, False), (900, 27, False), (0, 28, True), (90_000, 28, False)]
)
def test_what_is_too_careful_is_said_with_what_it_costs(refused: float, nights: int, careful: bool) -> None:
    evidence = night_of(1, [])
    evidence["nights28"] |= {"refused": refused, "nights": nights}
    quota = Quota("rocketmq", "t", messages=(5, 50), evidence=evidence)
    found = texts(Snapshot("2026-11-21T00:00:00Z", "x", parameters={"target_refused_ppm": 1000}, quotas=(quota,)))
    said = "less than a third of the target, 0.1 %: the quotas keep more room than that needs, 3.21 times the demand"
    assert [said in found[name] for name in ("report.html", "report.md")] == [careful] * 2


def test_where_nothing_is_the_matter_that_is_said() -> None:
    calm = replace(NOW, night={**NOW.night, "missing_gateways": []})
    for name in ("report.html", "report.md"):
        needs = texts(calm)[name].partition(QUESTIONS[0])[2]
        assert re.sub("<[^>]*>|[*\n]", "", needs).startswith("Nothing is needed tonight: no rail stopped the night, and no gateway's log")


def test_without_the_snapshot_before_the_change_is_told_against_the_quota_in_force() -> None:
    changes = json.loads(texts(NOW)["report.json"])["changes"]
    assert changes[0]["messages"]["factor"] == pytest.approx(2, rel=1e-3)
    assert not any(change["new"] for change in changes)


def test_an_older_snapshot_says_what_is_not_known_yet() -> None:
    older = quota_evidence.older(NOW)
    html, text, twin = (texts(older)[name] for name in ("report.html", "report.md", "report.json"))
    assert "tomorrow: not known yet; the target is not known yet. 60 topics: 60 as computed; safety factor k not known yet." in html
    assert "The quotas before these are not known yet" in html
    assert "0 %" not in html.replace("10 %", "").replace("0.1 %", "")
    assert "not known yet" in text
    found = json.loads(twin)
    assert (found["realised"]["messages"], found["held"], found["topics"][0]["messages"]["nights7"]) == (None, None, None)


def test_evidence_of_any_shape_is_a_report() -> None:
    strange: list[Any] = [
        {"series": "x", "nights7": [], "nights28": {"nights": True, "offered": "many"}, "forecast": -1, "gateways": [1], "bytes": 7},
        {"series": [[], ["2026-11-20"], [3, 4], ["no day", 1, 2, 3, 4], ["2026-11-20", None, None, None, None]], "days": 1e300},
        {"series": [["2026-11-20", 0, 0, 0, 0]], "nights7": {"nights": 7, "offered": 0, "refused": 0, "reserved": 5}, "k": 0},
        {"series": [["2026-11-20", 1e-9, 1e15, 1e15, 1e15]], "nights7": {"nights": 3, "offered": 1e-300, "refused": 1e300}},
    ]
    quotas = tuple(Quota("rocketmq", f"t{at}", messages=(0.5, 3), evidence=evidence) for at, evidence in enumerate(strange))
    snapshot = Snapshot(
        "yesterday",
        "x",
        quotas=quotas,
        night={"time_zone": "Mars/Base", "held": [1, {}], "k": 3, "missing_gateways": "all", "learning": {}},
    )
    reports = texts(snapshot)
    assert "no traffic" in reports["report.html"]
    assert json.loads(reports["report.json"])["missing_gateways"] is None


def test_a_snapshot_without_quotas_is_a_report() -> None:
    assert "This snapshot holds no quota." in texts(Snapshot("2026-11-21T00:00:00Z", "0.3.0"))["report.html"]


def test_names_are_escaped_everywhere() -> None:
    hostile = quota_evidence.HOSTILE
    night: dict[str, Any] = {name: [{"protocol": "rocketmq", "topic": hostile, "reason": hostile}] for name in ("held", "learning")}
    quota = quota_evidence.quota(1, hostile)
    evidence = quota.evidence | {"reason": hostile, "status": hostile, "family": hostile, "gateways": {hostile: 0.5}}
    snapshot = replace(
        NOW, quotas=(replace(quota, evidence=evidence),), code=hostile, night=NOW.night | night | {"missing_gateways": [hostile]}
    )
    reports = texts(snapshot, quota_evidence.before(snapshot), plan={"outcome": hostile, "guard_rails": [hostile]})
    html, text = reports["report.html"], reports["report.md"]
    assert "<script>alert" not in html.replace(f"<script>{SCRIPT}", "")
    assert "<script" not in text
    assert "[a](http" not in text
    assert "http://" not in text
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", html + text)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.sub(r"\\.", "", row).split("|")) - 2 for row in rows} <= {2, 4, 5, 8}, "a name opened a cell of its own"
    assert json.loads(reports["report.json"])["topics"][0]["topic"] == hostile


def test_the_page_is_self_contained_and_its_policy_names_what_it_runs() -> None:
    html = texts(NOW)["report.html"]
    assert not re.search(r"(?:src|href)=(?![\"']?data:,)", re.sub("&quot;.*?&quot;|&lt;.*?&gt;", "", html).split("<body>")[0])
    assert "url(" not in STYLE
    assert "@import" not in STYLE
    assert "style=" not in html.partition("<body>")[2], "the policy blocks styles of elements"
    assert f"style-src {hash_of(STYLE)}; script-src {hash_of(SCRIPT)}" in html
    assert f"<style>{STYLE}</style>" in html
    assert f"<script>{SCRIPT}</script>" in html


def test_more_topics_than_charts_are_said_to_be_left_out() -> None:
    count = MAX_CHARTS + 50
    reports = texts(quota_evidence.snapshot(count))
    html, twin = reports["report.html"], json.loads(reports["report.json"])
    assert html.count("<section class=card>") == MAX_CHARTS
    assert "50 topics without a chart here" in html
    assert html.count("<tr><td class=t>") >= count
    assert len(twin["topics"]) == count
    assert sum("series" in topic["messages"] for topic in twin["topics"]) == MAX_CHARTS
    assert twin["left_out"] == {"charts_and_series_of_topics": 50}


def test_what_matters_is_what_changed_what_was_refused_and_what_is_large() -> None:
    topics = read_topics(NOW, BEFORE)
    found = rank_topics(topics)
    assert sorted(found, key=lambda topic: topic.name) == sorted(topics, key=lambda topic: topic.name)
    changed = digest(NOW, BEFORE, None, None).changed
    assert found[0] == changed[0]
    assert found[1].refused() == max(topic.refused() for topic in topics)
    assert max(topics, key=lambda topic: topic.demand()) in found[:3]


def test_all_topics_together_are_the_sum_of_each() -> None:
    fleet = digest(NOW, None, None, None).fleet
    offered = sum(topic.sides[0].nights7.offered or 0 for topic in read_topics(NOW, None) if topic.sides[0].nights7)
    pooled = fleet.nights7["messages"]
    assert pooled.offered == pytest.approx(offered)
    assert pooled.reserved() == pytest.approx(3.1, rel=1e-4)
    assert pooled.reserved("oracle") == pytest.approx(1.9, rel=1e-4)


def test_a_backtest_is_shown_with_its_days_blackouts_and_worst_clients() -> None:
    def outcome(contender: str, refused: int, topic: str = "", **more: Any) -> dict[str, Any]:
        figures = {"offered": 1000, "offered_bytes": 5000, "refused": refused, "refused_bytes": 5 * refused, "reserved": 3000}
        return {
            "contender": contender,
            "protocol": "rocketmq",
            "topic": topic,
            **figures,
            "blackout": 17,
            "blackout_at": "2026-11-03",
            **more,
        }

    clients = [{"client": "10.0.0.7", "refused": 9}, {"client": "10.0.0.8", "refused": 1}]
    backtest = {
        "way": "exact", "from": "2026-11-01", "to": "2026-11-20", "notes": ["2026-11-07: no log of gw-b"],
        "totals": {name: outcome(name, refused) for name, refused in (("published", 10), ("oracle", 0), ("my <rules>", 7))},
        "topics": [outcome("published", 0, "quiet"), outcome("published", 10, "worst", clients=clients), outcome("oracle", 3, "other")],
    }  # fmt: skip
    reports = texts(NOW, backtest=backtest)
    for name in ("report.html", "report.md"):
        assert "Replayed with the limiter's own code, 2026-11-01 to 2026-11-20" in reports[name].replace("&#x27;", "'")
        for part in ("as published", "my &lt;rules&gt;", "17 s (2026-11-03)", "2026-11-07: no log of gw-b"):
            assert part in reports[name]
    table = reports["report.html"].partition("Refused most")[2].partition("</table>")[0]
    assert "worst <small" in table
    assert "10.0.0.7: 9 and 1 other" in table
    assert "quiet <small" not in table
    assert json.loads(reports["report.json"])["backtest"]["published"]["blackout"] == 17


def test_a_backtest_of_any_shape_is_a_report() -> None:
    shapes: list[dict[str, Any]] = [
        {},
        {"totals": []},
        {"totals": {"published": 3, "x": {"offered": 0}}, "topics": [1], "notes": {}, "from": 7},
    ]
    for strange in shapes:
        assert "What the words mean" in texts(NOW, backtest=strange)["report.html"]


def test_topics_held_when_published_are_among_the_held() -> None:
    held = [{"protocol": "rocketmq", "topic": "orders-00005", "dimension": "bytes", "before": 1024, "wanted": 4096, "held": 2048}]
    reports = texts(NOW, BEFORE, plan={"held": [*held, {"protocol": "rocketmq", "topic": "stock-00003"}, 7]})
    assert "61 topics: 57 as computed, 3 held, 1 learning;" in reports["report.html"]
    assert "orders\\-00005 (rocketmq): bytes: wanted 4 KiB/s, 2 KiB/s after this night" in reports["report.md"]


def test_a_change_says_what_moved() -> None:
    """Of forecast, peakiness and k, where the snapshot before has them; else only the night's own reason is given."""
    changes = texts(NOW, BEFORE)["report.html"].partition(QUESTIONS[2])[2].partition("</table>")[0]
    assert "Expected demand \u00d7 1.5, all else \u00d7 1.33. held at" in changes
    assert "xpected demand \u00d7 1.5" not in texts(NOW)["report.html"]


@pytest.mark.parametrize(
    ("families", "said"),
    [
        ({"messages": "quota", "bytes": "quota"}, "k 1.8 (bytes 2.1). 1 incident"),
        ({"messages": "max_7", "bytes": "max_7"}, "k 1.8 (bytes 2.1), rule max of 7 days. 1 incident"),
        ({"messages": "quota", "bytes": "yesterday_max"}, "k 1.8 (bytes 2.1), rule yesterday's max of bytes. 1 incident"),
        ("odd", "k 1.8 (bytes 2.1). 1 incident"),
    ],
)
def test_a_simple_rule_that_all_quotas_follow_is_named(families: Any, said: str) -> None:
    assert said in texts(quota_evidence.snapshot(3, family=families))["report.md"]


def test_a_simple_rule_says_on_what_evidence() -> None:
    night: dict[str, Any] = {"family": {"messages": "max_7", "bytes": "quota"}, "evidence": {"messages": 140.2, "bytes": 30}}
    text = texts(quota_evidence.snapshot(3, **night))["report.md"]
    assert "rule max of 7 days of messages on the evidence of 140 nights of a topic. 1 incident" in text


def test_the_reserve_of_a_simple_rule_is_not_taken_for_its_rate() -> None:
    quota = quota_evidence.quota(1)
    followed = replace(quota, evidence=quota.evidence | {"family": "yesterday_max"})
    html = texts(replace(NOW, quotas=(followed,)))["report.html"]
    assert "rule yesterday&#x27;s max, at the reserve of forecast 7/s" in html


def test_a_missing_gateway_and_a_missed_target_stand_at_the_top() -> None:
    night: dict[str, Any] = {"missing_gateways": ["gw-c"], "realised_ppm": 2500, "target_refused_ppm": 1000}
    html = texts(replace(quota_evidence.older(quota_evidence.snapshot(3)), night=night))["report.html"]
    top = html[: html.index(QUESTIONS[1])]
    assert "The log of gw-c" in top
    assert "More was refused than the target of 0.1 %: 0.25 % in the last day. Nothing to do: the safety factor k moves" in top


def test_what_the_night_remarks_is_among_what_needs_somebody() -> None:
    remarked = replace(NOW, night={**NOW.night, "remarks": ["the pins alone are 62 messages/s, and the capacity is 50: they hold"]})
    found = texts(remarked)
    assert all("The pins alone are 62 messages/s" in found[name] for name in ("report.html", "report.md"))
    assert json.loads(found["report.json"])["remarks"] == remarked.night["remarks"]
    assert json.loads(texts(NOW)["report.json"])["remarks"] == []


def moving(old: tuple[float, float], new: tuple[float, float], **factors: tuple[float, float]) -> tuple[Snapshot, Snapshot]:
    """Two nights of a topic: (rate, computed rate) of each, and what they were computed from."""
    two = []
    for at, (rate, computed) in enumerate((old, new)):
        evidence: Any = {
            "status": "quota",
            "target": computed,
            "lower": computed / 1.15,
            **{name: each[at] for name, each in factors.items()},
        }
        two.append(Snapshot(f"2026-11-2{at}T00:00:00Z", "x", quotas=(Quota("rocketmq", "t", messages=(rate, 50), evidence=evidence),)))
    return two[0], two[1]


@pytest.mark.parametrize(
    ("old", "new", "factors", "said"),
    [
        ((100, 100), (184, 184), {"forecast": (10, 19.6), "peakiness": (5, 4.7)}, ""),
        (
            (205, 225),
            (415, 415),
            {"forecast": (54.4, 106.7), "peakiness": (1.83, 1.72)},
            "old quota below the 225/s computed: ",
        ),
        ((39.7, 9), (106, 106), {"forecast": (1, 13), "peakiness": (3.97, 3.6)}, "old quota above the 9/s computed: "),
        ((100, 100), (80, 60), {"forecast": (10, 6)}, "all else"),
    ],
)
def test_factors_multiply_to_the_change(old: Any, new: Any, factors: dict[str, Any], said: str) -> None:
    """Demand x 13 and height x 0.907 stood beside a quota x 2.66: it was counted from what was computed, and not from the old quota."""
    before, now = moving(old, new, **factors)
    for name in ("report.html", "report.md"):
        (row,) = [each for each in re.split("\n|<tr>", texts(now, before)[name].partition(QUESTIONS[2])[2]) if "\u2192" in each][:1]
        change, *moved = [float(each) for each in re.findall("\u00d7 ([0-9.]+)", row)]
        assert math.prod(moved) == pytest.approx(change, rel=0.015)
        assert said in row
        assert (len(moved) > len(factors)) is bool(said)


def test_a_quota_that_stays_has_no_factors() -> None:
    before, now = moving((100, 100), (100, 110), forecast=(10, 11))
    assert "xpected demand \u00d7" not in texts(now, before)["report.md"]


def test_states_add_up_to_the_topics() -> None:
    """15 held, 2 pinned and 1 learning were 18 of 17: a pinned topic whose bytes a rail held was both, and one that learns has no quota."""
    named = [{"protocol": "rocketmq", "topic": topic, "reason": "x"} for topic in ("both", "held", "new")]
    status = {"both": "pinned", "held": "held", "plain": "quota", "old": "kept"}
    quotas = tuple(Quota("rocketmq", topic, messages=(5, 50), evidence={"status": each}) for topic, each in status.items())
    night: Any = {"held": named[:2], "pinned": named[:1], "learning": named[2:]}
    line = texts(Snapshot("x", "y", quotas=quotas, night=night))["report.md"].partition("## ")[0]
    whole, said = re.findall(r"(\d+) topics: ([^;]*);", line)[0]
    assert said == "1 as computed, 1 held, 1 pinned, 1 kept, 1 learning"
    assert int(whole) == sum(int(each) for each in re.findall(r"\d+", said)) == 5


def lowered(pin: float, capacity: int, live: float = 800, wanted: float = 0.5, **plan: Any) -> dict[str, str]:
    """A night of two topics beside a pinned one, of which a capacity leaves each `wanted` of what is live."""
    evidence: Any = {"status": "held", "target": 700, "lower": 600, **night_of(70, [])}
    quotas = [Quota("rocketmq", topic, messages=(live / 2, 50), evidence=evidence) for topic in ("a", "b")]
    by_hand = Quota("rocketmq", "p", messages=(pin, 50), evidence={"status": "pinned", "reason": "pinned: contract", "target": 9})
    night: Any = {"target_refused_ppm": 1000, "lowered_ppm": 45_100}
    if pin >= capacity:
        night["remarks"] = [describe_over_capacity("messages", pin, capacity)]
    now = Snapshot("x", "y", date="2026-11-20", parameters={"capacity_messages": capacity}, quotas=(*quotas, by_hand), night=night)
    held = [
        {"protocol": "rocketmq", "topic": topic, "dimension": "messages", "before": live, "wanted": wanted, "held": live / 2}
        for topic in "ab"
    ]
    words = ["sluice", "quotas", "nightly", "--log", "/log", "--pins", "/etc/my pins.yaml", "--date", "2026-11-20", "--again"]
    return texts(now, plan={"held": held, "command": words, "gateways": ["gw-a"], "outcome": "Published at gw-a", **plan})


def test_a_night_whose_quotas_fall_by_half_says_so_and_for_how_long() -> None:
    found = lowered(pin=650, capacity=500)
    for name in ("report.html", "report.md"):
        needs = (
            found[name].partition(QUESTIONS[0])[2].partition(QUESTIONS[1])[0].replace("<b>", "").replace("</b>", "").replace("&#x27;", "'")
        )
        assert "The pins alone are 650/s (p 650/s), and all topics together may have 500/s, the capacity." in needs
        assert "One night may at most halve a quota, so 2 quotas fall by half tonight, and by half again each night." in needs
        assert "All quotas together are 1.45k/s tonight, 2.9 times the capacity, and never come within it" in needs
        assert "about 4.51 % of the messages are refused on Sat 21 Nov and more on each day after it" in needs
        assert "until the 2 other topics have 0.5/s each, on Tue 1 Dec." in needs, "ten halvings from 400/s to 0.5/s"
        assert "if the broker can carry it; or lower the pins in /etc/my pins.yaml: what they leave of the capacity" in needs
        assert "is for the 2 other topics, which need 1.4k/s together" in needs
        assert "--capacity 2050" in needs, "2 x 700 computed, and the pin"
        assert needs.count("The pins alone") == 1, "the night's own remark is not said again"
        assert "ore was refused than the target" not in needs
        assert "'/etc/my pins.yaml' --date 2026-11-20 --again" in re.sub("</?span>", "", needs)


def test_a_capacity_without_pins_says_when_it_is_kept() -> None:
    found = lowered(pin=20, capacity=500, wanted=240)["report.md"]
    assert "The topics need 1.42k/s together, and the capacity is 500/s." in found
    assert "All quotas together are 820/s tonight, 1.64 times the capacity, and come within it on Sun 22 Nov." in found
    assert "ower the pins" not in found
    assert (
        "One night may at most divide a quota by 3, so 2 quotas fall to 1/3 tonight" in lowered(pin=20, capacity=500, ratio=3)["report.md"]
    )


def test_what_is_needed_is_numbered_worst_first_with_the_command_once() -> None:
    found = lowered(pin=650, capacity=500)["report.html"]
    night: Any = {"missing_gateways": ["gw-b"], "target_refused_ppm": 1000}
    gone = texts(Snapshot("x", "y", date="2026-11-20", night=night), plan={"guard_rails": ["all would go"], "gateways": ["gw-a", "gw-b"]})
    for name, item in (("report.html", "<li class=note>"), ("report.md", ". ")):
        needs = gone[name].partition(QUESTIONS[0])[2].partition(QUESTIONS[1])[0]
        assert needs.index("Nothing was published") < needs.index("The log of gw-b for Fri 20 Nov is missing")
        assert "Tonight's quotas are in force at gw-b: only the log is missing." in needs.replace("&#x27;", "'")
        assert needs.count("If nothing is done") == needs.count("Do:") == 2 <= needs.count(item)
        assert re.sub("</?span>", "", needs).count("sluice quotas nightly --log LOG --state STATE --date 2026-11-20 --again") == 1
    assert "To go back to the quotas before: <code>sluice quotas rollback --yes</code>." in found


def test_far_more_than_the_target_names_the_topic_and_its_pin() -> None:
    evidence: Any = night_of(40_880, [])
    now = Snapshot("x", "y", quotas=(Quota("rocketmq", "t", messages=(5, 50), evidence=evidence),), night={"target_refused_ppm": 1000})
    needs = texts(now)["report.md"].partition(QUESTIONS[0])[2].partition(QUESTIONS[1])[0]
    assert "100 % of it is of t." in needs
    assert "`- {protocol: rocketmq, topic: t, messages: 10/s}`" in needs


@pytest.mark.parametrize(
    ("was", "said"), [(2.0, "rose from 2 to 2.04 tonight"), (2.04, "stays 2.04: it is large enough but"), (2.05, "moves by")]
)
def test_what_k_does_about_a_missed_target_is_said(was: float, said: str) -> None:
    before, now = (replace(NOW, night={**NOW.night, "k": k, "realised_ppm": 2000}) for k in (was, 2.04))
    assert said in texts(now, before)["report.md"]
