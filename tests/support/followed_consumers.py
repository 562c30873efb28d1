"""For limits that follow their consumers (`algorithm: lag`): what is limited, at which speed, and how it settles."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import pytest

from support.processes import wait_until

if TYPE_CHECKING:
    from support.gateways import Gateway

FASTEST, SLOWEST, TARGET, SPEED = 400, 8, 160, 80  # slow enough for a busy machine: at 1000 they took half a processor for half a minute
SETTLE_S: Final = 15.0  # and as many more as it is measured for
LIMIT: Final[dict[str, object]] = {
    "algorithm": "lag",
    "limit": {"messages": f"{FASTEST}/s", "burst": "100ms"},
    "breaker": {"open_for": "0s"},
}


def members_of(always: tuple[int, int]) -> pytest.MarkDecorator:
    """Gateways, workers of each, and seconds that it is measured for. One case is run always; the others, of half a minute, are long."""
    more = [pytest.param(*each, 30, marks=pytest.mark.long) for each in ((1, 1), (1, 3), (2, 1), (3, 1)) if each != always]
    return pytest.mark.parametrize(("gateways", "workers", "seconds"), [(*always, 7), *more])


def usage(gateway: Gateway, rule: str) -> dict[str, Any]:
    """The one bucket of `rule`, as GET /v1/limits shows it."""
    (found,) = [item["level"]["usage"] for item in gateway.get("/v1/limits")["items"] if item["level"]["rule"] == rule]
    assert isinstance(found, dict)
    return found


def settle(gateways: Sequence[Gateway], rule: str, backlog: Callable[[], int], seconds: int) -> tuple[float, int, float]:
    """After SETTLE_S: how many messages pass through all of them in the middle one of so many seconds, the most that waited before, and
    how many wait in the middle one.

    In all of these seconds no more pass than consumers take, within 2 %, but for what may wait.
    """

    def passed() -> int:
        return sum(usage(gateway, rule)["admitted"] for gateway in gateways)

    worst = 0
    end = time.monotonic() + SETTLE_S
    while time.monotonic() < end:
        time.sleep(0.5)
        worst = max(worst, backlog())
    rates, waiting, began = [], [backlog()], passed()
    for _ in range(seconds):
        before, since = passed(), time.monotonic()
        time.sleep(1)
        rates.append((passed() - before) / (time.monotonic() - since))
        waiting.append(backlog())
    taken = passed() - began - (waiting[-1] - waiting[0])
    assert passed() - began <= 1.02 * taken + TARGET
    return median(rates), worst, median(waiting)


def await_fastest(gateways: Sequence[Gateway], rule: str) -> None:
    """Wait until the limit is at its fastest, at each of them."""

    def rates() -> set[str]:
        return {usage(gateway, rule)["rate_now"]["messages"] for gateway in gateways}

    wait_until(lambda: rates() == {f"{FASTEST}/s"}, within=30, what="the fastest rate")


class Pace:
    """How often a second something is done; a change of speed holds at once."""

    def __init__(self, speed: float) -> None:
        self.speed = speed
        self.over = False

    def turns(self) -> Iterator[int]:
        """1, 2, 3 and so on, `speed` of them a second until it is over; what was late is made up for."""
        began, done = time.monotonic(), 0
        while not self.over:
            late = (time.monotonic() - began) * self.speed - done
            if late > 0:
                done += 1
                yield done
            else:
                time.sleep(0.001 - late / max(self.speed, 1.0))


class Fast(threading.Thread):
    """Runs one function until told to stop; what it raised is raised by `end`."""

    def __init__(self, work: Callable[[Pace], None], speed: float) -> None:
        super().__init__(daemon=True)
        self.pace = Pace(speed)
        self._work = work
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._work(self.pace)
        except BaseException as error:
            self._error = error

    def end(self) -> None:
        self.pace.over = True
        self.join(10)
        if self._error is not None:
            raise self._error
