"""Mutants: the small faults that are put into a module, each at one place of its text.

Left alone: words (docstrings, messages, `repr`), types, assertions (`strict` of zip is one), decorators, and figures that stand alone at a
module's top. These are bounds that say themselves where they come from, and no test should know them to the last digit.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Final

COMPARED: Final[dict[type[ast.cmpop], tuple[str, str]]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"), ast.IsNot: (r"is\s+not", "is"), ast.In: ("in", "not in"), ast.NotIn: (r"not\s+in", "in"),
}  # fmt: skip
CALCULATED: Final[dict[type[ast.operator], tuple[str, str]]] = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "//"), ast.Div: ("/", "*"), ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "//"),
    ast.LShift: ("<<", ">>"), ast.RShift: (">>", "<<"), ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"), ast.BitXor: ("^", "|"),
}  # fmt: skip
EXTREMES: Final = ("min", "max", "minimum", "maximum", "fmin", "fmax")  # of each argument alone there is a mutant
WORDS: Final = ("__repr__", "__str__", "__slots__", "__all__")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault: `before`, which begins at byte `start` of the module's text, becomes `after`."""

    path: str  # of the module, from the root of the tree
    place: str  # function or class; "": the module's top
    operator: str
    line: int
    start: int
    before: str
    after: str
    number: int  # of several alike in one place, from 0

    @property
    def name(self) -> str:
        """Unchanged by what is changed elsewhere in the module."""
        what = " ".join(self.before.split()), " ".join(self.after.split())
        return f"{self.path}::{self.place}::{self.operator}::{what[0]} -> {what[1]}" + (f"#{self.number}" if self.number else "")

    def applied(self, text: bytes) -> bytes:
        """The module's text with the fault."""
        end = self.start + len(self.before.encode())
        return text[: self.start] + self.after.encode() + text[end:]


class Finder(ast.NodeVisitor):
    """Goes through a module and notes each place where a fault can be put."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.found: list[tuple[str, str, int, int, str, str]] = []  # place, operator, line, start, before, after
        self._lines = [0]
        for line in text.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._place: list[str] = []
        self._functions = 0

    # ---- the text --------------------------------------------------------------------------------------------------

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._lines[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._lines[node.end_lineno - 1] + node.end_col_offset

    def _source(self, node: ast.expr | ast.stmt) -> str:
        return self.text[self._start(node) : self._end(node)].decode()

    def _note(self, operator: str, node: ast.expr | ast.stmt, after: str) -> None:
        self._put(operator, node.lineno, self._start(node), self._source(node), after)

    def _put(self, operator: str, line: int, start: int, before: str, after: str) -> None:
        self.found.append((".".join(self._place), operator, line, start, before, after))

    def _between(self, operator: str, left: int, right: int, token: str, after: str) -> None:
        """Replace the operator that stands between two operands."""
        gap = self.text[left:right].decode()
        found = re.search(token, gap)
        if found is not None and "#" not in gap:
            start = left + len(gap[: found.start()].encode())
            self._put(operator, self.text.count(b"\n", 0, start) + 1, start, found.group(), after)

    # ---- what is left alone ------------------------------------------------------------------------------------------

    def _scope(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        if node.name in WORDS:
            return
        self._place.append(node.name)
        functions = self._functions
        if not isinstance(node, ast.ClassDef):
            self._functions += 1
            for default in (*node.args.defaults, *(each for each in node.args.kw_defaults if each is not None)):
                self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self._functions = functions
        self._place.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _scope  # noqa: N815

    def visit_Assert(self, node: ast.Assert) -> None: ...

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None: ...

    # ---- statements --------------------------------------------------------------------------------------------------

    def visit_Expr(self, node: ast.Expr) -> None:
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(value, ast.Call):
            self._note("delete", node, "pass")
        self.generic_visit(node)

    def _assigned(self, node: ast.Assign | ast.AnnAssign, targets: list[ast.expr], value: ast.expr | None) -> None:
        if value is None or any(isinstance(target, ast.Name) and target.id in WORDS for target in targets):
            return
        if self._functions:
            if isinstance(node, ast.Assign) and all(isinstance(target, (ast.Attribute, ast.Subscript)) for target in targets):
                self._note("delete", node, "pass")
        elif isinstance(value, (ast.Tuple, ast.List, ast.Set)):
            parts = [self._source(each) for each in value.elts]
            opened, closed = ("(", ",)") if isinstance(value, ast.Tuple) else ("[", "]") if isinstance(value, ast.List) else ("{", "}")
            for at in range(len(parts) if len(parts) > 1 else 0):
                self._note("drop", value, opened + ", ".join(parts[:at] + parts[at + 1 :]) + closed)
            return
        elif not any(isinstance(each, (ast.Call, ast.Lambda, ast.Compare, ast.IfExp)) for each in ast.walk(value)):
            return  # a figure, or a name of a type
        for target in targets:
            self.visit(target)
        self.visit(value)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._assigned(node, node.targets, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._assigned(node, [node.target], node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._note("delete", node, "pass")
        token, after = CALCULATED.get(type(node.op), ("", ""))
        if token:
            self._between("calculate", self._end(node.target), self._start(node.value), re.escape(token + "="), after + "=")
        self.visit(node.value)

    def visit_Delete(self, node: ast.Delete) -> None:
        self._note("delete", node, "pass")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._note("loop", node, "break")

    def visit_Break(self, node: ast.Break) -> None:
        self._note("loop", node, "continue")

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None:
            self._note("delete", node, "pass")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        if isinstance(node.test, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
            self._note("condition", node.test, f"not {self._source(node.test)}")
        self.generic_visit(node)

    # ---- expressions -------------------------------------------------------------------------------------------------

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for at, operator in enumerate(node.ops):
            token, after = COMPARED[type(operator)]
            token = token if "\\" in token else re.escape(token)
            token = rf"\b{token}\b" if token[0].isalpha() else token
            self._between("compare", self._end(operands[at]), self._start(operands[at + 1]), token, after)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        token, after = CALCULATED.get(type(node.op), ("", ""))
        words = any(
            isinstance(each, (ast.JoinedStr, ast.Constant)) and isinstance(getattr(each, "value", ""), str)
            for each in (node.left, node.right)
        )
        if token and not words:
            self._between("calculate", self._end(node.left), self._start(node.right), re.escape(token), after)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        parts = [f"({self._source(each)})" for each in node.values]
        word = " and " if isinstance(node.op, ast.And) else " or "
        for at in range(len(parts)):
            rest = parts[:at] + parts[at + 1 :]
            self._note("drop", node, rest[0] if len(rest) == 1 else f"({word.join(rest)})")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, (ast.Not, ast.USub)):
            self._note("unary", node, f"({self._source(node.operand)})")
        if not isinstance(node.operand, ast.Constant):
            self.visit(node.operand)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._note("either", node, f"({self._source(node.body)})")
        self._note("either", node, f"({self._source(node.orelse)})")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr if isinstance(node.func, ast.Attribute) else ""
        choices = node.args[1:] if name == "where" and len(node.args) == 3 else node.args if name in EXTREMES and len(node.args) > 1 else []
        if name == "clip" and len(node.args) == 3:
            choices = node.args[:1]
        if not any(isinstance(each, ast.Starred) for each in choices):
            for each in choices:
                self._note("either", node, f"({self._source(each)})")
        if name == "zip":
            for argument in node.args:
                self.visit(argument)
        elif name not in ("TypeVar", "cast", "NewType"):
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._note("constant", node, str(not value))
        elif isinstance(value, int):
            self._note("constant", node, str(value + 1))
        elif isinstance(value, float):
            self._note("constant", node, repr(value * 2 or 1.0))


def mutants_of(path: str, text: bytes) -> list[Mutant]:
    """All mutants of a module, in the order of its text; some do not compile (`is_valid`)."""
    finder = Finder(text)
    finder.visit(ast.parse(text))
    seen: dict[tuple[str, str, str, str], int] = {}
    found = []
    for place, operator, line, start, before, after in sorted(finder.found, key=lambda each: (each[3], each[1], each[5])):
        alike = (place, operator, " ".join(before.split()), " ".join(after.split()))
        seen[alike] = seen.get(alike, -1) + 1
        found.append(Mutant(path, place, operator, line, start, before, after, seen[alike]))
    return found


def is_valid(mutant: Mutant, text: bytes) -> bool:
    """Whether the module with the fault compiles and means something else."""
    try:
        return ast.dump(ast.parse(mutant.applied(text))) != ast.dump(ast.parse(text))
    except SyntaxError:
        return False
