"""State directories that released versions have left: this version goes on with each, and no version is without its sample.

That the version before goes on with this one's: tests/deploy/test_versions.py, which runs both.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.gateways import command
from support.released import COMING, REASONS, RELEASED, SAMPLES, OldGateway, kept, released


def reasons(gateway: OldGateway) -> list[str]:
    """Of all changes, the oldest first."""
    return [each["reason"] for each in json.loads(gateway.asked("history", "list", "-o", "json"))][::-1]


def test_every_version_of_the_changelog_has_its_sample() -> None:
    remedy = "CONTRIBUTING.md, Releases: PYTHONPATH=.:tests python -m support.released VERSION"
    assert sorted(path.name for path in SAMPLES.iterdir()) == released(), remedy
    assert set(RELEASED) <= set(released()) <= {*RELEASED, COMING}, "a line of RELEASED in tests/support/released.py"


@pytest.mark.slow
@pytest.mark.parametrize("version", released())
def test_this_version_goes_on_with_the_state_of(version: str, tmp_path: Path) -> None:
    """Live changes, the published quotas, the whole history with its chain of hashes; and the next change is the next of these."""
    with OldGateway(kept(version, tmp_path), command()) as gateway:
        assert reasons(gateway) == list(REASONS)
        assert "78/s" in gateway.asked("limits", "get", "rocketmq", "orders", "-o", "json")
        assert "99/s" in gateway.asked("rules", "list", "-o", "json")
        assert "55/s" in gateway.asked("limits", "get", "rocketmq", "learned", "-o", "json")
        assert gateway.said("audit", "verify", "state") is not None, gateway.last
        gateway.asked("limits", "set", "rocketmq", "orders", "--messages", "79/s", "--reason", "by the version after")
        assert reasons(gateway) == [*REASONS, "by the version after"]
        assert not [line for line in gateway.log().splitlines() if json.loads(line)["level"] in {"warning", "error"}]
    with OldGateway(tmp_path, command()) as gateway:
        assert "79/s" in gateway.asked("limits", "get", "rocketmq", "orders", "-o", "json")
