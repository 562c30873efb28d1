"""Lines of local files as fields: read, unpacked and parsed on Python's workers by Arrow's parser of JSON.

The naive way is Spark's `from_json` for each line. It takes 5.4 µs a line once Java has compiled the hot code, and a small day ends
before that; Arrow takes 2.4 from the first line on. But Arrow's parser knows no bad line: it gives up at one, and it takes two objects in
one line, or one object in two lines, for good. So a file is parsed in blocks, and a block with anything odd in it is handed on as text, for
Spark to judge its lines one by one (`parse.check_lines`). This module decides which blocks are odd, on the safe side; Spark alone decides
which lines are corrupt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from spark_jobs.log.unpack import BLOCK_BYTES, unpack_blocks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from spark_jobs.log.files import StoredLogFile

PIECE_BYTES: Final = 128 * 2**20  # bytes of a file, or of several small ones, for one task: as Spark's own maxPartitionBytes
OPENING_BYTES: Final = 2**20  # bytes that take as long to read as a file takes to open (a guess)
ARROW_TYPES: Final = {"string": pa.string(), "bigint": pa.int64(), "boolean": pa.bool_()}


class Piece(NamedTuple):
    """The lines of a file that begin in [start, end); a compressed file (`codec`) is one piece."""

    path: str
    url: str
    codec: str | None
    start: int
    end: int


def read_arrow_lines(spark: SparkSession, files: Iterable[StoredLogFile], codecs: dict[str, str], schema: StructType) -> DataFrame:
    """The lines of local `files` as (file, line, *fields of `schema`): `line` is null where the fields are known; else the fields are, and
    the line is for Spark to parse. Blank lines are left out where their block was parsed. All workers must see the files."""
    tasks = deal_pieces(cut_into_pieces(files, codecs), spark.sparkContext.defaultParallelism)
    fields = [(field.name, ARROW_TYPES[field.dataType.simpleString()]) for field in schema.fields]
    columns = ", ".join(["file string", "line string", *(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)])
    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(Parse(tasks, pa.schema(fields)), columns)


def cut_into_pieces(files: Iterable[StoredLogFile], codecs: dict[str, str]) -> list[Piece]:
    found = []
    for file in files:
        path, codec = file.location.path, codecs.get(file.form)
        url = file.location.local.as_uri()
        step = file.size if codec else PIECE_BYTES
        found += [Piece(path, url, codec, start, min(start + step, file.size)) for start in range(0, file.size, max(step, 1))]
    return found


def deal_pieces(pieces: Sequence[Piece], cores: int) -> list[list[Piece]]:
    """The pieces of each task: about as many bytes in each. No task is without a piece, unless there are no pieces at all."""
    whole = sum(each.end - each.start + OPENING_BYTES for each in pieces)
    tasks: list[list[Piece]] = [[] for _ in range(max(min(max(cores, -(-whole // PIECE_BYTES)), len(pieces)), 1))]
    loads = [0] * len(tasks)
    for each in sorted(pieces, key=lambda piece: piece.start - piece.end):
        at = loads.index(min(loads))
        tasks[at].append(each)
        loads[at] += each.end - each.start + OPENING_BYTES
    return tasks


class Parse:
    """The function for mapInArrow: numbers of tasks → the lines of their pieces. It is sent by value, with all that it names."""

    def __init__(self, tasks: Sequence[Sequence[Piece]], fields: pa.Schema) -> None:
        self.tasks = tasks
        self.fields = fields
        self.rows = pa.schema([("file", pa.string()), ("line", pa.string()), *fields])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for together in gather_blocks((piece.url, block) for piece in self.tasks[number] for block in read_whole_lines(piece)):
                    yield from self.parse_blocks(together)

    def parse_blocks(self, together: Sequence[tuple[str, bytes]]) -> Iterator[pa.RecordBatch]:
        """(URL, whole lines) → rows: with fields where no line is odd, else each line as its text."""
        table = parse_fields(b"".join(block for _, block in together), self.fields)
        if table is None and len(together) > 1:  # one file of them is odd
            for each in together:
                yield from self.parse_blocks([each])
            return
        if table is not None:
            counts = [count_lines(block) for _, block in together]
            urls = pa.chunked_array([pa.repeat(pa.scalar(url), count) for (url, _), count in zip(together, counts, strict=True)])
            given = {"file": urls, "line": pa.nulls(len(table), pa.string())}
        else:
            url, block = together[0]
            lines = pa.array(block.removesuffix(b"\n").split(b"\n"), pa.binary()).cast(pa.string(), safe=False)
            given = {"file": pa.repeat(pa.scalar(url), len(lines)), "line": lines}
            table = pa.table([pa.nulls(len(lines), field.type) for field in self.fields], schema=self.fields)
        columns = [given[name] if name in given else table.column(name) for name in self.rows.names]
        yield from pa.table(columns, schema=self.rows).combine_chunks().to_batches()


def gather_blocks(blocks: Iterable[tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes]]]:
    """Blocks of small files, as many at a time as make one of BLOCK_BYTES: a call of Arrow's parser takes as long as a hundred lines. Each
    but the last ends with a newline: a block without one ends its group."""
    found: list[tuple[str, bytes]] = []
    size = 0
    for url, block in blocks:
        if found and (size + len(block) > BLOCK_BYTES or not found[-1][1].endswith(b"\n")):
            yield found
            found, size = [], 0
        found.append((url, block))
        size += len(block)
    if found:
        yield found


def count_lines(block: bytes) -> int:
    return block.count(b"\n") + (not block.endswith(b"\n"))


def parse_fields(block: bytes, fields: pa.Schema) -> pa.Table | None:
    """The fields of whole lines; None where anything in the block is odd.

    A line begins with { and ends with }, no line has two objects side by side, all is UTF-8, and Arrow finds as many objects as there are
    lines, each field once and of its type (no number for a text, no 1.0 for 1, none beyond 64 bits).
    """
    from pyarrow import json

    body = block.removesuffix(b"\n")
    lines = body.count(b"\n") + 1
    if not body.startswith(b"{") or not body.endswith(b"}") or body.count(b"}\n{") != lines - 1 or b'}{"' in body:
        return None
    try:
        if not body.isascii():
            body.decode()
        found = json.read_json(
            pa.BufferReader(block),
            read_options=json.ReadOptions(use_threads=False, block_size=len(block) + 1),
            parse_options=json.ParseOptions(explicit_schema=fields, unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowException, ValueError):
        return None
    return found.select(fields.names) if found.num_rows == lines else None


def read_whole_lines(piece: Piece) -> Iterator[bytes]:
    """The lines of a piece in blocks of about BLOCK_BYTES, each of whole lines; the last may lack its newline."""
    rest = b""
    for block in unpack_piece(piece) if piece.codec else read_text_piece(piece):
        end = block.rfind(b"\n") + 1
        if not end:
            rest += block
            continue
        yield rest + block[:end]
        rest = block[end:]
    if rest:
        yield rest


def unpack_piece(piece: Piece) -> Iterator[bytes]:
    with pa.memory_map(piece.path) as file:
        assert piece.codec is not None
        yield from unpack_blocks(file.read_buffer(), piece.codec)


def read_text_piece(piece: Piece) -> Iterator[bytes]:
    """The bytes of a piece of a text file: from the first line that begins in it to the end of the last one that does."""
    try:
        file = open(piece.path, "rb")  # noqa: PTH123, SIM115 - sent by value
    except FileNotFoundError:
        file = open(piece.path.removesuffix(".open"), "rb")  # noqa: PTH123, SIM115 - the gateway has closed it since it was listed
    with file:
        if piece.start:
            file.seek(piece.start - 1)
            file.readline()
        while (at := file.tell()) < piece.end:
            block = file.read(min(BLOCK_BYTES, piece.end - at))
            if not block:
                return
            yield block
            if file.tell() == piece.end and not block.endswith(b"\n"):
                yield file.readline()
