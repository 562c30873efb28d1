"""Pictures of the algorithms: the same arrivals under each of them, simulated with the limiter itself.

    python docs/plots/algorithms.py            # writes docs/images/algorithm-NAME.svg

A decision of the limiter reads no clock: `now` is an argument. So half a minute of traffic is judged in a fraction of a second, and comes
out the same every time; `tests/contracts/test_algorithm_plots.py` compares the files with what this draws.

A picture is a line in PICTURES: a rule, what clients do about a refusal (nothing, or they wait: `delay`), and words. Another algorithm is
another line. One that needs a broker to answer (what is in flight) gives a `simulate` of its own.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

ROOT: Final = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from limiter.algorithms.lag_controller import LagController  # noqa: E402  -- run as a script, the repository is not on the path before
from limiter.algorithms.slots import ANSWERED  # noqa: E402
from limiter.in_flight import Ending, Flight, end  # noqa: E402
from limiter.judge import Judge  # noqa: E402
from limiter.limits import SECOND, Lag, Limit, Rate  # noqa: E402
from limiter.request import Request  # noqa: E402
from limiter.rules.rule_set import Match, Rule, RuleSet  # noqa: E402
from limiter.topics import rocketmq_topic  # noqa: E402

LIMIT: Final = 100  # messages per second, in all pictures
LENGTH: Final = 40  # seconds
STEP_NS: Final = 5_000_000  # how often something arrives, and whoever waits asks again
BIN_NS: Final = 250_000_000  # what one bar counts
STRIP: Final = (5.0, 6.0)  # the second under the magnifying glass, where a bunch arrives
BEGIN: Final = 1000 * SECOND


# ---- what arrives ----------------------------------------------------------------------------------------------------

# (from second, to second, messages a second): light use, a flood of three times the limit, silence, the flood again
PHASES: Final = ((1.0, 5.0, 60), (8.0, 18.0, 300), (30.0, 40.0, 300))
BUNCH: Final = (5.0, 60)  # so many at once, at that second


def arriving(step: int) -> int:
    """How many messages arrive in a step."""
    begin, end = step * STEP_NS, (step + 1) * STEP_NS
    count = BUNCH[1] if begin <= BUNCH[0] * SECOND < end else 0
    for since, until, rate in PHASES:
        first, last = max(begin, int(since * SECOND)), min(end, int(until * SECOND))
        if first < last:
            count += rate * (last - int(since * SECOND)) // SECOND - rate * (first - int(since * SECOND)) // SECOND
    return count


# ---- what becomes of it ----------------------------------------------------------------------------------------------


@dataclass
class Course:
    """What happened: counts per bar, and the moments at which messages passed in the strip."""

    passed: list[int] = field(default_factory=lambda: [0] * (LENGTH * SECOND // BIN_NS))
    refused: list[int] = field(default_factory=lambda: [0] * (LENGTH * SECOND // BIN_NS))
    offered: list[int] = field(default_factory=lambda: [0] * (LENGTH * SECOND // BIN_NS))
    moments: list[float] = field(default_factory=list)  # seconds
    longest_wait_ms: int = 0

    def count(self, counts: list[int], step: int, messages: int) -> None:
        counts[step * STEP_NS // BIN_NS] += messages
        second = step * STEP_NS / SECOND
        if counts is self.passed and STRIP[0] <= second < STRIP[1]:
            self.moments += [second] * messages


def rejecting(rule: Rule) -> Course:
    """Clients are told no, and do not come back."""
    return waiting(rule, patience_ns=0)


def delaying(rule: Rule) -> Course:
    """Messages wait for their turn, at most the rule's `max_delay`; the first come is the first served."""
    return waiting(rule, rule.max_delay_ns)


def waiting(rule: Rule, patience_ns: int) -> Course:
    course = Course()
    judge = Judge(RuleSet((rule,)))
    key = judge.key(judge.origin("rocketmq", "rocket", "10.0.0.7", None), b"orders", rocketmq_topic(b"orders"))
    line: deque[int] = deque()  # the steps in which those arrived that wait
    for step in range(LENGTH * SECOND // STEP_NS):
        count = arriving(step)
        course.count(course.offered, step, count)
        line.extend([step] * count)
        if line:
            request = Request(key, len(line), 1, 200)
            judge.decide([request], BEGIN + step * STEP_NS)
            for _ in range(request.passed):
                course.longest_wait_ms = max(course.longest_wait_ms, (step - line.popleft()) * STEP_NS // 1_000_000)
            course.count(course.passed, step, request.passed)
        while line and (step - line[0]) * STEP_NS >= patience_ns:
            line.popleft()
            course.count(course.refused, step, 1)
    return course


SLOW_FROM: Final = 30.0  # second from which on the broker below needs twice the time
SERVERS: Final = 10  # requests that it serves at once, each in SERVICE_NS: LIMIT per second
SERVICE_NS: Final = 100_000_000


def answering(rule: Rule) -> Course:
    """In front of a broker that answers when it is done; what finds no slot is told no, and does not come back."""
    course = Course()
    judge = Judge(RuleSet((rule,)))
    key = judge.key(judge.origin("rocketmq", "rocket", "10.0.0.7", None), b"orders", rocketmq_topic(b"orders"))
    queue: deque[Flight] = deque()
    serving: list[tuple[int, int, Flight]] = []  # when it will be done; ordered by that, then by number
    number = 0
    for step in range(LENGTH * SECOND // STEP_NS):
        now = BEGIN + step * STEP_NS
        service_ns = SERVICE_NS * (2 if step * STEP_NS >= SLOW_FROM * SECOND else 1)
        endings: list[Ending] = []
        while serving and serving[0][0] <= now:
            _, _, flight = heappop(serving)
            course.longest_wait_ms = max(course.longest_wait_ms, (now - flight.since) // 1_000_000)
            end(endings, flight, 1, ANSWERED)
        judge.free_slots(endings, now)
        count = arriving(step)
        course.count(course.offered, step, count)
        if count:
            request = Request(key, count, 1, 200)
            judge.decide([request], now)
            course.count(course.passed, step, request.passed)
            course.count(course.refused, step, count - request.passed)
            if request.flight is not None:
                request.flight.since = now
                queue.extend([request.flight] * request.passed)
        while queue and len(serving) < SERVERS:
            number += 1
            heappush(serving, (now + service_ns, number, queue.popleft()))
    return course


def lag_controlled(rule: Rule) -> Course:
    """In front of consumers that take LIMIT per second, looked at once a second; what is over the limit of the moment is refused."""
    course = Course()
    judge = Judge(RuleSet((rule,)))
    key = judge.key(judge.origin("rocketmq", "rocket", "10.0.0.7", None), b"orders", rocketmq_topic(b"orders"))
    controller = LagController(rule.limit)
    steps = SECOND // STEP_NS  # a second has so many
    backlog, able, taken = 0, 0, 0  # `able`: what consumers could have taken, in messages per steps
    for step in range(LENGTH * steps):
        now = BEGIN + step * STEP_NS
        count = arriving(step)
        course.count(course.offered, step, count)
        if count:
            request = Request(key, count, 1, 200)
            judge.decide([request], now)
            course.count(course.passed, step, request.passed)
            course.count(course.refused, step, count - request.passed)
            backlog += request.passed
        able = min(able + LIMIT, steps)
        while able >= steps and backlog:
            able, backlog, taken = able - steps, backlog - 1, taken + 1
        if step % steps == 0:
            for level in judge.list_lag_controlled():
                judge.set_rate(level.effective.identity, controller.next_rate(rule.limit, backlog, taken, 1.0), now)
            taken = 0
    return course


# ---- the pictures ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Picture:
    """One picture: its file's name, words, and how its course comes about."""

    name: str
    title: str
    subtitle: str
    rule: Rule
    simulate: Callable[[Rule], Course] = rejecting
    line: str = "the limit"  # what the dashed line at LIMIT is


def rule_of(algorithm: str, action: str = "reject", open_for_ns: int | None = None) -> Rule:
    return Rule(algorithm, limit=Limit(messages=Rate(LIMIT)), algorithm=algorithm, action=action, open_for_ns=open_for_ns)


PICTURES: Final = [
    Picture(
        "token_bucket",
        "token_bucket, with its breaker",
        "limit: {messages: 100/s}: a burst of one second of the rate; once dry, everything is refused for a second",
        rule_of("token_bucket"),
    ),
    Picture(
        "token_bucket-plain",
        "token_bucket, without a breaker",
        "breaker: {open_for: 0s}: the same number passes, one at a time as tokens come in",
        rule_of("token_bucket", open_for_ns=0),
    ),
    Picture(
        "pacing",
        "pacing, with action: delay",
        "one message each 10 ms; what is early waits, at most max_delay (1 s), then it is refused",
        rule_of("pacing", "delay"),
        delaying,
    ),
    Picture(
        "pacing-reject",
        "pacing, with action: reject",
        "the trap: of what arrives in a bunch nearly all is refused, however little there is on average",
        rule_of("pacing"),
    ),
    Picture(
        "warm_up",
        "warm_up, without a breaker",
        "warm_up: {over: 10s}: a third of the limit after idleness, all of it after ten seconds of use",
        rule_of("warm_up", open_for_ns=0),
    ),
    Picture(
        "concurrency",
        "concurrency, in front of a broker that becomes slow",
        "limit: {concurrent: 10}: at 100 ms an answer that is 100/s; from 30 s on the broker needs 200 ms, and half as many pass",
        Rule("concurrency", limit=Limit(concurrent=10), algorithm="concurrency"),
        answering,
        "what the broker can serve before 30 s",
    ),
    Picture(
        "adaptive",
        "adaptive, in front of the same broker",
        "limit: {concurrent: 1000}, adaptive: {at_least: 4, start: 20}: nobody has said how much the broker can serve",
        Rule("adaptive", limit=Limit(concurrent=1000, at_least=4, start=20), algorithm="adaptive"),
        answering,
        "what the broker can serve before 30 s",
    ),
    Picture(
        "lag",
        "lag, in front of consumers that take 100 a second",
        "limit: {messages: 300/s}, lag: {target: 100, slowest: 10/s}: nobody has said how fast the consumers are",
        Rule(
            "lag",
            Match(protocol="rocketmq"),
            limit=Limit(messages=Rate(300), burst_ns=SECOND // 10, lag=Lag(100, Rate(10), group="billing")),
            algorithm="lag",
            open_for_ns=0,
        ),
        lag_controlled,
        "what the consumers take",
    ),
]

# ---- drawing ---------------------------------------------------------------------------------------------------------

WIDTH: Final = 920
LEFT: Final = 60
CHART: Final = 840  # width of a chart
TOP: Final = 74
ROW: Final = 130  # height of the bars
STRIP_TOP: Final = 268
STRIP_ROW: Final = 26
HEIGHT: Final = 350
MOST: Final = 400  # messages per second at the top of the axis; the burst's bar is cut there and told in words

STYLE: Final = """
  svg { color-scheme: light dark; }
  text { font: 12px system-ui, sans-serif; fill: #24292f; }
  .title { font-size: 15px; font-weight: 600; }
  .faint { fill: #57606a; }
  .axis { stroke: #8c959f; stroke-width: 1; fill: none; }
  .limit { stroke: #cf222e; stroke-width: 1; stroke-dasharray: 5 3; fill: none; }
  .passed { fill: #1a7f37; fill-opacity: .75; }
  .refused { fill: #cf222e; fill-opacity: .3; }
  .tick { stroke: #1a7f37; stroke-width: 1.4; fill: none; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .faint { fill: #9198a1; }
    .axis { stroke: #6e7681; }
    .limit { stroke: #f85149; }
    .passed { fill: #3fb950; }
    .refused { fill: #f85149; }
    .tick { stroke: #3fb950; }
  }"""


def draw(picture: Picture) -> str:
    """The whole picture as SVG."""
    course = picture.simulate(picture.rule)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="title desc">',
            f'<title id="title">{escape(picture.title)}</title>',
            f'<desc id="desc">{escape(describe(picture, course))}</desc>',
            f"<style>{STYLE}\n</style>",
            f'<text x="{LEFT}" y="22" class="title">{escape(picture.title)}</text>',
            f'<text x="{LEFT}" y="41" class="faint">{escape(picture.subtitle)}</text>',
            *bars(course),
            *axes(),
            *strip(course),
            *legend(course, picture.line),
            "</svg>",
            "",
        ]
    )


def describe(picture: Picture, course: Course) -> str:
    """The picture in words."""
    offered, passed, refused = sum(course.offered), sum(course.passed), sum(course.refused)
    flood = [sum(course.passed[second * SECOND // BIN_NS : (second + 1) * SECOND // BIN_NS]) for second in range(30, 40)]
    waits = f" Nobody waits longer than {course.longest_wait_ms} milliseconds." if course.longest_wait_ms else ""
    return (
        f"{picture.subtitle}. Of {offered} messages {passed} pass and {refused} are refused. "
        f"In the ten seconds of the last flood pass, second by second: {', '.join(map(str, flood))}.{waits}"
    )


def y_of(messages_per_second: float) -> float:
    return TOP + ROW * (1 - min(messages_per_second / MOST, 1.0))


def bars(course: Course) -> Iterator[str]:
    """One bar for each BIN_NS, as messages per second: what passed, upon it what was refused."""
    step = CHART / len(course.passed)
    scale = SECOND / BIN_NS
    for number, (passed, refused) in enumerate(zip(course.passed, course.refused, strict=True)):
        x = LEFT + number * step
        base = y_of(0)
        middle, top = y_of(passed * scale), y_of((passed + refused) * scale)
        if base > middle:
            yield f'<rect x="{x + 0.5:.1f}" y="{middle:.1f}" width="{step - 1:.1f}" height="{base - middle:.1f}" class="passed"/>'
        if middle > top:
            yield f'<rect x="{x + 0.5:.1f}" y="{top:.1f}" width="{step - 1:.1f}" height="{middle - top:.1f}" class="refused"/>'


def axes() -> Iterator[str]:
    base = y_of(0)
    yield f'<text x="{LEFT}" y="{TOP - 8}" class="faint">messages per second</text>'
    yield f'<path d="M{LEFT} {TOP}V{base:.0f}H{LEFT + CHART}" class="axis"/>'
    for value in (0, LIMIT, MOST // 2, MOST):
        yield f'<text x="{LEFT - 6}" y="{y_of(value) + 4:.1f}" text-anchor="end" class="faint">{value}</text>'
    yield f'<path d="M{LEFT} {y_of(LIMIT):.1f}h{CHART}" class="limit"/>'
    for second in range(0, LENGTH + 1, 5):
        yield f'<text x="{LEFT + CHART * second / LENGTH:.1f}" y="{base + 16:.0f}" text-anchor="middle" class="faint">{second} s</text>'


def strip(course: Course) -> Iterator[str]:
    """The magnifying glass: a tick for each message that passed in the second in which the bunch arrives; many at once are one tick."""
    begin, end = STRIP
    bottom = STRIP_TOP + STRIP_ROW
    words = f"from {begin:g} s to {end:g} s: when the {BUNCH[1]} messages that arrive at once at {BUNCH[0]:g} s pass"
    yield f'<text x="{LEFT}" y="{STRIP_TOP - 12}" class="faint">{words}</text>'
    yield f'<path d="M{LEFT} {bottom}h{CHART}" class="axis"/>'
    for moment in sorted(set(course.moments)):
        x = LEFT + 2 + (CHART - 2) * (moment - begin) / (end - begin)
        many = course.moments.count(moment)
        yield f'<path d="M{x:.1f} {STRIP_TOP}v{STRIP_ROW}" class="tick"/>'
        if many > 1:
            yield f'<text x="{x + 4:.1f}" y="{STRIP_TOP + 12}">{many} at once</text>'
    yield f'<text x="{LEFT}" y="{bottom + 16}" class="faint">0 ms</text>'
    yield f'<text x="{LEFT + CHART}" y="{bottom + 16}" text-anchor="end" class="faint">{(end - begin) * 1000:.0f} ms</text>'


def legend(course: Course, line: str) -> Iterator[str]:
    x, y = float(LEFT), HEIGHT - 12
    entries = [("passed", f"passed ({sum(course.passed)})"), ("refused", f"refused ({sum(course.refused)})")]
    for kind, words in entries:
        yield f'<rect x="{x:.0f}" y="{y - 9}" width="10" height="10" class="{kind}"/><text x="{x + 15:.0f}" y="{y}">{words}</text>'
        x += 40 + 6.6 * len(words)
    yield f'<path d="M{x:.0f} {y - 4}h16" class="limit"/><text x="{x + 22:.0f}" y="{y}">{line}</text>'
    if course.longest_wait_ms:
        yield f'<text x="{x + 50 + 6.6 * len(line):.0f}" y="{y}" class="faint">longest wait: {course.longest_wait_ms} ms</text>'


def file_of(picture: Picture) -> Path:
    return ROOT / "docs" / "images" / f"algorithm-{picture.name}.svg"


if __name__ == "__main__":
    for each in PICTURES:
        file_of(each).write_text(draw(each))
