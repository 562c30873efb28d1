"""A Redis for the fleet's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.brokers.redis_server import RedisServer


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One for all tests of a module that break nothing."""
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server
