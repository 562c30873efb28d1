"""Fixtures of the control plane's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.admin_client import Control, control


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Control]:
    """A running admin API."""
    async with control(tmp_path) as running:
        yield running
