"""Figures of the pages are those of kept results, and results say when, where and at which commit they were measured."""

from __future__ import annotations

import json
import re
import subprocess
from datetime import datetime
from pathlib import Path

import pytest
from kept import OLD, ROOT, before, commit, files, keep, old_results, rooms
from quoted import QueryError, costs, pages, quoted, traffic, two_workers, written

DRAWN = {"docs/images/cpu-per-message.svg": "20261201T032018Z.json"}  # by tests/bench/test_chart.py
UNIT = re.compile(
    r"\d\s?(?:µs|ns)\b|\d\s?(?:CPU-s|microseconds|seconds of (?:the )?processor|s of processor)|\d\s?% of (?:a|one) core"
    r"|[\d.]+ times (?:HAProxy|Envoy)"
)
ANY_UNIT = re.compile(UNIT.pattern + r"|\d\s?(?:ms|s|MB|kB|%|x)(?![\w/])|\d times|\d (?:messages|lines|decisions)(?:/s| a second)")
SET_UP = ("planned to 70 %", "2,000 messages a second with answers", "1/s spools")  # of docs/performance.md; not what was found
NOT_OURS = {  # pages whose microseconds are no measurement of sluice
    "docs/replacing-the-patched-broker.md",  # what the patched broker announces, by its code
    "docs/design/limiter.md",  # the same
}


def test_pages_have_the_figures_of_the_kept_results() -> None:
    """Otherwise: `make docs`, or `PYTHONPATH=.:tests python bench/quoted.py`."""
    for page in pages():
        text = page.read_text()
        assert written(text, page.parent) == text, page.relative_to(ROOT)


def test_no_page_has_a_speed_without_a_source() -> None:
    found = []
    for page in pages():
        name = str(page.relative_to(ROOT))
        text = re.sub(r"<!-- figures: .*?<!-- /figures -->", "", page.read_text(), flags=re.DOTALL)
        unit = ANY_UNIT if name == "docs/performance.md" else UNIT
        lines = text.splitlines() if name not in NOT_OURS else []
        found += [f"{name}: {line.strip()[:120]}" for line in lines if unit.search(line) and not any(each in line for each in SET_UP)]
    assert not found, "from a kept result (bench/quoted.py), or not at all:\n" + "\n".join(found)


def test_every_kept_result_says_when_where_and_at_which_commit_and_is_quoted() -> None:
    named = set(DRAWN.values()).union(*(quoted(page.read_text()) for page in pages()))
    for path in files():
        kept = json.loads(path.read_text())
        assert datetime.fromisoformat(kept["at"]).year >= 2026, path.name
        assert re.fullmatch(r"[0-9a-f]{8}\+?", kept["commit"]), path.name
        assert kept["machine"]["processors"] > 0, path.name
        assert all((ROOT / room).is_dir() for room in rooms(path)), path.name
        assert path.name in named, f"{path.name}: no page quotes it; remove it"


def test_a_figure_that_was_changed_by_hand_is_written_back() -> None:
    page = ROOT / "docs" / "performance.md"
    text = page.read_text()
    (cost,) = re.findall(r"\| AMQP stream, 200 B .*?\|\s+([\d.]+) \|", text)
    assert written(text.replace(cost, "0.01"), page.parent) != text.replace(cost, "0.01")


@pytest.mark.parametrize(
    "query",
    ["value no-such.json a", "value review-479a331f.json latency.rows.99.1", "no-such review-479a331f.json", "capacity scale-idle.json"],
)
def test_a_query_that_nothing_can_be_written_for_is_an_error_that_names_it(query: str) -> None:
    with pytest.raises(QueryError, match=re.escape(query)):
        written(f"<!-- figures: {query} --><!-- /figures -->", ROOT)


def test_the_cheaper_of_two_peers_is_the_bar() -> None:
    by_work = {line.split("|")[1].strip(): line.split("|")[2:-1] for line in costs("20261201T032018Z.json").splitlines()}
    for work, cells in list(by_work.items())[2:]:
        haproxy, envoy = (float(cell) for cell in cells[:2])
        if haproxy != envoy:
            assert cells[3].strip().endswith("HAProxy's" if haproxy < envoy else "Envoy's"), work
    mixed = {line.split("|")[1].strip(): line.split("|")[2:-1] for line in traffic("20261201T032018Z.json").splitlines()[2:]}
    assert len(mixed) == 18
    for work, cells in mixed.items():
        assert (cells[3].strip() == "-") == ("TLS" in work)
        envoy, bar = 1.0 if "TLS" in work else float(cells[3]), cells[-1].strip()
        assert bar.endswith("Envoy's" if envoy < 1 else "HAProxy's"), work
        assert envoy < 1 or bar.split()[0] == cells[1].split()[0], work


def test_more_messages_by_two_workers_stand_beside_the_processor_time_they_take() -> None:
    held = next(line for line in two_workers("scale-workers.json").splitlines() if "held" in line)
    times, processor, each = (float(cell.split()[0]) for cell in held.split("|")[2:-1])
    assert times * each == pytest.approx(processor, rel=0.05)


# ---- how old a result is -----------------------------------------------------------------------------------------------


def git(root: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.run(["git", *identity, *words], cwd=root, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Its first commit is where a decision was measured."""
    (tmp_path / "limiter").mkdir()
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")
    measured = git(tmp_path, "rev-parse", "--short=8", "HEAD")
    (tmp_path / "decisions-1.json").write_text(json.dumps({"commit": f"{measured}+"}))
    return tmp_path


def test_a_result_older_than_a_hundred_commits_of_its_rooms_is_said_to_be(repository: Path) -> None:
    kept = [repository / "decisions-1.json"]
    for number in range(OLD):
        (repository / "limiter" / "a.py").write_text(f"{number}")
        git(repository, "add", "limiter")
        git(repository, "commit", "-q", "-m", f"{number}")
    assert list(old_results(kept, repository)) == [], "not yet"
    git(repository, "commit", "-q", "--allow-empty", "-m", "of another room")
    assert list(old_results(kept, repository)) == [], "other rooms do not count"
    (repository / "limiter" / "a.py").write_text("last")
    git(repository, "commit", "-q", "-a", "-m", "last")
    measured = json.loads(kept[0].read_text())["commit"].rstrip("+")
    assert list(old_results(kept, repository)) == [f"decisions-1.json: measured at {measured}, {OLD + 1} commits of limiter/ ago"]


def test_without_history_nothing_is_said(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = [repository / "decisions-1.json"]
    kept[0].write_text('{"commit": "0123abcd"}')
    assert list(old_results(kept, repository)) == [], "a shallow clone: no such commit"
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (repository / ".git").rename(repository / "git")
    assert list(old_results(kept, repository)) == [], "no repository"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert list(old_results(kept, repository)) == [], "no git"


def test_what_is_kept_names_its_build_and_its_commit(tmp_path: Path) -> None:
    facts = before(["echo", "sluice"])
    keep(tmp_path / "new" / "scale-x.json", facts, {"a": 1})
    kept = json.loads((tmp_path / "new" / "scale-x.json").read_text())
    assert kept == {**facts, "found": {"a": 1}}
    assert kept["sluice"] == "sluice version"
    assert datetime.fromisoformat(kept["at"]).tzinfo is not None
    assert kept["commit"] == commit()
    (tmp_path / "limiter").mkdir()
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")
    head = git(tmp_path, "rev-parse", "--short=8", "HEAD")
    assert commit(tmp_path) == head
    (tmp_path / "notes").write_text("no code")
    assert commit(tmp_path) == head
    (tmp_path / "limiter" / "a.py").write_text("changed")
    assert commit(tmp_path) == f"{head}+"
