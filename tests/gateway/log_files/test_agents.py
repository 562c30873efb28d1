"""The agents' commands of `docs/access-log.md`, run as they stand there."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from gateway.log_files.compression import compress
from gateway.log_files.names import look
from support.log_files import NOON, log_file

pytestmark = pytest.mark.storage
PAGE = Path(__file__).parents[3] / "docs" / "access-log.md"


def documented(command: str) -> list[str]:
    (found,) = re.findall(rf"^{command} [^\\\n]*(?:\\\n[^\\\n]*)*", PAGE.read_text(), re.MULTILINE)
    return shlex.split(found.replace("\\\n", " "))


def test_rclone_copies_what_is_compressed_and_nothing_else(tmp_path: Path) -> None:
    log, target = tmp_path / "log", tmp_path / "target"
    for number in range(3):
        log_file(log, number=number)
    for file, codec in zip(look(log).files, ("zstd", "gzip"), strict=False):
        compress(file, codec, lambda: None)
    log_file(log, NOON + 3600, form="jsonl.open")
    (log / "manifest" / "g1" / "dt=2026-11-21").mkdir(parents=True)
    (log / "manifest" / "g1" / "dt=2026-11-21" / "hr=12.json").write_text("{}")
    (log / "shipped").mkdir()
    (log / "shipped" / "mark").touch()
    (log / "dt=2026-11-21" / "hr=12" / "g1-b1-000002.jsonl.gz.tmp").touch()
    places = {"/var/log/sluice": str(log), "remote:logs/sluice": str(target)}
    words = [places.get(word, word) for word in documented("rclone copy")]
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin:/usr/local/bin"}
    for _ in range(2):
        subprocess.run(words, check=True, env=environment)
        log_file(log, NOON + 3600, number=1)  # and a second round with something new that is plain
    copied = sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file())
    assert copied == [
        "dt=2026-11-21/hr=12/g1-b1-000000.jsonl.zst", "dt=2026-11-21/hr=12/g1-b1-000001.jsonl.gz", "manifest/g1/dt=2026-11-21/hr=12.json",
    ]  # fmt: skip
