"""`sluice audit verify`: the journals of a state directory, without a gateway."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from admin.store.changes import Author
from admin.store.store import Store


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"

    async def write() -> None:
        store = Store.open(folder, ())
        for number in range(5):
            await store.note(Author("ops", "operator"), f"POST /v1/x/{number}", "done")
        await store.note(Author("eve"), "PUT /v1/x", "refused", "401")
        store.close()

    trio.run(write)
    return folder


def test_whole_journals_are_said_to_be(sluice: Any, state: Path) -> None:
    ran = sluice("audit", "verify", state)
    assert ran.code == 0
    assert [line.split()[:3] for line in ran.out.splitlines()] == [
        ["file", "ok", "lines"], ["history.jsonl", "whole", "5"], ["refusals.jsonl", "whole", "1"],
    ]  # fmt: skip
    assert json.loads(sluice("audit", "verify", state, "-o", "json").out)["ok"] is True


def test_a_broken_one_is_exit_1_with_file_line_and_fault(sluice: Any, state: Path) -> None:
    path = state / "history.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], *lines[3:]]))
    ran = sluice("audit", "verify", state)
    assert ran.code == 1
    assert "history.jsonl, line 3 (byte " in ran.err
    assert "is not whole" in ran.err
    assert json.loads(sluice("audit", "verify", state, "-o", "json").out)["journals"][0]["broken"]["line"] == 3


def test_the_directory_is_that_of_the_configuration(sluice: Any, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = state.parent / "sluice.yaml"
    config.write_text(
        "version: 1\ngateway: {state_directory: state}\nlisteners: [{name: r, protocol: amqp, bind: 127.0.0.1:0, upstream: 127.0.0.1:1}]\n"
    )
    assert sluice("audit", "verify", "-c", config).code == 0
    monkeypatch.chdir(state.parent)
    assert sluice("audit", "verify").code == 0


def test_a_directory_that_is_not_there_is_said(sluice: Any, tmp_path: Path) -> None:
    ran = sluice("audit", "verify", tmp_path / "nowhere")
    assert ran.code == 1
    assert "nowhere cannot be read: there is no such directory" in ran.err
