"""The quick dataclass does what the standard library's does, over each way to use one."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from common import records


def both(make: Callable[[Any], type[Any]]) -> tuple[type[Any], type[Any]]:
    """The same class, by the standard library and by ours."""
    return make(dataclasses.dataclass), make(records.dataclass)


def plain(dataclass: Any) -> type[Any]:
    @dataclass(frozen=True, slots=True)
    class Plain:
        kind: ClassVar[str] = "plain"
        one: int
        two: str = dataclasses.field(repr=False)
        three: list[int] = dataclasses.field(default_factory=list, compare=False)
        four: int = 4

        @property
        def sum(self) -> int:
            return self.one + self.four

    return Plain


def checked(dataclass: Any) -> type[Any]:
    @dataclass(frozen=True, slots=True)
    class Checked:
        one: int = 1

        def __post_init__(self) -> None:
            if self.one < 0:
                raise ValueError("negative")

        def __repr__(self) -> str:
            return "<Checked>"

    return Checked


@records.dataclass(frozen=True, slots=True)
class Kept:
    one: int
    two: tuple[int, ...] = ()


TRIES: dict[str, Callable[[type[Any]], object]] = {
    "positional": lambda cls: repr(cls(1, "x", [2], 3)),
    "named": lambda cls: repr(cls(one=1, two="x")),
    "mixed": lambda cls: (cls(1, two="x").three, cls(1, two="x").four, cls(1, two="x").sum, cls.kind),
    "own default each": lambda cls: cls(1, "x").three is cls(1, "x").three,
    "equal": lambda cls: (cls(1, "x") == cls(1, "x", [5]), cls(1, "x") == cls(2, "x"), cls(1, "x") == (1, "x")),
    "hash": lambda cls: (hash(cls(1, "x")) == hash(cls(1, "x", [5])), len({cls(1, "x"), cls(1, "x"), cls(2, "x")})),
    "fields": lambda cls: [(each.name, each.repr, each.compare) for each in dataclasses.fields(cls)],
    "replace": lambda cls: repr(dataclasses.replace(cls(1, "x"), four=7)),
    "as a dict": lambda cls: dataclasses.asdict(cls(1, "x")),
    "copied": lambda cls: copy.deepcopy(cls(1, "x", [2])) == cls(1, "x", [2]),
    "no dict": lambda cls: hasattr(cls(1, "x"), "__dict__"),
    "too many": lambda cls: cls(1, "x", [], 4, 5),
    "twice": lambda cls: cls(1, "x", one=2),
    "unknown": lambda cls: cls(1, "x", five=5),
    "missing": lambda cls: cls(1),
    "assigned": lambda cls: setattr(cls(1, "x"), "one", 2),
    "deleted": lambda cls: delattr(cls(1, "x"), "one"),
}


def outcome(trial: Callable[[type[Any]], object], cls: type[Any]) -> object:
    try:
        return trial(cls)
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("name", TRIES)
def test_it_does_what_the_standard_one_does(name: str) -> None:
    theirs, ours = both(plain)
    assert outcome(TRIES[name], ours) == outcome(TRIES[name], theirs)


def test_post_init_and_own_methods_hold() -> None:
    theirs, ours = both(checked)
    for cls in (theirs, ours):
        assert repr(cls()) == "<Checked>"
        with pytest.raises(ValueError, match="negative"):
            cls(-1)


def test_it_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Kept(1, (2, 3)))) == Kept(1, (2, 3))
