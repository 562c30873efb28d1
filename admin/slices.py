"""How long lists share the event loop with the messages: in slices, with a rest after each."""

from __future__ import annotations

from typing import Final

import trio

REST: Final = 2  # times as long as a slice took, messages go first: long lists take a third of the processor at most; a guess
MAX_REST_S: Final = 0.01  # seconds; after one slice


async def rest_after(started: float) -> None:
    """Give the event loop its turns after a slice of a long list: REST times as long as the slice took, but not for long."""
    await trio.sleep(min(REST * (trio.current_time() - started), MAX_REST_S))
