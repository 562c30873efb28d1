"""The comparison itself: it must notice what differs, run it again, and never call nothing a success."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from suites.catalogue import QUICK, SUITES, Suite
from suites.compare import RERUNS, compare
from suites.go_suite import read_log
from suites.outcomes import FAILED, MISSING, PASSED, SKIPPED, Outcome, Outcomes, SuiteError, differences
from suites.pytest_suite import read_report
from suites.sides import Side

GOOD, BAD = Outcome(PASSED), Outcome(FAILED, "boom")


class Rehearsed:
    """A suite that ends as it is told: first as a whole, then what differed, run after run. What it was asked to run is kept."""

    name, version, tests = "rehearsed", "1", 2

    def __init__(self, direct: list[Outcomes], gateway: list[Outcomes], passes: int = 1) -> None:
        self.runs = {"direct": direct, "gateway": gateway}
        self.passes = passes
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    def run(self, side: Side, only: Any = ()) -> Outcomes:
        self.asked.append((side.name, tuple(only)))
        return self.runs[side.name].pop(0)


SIDES = (Side("direct", "127.0.0.1", cast(Any, None), Path()), Side("gateway", "127.0.0.2", cast(Any, None), Path()))


def again(*outcomes: Outcome) -> list[Outcomes]:
    """The reruns of test b: these outcomes, then the last one for the rest."""
    assert len(outcomes) <= RERUNS
    return [{"b": outcome} for outcome in [*outcomes, *[outcomes[-1]] * RERUNS][:RERUNS]]


def test_the_same_twice_is_no_difference_even_where_a_test_fails() -> None:
    suite = Rehearsed([{"a": GOOD, "b": BAD}], [{"a": GOOD, "b": BAD}])
    result = compare(cast(Any, suite), SIDES)
    assert (result.differences, result.flaky, result.same) == ([], [], True)
    assert "fails both ways  b: boom" in result.report()


def test_a_test_that_differs_every_time_is_a_difference_and_only_it_is_run_again() -> None:
    suite = Rehearsed([{"a": GOOD, "b": GOOD}, *again(GOOD)], [{"a": GOOD, "b": BAD}, *again(BAD)])
    result = compare(cast(Any, suite), SIDES)
    assert [(difference.test, difference.direct, difference.gateway) for difference in result.differences] == [("b", GOOD, BAD)]
    assert suite.asked[2:] == [("direct", ("b",)), ("gateway", ("b",))] * RERUNS
    assert "DIFFERENT  b: directly passed, through the gateway failed (boom)" in result.report()
    assert not result.same


def test_a_test_that_fails_again_only_through_the_gateway_is_a_difference_however_seldom() -> None:
    suite = Rehearsed([{"a": GOOD, "b": GOOD}, *again(GOOD)], [{"a": GOOD, "b": BAD}, *again(GOOD, GOOD, BAD, GOOD)])
    result = compare(cast(Any, suite), SIDES)
    assert ([difference.test for difference in result.differences], result.flaky, result.same) == (["b"], [], False)


def test_a_test_that_fails_only_while_the_whole_suite_runs_is_reported() -> None:
    suite = Rehearsed([{"a": GOOD, "b": GOOD}, *again(GOOD)], [{"a": GOOD, "b": BAD}, *again(GOOD)])
    result = compare(cast(Any, suite), SIDES)
    assert (result.differences, result.flaky, [difference.test for difference in result.once], result.same) == ([], [], ["b"], True)
    assert "once       b: directly passed, through the gateway failed (boom)" in result.report()


def test_a_test_that_sometimes_fails_directly_too_is_flaky() -> None:
    suite = Rehearsed([{"a": GOOD, "b": GOOD}, *again(GOOD, BAD, GOOD)], [{"a": GOOD, "b": BAD}, *again(GOOD)])
    result = compare(cast(Any, suite), SIDES)
    assert (result.differences, [difference.test for difference in result.flaky], result.same) == ([], ["b"], True)
    assert "flaky" in result.report()


def test_a_test_that_fails_directly_and_never_through_the_gateway_is_a_difference_too() -> None:
    suite = Rehearsed([{"a": GOOD, "b": BAD}, *again(BAD)], [{"a": GOOD, "b": GOOD}, *again(GOOD)])
    assert [difference.test for difference in compare(cast(Any, suite), SIDES).differences] == ["b"]


@pytest.mark.parametrize("ending", [BAD, Outcome(SKIPPED, "no broker")])
def test_where_too_few_pass_directly_nothing_is_proved(ending: Outcome) -> None:
    """A broker that was not there: every test ends the same on both sides."""
    outcomes = {"a": ending, "b": ending}
    with pytest.raises(SuiteError, match="0 tests passed directly, 1 at least must") as caught:
        compare(cast(Any, Rehearsed([outcomes], [outcomes])), SIDES)
    assert f"a: {ending}" in str(caught.value)
    half = {"a": GOOD, "b": ending}
    with pytest.raises(SuiteError, match="1 tests passed directly, 2 at least must"):
        compare(cast(Any, Rehearsed([half], [half], passes=2)), SIDES)


@pytest.mark.parametrize("suite", [*SUITES.values(), *QUICK.values()], ids=lambda suite: f"{suite.name} {suite.tests}")
def test_every_suite_of_the_catalogue_proves_something(suite: Suite) -> None:
    assert 0.8 * suite.tests < suite.passes <= suite.tests


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
