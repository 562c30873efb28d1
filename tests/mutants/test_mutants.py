"""The mutants: which faults there are, and that a run finds out which of them a test notices."""

from __future__ import annotations

import fnmatch
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from mutants.operators import is_valid, mutants_of

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
ROOMS = tomllib.loads((HERE / "rooms.toml").read_text())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def f(a):\n return a < 3", ["< -> <=", "3 -> 4"]),
        ("def f(a, b):\n return a.x and not b", ["a.x and not b -> (a.x)", "a.x and not b -> (not b)", "not b -> (b)"]),
        ("def f(a):\n return min(a, 1.0)", ["min(a, 1.0) -> (1.0)", "min(a, 1.0) -> (a)", "1.0 -> 2.0"]),
        ("def f(self):\n self.a = []\n self.b()", ["self.a = [] -> pass", "self.b() -> pass"]),
        ("def f(a):\n a.n += a.m * 2", ["a.n += a.m * 2 -> pass", "+= -> -=", "* -> //", "2 -> 3"]),
        ("def f(a):\n if a.b:\n  return\n yield", ["a.b -> not a.b", "return -> pass"]),
        (
            "def f(a, b, c):\n return a if c is None else b",
            ["a if c is None else b -> (a)", "a if c is None else b -> (b)", "is -> is not"],
        ),
        ("def f(a):\n for b in a:\n  if b: break\n  else: continue", ["b -> not b", "break -> continue", "continue -> break"]),
        ("STORED: Final = (0, 10)", ["(0, 10) -> (0,)", "(0, 10) -> (10,)"]),
        ("def f(*, a: Literal[3] = True): ...", ["True -> False"]),
        ('"""Doc of 3."""\nMAX = 10_000\nA = int | None\nclass C:\n __slots__ = ("a", "b")\n def __repr__(self):\n  return 3', []),
        ('def f(a):\n assert a > 3\n raise ValueError(f"{a + 1} of 3")', []),
        ("def f(a):\n return zip(a[1], a, strict=True)", ["1 -> 2"]),
        ("if TYPE_CHECKING:\n A = f(3)", []),
        ("def f(ä, b):\n return 'ö' + b, ä - b", ["- -> +"]),
    ],
)
def test_faults_of_a_module(text: str, found: list[str]) -> None:
    mutants = mutants_of("m.py", text.encode())
    assert [mutant.name.split("::")[3] for mutant in mutants] == found
    for mutant in mutants:
        assert is_valid(mutant, text.encode()), mutant.name
        assert len({each.name for each in mutants}) == len(mutants)


def test_a_name_does_not_change_with_what_is_changed_elsewhere() -> None:
    text = b"class A:\n def f(self):\n  return 1 + 1\n"
    names = [mutant.name for mutant in mutants_of("m.py", text)]
    assert names == ["m.py::A.f::constant::1 -> 2", "m.py::A.f::calculate::+ -> -", "m.py::A.f::constant::1 -> 2#1"]
    assert [mutant.name for mutant in mutants_of("m.py", b"def g():\n return 7 * 7\n" + text)][-3:] == names


def test_a_fault_that_changes_nothing_is_none() -> None:
    (mutant,) = mutants_of("m.py", b"def f(a):\n if a:\n  pass\n")
    assert is_valid(mutant, b"def f(a):\n if a:\n  pass\n")
    assert not is_valid(mutants_of("m.py", b"def f():\n a.b()\n")[0], b"def f():\n pass \n")


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_has_code_and_tests(room: str) -> None:
    for pattern in ROOMS[room]["product"]:
        assert any(ROOT.glob(pattern)), pattern
    for path in ROOMS[room]["tests"]:
        assert (ROOT / path).exists(), path


def test_each_equivalent_mutant_is_there_and_says_why() -> None:
    """A pattern that fits nothing any more would one day hide something else."""
    paths = sorted({path.relative_to(ROOT).as_posix() for room in ROOMS.values() for glob in room["product"] for path in ROOT.glob(glob)})
    for each in tomllib.loads((HERE / "equivalent.toml").read_text())["equivalent"]:
        assert each["reason"], each
        fitting = fnmatch.filter(paths, each["mutant"].split("::")[0])
        names = (mutant.name for path in fitting for mutant in mutants_of(path, (ROOT / path).read_bytes()))
        assert any(fnmatch.fnmatchcase(name, each["mutant"]) for name in names), each


TOY = """
def clamp(number, most):
    return min(number, most)

def forgotten(number):
    return number + 1

def endless(number):
    while number < 10:
        number += 1
    return number
"""
TESTS = """
from toy import clamp, endless, forgotten

def test_clamp():
    assert (clamp(1, 2), clamp(3, 2)) == (1, 2)

def test_endless():
    assert endless(8) == 10

def test_forgotten():
    forgotten(1)
    assert {more}
"""


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    (tmp_path / "tests/mutants").mkdir(parents=True)
    (tmp_path / "toy.py").write_text(TOY)
    (tmp_path / "tests/test_toy.py").write_text(TESTS.format(more="True"))
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\npythonpath = ["."]\nmarkers = ["long: x"]\n')
    (tmp_path / "tests/mutants/rooms.toml").write_text('[toy]\nproduct = ["toy.py"]\ntests = ["tests/test_toy.py"]\n')
    equal = '[[equivalent]]\nmutant = "toy.py::endless::compare::*"\nreason = "a test of it"\n'
    (tmp_path / "tests/mutants/equivalent.toml").write_text(equal)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    return tmp_path


def run(toy: Path, *options: str) -> tuple[int, str, dict[str, dict[str, str]]]:
    command = [sys.executable, str(HERE / "run.py"), "--root", str(toy), "--sample", "0", "--jobs", "2", *options]
    environment = {**os.environ, "SLUICE_MUTANTS_PROCESSOR_S": "2"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=300)
    file = toy / "build/mutants/toy.json"
    return done.returncode, done.stdout + done.stderr, json.loads(file.read_text())["mutants"] if file.exists() else {}


@pytest.mark.long
@pytest.mark.slow
def test_a_run_tells_what_no_test_notices_and_goes_on_where_it_was(toy: Path) -> None:
    code, said, found = run(toy)
    verdicts = {name.removeprefix("toy.py::"): each["verdict"] for name, each in found.items()}
    assert verdicts == {
        "clamp::either::min(number, most) -> (number)": "killed",
        "clamp::either::min(number, most) -> (most)": "killed",
        "forgotten::calculate::+ -> -": "survived",
        "forgotten::constant::1 -> 2": "survived",
        "endless::constant::10 -> 11": "killed",
        "endless::calculate::+= -> -=": "timed out",
        "endless::delete::number += 1 -> pass": "timed out",
        "endless::constant::1 -> 2": "survived",  # 8, 10
    }, said
    assert "toy         62.5% of 8 killed; 9 in all, 1 of them known to be equivalent" in said
    assert "toy.py:6  toy.py::forgotten::calculate::+ -> -\n    -    return number + 1\n    +    return number - 1" in said
    assert code == 1
    assert found["toy.py::clamp::either::min(number, most) -> (most)"]["by"] == "tests/test_toy.py::test_clamp"
    assert (toy / "toy.py").read_text() == TOY

    (toy / "tests/test_toy.py").write_text(TESTS.format(more="forgotten(1) == 2"))
    code, said, again = run(toy)
    assert "87.5% of 8 killed" in said, said
    survivors = {name for name, each in found.items() if each["verdict"] == "survived"}
    assert {name for name in found if found[name] != again[name]} == survivors, "others are not run again"

    (toy / "tests/test_toy.py").write_text(TESTS.format(more="forgotten(1) == 2 and endless(9) == 10"))
    code, said, _ = run(toy)
    assert (code, "100.0% of 8 killed" in said) == (0, True), said


@pytest.mark.slow
def test_tests_that_cannot_be_run_are_no_measurement(toy: Path) -> None:
    (toy / "tests/test_toy.py").write_text("import nothing_of_this_name\n")
    code, said, found = run(toy)
    assert (code, found) == (2, {})
    assert "nothing_of_this_name" in said
