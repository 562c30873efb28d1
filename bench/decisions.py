"""What one decision of the limiter costs, beside Guava's RateLimiter and the original design's class under the JVM.

    PYTHONPATH=.:tests python bench/decisions.py [--quick] [--no-java]

One thread asks the judge as the event loop does: one list of 1,000 requests per call of `Judge.decide`, the time given once for all of
them; it moves a millisecond from call to call, so that a million a second are asked for. Nanoseconds per decision are the call's time
divided by 1,000. Rounds to warm up, then rounds that count; the table has their median, the least and the most. The JVM does the same in
its own process afterwards (`tests/end_to_end/clients/java/limiters/Bench.java`), so each has the machine to itself.

Then a million decisions under tracemalloc: what they have kept, and the most they ever had in hand above the beginning. 0 and 0: none of
them has allocated anything, not even for a moment.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kept import commit

from gateway.build import build
from limiter.judge import Judge
from limiter.limits import Limit, Rate
from limiter.request import Request
from limiter.rules.rule_set import Rule, RuleSet
from limiter.topics import rocketmq_topic

HERE = Path(__file__).resolve().parent
BATCH = 1000
STEP_NS = 1_000_000  # between two calls
BEGIN = 1000 * 10**9
ALLOCATING = 1_000_000  # decisions under tracemalloc

ENOUGH = Limit(messages=Rate(2_000_003))  # of a million a second; primes, so that nothing is reduced to small numbers
ENOUGH_OF_BOTH = Limit(messages=Rate(2_000_003), bytes=Rate(400_000_009))
WARMING = Limit(messages=Rate(1_500_007), warm_up_ns=10**9)  # used enough to be warm, and warm when it counts
LITTLE = Limit(messages=Rate(1))

PUBLISHED = """Published elsewhere, on other machines (not measured here):
  Pulsar's AsyncTokenBucket   ~900 million/s, about 1.1 ns (Dell XPS 2019, i9); ~2,500 million/s, 0.4 ns (MacBook Pro M3 Max);
                              several threads together, consumption settled every 16 ms (pip/pip-322.md)
  Guava-style limiter         "tens of millions" a second on one thread, 8 million/s on eight (mqcloud, ratelimit.md)"""


@dataclass(frozen=True)
class Work:
    """One kind of decision. `goals`: ns per decision to be reached, compiled and interpreted."""

    name: str
    rules: tuple[Rule, ...]
    goals: tuple[int, int] | None = None
    keys: int = 1  # the requests of a batch are of so many topics


def rule(algorithm: str = "token_bucket", limit: Limit = ENOUGH, per: str = "topic") -> Rule:
    return Rule(f"{per}s", per=per, limit=limit, algorithm=algorithm)


WORKS = [
    Work("one rule, one level, admits", (rule(),), (10, 250)),
    Work("one rule, one level, refuses (breaker open)", (rule(limit=LITTLE),)),
    Work(
        "three levels, messages and bytes, admits",
        tuple(rule(limit=ENOUGH_OF_BOTH, per=per) for per in ("topic", "client", "listener")),
        (25, 750),
    ),
    Work("one rule, one level, 1,000 topics in turn, admits", (rule(),), keys=1000),
    Work("pacing, admits", (rule("pacing"),)),
    Work("warm_up, once warm, admits", (rule("warm_up", WARMING),)),
]


def judged(work: Work) -> tuple[Callable[[list[Request], int], None], list[Request]]:
    """What to call, and the batch to call it with."""
    judge = Judge(RuleSet(work.rules))
    origin = judge.origin("rocketmq", "rocket", "10.0.0.7", None)
    keys = [judge.key(origin, b"topic-%d" % number, rocketmq_topic(b"topic-%d" % number)) for number in range(work.keys)]
    return judge.decide, [Request(keys[number % work.keys], 1, 1, 200) for number in range(BATCH)]


def measured(work: Work, decisions: int, warm_up: int, rounds: int) -> dict[str, object]:
    decide, requests = judged(work)
    calls = decisions // BATCH
    found = []
    for turn in range(warm_up + rounds):
        moments = [BEGIN + (turn * calls + number) * STEP_NS for number in range(calls)]
        before = time.perf_counter_ns()
        for now in moments:
            decide(requests, now)
        after = time.perf_counter_ns()
        if turn >= warm_up:
            found.append((after - before) / decisions)
    admitted = sum(request.passed for request in requests) / BATCH
    moments = [BEGIN + ((warm_up + rounds) * calls + number) * STEP_NS for number in range(ALLOCATING // BATCH + 1)]
    nothing = allocated(decide, requests, moments[:1])
    kept, in_hand = (much - floor for much, floor in zip(allocated(decide, requests, moments), nothing, strict=True))
    return {"name": work.name, "ns": found, "admitted": admitted, "goals": work.goals, "kept_bytes": kept, "in_hand_bytes": in_hand}


def allocated(decide: Callable[[list[Request], int], None], requests: list[Request], moments: list[int]) -> tuple[int, int]:
    """Bytes that these decisions have kept, and the most they had at any moment; the first batch does not count. Measures itself, too."""
    following = iter(moments)
    tracemalloc.start()
    try:
        decide(requests, next(following))
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        for now in following:
            decide(requests, now)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return after - before, peak - before


def of_the_jvm(decisions: int, warm_up: int, rounds: int) -> list[dict[str, object]]:
    """Guava and the original design's class. Empty, with a word, where Java or Guava cannot be had."""
    from support.java import JavaMissingError, MavenUnreachableError, compiled, tool
    from support.models.other_limiters import SOURCES

    try:
        class_path = compiled(SOURCES, "guava")
        command = [
            tool("java", "openjdk-17-jdk-headless"),
            "-Xmx256m",
            "-cp",
            class_path,
            "Bench",
            str(decisions),
            str(warm_up),
            str(rounds),
        ]
    except (JavaMissingError, MavenUnreachableError) as error:
        print(f"THE JVM IS NOT MEASURED: {error}", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as scratch:
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=scratch)
    return [json.loads(line) for line in done.stdout.splitlines()]


def line(found: dict[str, object], goal: str) -> str:
    times = found["ns"]
    assert isinstance(times, list)
    median, least, most = statistics.median(times), min(times), max(times)
    kept = f"{found['kept_bytes']:>9,} {found['in_hand_bytes']:>9,}" if "kept_bytes" in found else ""
    return f"{found['name']:52} {median:9.1f} {least:9.1f} {most:9.1f} {goal:>7} {found['admitted']:>9.0%} {kept}".rstrip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer decisions, fewer rounds: does it run, roughly how fast")
    parser.add_argument("--no-java", action="store_true")
    options = parser.parse_args()
    compiled = build().kind == "compiled"
    decisions = 100_000 if options.quick else 10**7 if compiled else 10**6
    of_java = 10**6 if options.quick else 10**7
    warm_up, rounds = (1, 3) if options.quick else (5, 7)

    ours = [measured(work, decisions, warm_up, rounds) for work in WORKS]
    theirs = [] if options.no_java else of_the_jvm(of_java, warm_up, rounds)

    print(f"ns per decision, one thread; {rounds} rounds of {decisions:,} decisions after {warm_up} to warm up (the JVM: of {of_java:,})")
    print(
        f"{'sluice, ' + build().kind:52} {'median':>9} {'least':>9} {'most':>9} {'goal':>7} {'admitted':>9} {'kept B':>9} {'in hand B':>9}"
    )
    for work, found in zip(WORKS, ours, strict=True):
        print(line(found, "" if work.goals is None else f"≤{work.goals[0 if compiled else 1]}"))
    if theirs:
        print("under the JVM")
    for found in theirs:
        print(line(found, ""))
    print(PUBLISHED)

    folder = HERE / "results"
    folder.mkdir(exist_ok=True)
    at = datetime.now(UTC)
    raw = {
        "at": at.isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": {"processors": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()},
        "sluice": f"{build().version}, {build().kind}",
        "decisions": decisions,
        "rounds": rounds,
        "ours": ours,
        "jvm": theirs,
        "published": PUBLISHED.splitlines(),
    }
    path = folder / f"decisions-{at:%Y%m%dT%H%M%SZ}.json"
    path.write_text(json.dumps(raw, indent=1) + "\n")
    print(f"raw results: bench/results/{path.name}")


if __name__ == "__main__":
    main()
