"""The benchmark's modules, which are scripts beside one another in bench/, and results made up for them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "bench"))

from records import Base, Bench, Goal, Machine, Run, Work

REPLIES = Work("replies", "requests", "request 1 {s} 200", (Goal("cpu", 1.0), Goal("cpu", 0.8, of="envoy"), Goal("added_p50", 1.2)))
STREAM = Work("stream", "amqp", "stream amqp {s} 200", (Goal("rate", 1.0),), ("direct", "haproxy", "sluice"))
REFUSED = Work("replies, refused", "requests", "request 1 {s} 200 x 215", (Goal("cpu", 1.0, of="sluice", work="replies"),), ("sluice",))


def run(cpu_us: float | None = None, p50_us: float | None = None, messages: int = 1000, seconds: float = 2.0) -> Run:
    """One whose processor time is a quarter user's, three quarters the kernel's."""
    if cpu_us is None:
        return Run(messages, seconds, p50_us=p50_us)
    cpu_s = cpu_us * messages / 1e6
    return Run(messages, seconds, p50_us=p50_us, cpu_s=cpu_s, user_s=cpu_s / 4, system_s=cpu_s * 3 / 4)


@pytest.fixture
def made_up() -> Callable[..., Bench]:
    """Three rounds; any of the results may be given otherwise: `made_up(**{"replies": {"sluice": [...]}})`."""
    replies = {
        "direct": [run(p50_us=10), run(p50_us=20), run(p50_us=10)],
        "haproxy": [run(10, 30), run(20, 40), run(10, 30)],
        "envoy": [run(20, 40), run(40, 60), run(25, 40)],
        "sluice": [run(9, 32), run(30, 46), run(8, 28)],
    }
    stream = {
        "direct": [run(messages=4000)] * 3,
        "haproxy": [run(1, messages=2000)] * 3,
        "sluice": [run(2, messages=2000), run(2, messages=1900), run(2, messages=2400)],
    }
    refused = {"sluice": [run(9), run(15), run(4)]}

    def made(**other: dict[str, list[Run]]) -> Bench:
        results = {"replies": replies, "stream": stream, "replies, refused": refused} | other
        machine = Machine("Some CPU <2>", 2, 24.0, True, "6.1", "3.11.7", 0.07, 0.011, "bbr")
        proxies = {"haproxy": Base(0.1, 14.5), "sluice": Base(0.4, 43.2)}
        works = [REPLIES, STREAM, REFUSED]
        return Bench("2026-11-22T05:00:00+00:00", machine, {"HAProxy": "2.6.12"}, 3, 2.0, 0.5, proxies, works, results)

    return made


@pytest.fixture
def one_run() -> Callable[..., Run]:
    return run
