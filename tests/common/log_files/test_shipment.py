"""Shipping: each hour once and whole, whatever happens between, to a folder and to HDFS over HTTP. S3 is in `test_s3.py`."""

from __future__ import annotations

import getpass
import gzip
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from common.log_files import manifest
from common.log_files.compression import compress
from common.log_files.folder import Folder
from common.log_files.names import look
from common.log_files.target_urls import target_of
from common.log_files.targets import REFUSED, UNREACHABLE, Target, TargetError
from support import targets
from support.log_files import NOON, log_file, log_text
from support.processes import free_ports
from support.stores import HadoopCluster, hadoop_cluster
from support.targets import CONTRACT, LATER, run, whole
from support.webhdfs_server import Hdfs, hdfs_server


@pytest.fixture
def hdfs() -> Iterator[Hdfs]:
    with hdfs_server() as server:
        yield server


@pytest.fixture(params=["folder", "webhdfs"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    if request.param == "folder":
        return target_of(str(tmp_path / "target"), {})
    return target_of(request.getfixturevalue("hdfs").url, {})


@pytest.mark.parametrize("promise", CONTRACT, ids=lambda promise: promise.__name__)
def test_a_target(tmp_path: Path, target: Target, promise: Callable[[Path, Target], None]) -> None:
    promise(tmp_path, target)


@pytest.fixture(scope="module")
def real_hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HadoopCluster]:
    with hadoop_cluster(tmp_path_factory.mktemp("hadoop") / "cluster") as cluster:
        yield cluster


@pytest.mark.storage
@pytest.mark.slow
@pytest.mark.parametrize("promise", CONTRACT, ids=lambda promise: promise.__name__)
def test_a_real_hdfs(tmp_path: Path, real_hdfs: HadoopCluster, promise: Callable[[Path, Target], None]) -> None:
    promise(tmp_path, target_of(f"{real_hdfs.web}/{tmp_path.name}", {"HADOOP_USER_NAME": getpass.getuser()}))


def test_a_run_killed_between_any_two_steps_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    targets.a_killed_run_is_gone_on_with(tmp_path, lambda number: Folder(tmp_path / f"target-{number}"), monkeypatch)


def test_a_run_whose_target_goes_away_between_any_two_answers_is_gone_on_with(tmp_path: Path, hdfs: Hdfs) -> None:
    log = tmp_path / "log"
    for number in range(3):
        log_file(log, number=number)
    answers = 0
    while True:
        hdfs.files.clear()
        real = target_of(hdfs.url, {})
        try:
            run(log, cast(Target, Leaving(real, answers)))
        except TargetError:
            assert not whole(log, real)
        else:
            break
        answers += 1
    assert answers >= 7
    assert whole(log, real)


class Leaving:
    """A target that is away after some answers."""

    def __init__(self, real: Target, answers: int) -> None:
        self._real = real
        self.url = real.url
        self._answers = answers

    def __getattr__(self, name: str) -> object:
        if self._answers <= 0:
            raise TargetError(UNREACHABLE, "away")
        self._answers -= 1
        return getattr(self._real, name)


def test_compressed_and_compacted_files_go_with_what_is_known_of_them(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from common.log_files.compaction import compact

    log, target = tmp_path / "log", Folder(tmp_path / "target")
    log_file(log, text=log_text() + "{torn")
    log_file(log, number=1)
    log_file(log, gateway="g2")
    (file,) = [file for file in look(log).files if file.gateway == "g2"]
    compress(file, "zstd", lambda: None)
    for _ in compact(log, LATER, 600):
        break  # the first gateway's hour alone
    run(log, target)
    assert whole(log, target)
    (entry,) = manifest.read(target.get(manifest.HourManifest("g1", NOON).name) or b"", "g1", NOON).files.values()
    assert (entry.lines, entry.corrupt, len(entry.sources)) == (40, 1, 2)
    assert gzip.decompress(target.get("corrupt/dt=2026-11-21/hr=12/g1-b1-000000.jsonl.gz") or b"") == b"{torn\n"
    (entry,) = manifest.read(target.get(manifest.HourManifest("g2", NOON).name) or b"", "g2", NOON).files.values()
    assert (entry.name.rpartition("/")[2], entry.lines) == ("g2-b1-000000.jsonl.zst", 20)


def test_an_hour_that_is_compacted_after_half_of_it_was_shipped_takes_the_place_of_both(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from common.log_files.compaction import compact

    log, target = tmp_path / "log", Folder(tmp_path / "target")
    log_file(log)
    run(log, target)
    log_file(log, number=1)
    list(compact(log, LATER, 600))
    assert [each.files for each in run(log, target)] == [1]
    known = manifest.read(target.get(manifest.HourManifest("g1", NOON).name) or b"", "g1", NOON)
    assert [name.rpartition("/")[2] for name in known.files] == ["g1-b1-000000.parquet"]
    assert run(log, target) == []


def test_a_file_that_is_compressed_after_it_was_shipped_does_not_go_again(tmp_path: Path) -> None:
    log, target = tmp_path / "log", Folder(tmp_path / "target")
    log_file(log)
    run(log, target)
    compress(look(log).files[0], "gzip", lambda: None)
    assert run(log, target) == []


def test_a_damaged_file_is_told_and_its_hour_waits_while_others_go(tmp_path: Path) -> None:
    log, target = tmp_path / "log", Folder(tmp_path / "target")
    log_file(log, text=log_text(lines=3000))
    log_file(log, gateway="g2")
    compress(look(log).files[0], "gzip", lambda: None)
    packed = next(log.rglob("*.gz"))
    packed.write_bytes(packed.read_bytes()[:500])
    first, second = run(log, target)
    assert "torn or damaged" in first.fault
    assert (second.gateway, second.fault) == ("g2", "")
    assert target.get(manifest.HourManifest("g1", NOON).name) is None


def test_an_open_file_keeps_its_hour_until_it_is_closed_or_old(tmp_path: Path) -> None:
    log, target = tmp_path / "log", Folder(tmp_path / "target")
    path = log_file(log, form="jsonl.open")
    os.utime(path, (LATER, LATER))
    (sent,) = run(log, target)
    assert "still open" in sent.fault
    assert [each.fault for each in run(log, target, LATER + 7201)] == [""]
    assert [file.form for file in look(log).files] == ["jsonl"]


def test_the_log_is_not_shipped_into_itself(tmp_path: Path) -> None:
    log_file(tmp_path)
    for inner in (tmp_path, tmp_path / "copy"):
        with pytest.raises(ValueError, match="is the log itself"):
            run(tmp_path, Folder(inner))


def test_a_mount_that_changes_what_is_written_is_told(tmp_path: Path) -> None:
    path = log_file(tmp_path / "log")
    with pytest.raises(TargetError, match="reads otherwise"):
        Folder(tmp_path / "target").put("x", path, "0" * 64)
    assert list((tmp_path / "target").iterdir()) == []


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "--to is empty"),
        ("ftp://x/y", "unknown scheme ftp; known are s3://"),
        ("hdfs://name:8020/logs", "write webhdfs://name:9870/logs"),
        ("s3:///x", "write it like s3://BUCKET/PREFIX"),
        ("s3://key:secret@bucket/x", "credentials are taken from where AWS' own tools find them"),
        ("file://host/x", "file:///PATH"),
        ("webhdfs:///x", "webhdfs://HOST:9870/PATH"),
    ],
)
def test_what_is_no_target_is_refused_with_the_way_out(url: str, said: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        target_of(url, {})
    assert said in str(refused.value)


def test_two_ways_to_write_a_target_are_one(tmp_path: Path) -> None:
    assert target_of(f"file://{tmp_path}/x/", {}).url == target_of(f"{tmp_path}/x", {}).url
    assert target_of("webhdfs://me@h/logs/", {}).url == target_of("webhdfs://h:9870/logs", {}).url
    assert target_of("swebhdfs://h/logs", {}).url == "swebhdfs://h:9871/logs"


def test_hdfs_that_refuses_is_told_with_the_way_out(tmp_path: Path, hdfs: Hdfs) -> None:
    log_file(tmp_path / "log")
    hdfs.refuse.add("sluice")
    with pytest.raises(TargetError, match=r"403 Permission denied: user=sluice.*; name a user") as refused:
        run(tmp_path / "log", target_of(hdfs.url, {}))
    assert refused.value.kind == REFUSED
    assert run(tmp_path / "log", target_of(hdfs.url, {"SLUICE_WEBHDFS_TOKEN": "abc"}))[0].files == 1


def test_hdfs_that_is_away_is_told(tmp_path: Path) -> None:
    log_file(tmp_path / "log")
    with pytest.raises(TargetError, match="look at the network") as away:
        run(tmp_path / "log", target_of(f"webhdfs://127.0.0.1:{free_ports(1)[0]}/logs", {}))
    assert away.value.kind == UNREACHABLE
