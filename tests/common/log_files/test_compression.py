"""Compression of closed files: nothing is lost, whenever the process dies, and a damaged file is told."""

from __future__ import annotations

import importlib.util
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from common.log_files import compression, durable
from common.log_files.compression import DamagedFileError, choose_codec, chunks, compress
from common.log_files.keeper import tidy
from common.log_files.names import look, one_of_each
from support.log_files import killed_at_each_step, log_file, log_text

CODECS = [("gzip", "jsonl.gz"), ("zstd", "jsonl.zst")]


def nothing() -> None:
    pass


def content(directory: Path) -> bytes:
    """What a reader of the log finds."""
    return b"".join(data for file in one_of_each(look(directory).files) for data in chunks(file.path, file.form))


@pytest.mark.parametrize(("codec", "form"), CODECS)
@pytest.mark.parametrize("size", [0, 1, 3_000_000])
def test_what_was_compressed_reads_the_same(tmp_path: Path, codec: str, form: str, size: int) -> None:
    text = (log_text(lines=9000) * 2)[:size]
    plain = log_file(tmp_path, text=text)
    plain.chmod(0o640)
    (file,) = look(tmp_path).files
    rests: list[int] = []
    packed = compress(file, codec, lambda: rests.append(1))
    assert not plain.exists()
    (file,) = look(tmp_path).files
    assert (file.form, file.size) == (form, packed)
    assert file.path.stat().st_mode & 0o777 == 0o640
    assert content(tmp_path) == text.encode()
    assert len(rests) == -(-len(text) // compression.CHUNK)
    assert size < 1000 or packed < size / 5


@pytest.mark.parametrize(("codec", "form"), CODECS)
def test_a_process_killed_between_any_two_steps_loses_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str, form: str
) -> None:
    text = log_text(lines=5000)
    log_file(tmp_path, text=text)

    def work() -> None:
        tidy(tmp_path)
        for file in look(tmp_path).files:
            if file.form == "jsonl":
                compress(file, codec, nothing)

    deaths = 0
    for _ in killed_at_each_step(monkeypatch, work):
        deaths += 1
        assert content(tmp_path) == text.encode()
        for path in tmp_path.rglob("*.jsonl*"):  # put it back
            path.unlink()
        log_file(tmp_path, text=text)
    assert deaths >= 3
    assert [path.name for path in tmp_path.rglob("*.jsonl*")] == [f"g1-b1-000000.{form}"]
    assert content(tmp_path) == text.encode()


@pytest.mark.parametrize(("codec", "form"), CODECS)
def test_a_torn_compressed_file_beside_its_plain_one_is_written_again(tmp_path: Path, codec: str, form: str) -> None:
    text = log_text(lines=5000)
    log_file(tmp_path, text=text)
    (file,) = look(tmp_path).files
    compress(file, codec, nothing)
    packed = file.path.with_name(f"{file.stem}.{form}")
    packed.write_bytes(packed.read_bytes()[:100])
    log_file(tmp_path, text=text)
    compress(file, codec, nothing)
    assert content(tmp_path) == text.encode()
    assert [path.name for path in tmp_path.rglob("*.jsonl*")] == [packed.name]


@pytest.mark.parametrize(("codec", "form"), CODECS)
@pytest.mark.parametrize("kept", [0, 1, 200, -1, -9])
def test_a_torn_file_is_told_with_the_way_out(tmp_path: Path, codec: str, form: str, kept: int) -> None:
    log_file(tmp_path, text=log_text(lines=5000))
    (file,) = look(tmp_path).files
    compress(file, codec, nothing)
    (file,) = look(tmp_path).files
    file.path.write_bytes(file.path.read_bytes()[:kept])
    with pytest.raises(DamagedFileError, match=r"000000\.jsonl\..*: torn or damaged .*; restore it from a copy"):
        list(chunks(file.path, form))


@pytest.mark.parametrize(("codec", "form"), CODECS)
def test_frames_behind_each_other_are_read_to_the_last(tmp_path: Path, codec: str, form: str) -> None:
    log_file(tmp_path)
    (file,) = look(tmp_path).files
    compress(file, codec, nothing)
    (file,) = look(tmp_path).files
    file.path.write_bytes(file.path.read_bytes() * 3)
    assert b"".join(chunks(file.path, form)) == log_text().encode() * 3


def test_a_full_disk_leaves_the_plain_file_and_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = log_file(tmp_path)
    (file,) = look(tmp_path).files

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable, "finish", full)
    with pytest.raises(OSError, match="No space left"):
        compress(file, "gzip", nothing)
    assert list(plain.parent.iterdir()) == [plain]


def test_without_zstandard_gzip_is_used_and_zstd_files_say_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def found(name: str) -> ModuleSpec | None:
        return None if name == "zstandard" else find(name)

    assert [choose_codec(word) for word in ("auto", "zstd", "gzip", "off")] == ["zstd", "zstd", "gzip", "off"]
    monkeypatch.setattr(compression, "find_spec", found)
    assert [choose_codec(word) for word in ("auto", "zstd", "gzip", "off")] == ["gzip", "gzip", "gzip", "off"]
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    with pytest.raises(ValueError, match=r"needs the Python package zstandard: pip install 'sluice-gateway\[zstd\]'"):
        list(chunks(log_file(tmp_path, form="jsonl.zst"), "jsonl.zst"))
