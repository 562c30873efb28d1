"""Without a token, with a wrong one, with one that cannot be read: three messages, each with the files and variables tried."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.token_search import TokenSearch, look_for_token

from .conftest import TOKEN

URL = "http://127.0.0.1:9180"


def test_without_a_token_all_that_was_tried_is_named(sluice: Any, admin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLUICE_TOKEN")
    ran = sluice("topics")
    assert ran.code == 5
    for each in (
        "no token was sent; tried, in this order:", "--token-file and SLUICE_TOKEN_FILE: not given", "SLUICE_TOKEN: not set",
        "state/admin.token: No such file", "/var/lib/sluice/admin.token: ",
    ):  # fmt: skip
        assert each in ran.err


def test_a_wrong_token_is_named_by_its_file(sluice: Any, admin: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SLUICE_TOKEN", "wrong")
    assert "the token is from the variable SLUICE_TOKEN, and this gateway does not know it" in sluice("topics").err
    monkeypatch.delenv("SLUICE_TOKEN")
    Path("state").mkdir()
    Path("state/admin.token").write_text("wrong too")
    Path("state/admin.token").write_text("wrong-too")
    ran = sluice("topics")
    assert (ran.code, "the token is from state/admin.token" in ran.err) == (5, True)
    assert "wrong-too" not in ran.err


def test_a_token_that_cannot_be_read_is_told_from_one_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("state").mkdir()
    file = Path("state/admin.token")
    file.write_text(TOKEN)
    assert look_for_token(URL, None, {}) == TokenSearch(
        TOKEN, "state/admin.token", ("--token-file and SLUICE_TOKEN_FILE: not given", "SLUICE_TOKEN: not set")
    )

    def refuse(self: Path, *_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)  # a test that runs as root may read all
    found = look_for_token(URL, None, {})
    assert found.token is None
    assert "state/admin.token: Permission denied" in found.tried


def test_the_state_directory_of_the_usual_file_is_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sluice.yaml").write_text(
        "listeners: [{name: a, protocol: amqp, bind: 127.0.0.1:1, upstream: 127.0.0.1:2}]\ngateway: {state_directory: kept/here}\n"
    )
    Path("kept/here").mkdir(parents=True)
    Path("kept/here/admin.token").write_text(TOKEN)
    assert look_for_token(URL, None, {}).source == str(tmp_path / "kept/here/admin.token")


def test_a_token_of_this_machine_is_not_tried_on_another() -> None:
    found = look_for_token("http://gateway.example.com:9180", None, {})
    assert found.token is None
    assert found.tried[-1] == "admin.token of this machine: not for a gateway on another one"
