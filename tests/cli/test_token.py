"""`sluice token` against a real admin API."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.main import main
from support.admin.serving import Serving, serving


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Serving]:
    (tmp_path / "one").mkdir()
    with serving(tmp_path, "one") as running:
        yield running


@pytest.fixture
def sluice(served: Serving, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    api = served.gateways[0]

    def run(*words: Any, token_file: Path | None = None) -> tuple[int, str, str]:
        host, port = api.address
        code = main([*map(str, words), "--admin", f"http://{host}:{port}", "--token-file", str(token_file or api.folder / "admin.token")])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_a_token_is_made_used_listed_rotated_and_revoked(sluice: Any, tmp_path: Path) -> None:
    code, out, err = sluice("token", "new", "grafana", "--role", "viewer", "--expires", "90d", "--reason", "dashboards")
    assert code == 0, err
    assert "only time" in err
    file = tmp_path / "grafana.token"
    file.write_text(out)
    assert sluice("status", token_file=file)[0] == 0
    assert sluice("token", "list", token_file=file)[0] == 5  # a viewer's
    assert "grafana" in sluice("token", "list", "-o", "json")[1]
    code, out, err = sluice("token", "rotate", "grafana", "--yes", "--file", tmp_path / "new.token")
    assert code == 0, err
    assert out == ""
    assert stat.S_IMODE((tmp_path / "new.token").stat().st_mode) == 0o600
    assert sluice("status", token_file=file)[0] == 5
    assert sluice("status", token_file=tmp_path / "new.token")[0] == 0
    assert sluice("token", "revoke", "grafana", "--dry-run")[0] == 0
    assert sluice("token", "revoke", "grafana", "--yes")[0] == 0
    assert sluice("status", token_file=tmp_path / "new.token")[0] == 5


def test_what_cannot_be_done_is_said_in_words(sluice: Any, tmp_path: Path) -> None:
    code, _, err = sluice("token", "revoke", "admin", "--yes")
    assert code == 6
    assert "rotate it instead" in err
    code, _, err = sluice("token", "revoke", "nobody-knows", "--yes")
    assert code == 7
    code, _, err = sluice("token", "revoke", "viewer")  # no terminal to ask on
    assert code == 2
    code, _, err = sluice("token", "new", "--expires", "90d")
    assert code == 2
    assert "NAME" in err
    (tmp_path / "there").write_text("x")
    assert sluice("token", "new", "ci", "--file", tmp_path / "there")[0] == 2
    assert "ci" not in sluice("token", "list", "-o", "json")[1].replace('"admin.tokens"', "").split('"name"')


def test_a_dry_run_makes_no_token(sluice: Any) -> None:
    code, out, err = sluice("token", "new", "ci", "--dry-run")
    assert (code, out) == (0, "")
    assert "dry run" in err
    assert '"ci"' not in sluice("token", "list", "-o", "json")[1]
