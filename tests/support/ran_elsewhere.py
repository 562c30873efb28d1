"""What a page or a help shows and a test elsewhere runs: that the test reads those words from where they are shown, so it cannot drift."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from typing import Final

from support.pages import ROOT

# Markers of what needs large downloads: targets of their own, not in `make test`.
APART: Final = {"storage", "airflow", "kubernetes", "packages"}


@cache
def _tree(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text())


@dataclass(frozen=True, slots=True)
class Ran:
    """The test that runs it; `by`: the marker of its target, where that is not `make test`."""

    test: str  # file::function
    by: str = ""

    @property
    def name(self) -> str:
        return self.test.partition("::")[2]

    @property
    def tree(self) -> ast.Module:
        return _tree(self.test.partition("::")[0])

    @property
    def apart(self) -> str:
        """The marker that the test, or its file, really has."""
        marked = [mark for each in _functions(self.tree) if each.name == self.name for mark in each.decorator_list]
        marked += [each.value for each in self.tree.body if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "pytestmark"]
        return "".join(APART & set(re.findall(r"pytest\.mark\.(\w+)", " ".join(map(ast.unparse, marked)))))


def _functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [each for each in tree.body if isinstance(each, ast.FunctionDef)]


def calls(tree: ast.Module, name: str, function: str, *words: str, seen: frozenset[str] = frozenset()) -> bool:
    """Whether a function of the file calls `function(*words)`, by itself or by a function or fixture of the file that it names."""
    found = next((each for each in _functions(tree) if each.name == name), None)
    if found is None or name in seen:
        return False
    called = [node for node in ast.walk(found) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    if any(ast.unparse(node.func) == function and [getattr(each, "value", None) for each in node.args] == list(words) for node in called):
        return True
    named = {node.id for node in ast.walk(found) if isinstance(node, ast.Name)} | {argument.arg for argument in found.args.args}
    return any(calls(tree, other, function, *words, seen=seen | {name}) for other in sorted(named))
