"""Who sends, as rules see it. Never compiled: workers are told by msgspec, which reads the types of the fields; mypyc has none."""

from __future__ import annotations

from typing import Final, NamedTuple


class Sender(NamedTuple):
    """Who sends, as far as it is known; each field is a key of a rule's `match`. A connection's messages have one and the same."""

    listener: str | None = None  # None: any, as for a topic that was never used
    client: str | None = None  # its address
    user: str | None = None


ANYBODY: Final = Sender()
