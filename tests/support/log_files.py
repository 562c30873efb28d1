"""Files of an access log as a gateway leaves them, and a process that is killed between two steps on them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from common.log_files import durable
from common.log_files.names import folder_of
from support.access_logs import heartbeat_line, usage_line

NOON = 1_795_262_400  # 2026-11-21T12:00:00Z
HOUR = 3600


def log_text(gateway: str = "g1", boot: str = "b1", hour: int = NOON, lines: int = 20, seq: int = 0) -> str:
    """Lines of one hour: two topics a second, and a heartbeat."""
    made = []
    for number in range(lines):
        ts = hour + number // 3
        place = seq + number
        topic = ("orders", "audit")[number % 3] if number % 3 < 2 else ""
        made.append(usage_line(gateway, boot, place, ts, topic, messages=number) if topic else heartbeat_line(gateway, boot, place, ts))
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in made)


def log_file(
    directory: Path, hour: int = NOON, gateway: str = "g1", boot: str = "b1", number: int = 0, form: str = "jsonl", text: str | None = None
) -> Path:
    """One file of the log; its text is `log_text` unless it is given."""
    path = directory / folder_of(hour) / f"{gateway}-{boot}-{number:06d}.{form}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(log_text(gateway, boot, hour, seq=number * 20) if text is None else text)
    return path


class Killed(BaseException):
    """The process is over at this step: nothing is cleaned up behind it."""


STEPS = ("finish", "rename", "remove", "sync_folder")  # of `log_files.durable`


def killed_at_each_step(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> Iterator[int]:
    """Do `work` again and again, killed before its first step, its second, and so on; yields after each death.

    The caller puts the files back before it goes on. Ends when `work` comes to its end alive.
    """
    real = {name: getattr(durable, name) for name in STEPS}
    for last in range(1000):
        taken = 0

        def step(name: str, *arguments: object, deadline: int = last) -> object:
            nonlocal taken
            if taken == deadline:
                raise Killed(name)
            taken += 1
            return real[name](*arguments)

        with monkeypatch.context() as patched:
            for name in STEPS:
                patched.setattr(durable, name, lambda *arguments, name=name: step(name, *arguments))
            try:
                work()
            except Killed:
                pass
            else:
                return
        yield last
    raise AssertionError("no end of steps")
