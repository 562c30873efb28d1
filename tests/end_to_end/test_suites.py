"""Client libraries' own integration suites end the same through the gateway as directly. The slower ones: `make test-clients`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from suites.catalogue import QUICK
from suites.compare import compare
from suites.sides import Side, both_sides

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    with both_sides(tmp_path_factory.mktemp("suites")) as running:
        yield running


@pytest.mark.parametrize("name", QUICK)
def test_a_suite_ends_the_same_through_the_gateway(
    sides: tuple[Side, Side], name: str, record_property: Callable[[str, object], None]
) -> None:
    suite = QUICK[name]
    suite.prepare()
    comparison = compare(suite, sides)
    if comparison.remarks():
        record_property("remark", "run again, after it had differed:\n" + "\n".join(comparison.remarks()))
    print(comparison.report())
    assert comparison.same, comparison.report()
