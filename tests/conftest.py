"""For the whole suite: the right build is under test, and the fast tests come first.

`SLUICE_EXPECT_BUILD=compiled|python` (set by the Makefile) makes the run fail at once when the modules found are of the other build:
a suite that was meant for the compiled wheel but imported the source tree would prove nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.builds import build_of

LATE = {"spark": 1, "rabbitmq": 2, "rocketmq": 3}  # markers of what is slow to start; each kind together, so that it starts once
WITNESSES = ("limiter.keys", "limiter.judge", "gateway.session", "gateway.protocols.amqp.conversation")


def pytest_configure() -> None:
    expected = os.environ.get("SLUICE_EXPECT_BUILD")
    if not expected:
        return
    for module in WITNESSES:
        build, origin = build_of(module)
        if build != expected:
            pytest.exit(f"{module} is {build} ({origin}), but this run is meant for the {expected} build", returncode=4)
    source_tree = Path(__file__).parent.parent
    if expected == "compiled" and Path(build_of("limiter.keys")[1]).is_relative_to(source_tree / "limiter"):
        pytest.exit("limiter.keys comes from the source tree, not from the installed wheel", returncode=4)


def pytest_report_header() -> str:
    build, origin = build_of(WITNESSES[0])
    return f"sluice under test: {build} ({Path(origin).parent.parent})"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Fast first: what fails soonest is said soonest. Of two processes (`-n 2 --dist loadgroup`) one has all the brokers."""

    def lateness(item: pytest.Item) -> int:
        return max((rank for name, rank in LATE.items() if item.get_closest_marker(name)), default=0)

    items.sort(key=lateness)
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            item.add_marker(pytest.mark.xdist_group("brokers" if lateness(item) >= LATE["rabbitmq"] else "rest"))
