"""Compressed files of lines, unpacked by pyarrow: Hadoop's own codec for zstd is a native library that pip's Spark lacks, and its gzip
ends the job at a file that was cut off. Here the lines before the cut count, and the cut is one corrupt line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

BLOCK_BYTES: Final = 4 * 2**20  # bytes unpacked at a time and sent on as one batch: some 10,000 lines
SMALL_BYTES: Final = 256  # bytes unpacked at a time near damage: less than a line
LINES: Final = pa.schema([("file", pa.string()), ("line", pa.string())])


class Unpack:
    """(path, content) of compressed files → (file, line), in batches of about BLOCK_BYTES."""

    def __init__(self, codec: str) -> None:
        self.codec = codec

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path, content in zip(batch.column(0), batch.column(1), strict=True):
                for lines in unpack_lines(content.as_buffer(), self.codec):
                    text = pa.array(lines, pa.binary()).cast(pa.string(), safe=False)
                    yield pa.RecordBatch.from_arrays([pa.array([path.as_py()] * len(lines), pa.string()), text], schema=LINES)


def unpack_lines(content: pa.Buffer, codec: str) -> Iterator[list[bytes]]:
    """The lines of a compressed file, some thousand at a time. A file that is cut off or damaged ends with a line that is no JSON."""
    rest = b""
    for block in unpack_blocks(content, codec):
        *lines, rest = (rest + block).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]


def unpack_blocks(content: pa.Buffer, codec: str) -> Iterator[bytes]:
    """The bytes of `content` up to the damage, if there is any. The read that meets it returns nothing at all, so it is made again in small
    pieces; the last block names the damage."""
    done = 0
    damage = ""
    for size in (BLOCK_BYTES, SMALL_BYTES):
        with pa.CompressedInputStream(pa.BufferReader(content), codec) as stream:
            for skipped in range(0, done, BLOCK_BYTES):
                stream.read(min(BLOCK_BYTES, done - skipped))
            try:
                while block := stream.read(size):
                    done += len(block)
                    yield block
            except OSError as error:
                damage = str(error)
                continue
            return
    yield f"<{codec}: {damage}>".encode()
