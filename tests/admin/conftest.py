"""Fixtures of the control plane's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from support.admin.admin_client import Control, control, folder_in_memory


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    with folder_in_memory(tmp_path) as folder:
        yield folder


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Control]:
    """A running admin API."""
    async with control(tmp_path) as running:
        yield running
