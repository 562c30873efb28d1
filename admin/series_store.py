"""Series: what became of messages in each second of the last quarter of an hour, and in each ten seconds of the last day.

For the totals and for the busiest topics, as many as `admin.series_topics` says. The naive way keeps a list of numbers for each: 9,540
points of five numbers are 1.5 MB a topic. Here a number is two bytes: three significant digits, which is more than a chart shows, and a
power of ten (`coded`). So a topic takes 95 KB, and 280 of them with a whole day 28 MB, 31 with a hundred limits each (measured 2026-11).

Nothing of it is on a message's way. The accounts work out each topic's rates once a second anyway (`Accounts.tick`), and of those that
move, these are written down here, in slices. A point is found by its number: the seconds written down since the start, one for each turn
of the wall clock. The clock now says what time it was: when that is set back, all points move with it. When it leaps ahead, or the process
stood still, the points between are not known, as are those before the start: a restart forgets all.

**The set of the busiest topics** changes slowly: a chart with a hole for each lull is of no use. While there is room every topic gets a
series. Then one that is busy takes the place of the one that was least busy lately, once it is TWICE as busy. So names that are made up
without end displace each other and the idle, not what has steady traffic.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import cache
from heapq import nlargest, nsmallest
from math import floor, log10
from typing import Any, Final

FIELDS: Final = ("received", "forwarded", "refused", "bytes", "waiting")
WIDTH: Final = len(FIELDS)
WAITING: Final = FIELDS.index("waiting")  # a number, the others are per second
FINE: Final = 900  # points of a second: 15 minutes
CELL: Final = 10  # seconds; one point of the day
COARSE: Final = 8640  # points of CELL seconds: 24 hours
STILL: Final = 10  # seconds; that one look may stand for when the process was busy; in a longer time nobody knows what happened (a guess)
TWICE: Final = 2.0  # times as busy as the least busy, a topic takes its place; a guess
STEADY: Final = 3  # seconds of CELL with traffic, for that: a reply queue has it in one or two; a guess
MOST_MOVES: Final = 10  # topics; that take others' places at once; a guess
MOST_CANDIDATES: Final = 4000  # topics; without a series, that are compared at once: 1 MB (a guess)
LASTING: Final = 0.98  # of how busy a topic was, after CELL seconds: half after six minutes; a guess
MOST_LIMITS: Final = 100  # limits one after another that a topic's series has: a change every quarter of an hour of a day; a guess
SLICE: Final = 50  # topics; written down between two turns of the event loop: 0.25 ms (measured 2026-11)
SLICE_LIMITS: Final = 8  # topics; the same, where each one's limit is looked up as well, because the rules are new
SLICE_ROWS: Final = 400  # rows; added up, or compared, between two turns: 0.2 ms (measured 2026-11)

# The rings are longer by what is written before it is shown: a reader in between must not see new numbers at the oldest points' places.
FINE_RING: Final = FINE + STILL
COARSE_RING: Final = COARSE + 1

LOWEST: Final = -2  # the power of ten of the least number, 0.01
DIGITS: Final = 1000  # mantissas of each power of ten
HIGHEST: Final = 12  # power of ten: the largest number is 999e12
UNKNOWN: Final = 0  # the code of a point of which nothing is known
NOTHING: Final = 1  # of 0; above it: 2 + DIGITS * (power - LOWEST) + mantissa

Place = tuple[str, str, str]  # protocol, topic as text, operation
Values = tuple[float, ...]  # FIELDS
Row = tuple[Place, Values]
Number = int | float | None


def coded(value: float) -> int:
    """The code of a number, with three digits of it."""
    if value <= 0.0:
        return NOTHING
    power = max(LOWEST, floor(log10(value)) - 2)
    mantissa = round(value / 10.0**power)
    if mantissa >= DIGITS:
        power, mantissa = power + 1, mantissa // 10
    if power > HIGHEST:
        power, mantissa = HIGHEST, DIGITS - 1
    return 2 + DIGITS * (power - LOWEST) + mantissa


@cache
def decoded() -> list[Number]:
    """Numbers by their codes: whole ones as integers."""
    found: list[Number] = [None, 0]
    for power in range(LOWEST, HIGHEST + 1):
        for mantissa in range(DIGITS):
            if power >= 0:
                found.append(mantissa * 10**power)
            else:
                value = round(mantissa * 10.0**power, -power)
                found.append(int(value) if value == int(value) else value)
    return found


class Series:
    """One topic's points, or those of all topics together. A point's place in its ring is its number, modulo the ring's length."""

    __slots__ = ("_coarse", "_fine", "_seconds", "_sums", "_waiting", "busy", "limits")

    def __init__(self) -> None:
        self._fine = array("H", bytes(2 * WIDTH * FINE_RING))  # field by field
        self._coarse = array("H", bytes(2 * WIDTH * COARSE_RING))
        self._sums = [0.0] * WIDTH  # of the cell that is being filled
        self._seconds = 0
        self._waiting = 0.0  # the most of that cell
        self.busy = 0.0  # messages received per second, of late
        self.limits: list[tuple[int, float | None]] = []  # from which point on the limit is so many messages per second

    def write(self, at: int, number: int, values: Values | None) -> None:
        """Points `at` and the `number - 1` before it. None: nothing happened."""
        fine, sums = self._fine, self._sums
        for field in range(WIDTH):
            code = NOTHING if values is None else coded(values[field])
            first = field * FINE_RING
            for point in range(at - number + 1, at + 1):
                fine[first + point % FINE_RING] = code
        self._seconds += number
        if values is not None:
            for field in range(WIDTH):
                sums[field] += number * values[field]
            self._waiting = max(self._waiting, values[WAITING])

    def close_cell(self, cell: int) -> None:
        """Write the means of a cell; of what waits the most."""
        seconds = self._seconds
        rate = self._sums[0] / seconds if seconds else 0.0
        self.busy = rate if self.busy == 0.0 else LASTING * self.busy + (1 - LASTING) * rate
        slot = cell % COARSE_RING
        for field in range(WIDTH):
            value = self._waiting if field == WAITING else self._sums[field] / max(1, seconds)
            self._coarse[field * COARSE_RING + slot] = coded(value) if seconds else UNKNOWN
            self._sums[field] = 0.0
        self._seconds = 0
        self._waiting = 0.0

    def skip(self, first: int, last: int, at: int) -> None:
        """Nothing is known of the points from `first` to before `last`, nor of the cells between those of the point before and of `at`."""
        self._forget(self._fine, FINE_RING, first, last)
        self._forget(self._coarse, COARSE_RING, (first - 1) // CELL + 1, at // CELL)

    @staticmethod
    def _forget(ring: array[int], size: int, first: int, last: int) -> None:
        for point in range(max(first, last - size), last):
            for field in range(WIDTH):
                ring[field * size + point % size] = UNKNOWN

    def read(self, field: int, first: int, last: int, *, day: bool) -> list[Number]:
        """The numbers from point `first` to before `last`."""
        ring, size = (self._coarse, COARSE_RING) if day else (self._fine, FINE_RING)
        values, begin = decoded(), field * size
        return [values[ring[begin + point % size]] for point in range(first, last)]

    def take_limit(self, at: int, limit: float | None) -> None:
        if self.limits and self.limits[-1][1] == limit:
            return
        self.limits.append((at, limit))
        if len(self.limits) > MOST_LIMITS:
            del self.limits[0]

    def limits_at(self, points: Iterable[int]) -> list[Number]:
        """The limit at each of `points`, which rise."""
        found: list[Number] = []
        later = list(reversed(self.limits))
        now: float | None = None
        for point in points:
            while later and later[-1][0] <= point:
                now = later.pop()[1]
            found.append(None if now is None else int(now) if now == int(now) else now)
        return found


class SeriesStore:
    """The series of a gateway: of all topics together, and of the busiest."""

    def __init__(self, most: int, limit_of: Callable[[Any, Place], float | None] | None = None) -> None:
        """`most`: topics; 0: nothing is kept. `limit_of(rules, place)`: a topic's limit in messages per second."""
        self.most = most
        self.topics: dict[Place, Series] = {}
        self._total = Series()
        self._limit_of = limit_of
        self._rules: object = None
        self._at = -1  # the latest point
        self._second = 0  # the latest point's time: seconds since 1970
        self._floor = 0.0  # messages received per second, of the least busy topic with a series
        self._candidates: dict[Place, tuple[float, int]] = {}  # without a series: messages received in this cell, and seconds with some

    def resize(self, most: int) -> None:
        """Keep the series of `most` topics from now on; those of the least busy go."""
        self.most = most
        for place, _ in nsmallest(max(0, len(self.topics) - most), self.topics.items(), key=lambda item: item[1].busy):
            del self.topics[place]
        if not most:
            self._total, self._at = Series(), -1

    # ---- written, once a second --------------------------------------------------------------------------------------

    def close_second(self, second: int, elapsed_s: float, rows: list[Row], rules: object = None) -> Iterator[None]:
        """Write down, in slices, what happened in the second that began at `second` (since 1970): `rows` of the topics that moved.

        `elapsed_s`: how long it took in truth. `rules`: those in force, the same object while nothing changes.
        """
        if not self.most:
            return
        at, known = yield from self._advance(second, elapsed_s)
        by_place: dict[Place, Values] = {}
        sums: Values = (0.0,) * WIDTH
        for first in range(0, len(rows), SLICE_ROWS):
            part = rows[first : first + SLICE_ROWS]
            by_place.update(part)
            sums = tuple([sum(column) for column in zip(sums, *[values for _, values in part], strict=True)])
            yield
        self._total.write(at, known, sums)
        new_rules = rules is not self._rules
        self._rules = rules
        for number, (place, series) in enumerate(list(self.topics.items()), 1):
            series.write(at, known, by_place.pop(place, None))
            if new_rules:
                self._note_limit(place, series, at)
            if number % (SLICE_LIMITS if new_rules else SLICE) == 0:
                yield
        for number, (place, values) in enumerate(by_place.items(), 1):
            if len(self.topics) < self.most:
                self._begin(place, at).write(at, known, values)
            elif values[0] > self._floor and (place in self._candidates or len(self._candidates) < MOST_CANDIDATES):
                received, seconds = self._candidates.get(place, (0.0, 0))
                self._candidates[place] = received + values[0], seconds + 1
            if number % SLICE_ROWS == 0:
                yield
        if self.most:  # a reload may have ended it meanwhile
            self._at, self._second = at, second  # shown from now on

    def _advance(self, second: int, elapsed_s: float) -> Generator[None, None, tuple[int, int]]:
        """In slices: the number of the point of this second, and how many up to it are known: more than one where the process was late."""
        before = self._at
        step = 1 if before < 0 else max(1, second - self._second)
        if before < 0:
            return 0, 1
        known = min(step, max(1, round(elapsed_s)))
        if known > STILL:
            known = 1
        at = before + step
        every = [self._total, *self.topics.values()]
        if at // CELL != before // CELL:
            for number, series in enumerate(every, 1):
                series.close_cell(before // CELL)
                if number % SLICE == 0:
                    yield
            self._move_places(at)
        if step > known:
            for series in [self._total, *self.topics.values()]:
                series.skip(before + 1, at - known + 1, at)
        return at, known

    def _begin(self, place: Place, at: int) -> Series:
        series = self.topics[place] = Series()
        self._note_limit(place, series, at)
        return series

    def _note_limit(self, place: Place, series: Series, at: int) -> None:
        if self._limit_of is not None and self._rules is not None:
            series.take_limit(at, self._limit_of(self._rules, place))

    def _move_places(self, at: int) -> None:
        """Let topics that are busier by far take the places of the least busy."""
        candidates, self._candidates = self._candidates, {}
        least = nsmallest(MOST_MOVES, self.topics.items(), key=lambda item: item[1].busy)
        self._floor = least[0][1].busy if least else 0.0
        steady = [(received / CELL, place) for place, (received, seconds) in candidates.items() if seconds >= STEADY]
        for (rate, place), (other, series) in zip(nlargest(MOST_MOVES, steady), least, strict=False):
            if rate <= TWICE * series.busy:
                break
            del self.topics[other]
            self._begin(place, at)

    # ---- read --------------------------------------------------------------------------------------------------------

    def read(self, place: Place | None, *, day: bool, since: int = 0) -> Generator[None, None, dict[str, Any]]:
        """The points of a topic (None: of all together), in slices: `step`, `start`, `end`, `known` and `points` by field.

        `start` and `end`: when the first and the last point begin (seconds since 1970). Only points from `since` on. Without a series no
        points are known.
        """
        series = self._total if place is None else self.topics.get(place)
        size, step = (COARSE, CELL) if day else (FINE, 1)
        last = self._at // step if day else self._at + 1  # a cell that is being filled is not shown
        offset = self._second - self._at  # of a point's time from its number
        first = max(0, last - size, -((offset - since) // step))
        first = min(first, last)
        points: dict[str, list[Number] | None] = {}
        for field, name in enumerate(FIELDS):
            points[name] = [None] * (last - first) if series is None else series.read(field, first, last, day=day)
            yield
        points["limit"] = None
        if series is not None and place is not None:
            points["limit"] = series.limits_at(range(first * step, last * step, step))
        return {
            "step": step,
            "start": offset + first * step if first < last else 0,
            "end": offset + (last - 1) * step if first < last else 0,
            "known": series is not None and bool(self.most),
            "points": points,
        }

    def received(self, place: Place, seconds: int) -> list[Number]:
        """Messages of the topic that arrived in each of the last `seconds` (FINE at most); an empty list where it has no series."""
        series = self.topics.get(place)
        if series is None:
            return []
        return series.read(0, max(0, self._at + 1 - seconds, self._at + 1 - FINE), self._at + 1, day=False)

    def __repr__(self) -> str:
        return f"<SeriesStore {len(self.topics)}/{self.most} topics, point {self._at}>"
