"""Client libraries' own integration suites end the same through the gateway as directly. The slower ones: `make test-clients`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from suites.catalogue import QUICK
from suites.compare import compare
from suites.outcomes import PASSED
from suites.sides import Side, behind_a_gateway, both_sides

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow]


@pytest.fixture(scope="module")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    with behind_a_gateway(tmp_path_factory.mktemp("suites")) as side:
        yield side


@pytest.mark.parametrize("name", QUICK)
def test_a_suite_ends_the_same_through_the_gateway(
    gateways: Side, name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """All tests of these pass directly, so both sides are run only where one does not pass through the gateway."""
    suite = QUICK[name]
    assert suite.passes == suite.tests, "what passes directly is not known of each test: this suite is for make test-clients"
    suite.prepare()
    ended = suite.run(gateways)
    assert gateways.complaints() == []
    if len(ended) == suite.tests and {outcome.word for outcome in ended.values()} == {PASSED}:
        return
    with both_sides(tmp_path) as sides:
        comparison = compare(suite, sides)
    unlike = "\n".join(f"  {test}: {outcome}" for test, outcome in ended.items() if outcome.word != PASSED)
    record_property("remark", f"both sides were run, as not all of its {suite.tests} tests had passed:\n{unlike}\n{comparison.report()}")
    assert comparison.same, comparison.report()
