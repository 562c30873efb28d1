"""Third-party suites, each directly against RabbitMQ and through a gateway without limits: every test must end the same way.

    PYTHONPATH=tests python -m suites.compare [SUITE ...]

Exit codes: 0 no difference, 1 a difference or an error in the gateway's log (each is listed), 2 a suite could not be run. A test that
differs is run once more on both sides: what agrees then is reported as flaky, what differs again is a difference.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from suites.catalogue import SUITES, Suite
from suites.outcomes import Comparison, Outcomes, SuiteError, differences
from suites.sides import PortTakenError, Side, both_sides
from support.brokers.rabbitmq import RabbitMQMissingError
from support.environments import PackagesUnreachableError


def run_both(suite: Suite, sides: tuple[Side, Side]) -> tuple[Outcomes, Outcomes, dict[str, float]]:
    """One suite on both sides at the same time: (direct, gateway, seconds by side). Raises SuiteError."""

    def timed(side: Side) -> tuple[Outcomes, float]:
        started = time.monotonic()
        return suite.run(side), time.monotonic() - started

    with ThreadPoolExecutor(2) as pool:
        (direct, direct_s), (gateway, gateway_s) = pool.map(timed, sides)
    return direct, gateway, {"direct": direct_s, "gateway": gateway_s}


def compare(suite: Suite, sides: tuple[Side, Side]) -> Comparison:
    """Run a suite on both sides, and what differs once more. Raises SuiteError, also when not as many tests ran as there are."""
    complained = len(sides[1].complaints())
    direct, gateway, seconds = run_both(suite, sides)
    if len(direct) != suite.tests:
        raise SuiteError(f"{suite.name}: {len(direct)} tests ran directly, version {suite.version} has {suite.tests}")
    result = Comparison(suite.name, direct, gateway, seconds)
    suspects = differences(direct, gateway)
    if suspects:
        names = [suspect.test for suspect in suspects]
        again = {difference.test for difference in differences(*(suite.run(side, names) for side in sides))}
        result.differences = [suspect for suspect in suspects if suspect.test in again]
        result.flaky = [suspect for suspect in suspects if suspect.test not in again]
    result.complaints = sides[1].complaints()[complained:]
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(SUITES)} (default: all)")
    wanted = parser.parse_args().suites or list(SUITES)
    if unknown := set(wanted) - set(SUITES):
        parser.error(f"no such suite: {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    comparisons = []
    try:
        for name in wanted:
            print(f"{name}: preparing", file=sys.stderr)
            SUITES[name].prepare()
        with tempfile.TemporaryDirectory(prefix="sluice-suites-") as scratch, both_sides(Path(scratch)) as sides:
            for name in wanted:
                print(f"{name}: running directly and through the gateway", file=sys.stderr)
                comparisons.append(compare(SUITES[name], sides))
                print(comparisons[-1].report(), flush=True)
    except (SuiteError, PackagesUnreachableError, PortTakenError, RabbitMQMissingError) as error:
        print(error, file=sys.stderr)
        return 2
    different = sum(len(comparison.differences) for comparison in comparisons)
    tests = sum(len(comparison.direct) for comparison in comparisons)
    print(f"{len(comparisons)} suites, {tests} tests, {different} differences")
    return 0 if all(comparison.same for comparison in comparisons) else 1


if __name__ == "__main__":
    sys.exit(main())
