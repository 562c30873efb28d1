"""The bench of the log's files: its lines are those of a real log."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from common.log_files.names import look

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_access_log", ROOT / "bench" / "access_log.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_an_hour_has_as_many_lines_as_asked_for_and_all_heartbeats(bench: ModuleType, tmp_path: Path) -> None:
    size = bench.write(tmp_path, 9000, 50)
    files = look(tmp_path).files
    lines = [json.loads(text) for file in files for text in file.path.read_text().splitlines()]
    assert sum(file.size for file in files) == size
    assert [line["seq"] for line in lines] == list(range(9000))
    assert sum("heartbeat" in line for line in lines) == 3600
    assert len(files) == bench.FILES
