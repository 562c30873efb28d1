"""RocketMQ's own decoders against ours, in several versions of RocketMQ (`support/rocketmq/remoting.py`). Needs no broker, only the
jars."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from gateway.pipeline.errors import ProtocolError
from gateway.protocols.rocketmq.headers import Header, read_binary, read_json
from gateway.protocols.rocketmq.template_cache import TemplateCache
from support.java import MavenUnreachableError
from support.rocketmq.frames import frame
from support.rocketmq.hostile_headers import Hostile
from support.rocketmq.remoting import JARS, disagreement, frames_file, headers_file, read_frames, read_headers, write_frames

pytestmark = pytest.mark.rocketmq

HOSTILE = 6_000  # headers of each encoding


NEWEST = max(JARS)


@pytest.fixture(
    scope="module", params=[NEWEST, *(pytest.param(older, marks=pytest.mark.long) for older in sorted(JARS) if older != NEWEST)]
)
def version(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A version of RocketMQ whose jars are here."""
    try:
        read_frames(request.param, [], tmp_path_factory.mktemp("remoting"))
    except MavenUnreachableError as error:
        pytest.skip(f"ROCKETMQ {request.param} IS NOT COMPARED WITH, its jars cannot be fetched: {error}")
    return str(request.param)


def test_the_committed_frames_are_what_remoting_command_writes(version: str, tmp_path: Path) -> None:
    committed = gzip.decompress(frames_file(version).read_bytes()).decode()
    assert write_frames(version, tmp_path).splitlines() == committed.splitlines()


def test_the_committed_readings_are_what_the_broker_reads(version: str, tmp_path: Path) -> None:
    rows = json.loads(headers_file().read_text())
    read = read_headers(version, [bytes.fromhex(row["header"]) for row in rows], tmp_path)
    assert [row["broker"][version] for row in rows] == read


def test_hostile_headers_mean_to_us_what_they_mean_to_the_broker_or_are_refused(version: str, tmp_path: Path) -> None:
    """Thousands of them, made up from what parsers are known to differ about; some after headers they are to be mistaken for."""
    source = Hostile(2026)
    headers = [(0, source.json()) for _ in range(HOSTILE)] + [(1, source.binary()) for _ in range(HOSTILE)]
    read = read_frames(version, [frame(header, b"body", kind) for kind, header in headers], tmp_path)
    ours = our_readings(headers)
    wrong = [
        f"{header!r}: {how}"
        for (_, header), found, theirs in zip(headers, ours, read, strict=True)
        if found is not None and (how := disagreement(found, theirs))
    ]
    assert wrong == []
    read_ones = sum(1 for found in ours if found is not None and (found.topic or found.source))
    refused = sum(1 for found in ours if found is None)
    assert read_ones > HOSTILE / 6, "hardly any is understood: nothing was compared"
    assert refused > HOSTILE / 4, "hardly any is refused: they are not hostile"


def our_readings(headers: list[tuple[int, bytes]]) -> list[Header | None]:
    """As one connection reads them; None where it would be closed."""
    templates = TemplateCache()
    found: list[Header | None] = []
    for kind, header in headers:
        known = templates.match(header, 0, len(header)) if kind == 0 else None
        if known is not None:
            found.append(known)
            continue
        try:
            read = read_json(header) if kind == 0 else read_binary(header, 0, len(header))
        except ProtocolError:
            found.append(None)
            continue
        if kind == 0 and read.topic:
            templates.learn(header, read)
        found.append(read)
    return found
