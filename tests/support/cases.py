"""Cases that only count, asked in one loop: each failure keeps the name of its case, and all of them are told at the end."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from itertools import product
from typing import Any

import pytest

Parameters = type(pytest.param())


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


def in_one_loop(test: Callable[..., None]) -> Callable[[], None]:
    """Stands above `parametrize`: all that it lists is one test, which has no fixtures. Of itself a case takes 1.3 ms (measured)."""
    marks = vars(test).pop("pytestmark")
    listed = [list(_named(*mark.args, **mark.kwargs)) for mark in marks if mark.name == "parametrize"]

    @wraps(test)
    def asked() -> None:
        with cases() as case:
            for each in product(*listed):
                with case(" - ".join(name for name, _ in each)):
                    test(**{name: value for _, values in each for name, value in values.items()})

    vars(asked).update(pytestmark=[mark for mark in marks if mark.name != "parametrize"], __signature__=inspect.Signature())
    return asked


def _named(names: str | tuple[str, ...] | list[str], values: Any, *, ids: Any = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """What `parametrize` lists: a case's name, and its arguments."""
    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
    given = None if ids is None or callable(ids) else list(ids)
    for number, listed in enumerate(values):
        name = given[number] if given else None
        row = (listed,) if len(arguments) == 1 else listed
        if isinstance(listed, Parameters):
            assert not listed.marks, "a case with marks of its own is a test of its own"
            name, row = listed.id or name, listed.values
        word = ids if callable(ids) else repr
        yield str(name or " ".join(str(word(each)) for each in row))[:200], dict(zip(arguments, row, strict=True))
