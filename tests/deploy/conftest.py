"""What several files of packages have in common: a release, built once (`tests/support/xdist_split.py` has them in one process)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.brokers.rabbitmq import RabbitMQ
from support.packages import release


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    with RabbitMQ(tmp_path_factory.mktemp("rabbitmq")) as broker:
        yield broker


@pytest.fixture(scope="session")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a release, which nobody changes: as the target makes it, without the compiled wheel, which takes minutes.

    Its own checks that two builds are the same have passed.
    """
    return release(tmp_path_factory.mktemp("released"))
