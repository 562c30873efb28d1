"""The journals: their chain and what breaks it, rolling, refusals apart from changes, filters and pages."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from admin.store.audit_chain import lines_of, verify_audit, verify_state_directory
from admin.store.changes import Author
from admin.store.journal import BEGIN, ENTRY_AT, ROTATE_AT, Entry, Journal, chain_hash, last_lines
from admin.store.state import Edit, StoredOverride
from admin.store.store import Store
from common.durable_files import FileSystem
from support.admin.admin_client import RULES, Control, control

ORDERS = "/v1/limits/rocketmq/orders"
AUTHOR = Author("ops", "admin", "127.0.0.1")
Lines = list[bytes]


def journal(folder: Path, lines: int = 12, rotate_at: int = 1 << 20, file: str = "history.jsonl") -> Path:
    """A journal of so many lines."""
    made = Journal(folder, FileSystem(), rotate_at, file)
    for number in range(1, lines + 1):
        made.append(Entry(2 * number, f"2026-11-21T12:00:{number:02}.000Z", "ops", "PUT /x", "done", reason=f"reason {number}"))
    return folder / file


def damage(path: Path, how: Callable[[Lines], Lines]) -> None:
    path.write_bytes(b"".join(how(path.read_bytes().splitlines(keepends=True))))


def altered(lines: Lines) -> Lines:
    lines[4] = lines[4].replace(b"reason 5", b"reason 7")
    return lines


def rehashed(lines: Lines) -> Lines:
    """Altered, and the line's own hash computed anew."""
    entry = lines[4][ENTRY_AT:-2].replace(b"reason 5", b"reason 7")
    lines[4] = b'{"hash":"' + chain_hash(json.loads(lines[3])["hash"], entry).encode() + b'","entry":' + entry + b"}\n"
    return lines


BREAKS: dict[str, tuple[Callable[[Lines], Lines], int, str]] = {
    "altered": (altered, 5, "altered"),
    "altered with its own hash": (rehashed, 6, "altered"),
    "missing": (lambda lines: lines[:4] + lines[5:], 5, "removed"),
    "reordered": (lambda lines: [*lines[:4], lines[5], lines[4], *lines[6:]], 5, "moved"),
    "inserted": (lambda lines: [*lines[:4], lines[2], *lines[4:]], 5, "inserted"),
    "cut in the middle": (lambda lines: [*lines[:4], lines[4][:60] + b"\n", *lines[5:]], 5, "cut or altered"),
    "joined with the next": (lambda lines: [*lines[:4], lines[4][:60], *lines[5:]], 5, "cut or altered"),
    "no line of ours": (lambda lines: [*lines[:4], b"hello\n", *lines[4:]], 5, "cut or altered"),
    "no entry before the first": (lambda lines: [b"{}\n", *lines], 1, "cut or altered"),
    "not UTF-8": (lambda lines: [*lines[:4], b"\xff\xfe\n", *lines[4:]], 5, "cut or altered"),
    "begun anew": (lambda lines: [*lines[:4], lines[0], *lines[4:]], 5, "a new chain begins here"),
    "the first gone": (lambda lines: lines[1:], 1, "are missing"),
}


@pytest.mark.parametrize(("how", "line", "fault"), BREAKS.values(), ids=BREAKS.keys())
def test_the_first_line_that_is_wrong_is_found(tmp_path: Path, how: Callable[[Lines], Lines], line: int, fault: str) -> None:
    path = journal(tmp_path)
    assert verify_audit(tmp_path).ok
    damage(path, how)
    report = verify_audit(tmp_path)
    assert not report.ok
    broken = report.journals[0].broken
    assert broken is not None
    assert (broken.file, broken.line) == ("history.jsonl", line)
    assert fault in broken.fault
    assert path.read_bytes()[broken.byte :].splitlines()[0] == path.read_bytes().splitlines()[line - 1]


def test_a_whole_chain_says_from_where_to_where_it_holds(tmp_path: Path) -> None:
    journal(tmp_path)
    report = verify_audit(tmp_path).journals[0]
    assert (report.ok, report.lines, report.first, report.last, report.complete) == (True, 12, 2, 24, True)
    assert report.since == "2026-11-21T12:00:01.000Z"


def test_the_chain_goes_on_over_rolled_files(tmp_path: Path) -> None:
    journal(tmp_path, 40, rotate_at=1000)
    report = verify_audit(tmp_path).journals[0]
    assert (report.ok, report.complete, report.last) == (True, False, 80)
    assert 1 < report.first < 78
    assert report.lines == (80 - report.first) // 2 + 1
    damage(tmp_path / "history.jsonl.1", lambda lines: lines[:-1])
    broken = verify_audit(tmp_path).journals[0].broken
    assert broken is not None
    assert (broken.file, broken.line) == ("history.jsonl", 1), "the last line of the older file is gone"


def test_a_rolled_file_that_is_gone_shows(tmp_path: Path) -> None:
    journal(tmp_path, 40, rotate_at=1000)
    (tmp_path / "history.jsonl.1").unlink()
    (fault,) = verify_audit(tmp_path).faults
    assert "history.jsonl.1 is gone" in fault


def test_lines_of_a_version_before_the_chain_are_counted_and_stand_first(tmp_path: Path) -> None:
    path = journal(tmp_path)
    old = msgspec.json.encode(Entry(1, "2026-01-01T00:00:00.000Z", "ops", "PUT /x", "done")) + b"\n"
    path.write_bytes(old * 3 + path.read_bytes())
    report = verify_audit(tmp_path).journals[0]
    assert (report.ok, report.unchained, report.lines, report.since) == (True, 3, 12, "2026-11-21T12:00:01.000Z")
    path.write_bytes(path.read_bytes() + old)
    assert not verify_audit(tmp_path).ok


def test_half_a_line_at_the_end_is_one_that_is_being_written(tmp_path: Path) -> None:
    path = journal(tmp_path)
    path.write_bytes(path.read_bytes() + b'{"hash":"')
    assert verify_audit(tmp_path).ok


async def test_lines_cut_off_at_the_end_show_by_the_state(tmp_path: Path) -> None:
    async with control(tmp_path) as api:
        for rate in (1, 2, 3):
            assert (await api.ask("PUT", f"{ORDERS}?force=1", {"messages": f"{rate}/s"})).status == 200
    folder = tmp_path / "state"
    assert verify_state_directory(folder)["ok"]
    damage(folder / "history.jsonl", lambda lines: lines[:-1])
    report = verify_state_directory(folder)
    assert (report["ok"], report["faults"]) == (
        False, ["history.jsonl ends with sequence 2, but the last change is of sequence 3: lines at its end are missing"],
    )  # fmt: skip


async def test_a_file_that_was_set_aside_goes_on_being_told(tmp_path: Path) -> None:
    async with control(tmp_path) as api:
        for rate in (1, 2, 3):
            await api.ask("PUT", f"{ORDERS}?force=1", {"messages": f"{rate}/s"})
    damage(tmp_path / "state" / "history.jsonl", lambda lines: [lines[0], lines[2]])
    async with control(tmp_path) as api:
        await api.ask("PUT", f"{ORDERS}?force=1", {"messages": "4/s"})
        report = (await api.ask("GET", "/v1/audit:verify", role="operator")).json()
    assert not report["ok"]
    assert "set aside" in report["faults"][-1]
    assert report["journals"][0]["ok"], "the new chain is whole"


async def test_the_running_gateway_checks_its_own(api: Control) -> None:
    await api.ask("PUT", f"{ORDERS}?force=1", {"messages": "1/s"})
    await api.ask("PUT", f"{ORDERS}?force=1", {"messages": "x"})
    report = (await api.ask("GET", "/v1/audit:verify")).json()
    assert (report["ok"], [(each["file"], each["lines"]) for each in report["journals"]]) == (
        True, [("history.jsonl", 1), ("refusals.jsonl", 1)],
    )  # fmt: skip
    damage(api.folder / "history.jsonl", lambda lines: [lines[0].replace(b"1/s", b"9/s")] * 2)
    assert "altered" in (await api.ask("GET", "/v1/audit:verify")).json()["faults"][0]
    assert (await api.ask("GET", "/v1/audit:verify", role="viewer")).status == 403


# ---- refusals apart from changes ---------------------------------------------------------------------------------------


async def test_refused_requests_push_no_change_out_of_the_history(tmp_path: Path) -> None:
    """At 585f47f one refused request a second filled both files in hours; then there was no revision left to roll back to."""
    store = Store.open(tmp_path / "state", RULES, rotate_at=20_000)
    files = tmp_path / "state"
    store.close()
    async with control(tmp_path) as api:
        for rate in (1, 2, 3):
            await api.ask("PUT", f"{ORDERS}?force=1", {"messages": f"{rate}/s"})
    store = Store.open(files, RULES, rotate_at=20_000)
    stranger = Author("nobody", "", "10.0.0.66")
    for number in range(600):
        assert await store.note(stranger, f"PUT /v1/limits/rocketmq/{number}", "refused", "401 no good token")
    assert (files / "refusals.jsonl.1").exists(), "they have rolled more than once"
    assert (files / "refusals.jsonl").stat().st_size < 21_000
    assert store.revisions() == [1, 2, 3]
    assert verify_audit(files, store.state.sequence).ok
    store.close()
    async with control(tmp_path) as api:
        assert (await api.ask("POST", "/v1/history/1:rollback?force=1")).json()["revision"] == 4
        items = (await api.ask("GET", "/v1/audit?limit=2")).json()["items"]
        assert [(item["outcome"], item["sequence"]) for item in items] == [("applied", 604), ("refused", 603)]


def set_to(rate: int) -> tuple[list[Edit], None]:
    return [("limits/rocketmq/orders", StoredOverride(messages=f"{rate}/s"))], None


async def test_a_thousand_changes_stay_whatever_is_refused(tmp_path: Path) -> None:
    """With the files as large as they are by default."""
    files = tmp_path / "state"
    store = Store.open(files, RULES)
    for rate in range(1, 1001):
        await store.change(partial(set_to, rate), AUTHOR, "test")
    refused = 0
    while not (files / "refusals.jsonl.1").exists() or (files / "refusals.jsonl").stat().st_size < ROTATE_AT // 2:
        assert await store.note(AUTHOR, "PUT /v1/limits/rocketmq/x", "refused", "x" * 60_000)
        refused += 1
    assert refused * 60_000 > ROTATE_AT
    assert store.revisions() == list(range(1, 1001))
    store.close()
    store = Store.open(files, RULES)
    assert store.revisions() == list(range(1, 1001))
    store.close()


async def test_a_history_with_refusals_of_before_is_read_on(tmp_path: Path) -> None:
    """Until they had a journal of their own, refusals stood among the changes."""
    async with control(tmp_path) as api:
        await api.ask("PUT", f"{ORDERS}?force=1", {"messages": "1/s"})
    folder = tmp_path / "state"
    old = Journal(folder, FileSystem())
    old.append(Entry(2, "2026-11-18T12:00:00.000Z", "eve", "PUT /x", "refused"))
    async with control(tmp_path) as api:
        await api.ask("PUT", f"{ORDERS}?force=1", {"messages": "x"})
        await api.ask("PUT", f"{ORDERS}?force=1", {"messages": "2/s"})
        items = (await api.ask("GET", "/v1/audit")).json()["items"]
        assert [(item["sequence"], item["outcome"]) for item in items] == [(4, "applied"), (3, "refused"), (2, "refused"), (1, "applied")]
        assert (await api.ask("GET", "/v1/audit:verify")).json()["ok"]


async def test_a_flood_of_refusals_is_counted_and_not_written_line_by_line(api: Control) -> None:
    for _ in range(40):
        assert (await api.ask("PUT", f"{ORDERS}?force=1", {"messages": "x"}, role="viewer")).status == 403
    lines = (await api.ask("GET", "/v1/audit?outcome=refused")).json()["items"]
    assert len(lines) < 40
    assert (await api.ask("GET", "/v1/audit:verify")).json()["ok"]


# ---- filters and pages ---------------------------------------------------------------------------------------------------


async def pages(api: Control, path: str) -> list[Any]:
    found: list[Any] = []
    cursor = ""
    while True:
        page = (await api.ask("GET", f"{path}{cursor}")).json()
        found += page["items"]
        if page["next"] is None:
            return found
        cursor = f"&cursor={page['next']}"


async def test_history_and_audit_are_filtered_and_paged(api: Control) -> None:
    for number in range(9):
        api.clock.now += 60
        topic, role = ("orders", "admin") if number % 3 else ("bills", "operator")
        await api.ask("PUT", f"/v1/limits/rocketmq/{topic}?force=1", {"messages": f"{number + 1}/s", "reason": f"R{number}"}, role=role)
    await api.ask("PUT", f"{ORDERS}?force=1", {"messages": "x"})

    async def revisions(query: str) -> list[int]:
        return [item["revision"] for item in await pages(api, f"/v1/history?limit=2{query}")]

    assert await revisions("") == list(range(9, 0, -1))
    assert await revisions("&by=operator") == [7, 4, 1]
    assert await revisions("&target=BILLS") == [7, 4, 1]
    assert await revisions("&q=r8") == [9]
    assert await revisions("&q=nothing") == []
    assert await revisions("&since=2026-11-18T11:14:40Z") == [9, 8]
    assert await revisions("&since=2026-11-18T12:13:40%2B01:00&until=2026-11-18T11:14:40Z") == [7]
    assert [item["outcome"] for item in await pages(api, "/v1/audit?limit=1&outcome=refused")] == ["refused"]
    assert len(await pages(api, "/v1/audit?limit=3")) == 10
    for query in ("since=yesterday", "until=2026-11-18T11:14:40", "since=99999-01-01T00:00:00Z"):
        answer = await api.ask("GET", f"/v1/audit?{query}")
        assert (answer.status, answer.json()["errors"][0]["pointer"]) == (422, f"?{query.split('=')[0]}")


@pytest.mark.parametrize("block", [1, 7, 64, 1 << 20])
def test_lines_are_read_from_the_end(tmp_path: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("admin.store.journal.BLOCK", block)
    path = tmp_path / "x"
    for text in (b"", b"a\n", b"a\nbb\n\nccc\n", b"one\ntwo", b"\n"):
        path.write_bytes(text + b"added later")
        with path.open("rb") as file:
            found = list(last_lines(file, len(text)))
        assert found == [line for line in reversed(text.split(b"\n")) if line]


def test_the_chain_of_ten_lines_of_python_is_the_one_that_is_checked(tmp_path: Path) -> None:
    path = journal(tmp_path, 3)
    before = BEGIN
    for line in path.read_bytes().splitlines():
        assert chain_hash(before, line[ENTRY_AT:-1]) == json.loads(line)["hash"]
        before = json.loads(line)["hash"]
    shutil.rmtree(tmp_path)


def test_what_is_added_while_a_journal_is_read_is_not_looked_at() -> None:
    assert list(lines_of(io.BytesIO(b"one\ntwo\nthree\n"), 6)) == [(0, b"one", True), (4, b"tw", False)]


def test_a_line_without_an_end_takes_a_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("admin.store.audit_chain.MAX_LINE", 5)
    found = list(lines_of(io.BytesIO(b"longer line\nx\n"), 14))
    assert found == [(0, b"longe", False), (5, b"r lin", False), (10, b"e", True), (12, b"x", True)]
