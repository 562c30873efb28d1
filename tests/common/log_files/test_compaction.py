"""Compaction: one Parquet file for a gateway's hour, nothing lost whatever happens between, faulty hours left as they are."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

import pyarrow.parquet as pq

from common.log_files import manifest
from common.log_files.compaction import CompactedHour, compact
from common.log_files.compression import chunks, compress
from common.log_files.manifest import HourManifest, sha256_of
from common.log_files.marks import Shipments
from common.log_files.names import PARQUET, look
from support.log_files import HOUR, NOON, killed_at_each_step, log_file, log_text

LATER = NOON + 3 * HOUR


def run(directory: Path, now: float = LATER) -> list[CompactedHour]:
    return list(compact(directory, now, 600))


def seqs(directory: Path) -> set[tuple[str, str, int]]:
    """Every line there is to be read, as (gateway, boot, seq): what the nightly job tells lines apart by."""
    found = set()
    for file in look(directory).files:
        if file.form == PARQUET:
            found |= {(row["gateway"], row["boot"], row["seq"]) for row in pq.read_table(file.path, partitioning=None).to_pylist()}
        else:
            text = b"".join(chunks(file.path, file.form)).decode()
            found |= {(row["gateway"], row["boot"], row["seq"]) for row in map(json.loads, text.splitlines())}
    return found


def fill(directory: Path) -> None:
    """An hour of two gateways, in all forms."""
    for number in range(3):
        log_file(directory, number=number)
    log_file(directory, gateway="g2")
    for file in look(directory).files[:2]:
        compress(file, "zstd" if file.path.name.endswith("0.jsonl") else "gzip", lambda: None)


def test_an_hour_becomes_one_file_for_each_gateway_and_a_manifest(tmp_path: Path) -> None:
    fill(tmp_path)
    before = seqs(tmp_path)
    done = run(tmp_path)
    assert [(each.gateway, each.files, each.lines, each.corrupt, each.fault) for each in done] == [
        ("g1", 3, 60, 0, ""),
        ("g2", 1, 20, 0, ""),
    ]
    files = look(tmp_path).files
    assert [file.path.name for file in files] == ["g1-b1-000000.parquet", "g2-b1-000000.parquet"]
    assert seqs(tmp_path) == before
    known = manifest.local(tmp_path, "g1", NOON)
    (entry,) = known.files.values()
    assert (entry.name, entry.size, entry.sha256, entry.lines) == (files[0].name, files[0].size, sha256_of(files[0].path), 60)
    assert entry.sources == tuple(f"g1-b1-00000{number}.jsonl" for number in range(3))
    table = pq.read_table(files[0].path, partitioning=None)
    keys = [(row["topic"] or "", row["ts"]) for row in table.to_pylist()]
    assert keys == sorted(keys)
    assert run(tmp_path) == []
    assert not (tmp_path / ".compacting").exists()


def test_an_hour_that_is_not_over_long_enough_waits(tmp_path: Path) -> None:
    log_file(tmp_path)
    assert run(tmp_path, NOON + HOUR + 599) == []
    assert len(run(tmp_path, NOON + HOUR + 601)) == 1


def test_corrupt_lines_are_kept_aside_and_counted(tmp_path: Path) -> None:
    text = log_text()
    log_file(tmp_path, text=text[:1000] + "\n" + text)
    for path in (log_file(tmp_path, number=1, text=text[:-30]), *tmp_path.glob("dt=*/*/*")):  # torn at its end
        path.chmod(0o600)
    (done,) = run(tmp_path)
    aside = tmp_path / "corrupt/dt=2026-11-21/hr=12/g1-b1-000000.jsonl.gz"
    kept = gzip.decompress(aside.read_bytes()).decode().splitlines()
    assert done.corrupt == len(kept) == 2
    assert kept[1] == text[:-30].splitlines()[-1]
    (entry,) = manifest.local(tmp_path, "g1", NOON).files.values()
    assert entry.corrupt == 2
    assert {path.stat().st_mode & 0o777 for path in (aside, *tmp_path.rglob("*.parquet"))} == {0o600}


def test_a_file_that_comes_late_makes_another_one(tmp_path: Path) -> None:
    log_file(tmp_path)
    run(tmp_path)
    log_file(tmp_path, number=7)
    run(tmp_path)
    assert [file.path.name for file in look(tmp_path).files] == ["g1-b1-000000.parquet", "g1-b1-000007.parquet"]
    assert len(manifest.local(tmp_path, "g1", NOON).files) == 2


@pytest.mark.slow
def test_a_process_killed_between_any_two_steps_loses_no_line_and_the_next_run_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, after = tmp_path / "log", tmp_path / "after"
    log.mkdir()
    bad = "{torn\n"

    def begin() -> None:
        shutil.rmtree(log)
        log.mkdir()
        fill(log)
        log_file(log, number=5, text=bad)

    begin()
    lines = seqs_but(log, bad)
    deaths = 0
    for _ in killed_at_each_step(monkeypatch, lambda: run(log)):
        deaths += 1
        assert seqs_but(log, bad) == lines
        shutil.copytree(log, after)
        assert all(not each.fault for each in run(after))
        assert [file.path.name for file in look(after).files] == ["g1-b1-000000.parquet", "g2-b1-000000.parquet"]
        assert seqs(after) == lines
        assert gzip.decompress((after / "corrupt/dt=2026-11-21/hr=12/g1-b1-000000.jsonl.gz").read_bytes()) == bad.encode()
        shutil.rmtree(after)
        begin()
    assert deaths >= 10


def seqs_but(directory: Path, bad: str) -> set[tuple[str, str, int]]:
    """As `seqs`, where one file is nothing but a corrupt line."""
    found = set()
    for file in look(directory).files:
        if file.form == PARQUET or b"".join(chunks(file.path, file.form)) != bad.encode():
            alone = directory.parent / "alone"
            place = alone / file.name
            place.parent.mkdir(parents=True)
            shutil.copy(file.path, place)
            found |= seqs(alone)
            shutil.rmtree(alone)
    return found


def test_an_open_file_keeps_its_hour_as_it_is(tmp_path: Path) -> None:
    log_file(tmp_path)
    log_file(tmp_path, number=1, form="jsonl.open")
    (done,) = run(tmp_path)
    assert "still open" in done.fault
    assert len(look(tmp_path).files) == 2


def test_a_damaged_file_keeps_its_hour_as_it_is(tmp_path: Path) -> None:
    fill(tmp_path)
    packed = next(tmp_path.rglob("*.gz"))
    packed.write_bytes(packed.read_bytes()[:-9])
    before = sorted(tmp_path.rglob("*.jsonl*"))
    assert ["torn or damaged" in each.fault for each in run(tmp_path)] == [True, False]
    assert set(before) - set(tmp_path.rglob("*.jsonl*")) == {path for path in before if "g2" in path.name}


def test_a_log_of_a_newer_gateway_stays(tmp_path: Path) -> None:
    log_file(tmp_path, text=log_text().replace('"revision"', '"partition":1,"revision"'))
    (done,) = run(tmp_path)
    assert "'partition'" in done.fault
    assert [file.form for file in look(tmp_path).files] == ["jsonl"]


def test_what_was_shipped_here_is_held_against_its_manifest(tmp_path: Path) -> None:
    path = log_file(tmp_path)
    known = HourManifest("g1", NOON)
    known.add(manifest.ManifestEntry("dt=2026-11-21/hr=12/g1-b1-000000.jsonl", path.stat().st_size, "0" * 64, 20))
    (tmp_path / known.name).parent.mkdir(parents=True)
    (tmp_path / known.name).write_bytes(known.text())
    (done,) = run(tmp_path)
    assert "is not what manifest/g1/dt=2026-11-21/hr=12.json says; ship the hour again" in done.fault
    known.files = {}
    known.add(manifest.ManifestEntry("dt=2026-11-21/hr=12/g1-b1-000000.jsonl", path.stat().st_size, sha256_of(path), 20))
    (tmp_path / known.name).write_bytes(known.text())
    (done,) = run(tmp_path)
    assert not done.fault
    assert [name.rpartition(".")[2] for name in manifest.local(tmp_path, "g1", NOON).files] == ["parquet"]


def test_where_the_compacted_file_is_gone_nothing_is_removed(tmp_path: Path) -> None:
    fill(tmp_path)
    saved = tmp_path.parent / "saved"
    shutil.copytree(tmp_path, saved)
    run(tmp_path)
    next(tmp_path.rglob("g1*.parquet")).unlink()
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    shutil.rmtree(saved)
    faults = [each.fault for each in run(tmp_path)]
    assert "is missing or of another size" in faults[0]
    assert len([file for file in look(tmp_path).files if file.gateway == "g1"]) == 3


@pytest.mark.parametrize("text", ["{}", "[]", "17", "{", '{"v":9,"files":[]}', '{"v":1,"files":[{"name":"x"}]}'])
def test_a_manifest_that_cannot_be_read_is_told(tmp_path: Path, text: str) -> None:
    log_file(tmp_path)
    path = tmp_path / HourManifest("g1", NOON).name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    (done,) = run(tmp_path)
    assert "remove it, and ship or compact the hour again" in done.fault
    assert done.fault.startswith(str(path))


@pytest.mark.parametrize("shipped", [0, 2, 3])
def test_a_compacted_file_counts_as_shipped_where_all_it_stands_for_was(tmp_path: Path, shipped: int) -> None:
    for number in range(3):
        log_file(tmp_path, number=number)
    shipments = Shipments(tmp_path, "s3://bucket/log")
    for file in look(tmp_path).files[:shipped]:
        shipments.add(file, {})
    run(tmp_path)
    (file,) = look(tmp_path).files
    assert shipments.has(file) == (shipped == 3)
    assert len(list((tmp_path / "shipped").rglob("g1-*"))) == (shipped == 3)


def test_a_line_without_an_end_is_no_access_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.log_files.compaction.BLOCK", 1000)
    log_file(tmp_path, text="x" * 5000)
    (done,) = run(tmp_path)
    assert "a line of more than 1000 bytes" in done.fault
