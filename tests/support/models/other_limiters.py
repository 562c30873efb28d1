"""Other people's limiters in one Java process: Guava's, and the design's this comes from (`end_to_end/clients/java/limiters`)."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from support.java import ROOT, compiled, java

SOURCES = ROOT / "tests" / "end_to_end" / "clients" / "java" / "limiters"


@dataclass
class Case:
    """A limiter and what it is asked. `kind`, `setting` as `Compare.java` says; `asks`: (microsecond, permits, or a new rate as text)."""

    kind: str
    rate: float
    setting: float
    asks: list[tuple[int, int | str]]
    passed: list[bool] = field(default_factory=list)
    told_us: list[int] = field(default_factory=list)  # `original`: the wait it told, at each

    def text(self) -> str:
        return "\n".join([f"{self.kind} {self.rate} {self.setting} {len(self.asks)}", *(f"{at} {permits}" for at, permits in self.asks)])


def put_to(cases: list[Case], home: Path) -> None:
    """Fill in what passed. Raises MavenUnreachableError where Guava cannot be had."""
    command = java(compiled(SOURCES, "guava"), "Compare", home)
    done = subprocess.run(
        command, input="\n".join(case.text() for case in cases) + "\n", capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    lines = iter(done.stdout.splitlines())
    for case in cases:
        case.passed = [bit == "1" for bit in next(lines)]
        if case.kind == "original":
            case.told_us = [int(word) for word in next(lines).split()]
