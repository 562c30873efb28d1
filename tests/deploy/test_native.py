"""The build of the compiled modules: right whatever has changed since the last one, and nothing is compiled that has not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "deploy" / "packaging"))
from native import Declarations, NativeLibrary, put_by_hand, units_of

BUCKETS = """
class Bucket:
    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.name = "bucket"


def take(bucket: Bucket, count: int) -> tuple[bool, str]:
    bucket.tokens -= count
    return bucket.tokens >= 0, bucket.name
"""
GATES = """
from project.limits.buckets import Bucket, take

WORDS = ("passed", "refused")


def decide(tokens: int, count: int) -> str:
    bucket = Bucket(tokens)
    passed, name = take(bucket, count)
    return name + ": " + (WORDS[0] if passed else WORDS[1]) + " " + str(bucket.tokens)
"""
PORTS = """
def port() -> str:
    return "5672"
"""


class Project:
    """Three modules in two folders, built in a folder of the test."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in ("limits", "gate"):
            (root / "source" / "project" / folder).mkdir(parents=True)
            (root / "source" / "project" / folder / "__init__.py").touch()
        (root / "source" / "project" / "__init__.py").touch()
        for name, text in (("limits/buckets", BUCKETS), ("gate/gates", GATES), ("gate/ports", PORTS)):
            self.write(name, text)

    def write(self, name: str, text: str) -> None:
        (self.root / "source" / "project" / f"{name}.py").write_text(f'"""A module."""\n{text}')

    def build(self) -> set[str]:
        """Compile all; the names of the units that were not there from before."""
        from setuptools._distutils.ccompiler import new_compiler
        from setuptools._distutils.sysconfig import customize_compiler, get_python_inc

        compiler: Any = new_compiler()
        customize_compiler(compiler)
        compiled: set[str] = set()
        compile_one = compiler.compile

        def compile_and_note(sources: list[str], **options: Any) -> Any:
            compiled.update(Path(source).stem for source in sources)
            return compile_one(sources, **options)

        compiler.compile = compile_and_note
        library = NativeLibrary("project.native", Path("build"), compiler, [get_python_inc()])
        paths = [f"project/{name}.py" for name in ("gate/gates", "gate/ports", "limits/buckets")]
        written = library.build(paths, Path("source"), Path("built"))
        assert all(path.is_file() for path in written)
        return compiled

    def answer(self, expression: str = "decide(1, 1), decide(1, 2), port()") -> str:
        """Of what was built; the sources are not on the path, only their packages' __init__ are."""
        for package in ("project", "project/limits", "project/gate"):
            (self.root / "built" / package).mkdir(exist_ok=True)
            (self.root / "built" / package / "__init__.py").touch()
        (self.root / "built" / "project" / "__init__.py").write_text("from project import native as native\n")
        program = f"from project.gate.gates import decide\nfrom project.gate.ports import port\nprint(({expression}))"
        done = subprocess.run([sys.executable, "-c", program], cwd=self.root / "built", capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    return Project(tmp_path)


@pytest.mark.long
@pytest.mark.slow
def test_a_build_compiles_what_has_changed_and_is_right_after_each_change(project: Project) -> None:
    everything = {"project_gate_0", "project_limits_0", "table"}
    assert project.build() == everything
    assert project.answer() == "('bucket: passed 0', 'bucket: refused -1', '5672')"
    assert project.build() == set()

    # A new literal moves the numbers of all others.
    project.write("gate/ports", PORTS.replace('"5672"', '"a new literal, " + "5671"'))
    assert project.build() == {"project_gate_0", "table"}
    assert project.answer() == "('bucket: passed 0', 'bucket: refused -1', 'a new literal, 5671')"

    # A function that nobody else uses; the other folder's declarations change, but not those that are used here.
    project.write("limits/buckets", BUCKETS.replace('"bucket"', '"pail"') + "\n\ndef spare(count: int) -> int:\n    return count + 1\n")
    assert project.build() == {"project_limits_0", "table"}
    assert project.answer() == "('pail: passed 0', 'pail: refused -1', 'a new literal, 5671')"

    # A class has another layout: compiled code reads attributes by their place.
    project.write(
        "limits/buckets", BUCKETS.replace("        self.tokens = tokens\n", "        self.spent = 0\n        self.tokens = tokens\n")
    )
    assert project.build() == {"project_limits_0", "project_gate_0", "table"}
    assert project.answer() == "('bucket: passed 0', 'bucket: refused -1', 'a new literal, 5671')"

    # As it was: all that is kept.
    project.write("limits/buckets", BUCKETS)
    project.write("gate/ports", PORTS)
    assert project.build() == set()
    assert project.answer() == "('bucket: passed 0', 'bucket: refused -1', '5672')"


def test_what_does_not_pass_mypyc_ends_the_build_and_says_where(project: Project, capfd: pytest.CaptureFixture[str]) -> None:
    project.write("gate/ports", PORTS.replace('"5672"', "5672"))
    with pytest.raises(SystemExit):
        project.build()
    assert "project/gate/ports.py:4: error:" in "".join(capfd.readouterr())


BY_HAND = "static inline int64_t twice(int64_t number)\n{\n    return 3 * number; /* it can be told from the other */\n}\n"
TWICE = """
from mypy_extensions import i64


def twice(number: i64) -> i64:
    return 2 * number


def decide(tokens: int, count: int) -> int:
    return twice(tokens) + count
"""


def test_a_function_that_is_also_written_in_c_is_that(project: Project) -> None:
    """For compiled code and for Python's, which both call it by its name."""
    project.write("gate/gates", TWICE)
    (project.root / "source" / "project" / "gate" / "gates.c").write_text(BY_HAND)
    project.build()
    assert project.answer("decide(5, 1), __import__('project.gate.gates').gate.gates.twice(2)") == "(16, 6)"


def test_c_may_include_others_and_is_compiled_anew_where_that_has_changed(project: Project) -> None:
    """Both modules of a folder, which are one unit, include the same."""
    shared = project.root / "source" / "project" / "limits" / "factor.c"
    guarded = "#ifndef FACTOR\n#define FACTOR\nstatic inline long long factor(void) { return %d; }\n#endif\n"
    for module in ("gates", "ports"):
        text = f'#include "../limits/factor.c"\n{BY_HAND.replace("twice", "times_" + module).replace("3 *", "factor() *")}'
        project.write(f"gate/{module}", PORTS + TWICE.replace("twice", f"times_{module}"))
        (project.root / "source" / "project" / "gate" / f"{module}.c").write_text(text)
    asked = "decide(5, 1), __import__('project.gate.ports').gate.ports.decide(2, 0)"
    shared.write_text(guarded % 7)
    project.build()
    assert project.answer(asked) == "(36, 14)"
    shared.write_text(guarded % 9)
    assert project.build() == {"project_gate_0"}
    assert project.answer(asked) == "(46, 18)"


@pytest.mark.parametrize(
    "made", ["int64_t CPyDef_gates___double(int64_t cpy_r_number)", "PyObject *CPyDef_gates___twice(PyObject *cpy_r_number)"]
)
def test_c_for_a_function_that_mypyc_has_not_made_so_ends_the_build(made: str) -> None:
    with pytest.raises(SystemExit, match=r"gates\.c: mypyc has made 0 functions of the name twice"):
        put_by_hand(f"{made} {{\n    return 0;\n}}\n", BY_HAND, "gates.c")


def test_a_large_folder_is_cut_into_units_and_each_module_is_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("native.UNIT_BYTES", 100)
    texts = {f"project.{folder}.{name}": f"/* {folder} {name} */" + "x" * 45 for folder in ("a", "b") for name in "pqrstu"}
    texts["project.b.large"] = "/* b large */" + "x" * 500
    units = units_of(texts)
    assert [name.rpartition("_")[0] for name, _ in units] == sorted(name.rpartition("_")[0] for name, _ in units)
    assert len({name for name, _ in units}) == len(units) > 4
    joined = "".join(text for _, text in units)
    assert all(joined.count(text) == 1 for text in texts.values())
    assert all(f"/* {name[8]} " in text or name == "table" for name, text in units)


def test_a_unit_has_the_declarations_that_it_uses_and_those_that_they_use() -> None:
    header = """#ifndef MYPYC_NATIVE_H
#include <CPy.h>

#ifndef MYPYC_DECLARED_tuple_T2OI
#define MYPYC_DECLARED_tuple_T2OI
typedef struct tuple_T2OI {
    PyObject *f0;
    CPyTagged f1;
} tuple_T2OI;
#endif

typedef struct {
    PyObject_HEAD
    tuple_T2OI _pair;
} a___PairObject;
extern PyObject *CPyStatic_a___globals;
extern PyObject *CPyStatics[12];
extern tuple_T2OI CPyDef_a___both(PyObject *cpy_r_x);
extern char CPyDef_a___other(PyObject *cpy_r_x);
int CPyGlobalsInit(void);
#endif
"""
    declarations = Declarations(header)
    assert declarations.includes == ["#include <CPy.h>"]
    used = declarations.used_by("x = ((a___PairObject *)y)->_pair; z = CPyStatic_a___globals;")
    assert used.splitlines()[0] == "#ifndef MYPYC_DECLARED_tuple_T2OI"
    assert "} a___PairObject;" in used
    assert "CPyStatic_a___globals;" in used
    assert "CPyDef_a___" not in used
    assert "CPyDef_a___both" in declarations.used_by("CPyDef_a___both(x)")
    assert declarations.used_by("nothing of ours") == ""
