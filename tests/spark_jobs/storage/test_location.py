"""What an option may name, as a path or a URL; nothing is opened and no JVM is started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from spark_jobs.storage.location import Location


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("/var/log/x", "file:///var/log/x"),
        ("/var//log/../log/x/", "file:///var/log/x"),
        ("file:///var/log", "file:///var/log"),
        ("file:/var/log", "file:///var/log"),
        ("s3a://bucket/a/b/", "s3a://bucket/a/b"),
        ("S3A://bucket//a//b", "s3a://bucket/a/b"),
        ("s3a://bucket", "s3a://bucket/"),
        ("hdfs://name:8020/quotas", "hdfs://name:8020/quotas"),
        ("hdfs:///quotas", "hdfs:///quotas"),
        ("abfss://box@account.dfs.core.windows.net/log", "abfss://box@account.dfs.core.windows.net/log"),
        ("/a:b/dt=1", "file:///a:b/dt=1"),
    ],
)
def test_paths_and_urls_are_what_spark_is_given(text: str, url: str) -> None:
    assert str(Location.of("log", text)) == url


def test_a_relative_path_is_of_this_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert Location.of("log", "access-log").local == tmp_path / "access-log"
    assert Location.of("log", Path("access-log")).shown == f"{tmp_path}/access-log"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ftp://x/y", r"--log: ftp://x/y: unknown scheme ftp; known: file, hdfs, "),
        ("s3://bucket/log", r"unknown scheme s3; write s3a://"),
        ("s3n://bucket/log", r"write s3a://"),
        ("s3a:/bucket/log", r"one / is missing; write s3a://bucket/log"),
        ("s3a:///log", r"no bucket; write s3a://BUCKET/FOLDER"),
        ("s3a://key:secret@bucket/log", r"no keys in URLs"),
        ("file://var/log", r"var is not this machine; write file:///var/"),
        ("hdfs://name/a/../b", r"\. and \.\. mean nothing in a URL"),
        ("", r"--log: empty"),
    ],
)
def test_what_nobody_knows_is_refused_with_the_way_out(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        Location.of("log", text)
    assert "secret" not in str(caught.value)


def test_names_below_a_location() -> None:
    root = Location.of("log", "s3a://bucket/log")
    file = root.child("dt=2026-11-20", "hr=00/a b.jsonl")
    assert str(file) == "s3a://bucket/log/dt=2026-11-20/hr=00/a b.jsonl"
    assert (file.name, file.parent, root.relative(file)) == (
        "a b.jsonl",
        root.child("dt=2026-11-20/hr=00"),
        "dt=2026-11-20/hr=00/a b.jsonl",
    )
    assert root.relative("s3a://bucket/log/dt=2026-11-20/hr=00/a%20b.jsonl") == "dt=2026-11-20/hr=00/a b.jsonl"
    assert str(Location.of("log", "s3a://bucket").child("x")) == "s3a://bucket/x"
    with pytest.raises(ValueError, match="is not below"):
        root.relative("s3a://bucket/logs/x")


def test_glob_characters_are_escaped_and_names_come_back_from_urls(tmp_path: Path) -> None:
    root = Location.of("log", tmp_path / "a b%20[x]{y}*")
    assert root.child("f.jsonl").glob.endswith(r"/a b%20\[x\]\{y\}\*/f.jsonl")
    assert root.relative(f"file:{tmp_path}/a%20b%2520%5Bx%5D%7By%7D*/f.jsonl") == "f.jsonl"


def test_a_url_is_no_path_of_this_machine() -> None:
    with pytest.raises(ValueError, match="no path of this machine"):
        _ = Location.of("log", "hdfs:///x").local


def test_neither_spark_nor_a_jvm_is_loaded_for_it() -> None:
    import subprocess

    code = "import sys; from spark_jobs.storage import choice, local, location, storage; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(__file__).parents[3]).returncode == 0
