"""`sluice history`: who, when, why; and back."""

from __future__ import annotations

from typing import Any

import pytest

from cli.history import COLUMNS


def entry(revision: int, target: str, before: dict[str, Any] | None = None, after: dict[str, Any] | None = None) -> dict[str, Any]:
    changes = [{"target": target, "before": before, "after": after}]
    return {"revision": revision, "at": "2026-11-21T12:00:00Z", "by": "ci", "action": "PUT", "reason": "why", "changes": changes}


@pytest.fixture
def past(admin: Any) -> Any:
    admin.history = [entry(number, "limits/rocketmq/orders", None, {"messages": f"{number}/s", "by": "ci"}) for number in range(9, 0, -1)]
    return admin


def test_list_shows_the_latest_first(sluice: Any, past: Any) -> None:
    lines = sluice("history", "list", "--limit", "3").out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["9", "8", "7"]
    assert "none -> messages 9/s" in lines[1]
    assert "limits/rocketmq/orders" in lines[1]


@pytest.mark.parametrize("more", [(), ("--limit", "1"), ("-o", "json")])
@pytest.mark.parametrize("group", ["history", "connections", "limits", "rules"])
def test_a_group_lists_where_no_verb_is_named(sluice: Any, past: Any, group: str, more: tuple[str, ...]) -> None:
    alone, listed = sluice(group, *more), sluice(group, "list", *more)
    assert (alone.code, alone.out) == (0, listed.out)
    assert "Commands:" in sluice(group, "--help").out


def test_show_one(sluice: Any, past: Any) -> None:
    assert sluice("history", "show", 4, "-o", "json").json["entry"]["revision"] == 4
    assert sluice("history", "show", 99).code == 7
    ran = sluice("history", "show", 4)
    assert [line.split() for line in ran.out.splitlines()] == [
        ["what", "before", "after"],
        ["limits/rocketmq/orders", "none", "messages", "4/s"],
    ]
    assert ran.err == "revision 4, at 2026-11-21T12:00:00Z, by ci, action PUT, reason why\n"


def test_rollback_is_against_the_history_as_read(sluice: Any, past: Any) -> None:
    ran = sluice("history", "rollback", 4, "--yes", "--reason", "too low")
    assert (ran.code, ran.err) == (0, "returned to revision 4\n")
    assert [line.split()[0] for line in ran.out.splitlines()] == ["revision", "9"]
    (write,) = past.writes()
    assert (write.path, write.body) == ("/v1/history/4:rollback", {"reason": "too low"})
    assert write.headers["If-Match"].startswith('"')


def test_a_dry_run_of_a_rollback_shows_what_would_change(sluice: Any, past: Any) -> None:
    changes = [{"target": "limits/rocketmq/orders", "before": {"messages": "9/s"}, "after": None}]
    past.answers["POST /v1/history/4:rollback"] = (200, {"dry_run": True, "would_be_revision": 10, "changes": changes, "topics": []})
    ran = sluice("history", "rollback", 4, "--dry-run")
    assert ran.out.splitlines()[1].split() == ["limits/rocketmq/orders", "messages", "9/s", "none"]
    assert ran.err == "dry run, nothing is changed; would return to revision 4\n"


def test_rollback_asks_first(sluice: Any, past: Any) -> None:
    ran = sluice("history", "rollback", 4)
    assert ran.code == 2
    assert "add --yes" in ran.err
    assert past.requests == []


def test_a_change_is_short_on_a_terminal_and_whole_in_a_pipe(admin: Any) -> None:
    at = {"by": "ci", "at": "2026-11-21T12:00:00Z", "reason": "why", "expires": "2026-11-21T13:00:00Z"}
    change = next(each for each in COLUMNS if each.title == "change")
    assert change.people is not None
    for before, after, seen in (
        (None, {"messages": "50/s", "bytes": "3MiB/s", **at}, "none -> 50/s, 3MiB/s"),
        ({"messages": "50/s"}, {"burst": "2s"}, "50/s -> burst 2s"),
        ({"rule": {"limit": {"messages": "7/s"}, "mode": "shadow"}, "number": 4}, None, "7/s, shadow -> none"),
        (None, {"quotas": 4, "sha256": "0"}, "none -> 4 quotas"),
    ):  # fmt: skip
        assert change.people(entry(1, "x", before, after)) == seen
    assert "expires 2026-11-21T13:00:00Z" in str(change.read(entry(1, "x", None, {"messages": "50/s", **at})))


def test_what_changed_it_is_told_where_what_and_change_do_not_say_it() -> None:
    told = next(each for each in COLUMNS if each.title == "action").people
    assert told is not None
    for action, seen in (
        ("PUT /v1/limits/rocketmq/orders", None), ("POST /v1/history/41:rollback", "rollback to 41"), ("expiry", "expiry"),
        ("return of quotas", "return of quotas"), (None, ""),
    ):  # fmt: skip
        assert told({"action": action}) == seen


@pytest.mark.parametrize(("answer", "code", "writes"), [("y\n", 0, 1), ("n\n", 1, 0), ("", 130, 0)])
def test_on_a_terminal_the_answer_decides(
    sluice: Any, past: Any, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, writes: int
) -> None:
    import io

    class Keyboard(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Keyboard(answer))
    assert sluice("history", "rollback", 4).code == code
    assert len([write for write in past.writes() if not write.query.get("dry_run")]) == writes


def test_audit_shows_what_was_done_and_refused(sluice: Any, admin: Any) -> None:
    admin.topics = [
        {
            "sequence": 4, "at": "2026-11-21T12:00:00Z", "by": "ci", "role": "admin", "address": "127.0.0.1:1", "outcome": "done",
            "action": "POST /v1/config:reload", "reason": "invoices",
        },
        {"sequence": 3, "at": "2026-11-21T11:00:00Z", "by": "eve", "action": "POST /v1/drain", "outcome": "refused", "detail": "403 no"},
    ]  # fmt: skip
    head, *lines = sluice("audit").out.splitlines()
    assert head.split() == ["sequence", "at", "by", "role", "address", "action", "outcome", "reason", "detail"]
    assert lines[0].split()[-3:] == ["done", "invoices", "-"]
    assert lines[1].split()[-4:] == ["refused", "-", "403", "no"]
    assert len(sluice("audit", "--limit", 1).out.splitlines()) == 2
