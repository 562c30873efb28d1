"""The version before and this one on one state directory, there and back. `make test-packages`: old sources come out of git."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.gateways import command
from support.released import REASONS, RELEASED, OldGateway, by_sources, sources

pytestmark = pytest.mark.packages


@pytest.mark.parametrize("version", RELEASED)
def test_there_and_back(version: str, tmp_path: Path) -> None:
    """An upgrade that is taken back costs nothing of what was changed, before or after it."""
    old = by_sources(sources(version, tmp_path / "sources"))
    with OldGateway(tmp_path / "run", old) as gateway:
        assert version in gateway.asked("version"), "it is not the old one"
        gateway.change()
    with OldGateway(tmp_path / "run", command()) as gateway:
        assert "78/s" in gateway.asked("limits", "get", "rocketmq", "orders", "-o", "json")
        gateway.asked("limits", "set", "rocketmq", "orders", "--messages", "79/s", "--reason", "by the version after")
    with OldGateway(tmp_path / "run", old) as gateway:
        assert "79/s" in gateway.asked("limits", "get", "rocketmq", "orders", "-o", "json")
        assert "55/s" in gateway.asked("limits", "get", "rocketmq", "learned", "-o", "json")
        items = json.loads(gateway.asked("history", "list", "-o", "json"))
        assert [each["reason"] for each in items][::-1] == [*REASONS, "by the version after"]
        gateway.asked("limits", "set", "rocketmq", "orders", "--messages", "80/s", "--reason", "by the version before")
    with OldGateway(tmp_path / "run", command()) as gateway:
        assert "80/s" in gateway.asked("limits", "get", "rocketmq", "orders", "-o", "json")
        assert gateway.said("audit", "verify", "state") is not None, gateway.last


def test_a_state_that_the_version_before_cannot_read_is_refused_by_it_in_words(tmp_path: Path) -> None:
    """A rule that was added live has no place in version 1 of the file. It says so, and ends; nothing of it is lost."""
    with OldGateway(tmp_path / "run", command()) as gateway:
        gateway.asked("rules", "add", "extra", "--match", "topic=orders", "--messages", "5/s", "--reason", "only this version knows")
    state = (tmp_path / "run/state/state.json").read_bytes()
    with (
        pytest.raises(ChildProcessError, match="live-rules/extra"),
        OldGateway(tmp_path / "run", by_sources(sources("0.2.0", tmp_path / "old"))),
    ):
        pass
    assert (tmp_path / "run/state/state.json").read_bytes() == state
    with OldGateway(tmp_path / "run", command()) as gateway:
        assert "5/s" in gateway.asked("rules", "list", "-o", "json")
