"""The comparison of the RocketMQ suite: nothing that differs, is missing or fails passes unseen; and the table of cases is consistent."""

from __future__ import annotations

import re
from pathlib import Path

from suites.rocketmq_cases import CASES, CLIENTS, LEFT_OUT, QUICK, STYLES, cases, left_out
from suites.rocketmq_suite import Ended, differences, ended, known, problems
from support.clients.programs import CLIENTS as SOURCES
from support.java import POMS

OK = Ended("ok", {"stored": 20, "codes": {"0": 20}})


def test_equal_outcomes_are_no_difference() -> None:
    assert differences({"send": OK}, {"send": Ended("ok", {"codes": {"0": 20}, "stored": 20})}, ["send"]) == []


def test_another_fact_is_a_difference() -> None:
    other = Ended("ok", {"stored": 19, "codes": {"0": 20}})
    assert differences({"send": OK}, {"send": other}, ["send"]) == ["send: stored: directly 20, through the gateway 19"]


def test_a_fact_that_one_side_does_not_say_is_a_difference() -> None:
    other = Ended("ok", {"stored": 20})
    assert differences({"send": OK}, {"send": other}, ["send"]) == [
        "send: codes: directly {'0': 20}, through the gateway '(not said)'",
    ]


def test_a_case_that_did_not_run_is_a_difference_and_a_problem() -> None:
    assert differences({"send": OK}, {}, ["send"]) == ["send: ran directly only"]
    assert differences({}, {}, ["send"]) == ["send: ran nowhere only"]
    assert problems({}, ["send"]) == ["send: did not run"]


def test_a_case_that_fails_in_both_ways_is_a_problem() -> None:
    failed = Ended("failed", {"stored": 19}, ("stored: expected 20, was 19",))
    assert differences({"send": failed}, {"send": failed}, ["send"]) == []
    assert problems({"send": failed}, ["send"]) == ["send: failed: stored: expected 20, was 19"]


def test_a_case_that_fails_through_the_gateway_is_a_difference_with_its_words() -> None:
    failed = Ended("failed", OK.facts, ("timeout",))
    assert differences({"send": OK}, {"send": failed}, ["send"]) == ["send: directly ok, through the gateway failed: timeout"]


def test_lines_are_read_by_their_run_and_the_name_of_their_case() -> None:
    line = {"case": "send", "outcome": "ok", "trouble": []}
    lines = [line | {"run": "direct-5", "facts": {"stored": 1}}, line | {"run": "A-5", "facts": {"stored": 2}}]
    assert ended(lines, "A-5") == {"send": Ended("ok", {"stored": 2})}


def test_the_table_and_the_java_sources_name_the_same_cases() -> None:
    folder = SOURCES / "java" / "rocketmq_suite"
    for name, group in CASES.items():
        source = next(path for path in (folder / f"{name}.java", folder / "since_5" / f"{name}.java") if path.exists())
        assert registered(source) == set(group)


def registered(source: Path) -> set[str]:
    return {part.partition('"')[0] for part in source.read_text().split('cases.add("')[1:]}


def test_what_is_known_is_of_the_newest_brokers_and_of_every_case_of_make_test() -> None:
    """Else `make test` would run all three ways."""
    newest = re.findall(r"rocketmq-broker</artifactId><version>([\d.]+)<", (POMS / "rocketmq.pom.xml").read_text())[0]
    for style, client in QUICK:
        assert known(newest, client, style).keys() == set(cases(client, style, "direct"))


def test_every_case_runs_somewhere_and_what_is_left_out_says_why() -> None:
    everywhere = {case for client in CLIENTS for style in STYLES for case in cases(client, style, "direct")}
    assert everywhere == {case for group in CASES.values() for case in group}
    assert all(each.why and each.cases for each in LEFT_OUT)
    assert left_out("pop", "4", "plain", "A") == "5.x only"
    assert left_out("send_sync", "4", "plain", "A") is None
