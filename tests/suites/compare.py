"""Third-party suites, each directly against RabbitMQ and through a gateway without limits: every test must end the same way.

    PYTHONPATH=tests python -m suites.compare [SUITE ...]

Exit codes: 0 no difference, 1 a difference or an error in the gateway's log (each is listed), 2 a suite could not be run, or so many of
its tests did not pass directly that it proves nothing. What differs is run RERUNS times more, one side after the other: a test that fails
directly too, now and then, is reported as flaky; one that never differed again, with a machine to itself, is reported as such; any other
is a difference.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from suites.catalogue import SUITES, Suite
from suites.outcomes import MISSING, PASSED, Comparison, Outcome, Outcomes, SuiteError, differences, is_flaky, was_once
from suites.sides import PortTakenError, Side, both_sides
from support.brokers.rabbitmq import RabbitMQMissingError
from support.environments import PackagesUnreachableError

RERUNS: Final = 5  # of what differed: a test that fails directly in a third of its runs is taken for a difference in one case of eight


def run_both(suite: Suite, sides: tuple[Side, Side]) -> tuple[Outcomes, Outcomes, dict[str, float]]:
    """One suite on both sides at the same time: (direct, gateway, seconds by side). Raises SuiteError."""

    def timed(side: Side) -> tuple[Outcomes, float]:
        started = time.monotonic()
        return suite.run(side), time.monotonic() - started

    with ThreadPoolExecutor(2) as pool:
        (direct, direct_s), (gateway, gateway_s) = pool.map(timed, sides)
    return direct, gateway, {"direct": direct_s, "gateway": gateway_s}


def compare(suite: Suite, sides: tuple[Side, Side]) -> Comparison:
    """Run a suite on both sides, and what differs some times more. Raises SuiteError, also when too few tests ran or passed directly."""
    complained = len(sides[1].complaints())
    direct, gateway, seconds = run_both(suite, sides)
    if len(direct) != suite.tests:
        raise SuiteError(f"{suite.name}: {len(direct)} tests ran directly, version {suite.version} has {suite.tests}")
    result = Comparison(suite.name, direct, gateway, seconds)
    if result.count("direct", PASSED) < suite.passes:
        raise SuiteError(
            f"{suite.name}: {result.count('direct', PASSED)} tests passed directly, {suite.passes} at least must, or it proves nothing\n"
            + "\n".join(f"  {test}: {outcome}" for test, outcome in direct.items() if outcome.word != PASSED)
        )
    suspects = differences(direct, gateway)
    if suspects:
        names = [suspect.test for suspect in suspects]
        runs = [(direct, gateway), *((suite.run(sides[0], names), suite.run(sides[1], names)) for _ in range(RERUNS))]
        for suspect in suspects:
            mine, theirs = ([run[side].get(suspect.test, Outcome(MISSING)) for run in runs] for side in (0, 1))
            kind = result.once if was_once(mine, theirs) else result.flaky if is_flaky(mine, theirs) else result.differences
            kind.append(suspect)
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
