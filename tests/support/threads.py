"""Work of a test on a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def working(work: Callable[[], None], stopping: threading.Event) -> Iterator[None]:
    """`work` goes on until `stopping` is set, which is done at the end."""
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
