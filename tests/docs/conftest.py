"""A real broker for pages that are about one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.brokers.rabbitmq import RabbitMQ


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    with RabbitMQ(tmp_path_factory.mktemp("rabbitmq")) as broker:
        yield broker
