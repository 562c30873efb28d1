"""Compresses closed files of the log, and reads them again, by zstd or gzip.

A file is compressed aside (`.tmp`), synced, renamed, and only then is the plain one removed. A process killed in between leaves both, or
the plain one with a `.tmp`: the next round compares the two, and removes the plain one or begins anew. No step loses a line.

zstd makes the log 19 times smaller at 0.5 s of processor per million lines, gzip as small at 2.8 s (`bench/access_log.py`, 2026-11). zstd
needs the package `zstandard`; where that is missing, gzip is used.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol

from common.log_files import durable
from common.log_files.names import GZIP, PLAIN, ZSTD, LogFile

CHUNK: Final = 1 << 20  # bytes; read, compressed and rested after at a time
ZSTD_LEVEL: Final = 3  # zstd's default
GZIP_LEVEL: Final = 6  # zlib's default
AUTO: Final = "auto"
ZSTD_EXTRA: Final = "pip install 'sluice-gateway[zstd]'"

Rest = Callable[[], None]  # called after every chunk


class Compressor(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self) -> bytes: ...


class Expander(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


class DamagedFileError(Exception):
    """A compressed file that cannot be read to its end; the message names it and the way out."""


def choose_codec(setting: str) -> str:
    """The codec that `access_log.compress` means here: `zstd`, `gzip` or `off`."""
    if setting in {AUTO, "zstd"}:
        return "zstd" if find_spec("zstandard") is not None else "gzip"
    return setting


def _compressor(codec: str) -> Compressor:
    if codec == "zstd":
        import zstandard

        made: Any = zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_checksum=True).compressobj()
        return made  # type: ignore[no-any-return]
    return zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, 31)  # 31: with gzip's head and checksum


def compress(file: LogFile, codec: str, rest: Rest) -> int:
    """Replace a plain closed file by its compressed form; returns the bytes of the latter. Raises OSError; the plain one is there then."""
    assert file.form == PLAIN
    form = ZSTD if codec == "zstd" else GZIP
    target = file.path.with_name(f"{file.stem}.{form}")
    if not (target.exists() and holds_the_same(target, form, file.path, rest)):  # a crash left both
        _write(file.path, target, _compressor(codec), rest)
    durable.remove(file.path)
    return target.stat().st_size


def _write(source: Path, target: Path, compressor: Compressor, rest: Rest) -> None:
    aside = durable.name_temporary(target)
    try:
        with source.open("rb") as plain, aside.open("wb") as packed:
            os.fchmod(packed.fileno(), os.fstat(plain.fileno()).st_mode & 0o777)  # who may read the lines does not change
            while data := plain.read(CHUNK):
                packed.write(compressor.compress(data))
                rest()
            packed.write(compressor.flush())
            _drop_from_cache(plain.fileno())
            durable.finish(packed, target)
    except OSError:
        durable.remove(aside)
        raise


def _drop_from_cache(descriptor: int) -> None:
    """What was read once and is removed now need not push the broker's pages out of memory."""
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def holds_the_same(packed: Path, form: str, plain: Path, rest: Rest) -> bool:
    """Whether a compressed file holds what a plain one does, byte by byte."""
    try:
        with plain.open("rb") as file:
            for data in chunks(packed, form):
                if file.read(len(data)) != data:
                    return False
                rest()
            return not file.read(1)
    except DamagedFileError:
        return False


def chunks(path: Path, form: str) -> Iterator[bytes]:
    """The lines of a file, uncompressed, in pieces of about CHUNK bytes. Raises OSError, DamagedFileError, ValueError without zstandard."""
    with path.open("rb") as file:
        if form not in {GZIP, ZSTD}:
            while data := file.read(CHUNK):
                yield data
            return
        make = _expander(form, path)
        expander = make()
        begun = False
        while data := file.read(CHUNK // 8):
            while data:
                if expander.eof:  # another frame follows
                    expander = make()
                begun = True
                try:
                    expanded = expander.decompress(data)
                except Exception as error:  # zlib.error, zstandard.ZstdError: the libraries agree on nothing else
                    raise _damaged(path, str(error)) from error
                if expanded:
                    yield expanded
                data = expander.unused_data if expander.eof else b""
        if not begun or not expander.eof:
            raise _damaged(path, "it ends too early")


def _expander(form: str, path: Path) -> Callable[[], Expander]:
    if form == GZIP:
        return lambda: zlib.decompressobj(31)
    try:
        import zstandard
    except ModuleNotFoundError:
        raise ValueError(f"{path}: reading it needs the Python package zstandard: {ZSTD_EXTRA}") from None
    library: Any = zstandard.ZstdDecompressor()
    make: Callable[[], Expander] = library.decompressobj
    return make


def _damaged(path: Path, why: str) -> DamagedFileError:
    return DamagedFileError(f"{path}: torn or damaged ({why}); restore it from a copy, or move it away: its lines cannot be read")
