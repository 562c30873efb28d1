"""SIGTERM, by which systemd, Kubernetes and Airflow end a job, as Ctrl-C: what is under way is ended, taken back, and told."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """In the block SIGTERM does what SIGINT does then, or raises KeyboardInterrupt where that is ignored, as in a shell's background."""
    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):
            handler(signal.SIGINT, frame)
        else:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
