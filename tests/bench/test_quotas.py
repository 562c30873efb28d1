"""The generated day of the volume benchmark is one that the job reads, and a command's processor time is that of all its processes."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "bench"))

from quotas.driver import TEMPLATES
from quotas.driver import main as drive
from quotas.generate import GATEWAYS, HOUR_S, write_log
from quotas.run import BOUND, SMALL, missed, table

DATE = "2026-11-20"


def test_a_generated_day_has_topics_by_zipf_heartbeats_and_no_gap(tmp_path: Path) -> None:
    written = write_log(tmp_path, DATE, GATEWAYS * 24 * (HOUR_S + 100), 50)
    files = sorted(tmp_path.rglob("*.jsonl"))
    assert len(files) == GATEWAYS * 24
    lines = [json.loads(line) for path in files[:: 24 * GATEWAYS - 1] for line in path.read_text().splitlines()]
    assert written == GATEWAYS * 24 * (HOUR_S + 100)
    assert all(line["v"] == 1 for line in lines)
    assert sum(bool(line.get("heartbeat")) for line in lines) == 2 * HOUR_S
    topics = Counter(line["topic"] for line in lines if "topic" in line)
    first = [name for name, _ in topics.most_common(50)]
    assert first != sorted(first)  # a name says nothing of its volume
    of_one = [json.loads(line)["seq"] for path in files if "gateway-1-" in path.name for line in path.read_text().splitlines()]
    assert sorted(of_one) == list(range(written // GATEWAYS))


def test_the_same_arguments_give_the_same_bytes_also_packed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_log(tmp_path / name, DATE, 0, 5)
    write_log(tmp_path / "c", DATE, 0, 5, packed=True)
    for path in (tmp_path / "a").rglob("*.jsonl"):
        relative = path.relative_to(tmp_path / "a")
        assert path.read_bytes() == (tmp_path / "b" / relative).read_bytes()
        assert path.read_bytes() == gzip.decompress((tmp_path / "c" / relative).with_name(relative.name + ".gz").read_bytes())


MEASURED = """
import sys
sys.path.append("bench")
from quotas.tree import run
busy = "import time\\nwhile time.process_time() < 0.5: pass"
orphan = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {busy!r}])"
took = run([sys.executable, "-c", orphan])
print(took.cpu_s > 0.5, took.peak_bytes > 2**20)
"""


def test_the_time_of_a_process_that_its_parent_did_not_wait_for_counts() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", MEASURED], cwd=root, capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["True", "True"], "")


FORGETTING = """
import subprocess, sys
sys.path.append("bench")
from quotas.tree import run
busy = "import time\\nwhile time.process_time() < 1.5: pass"
parent = f"import signal, subprocess, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); subprocess.run([sys.executable, '-c', {busy!r}])"
print(run([sys.executable, "-c", parent]).cpu_s > 1)
"""


@pytest.mark.slow
def test_the_time_of_a_process_counts_also_where_its_parent_ignores_that_it_ends_as_sparks_daemon_does() -> None:
    done = subprocess.run([sys.executable, "-c", FORGETTING], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("True", "")


def test_the_table_shows_what_further_lines_cost() -> None:
    def row(lines: int, cpu_s: float) -> dict[str, object]:
        spark = {"cpu_s": cpu_s, "us_per_line": cpu_s / lines * 1e6, "peak_gb": 2.0, "wall_s": 9.0}
        return {"lines": lines, "topics": 7, "spark": spark, "duckdb": {"cpu_s": 10.0}, "ratio": cpu_s / 10}

    last = table([row(1_000_000, 50.0), row(4_000_000, 80.0)]).splitlines()[-1]
    assert last == "| 4,000,000 | 7 | 10.0 | 80.0 | 20.0 | 10.0 | 8.0 | 2.0 GB | 9 s |"


def test_a_ratio_above_its_bound_and_a_night_above_its_goal_are_said_and_fail_the_benchmark() -> None:
    def nights(above: float) -> list[dict[str, object]]:
        return [{"night": name, "cpu_s": goal + above} for name, (_, goal) in SMALL.items()]

    assert missed([{"ratio": 7.0}, {"ratio": BOUND}], nights(-0.1)) == []
    found = missed([{"ratio": BOUND + 0.1}], nights(0))
    assert ["DuckDB" in sentence for sentence in found] == [True, *[False] * len(SMALL)]


FEW_FILES = """
import json, sys
from pathlib import Path
sys.path.append("bench")
from quotas import run
run.SMALL["few files"] = (lambda log: run.write_files(log, run.DATE, gateways=1), 10.0)
print(json.dumps(run.small_night("few files", Path(sys.argv[1]))))
"""


@pytest.mark.slow
def test_a_night_of_files_with_two_lines_each_is_computed_without_java(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", FEW_FILES, tmp_path], cwd=root, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout or "{}")
    assert (found.get("files"), found.get("lines")) == (288, 576), done.stderr
    night = json.loads((tmp_path / "quotas.json").read_text())
    assert night["night"]["observed_seconds"] == 288
    assert len(night["quotas"]) == 100


@pytest.mark.spark
@pytest.mark.long
def test_both_engines_find_the_same_in_a_small_day(tmp_path: Path) -> None:
    from quotas import by_duckdb, by_spark

    write_log(tmp_path / "log", DATE, 300_000, 20)
    found = by_duckdb.main(str(tmp_path / "log"), str(tmp_path / "duckdb"), DATE, "1g")
    assert by_spark.main(str(tmp_path / "log"), str(tmp_path / "state"), DATE, "1g") == found


def test_the_driver_of_made_up_days_gives_each_topic_a_quota(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--topics", str(2 * TEMPLATES), "--days", "9", "--state", str(tmp_path)]
    assert [drive(words), drive(words)] == [0, 0]
    first = capsys.readouterr()
    assert f"{2 * TEMPLATES} quotas" in first.err
    assert drive(words) == 0
    assert capsys.readouterr().out == first.out, "the same days are the same bytes"
