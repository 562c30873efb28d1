"""The product's own log, as it gets to its stream."""

from __future__ import annotations

import errno
import json
import logging
import os
from pathlib import Path

import pytest

from common.log import QueueHandler


def test_a_line_that_was_torn_is_ended_before_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first line after a full disk, which may be the error that matters, was glued to half of another."""
    real, room = os.write, [10, 0]
    with (tmp_path / "log").open("w") as stream:
        own = stream.fileno()

        def write(descriptor: int, data: bytes) -> int:
            if descriptor != own or not room:
                return real(descriptor, data)
            if not (left := room.pop(0)):
                raise OSError(errno.ENOSPC, "full")
            return real(descriptor, data[:left])

        monkeypatch.setattr(os, "write", write)
        handler = QueueHandler(stream, "json", {})
        for event in ("one", "two", "three"):
            handler.emit(logging.makeLogRecord({"msg": event, "levelname": "INFO"}))
        handler.close()
        handler._thread.join()
    torn, *lines = (tmp_path / "log").read_text().splitlines()
    assert len(torn) == 10
    events = [json.loads(line)["event"] for line in lines]
    assert [event for event in events if event != "log_lines_dropped"] == ["two", "three"]
