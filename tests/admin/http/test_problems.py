"""The table of problem types is what the admin API answers: every name, with its statuses."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from admin.app import REFUSAL_NAMES
from admin.http.problems import PROBLEMS, ProblemType
from support.cases import in_one_loop

ADMIN = Path(__file__).parents[3] / "admin"


def made() -> Iterator[tuple[str, int]]:
    """The name and the status of every problem that the code makes."""
    for path in ADMIN.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Name(id="ProblemError"), args=[status, ast.Constant(value=str(name)), *_]):
                    yield from (
                        (name, each.value) for each in ast.walk(status) if isinstance(each, ast.Constant) and type(each.value) is int
                    )
    yield from ((name, status) for status, name in REFUSAL_NAMES.items())


def test_every_problem_in_the_code_is_in_the_table_and_no_other() -> None:
    assert set(made()) == {(name, status) for name, problem in PROBLEMS.items() for status in problem.statuses}


@in_one_loop
@pytest.mark.parametrize(("name", "problem"), PROBLEMS.items(), ids=list(PROBLEMS))
def test_a_problem_is_described_in_whole_sentences(name: str, problem: ProblemType) -> None:
    assert name == name.lower()
    assert problem.meaning[0].isupper()
    assert problem.meaning.endswith(".")
