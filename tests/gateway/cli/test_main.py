"""Where words may stand on the command line."""

from __future__ import annotations

import pytest

from gateway.cli.main import common_options_last


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("limits list", "limits list"),
        ("--admin http://x limits list", "limits list --admin http://x"),
        ("--admin=http://x -o json limits get rocketmq t", "limits get rocketmq t --admin=http://x -o json"),
        ("-o json limits get rocketmq -- -odd", "limits get rocketmq -o json -- -odd"),
        ("limits list --admin http://x", "limits list --admin http://x"),
        ("--help", "--help"),
        ("--admin", "--admin"),
    ],
)
def test_common_options_may_stand_before_the_verb(given: str, meant: str) -> None:
    assert common_options_last(given.split()) == meant.split()
