"""Which files of tests a run's marks leave out whole: they need not be imported."""

from __future__ import annotations

import re
from functools import cache
from itertools import chain, combinations
from pathlib import Path

from _pytest.mark.expression import Expression, ExpressionMatcher

MARK = re.compile(r"\bmark\.(\w+)")
OF_THE_FILE = re.compile(r"^pytestmark = .*(?:\n[ \])].*)*", re.MULTILINE)
WORD = re.compile(r"\w+")


@cache
def marks_in(file: Path) -> tuple[frozenset[str], frozenset[str]]:
    """The names behind `mark.` in a file's text, and those of them that all its tests have (`pytestmark`)."""
    text = file.read_text()
    return frozenset(MARK.findall(text)), frozenset(chain.from_iterable(map(MARK.findall, OF_THE_FILE.findall(text))))


def possible_marks(file: Path, root: Path) -> frozenset[str]:
    """Marks that tests of `file` may have by its text, or by a parameter of a fixture in a conftest.py between `root` and it."""
    folders = [folder for folder in file.parents if folder != root and folder.is_relative_to(root)]
    return frozenset(chain(*(marks_in(each)[0] for each in [file, *(folder / "conftest.py" for folder in folders)] if each.exists())))


def can_select(expression: str, possible: frozenset[str], certain: frozenset[str] = frozenset()) -> bool:
    """Whether `-m expression` selects a test that has all `certain` marks and, it is not known which, some of the `possible` ones."""
    compiled = Expression.compile(expression)
    unknown = sorted((possible - certain) & set(WORD.findall(expression)))
    some = chain.from_iterable(combinations(unknown, size) for size in range(len(unknown) + 1))
    return any(compiled.evaluate(_matcher(certain.union(marks))) for marks in some)


def _matcher(marks: frozenset[str]) -> ExpressionMatcher:
    def has(name: str, /, **_: str | int | bool | None) -> bool:
        return name in marks

    return has
