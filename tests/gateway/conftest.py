from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.pipeline.empties import NO_ENTRIES, NO_ITEMS, NO_MEMBERS


@pytest.fixture(autouse=True)
def nobody_fills_what_is_shared() -> Iterator[None]:
    """Something added to one of these would be in every connection."""
    yield
    filled = [[*NO_ITEMS], {**NO_ENTRIES}, {*NO_MEMBERS}]
    for shared in (NO_ITEMS, NO_ENTRIES, NO_MEMBERS):
        shared.clear()
    assert filled == [[], {}, set()]
