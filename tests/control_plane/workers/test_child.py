"""A worker's process, as its parent starts it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import trio

from control_plane.workers.child import Child
from gateway.workers.wire import StateQuery, StateReport
from gateway.workers.worker import encode
from limiter.judge import Judge
from limiter.leases.owner import LeaseOwner
from limiter.rules.rule_set import RuleSet


async def test_a_worker_imports_nothing_from_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A folder gateway/ there was executed. This worker gets as far as what it is to begin with, which is something else."""
    for shadow in ("gateway/__init__.py", "trio.py", "json.py"):
        (tmp_path / shadow).parent.mkdir(exist_ok=True)
        (tmp_path / shadow).write_text("raise SystemExit(77)")
    monkeypatch.chdir(tmp_path)
    child = Child(1, 0, Judge(RuleSet(())), LeaseOwner())
    child.send(StateQuery(1, []))
    with trio.fail_after(30):
        code = await child.run_to_end([])
    assert code == 1
    assert "begin_of" in capfd.readouterr().err


def test_a_worker_that_several_wait_for_is_killed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    monkeypatch.setattr("control_plane.workers.child.os.kill", lambda pid, number: sent.append(number))
    child = Child(1, 0, Judge(RuleSet(())), LeaseOwner())
    child.pid = 4711
    for number in (signal.SIGPROF, signal.SIGKILL, signal.SIGKILL):
        child.kill("it does not answer", number)
    assert sent == [signal.SIGPROF, signal.SIGKILL]


def test_a_view_that_cannot_be_read_stays_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    """What a client had put into it killed the worker, and with it everybody's connections."""
    child = Child(1, 0, Judge(RuleSet(())), LeaseOwner())
    child.take(StateReport(1, {"metrics": encode("sluice_memory_full 1\n"), "overhead": encode([1])}, []))
    before = child.families
    number, answered = child.request(lambda number: StateQuery(number, []))
    child.take(StateReport(number, {"metrics": encode("no number\n"), "topics": encode(5), "overhead": encode([2])}, []))
    assert answered.is_set()
    assert child.families is before
    assert child.view("overhead") == [2]
    assert [(record.msg, getattr(record, "fields", None)) for record in caplog.records] == [
        ("view_failed", {"worker": 1, "view": "metrics"}), ("view_failed", {"worker": 1, "view": "topics"}),
    ]  # fmt: skip
