"""The comparison itself: it must notice what differs, run it again, and never call nothing a success."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from suites.compare import compare
from suites.go_suite import read_log
from suites.outcomes import FAILED, MISSING, PASSED, SKIPPED, Outcome, Outcomes, SuiteError, differences
from suites.pytest_suite import read_report
from suites.sides import Side

GOOD, BAD = Outcome(PASSED), Outcome(FAILED, "boom")


class Rehearsed:
    """A suite that ends as it is told, run after run: what it was asked to run is kept."""

    name, version, tests = "rehearsed", "1", 2

    def __init__(self, direct: list[Outcomes], gateway: list[Outcomes]) -> None:
        self.runs = {"direct": direct, "gateway": gateway}
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    def run(self, side: Side, only: Any = ()) -> Outcomes:
        self.asked.append((side.name, tuple(only)))
        return self.runs[side.name].pop(0)


SIDES = (Side("direct", "127.0.0.1", cast(Any, None), Path()), Side("gateway", "127.0.0.2", cast(Any, None), Path()))


def test_the_same_twice_is_no_difference_even_where_a_test_fails() -> None:
    suite = Rehearsed([{"a": GOOD, "b": BAD}], [{"a": GOOD, "b": BAD}])
    result = compare(cast(Any, suite), SIDES)
    assert (result.differences, result.flaky) == ([], [])
    assert "fails both ways  b: boom" in result.report()


def test_a_test_that_differs_twice_is_a_difference_and_only_it_is_run_again() -> None:
    suite = Rehearsed([{"a": GOOD, "b": GOOD}, {"b": GOOD}], [{"a": GOOD, "b": BAD}, {"b": BAD}])
    result = compare(cast(Any, suite), SIDES)
    assert [(difference.test, difference.direct, difference.gateway) for difference in result.differences] == [("b", GOOD, BAD)]
    assert sorted(suite.asked) == [("direct", ()), ("direct", ("b",)), ("gateway", ()), ("gateway", ("b",))]
    assert "DIFFERENT  b: directly passed, through the gateway failed (boom)" in result.report()


def test_a_test_that_agrees_when_run_again_is_reported_as_flaky() -> None:
    suite = Rehearsed([{"a": GOOD, "b": GOOD}, {"b": GOOD}], [{"a": GOOD, "b": BAD}, {"b": GOOD}])
    result = compare(cast(Any, suite), SIDES)
    assert result.differences == []
    assert [difference.test for difference in result.flaky] == ["b"]
    assert "flaky" in result.report()


@pytest.mark.parametrize("direct", [{}, {"a": GOOD}, {"a": GOOD, "b": GOOD, "c": GOOD}])
def test_another_number_of_tests_than_the_version_has_is_an_error(direct: Outcomes) -> None:
    with pytest.raises(SuiteError, match="version 1 has 2"):
        compare(cast(Any, Rehearsed([direct], [direct])), SIDES)


def test_a_test_that_only_one_side_has_differs() -> None:
    (one, other) = differences({"a": GOOD, "b": GOOD}, {"a": GOOD, "c": GOOD})
    assert (one.test, one.direct, one.gateway.word) == ("b", GOOD, MISSING)
    assert (other.test, other.direct.word, other.gateway) == ("c", MISSING, GOOD)


def test_skipped_is_not_passed() -> None:
    assert [difference.test for difference in differences({"a": GOOD}, {"a": Outcome(SKIPPED, "no broker")})] == ["a"]


def test_a_junit_report_becomes_outcomes_by_node_id(tmp_path: Path) -> None:
    (tmp_path / "t" / "integration").mkdir(parents=True)
    (tmp_path / "t" / "integration" / "test_rmq.py").touch()
    report = tmp_path / "report.xml"
    case = '<testcase classname="t.integration.test_rmq.test_Channel"'
    report.write_text(
        '<testsuites><testsuite><testcase classname="t.integration.test_rmq" name="test_connect[plain]"/>'
        f'{case} name="test_ack"><failure message="boom&#10;more">trace</failure></testcase>'
        f'{case} name="test_ack"><error message="teardown">trace</error></testcase>'
        f'{case} name="test_tx"><skipped message="not here"/></testcase>'
        "</testsuite></testsuites>"
    )
    assert read_report(report, tmp_path) == {
        "t/integration/test_rmq.py::test_connect[plain]": GOOD,
        "t/integration/test_rmq.py::test_Channel::test_ack": BAD,
        "t/integration/test_rmq.py::test_Channel::test_tx": Outcome(SKIPPED, "not here"),
    }


def test_the_output_of_go_test_becomes_outcomes() -> None:
    said = (
        "=== RUN   TestOne\n--- PASS: TestOne (0.01s)\n"
        "=== RUN   TestTwo\n=== RUN   TestTwo/inner\n    two_test.go:9: boom\n"
        "--- FAIL: TestTwo (0.20s)\n    --- FAIL: TestTwo/inner (0.20s)\n"
        "=== RUN   TestThree\n    three_test.go:1: no broker\n--- SKIP: TestThree (0.00s)\nFAIL\n"
    )
    outcomes = read_log(said)
    assert outcomes["TestOne"] == GOOD
    assert outcomes["TestTwo"] == Outcome(FAILED, "two_test.go:9: boom")
    assert {test: outcome.word for test, outcome in outcomes.items()} == {
        "TestOne": PASSED,
        "TestTwo": FAILED,
        "TestTwo/inner": FAILED,
        "TestThree": SKIPPED,
    }
