"""Targets with a fault each, for tests of what watches over them (`test_blind.py`)."""

from __future__ import annotations

import ctypes
import time


def unharmed(data: bytes) -> None:
    """Nothing is wrong with it."""


def raises(data: bytes) -> None:
    assert b"!" not in data, "an exclamation mark"


def crashes(data: bytes) -> None:
    if b"!" in data:
        ctypes.string_at(0)


def hangs(data: bytes) -> None:
    if b"!" in data:
        while True:
            pass


def grows(data: bytes) -> None:
    if b"!" in data:
        kept = bytearray(400 << 20)
        kept[:: 1 << 12] = b"x" * (100 << 10)
        time.sleep(60)


TARGETS = {target.__name__: target for target in (unharmed, raises, crashes, hangs, grows)}
