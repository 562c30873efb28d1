"""Cases that only count, asked in one loop: each failure keeps the name of its case, and all of them are told at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager


@contextmanager
def cases() -> Iterator[Callable[[object], AbstractContextManager[None]]]:
    """Gives `case`, for `with case(name):` around what is asserted of one. Raises ExceptionGroup of all that failed, each with its name."""
    failed: list[Exception] = []

    @contextmanager
    def case(name: object) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            error.add_note(f"of {name}")
            failed.append(error)

    yield case
    if failed:
        raise ExceptionGroup(f"{len(failed)} cases", failed)
