"""Compiles modules with mypyc into one library, the parts side by side, and only what has changed.

The naive way is mypyc's own: one C file of all modules for one run of the compiler. That takes minutes of one core, and as long again after
a changed line. In `multi_file` mode each module has a C file, but every file includes the declarations of all, so a new function anywhere
changes them all; and literals are numbered through, so a new string moves the numbers of all others.

Here the files of a folder are joined into units. A unit has only the declarations that it uses, and calls a literal by a name of its own,
which the library's table of literals resolves (`_aliases`). So its text changes only when its own code does, or a class or function that
it uses. A compiled unit is kept in build/objects, by the hash of its text and of the command that compiles it. As many are compiled at
once as there are processors. Names are hidden outside of the library, so calls between units are direct calls; but only calls within a
unit are inlined.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from setuptools._distutils.sysconfig import get_config_var

UNIT_BYTES: Final = 1_000_000  # of C; a folder with more is cut into units of about this size: two to four seconds of a core each
KEPT: Final = 400  # compiled units in build/objects, those used last; a build has sixty

# Of -O2 only what is worth its time here: -O1 with these takes gcc 0.62 of the time of -O2, and messages cost the same (2026-11).
OPTIMISATION: Final = ("-fstrict-aliasing", "-finline-small-functions", "-freorder-blocks-and-partition", "-freorder-functions")

# What compiled code calls where something went wrong, or where an integer is beyond 62 bits. mypyc checks nearly every step for an error,
# and has the handling of it in between: a third of the code that a message brings into the processor's cache is never run. Marked as cold,
# it is kept out of the way: AMQP's confirms cost 0.87 to 0.93 of what they did, all else the same or less (2026-11).
RARE: Final = (
    "CPy_AddTraceback", "CPy_TypeErrorTraceback", "CPy_AttributeError", "CPy_TypeError", "CPyError_OutOfMemory",
    "PyErr_SetString", "PyErr_SetNone", "PyErr_Format",
    "CPyTagged_IncRef", "CPyTagged_DecRef", "CPyTagged_XDecRef", "CPyTagged_IsEq_", "CPyTagged_IsLt_", "CPyTagged_FromInt64",
    "CPyTagged_Add_", "CPyTagged_Subtract_", "CPyTagged_Multiply_", "CPyTagged_FloorDivide_", "CPyTagged_Remainder_", "CPyLong_AsInt64_",
)  # fmt: skip

_WORD: Final = re.compile(r"\b[A-Za-z_]\w*")
_OWN_HEADER: Final = re.compile(r'^#include "__native.*\n', re.MULTILINE)
_LITERAL: Final = re.compile(r"\bCPyStatics\[(\d+)\]")
_INCLUDED: Final = re.compile(r'^#include "([\w./]+\.c)"\n', re.MULTILINE)
_BY_HAND: Final = re.compile(r"^static inline (?:char|int64_t) (\w+)\(", re.MULTILINE)
# The code of a module's import runs once, and stays in memory. Its size is the product of its definitions and of what each may have to
# free: to optimise it took two fifths of the compiler's time. As it is written it has 1.7 MB; optimised for size, which takes a tenth of
# the time, a third of that.
_TOP_LEVEL: Final = re.compile(r"^(?=char CPyDef_\w*__top_level__\(void\) *\{)", re.MULTILINE)
_ONCE: Final = '__attribute__((optimize("Os"))) '

# A library for each module, from which Python would import it, costs 20 kB of memory, 12 of them its own, and 75 us (2026-11). So Python
# finds the modules here.
_FINDER: Final = '''"""Finds the compiled modules: all are in one library. The build has written this."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder

PACKAGE = __name__.rpartition(".")[0]
LIBRARY = "NAME"
MODULES = frozenset({
    LIST
})


class CompiledModules:
    """A finder and loader of modules, for sys.meta_path."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in MODULES:
            return None
        library = PathFinder.find_spec(LIBRARY, sys.modules[PACKAGE].__path__)
        return library and ModuleSpec(name, CompiledModules, origin=library.origin)  # None: it is for another Python, and the source runs

    @staticmethod
    def create_module(spec):
        __import__(LIBRARY)
        library = sys.modules[LIBRARY]
        return library.load(getattr(library, "init_" + spec.name.replace(".", "___")))

    @staticmethod
    def exec_module(module):
        """It has run."""


sys.meta_path.insert(0, CompiledModules)
'''
_LOAD: Final = """static PyObject *load(PyObject *library, PyObject *capsule)
{
    PyObject *(*init)(void) = (PyObject *(*)(void))PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule));
    return init ? init() : NULL;
}

static PyMethodDef methods[] = {{"load", load, METH_O, NULL}, {NULL, NULL, 0, NULL}};

"""
_NO_METHODS: Final = ".m_methods = NULL"
_LIBRARY_ITSELF: Final = "static PyModuleDef module_def_"


@dataclass(frozen=True)
class Unit:
    """C that is compiled as one: its text, and the literals that it names, by their numbers in the library's table."""

    name: str
    text: str
    literals: Mapping[str, int]


class Declarations:
    """What mypyc's headers declare: includes, which all units have, and a declaration for each name."""

    def __init__(self, header: str) -> None:
        self.includes: list[str] = []
        self._texts: list[str] = []
        self._of: dict[str, int] = {}  # the place of a name's declaration
        for text in _declarations(header):
            if text.startswith("#include"):
                self.includes.append(text)
                continue
            self._of[_declared_name(text)] = len(self._texts)
            self._texts.append(text)

    def used_by(self, text: str) -> str:
        """The declarations of all that `text` names, and of what they name, in the headers' order."""
        found: set[int] = set()
        new = {self._of[word] for word in set(_WORD.findall(text)) if word in self._of}
        while new:
            found |= new
            new = {self._of[word] for place in new for word in _WORD.findall(self._texts[place]) if word in self._of} - found
        return "\n".join(self._texts[place] for place in sorted(found))


def _declarations(header: str) -> Iterator[str]:
    """Each include and declaration of mypyc's headers. Those of tuples keep their guards, since its run-time library declares some, too."""
    open_lines: list[str] = []
    end = ""
    for line in header.splitlines():
        if open_lines:
            open_lines.append(line)
            if line.startswith(end):
                yield "\n".join(open_lines)
                open_lines = []
        elif line.startswith("#include"):
            yield line
        elif line.startswith("#ifndef MYPYC_DECLARED_"):
            open_lines, end = [line], "#endif"
        elif line and not line.startswith("#"):
            if line.endswith(";"):
                yield line
            else:
                open_lines, end = [line], "}"


def _declared_name(text: str) -> str:
    if "}" in text:
        return str(_WORD.findall(text.rpartition("}")[2])[0])
    return str(_WORD.findall(text.partition("(")[0].partition("[")[0].partition("=")[0])[-1])


def _aliases(units: Iterable[Unit]) -> str:
    """Assembler for the unit that has the library's table of literals, an array of pointers: each unit's names for its entries."""
    lines = ["#if __SIZEOF_POINTER__ == 8", '#define ENTRY "8"', "#else", '#define ENTRY "4"', "#endif", "__asm__("]
    for unit in units:
        for name, number in unit.literals.items():
            lines.append(f'".globl {name}\\n.hidden {name}\\n.set {name}, CPyStatics + {number} * " ENTRY "\\n"')
    return "\n".join([*lines, ");", ""])


def units_of(files: Mapping[str, str]) -> list[tuple[str, str]]:
    """C files, by their modules' names, joined by folder: name and text of each unit. A large folder is cut into several."""
    folders: defaultdict[str, list[str]] = defaultdict(list)
    for module in sorted(files):
        folders[module.rpartition(".")[0]].append(files[module])
    joined = []
    for folder, texts in folders.items():
        pieces = max(1, round(sum(map(len, texts)) / UNIT_BYTES))
        each = sum(map(len, texts)) / pieces
        lots: list[list[str]] = [[]]
        for text in texts:
            if lots[-1] and len(lots) < pieces and sum(map(len, lots[-1])) + len(text) / 2 > each:
                lots.append([])
            lots[-1].append(text)
        joined += [(f"{folder}_{number}".replace(".", "_"), "\n".join(lot)) for number, lot in enumerate(lots)]
    return joined


def _name_literals(unit: str, code: str) -> tuple[str, dict[str, int]]:
    """`code` with a name of the unit's own for each literal that it takes from the table, and their numbers there."""
    names: dict[int, str] = {}
    code = _LITERAL.sub(lambda found: names.setdefault(int(found[1]), f"CPyLiteral_{unit}_{len(names)}"), code)
    return code, {name: number for number, name in names.items()}


def put_by_hand(code: str, by_hand: str, file: str) -> str:
    """The C that mypyc has made of a module, where functions that `by_hand` has, too, call those: `file` is where that was read.

    The naive way is a module of C that Python imports: a call of it from compiled code boxes its arguments, which costs more than it saves.
    Raises SystemExit where mypyc has not made such a function.
    """
    for name in _BY_HAND.findall(by_hand):
        made = re.compile(rf"^((?:char|int64_t) CPyDef_\w*___{name}\()([^)]*)\) \{{\n.*?^\}}$", re.MULTILINE | re.DOTALL)
        code, count = made.subn(partial(_call, name), code)
        if count != 1:
            raise SystemExit(f"{file}: mypyc has made {count} functions of the name {name}, with a signature of native types; 1 is wanted")
    return by_hand + code


def include_others(code: str, folder: Path) -> str:
    """`code`, of a file in `folder`, with the text of each .c file that it includes, and of those that these include.

    As text, since objects are kept by it. Each such file sees to it that it counts once in a unit.
    """

    def read(found: re.Match[str]) -> str:
        path = folder / found[1]
        return include_others(path.read_text(), path.parent)

    return _INCLUDED.sub(read, code)


def _call(name: str, made: re.Match[str]) -> str:
    """The function `made`, whose body is a call of the one by hand."""
    names = ", ".join(_WORD.findall(parameter)[-1] for parameter in made[2].split(","))
    return f"{made[1]}{made[2]}) {{ return {name}({names}); }}"


class NativeLibrary:
    """One library of compiled modules, and a module that finds them there, of the library's name, which their package must import first.

    `compiler` is setuptools' own, as build_ext has set it up; `folder` is build/, under the current directory.
    """

    def __init__(self, name: str, folder: Path, compiler: Any, include_dirs: Sequence[str]) -> None:
        self.name = name
        self._folder = folder
        self._compiler = compiler
        self._include_dirs = list(include_dirs)
        self._arguments: list[str] = []

    def build(self, paths: Sequence[str], source_root: Path, target: Path) -> list[Path]:
        """Compile the modules at `paths` under `source_root`; the libraries that were written under `target`.

        Raises SystemExit where mypyc refuses a module (it has printed why), and setuptools' CompileError and LinkError.
        """
        units = self._write_c(paths, source_root)
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as workers:
            largest_first = sorted(units, key=lambda unit: -len(unit.text))
            objects = dict(zip((unit.name for unit in largest_first), workers.map(self._object_of, largest_first), strict=True))
        suffix = str(get_config_var("EXT_SUFFIX"))
        library = target / (self.name.replace(".", "/") + "__mypyc" + suffix)
        library.parent.mkdir(parents=True, exist_ok=True)
        self._compiler.link_shared_object([str(objects[unit.name]) for unit in units], str(library))
        self._forget_old()
        return [library, self._write_finder([path.removesuffix(".py").replace("/", ".") for path in paths], target)]

    def _write_c(self, paths: Sequence[str], source_root: Path) -> list[Unit]:
        from mypyc.build import mypycify

        written = self._folder / "c"
        shutil.rmtree(written, ignore_errors=True)
        root = Path.cwd()
        try:
            os.chdir(source_root)  # modules are called by their paths from here, also in tracebacks
            first = mypycify(list(paths), opt_level="1", multi_file=True, group_name=self.name, target_dir=str(root / written))[0]
        finally:
            os.chdir(root)
        self._include_dirs += sorted(os.path.relpath(path) if Path(path).is_relative_to(root) else path for path in first.include_dirs)
        self._arguments = [
            *first.extra_compile_args,
            *OPTIMISATION,
            # To look for what to warn of takes gcc 12 two thirds of its time, and in code that a program has written that helps nobody.
            "-Wno-all",
            # Whose library and version this is must not depend on where it was built.
            f"-ffile-prefix-map={root}=.",
        ]
        files = {path.stem: path.read_text() for path in written.rglob("*.c") if path.stem.startswith("__native_")}
        table = files.pop(next(name for name in files if "___" not in name))
        headers = "\n".join(path.read_text() for path in sorted(written.rglob("__native_*.h"), key=lambda path: "internal" in path.name))
        runtime = [Path(path).relative_to(root / written) for path in first.sources if not Path(path).name.startswith("__native")]
        table = "".join(f'#include "{path}"\n' for path in runtime) + table
        headers, table = (_OWN_HEADER.sub("", text) for text in (headers, table))
        if (table.count(_LIBRARY_ITSELF), table.count(_NO_METHODS)) != (1, 1):
            raise SystemExit(f"mypyc has not made one library of the name {self.name}")
        table = table.replace(_NO_METHODS, ".m_methods = methods").replace(_LIBRARY_ITSELF, _LOAD + _LIBRARY_ITSELF)
        modules = {name.removeprefix("__native_").replace("___", "."): text for name, text in files.items()}
        for path in paths:
            by_hand = (source_root / path).with_suffix(".c")
            if by_hand.exists():
                module = path.removesuffix(".py").replace("/", ".")
                modules[module] = include_others(put_by_hand(modules[module], by_hand.read_text(), str(by_hand)), by_hand.parent)
        return self._units(modules, table, headers)

    def _units(self, files: Mapping[str, str], table: str, headers: str) -> list[Unit]:
        declarations = Declarations(headers)
        begin = ["#define PY_SSIZE_T_CLEAN", "#include <Python.h>", "#pragma GCC visibility push(hidden)", *declarations.includes]
        begin += [f"__typeof__({name}) {name} __attribute__((cold));" for name in self._rare()]
        units = []
        for name, joined in units_of(files):
            code, literals = _name_literals(name, _TOP_LEVEL.sub(_ONCE, _OWN_HEADER.sub("", joined)))
            declared = [declarations.used_by(code), *(f"extern PyObject *{literal};" for literal in literals)]
            units.append(Unit(name, "\n".join([*begin, *declared, code]), literals))
        return [*units, Unit("table", "\n".join([*begin, headers, table, _aliases(units)]), {})]

    @staticmethod
    def _rare() -> list[str]:
        """Those of RARE that there are: mypyc's may be called otherwise one day."""
        from mypyc.build import include_dir

        declared = Path(include_dir(), "CPy.h").read_text()
        return [name for name in RARE if name.startswith("PyErr_") or f"{name}(" in declared]

    def _object_of(self, unit: Unit) -> Path:
        """The compiled unit: kept from a build before, or made now."""
        source = self._folder / "units" / f"{unit.name}.c"
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(unit.text)
        kept = self._folder / "objects" / f"{self._key(unit.text)}.o"
        if kept.exists():
            kept.touch()
            return kept
        kept.parent.mkdir(exist_ok=True)
        made = self._compiler.compile(
            [str(source)], output_dir=str(self._folder / "units"), include_dirs=[str(self._folder / "c"), *self._include_dirs],
            extra_postargs=self._arguments,
        )  # fmt: skip
        Path(made[0]).replace(kept)
        return kept

    def _key(self, text: str) -> str:
        """A hash of all that the object depends on: code, command, compiler, and the headers of Python and of mypyc by their versions."""
        from mypy.version import __version__ as mypy

        command = [*self._compiler.compiler_so, *self._arguments, *self._include_dirs]
        version = subprocess.run([self._compiler.compiler_so[0], "--version"], capture_output=True, text=True, check=True).stdout
        parts = (*command, version, mypy, get_config_var("EXT_SUFFIX"), get_config_var("VERSION"), text)
        return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()

    def _forget_old(self) -> None:
        kept = sorted((self._folder / "objects").glob("*.o"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in kept[KEPT:]:
            path.unlink()

    def _write_finder(self, modules: Sequence[str], target: Path) -> Path:
        listed = ",\n    ".join(f'"{module}"' for module in sorted(modules))
        written = target / (self.name.replace(".", "/") + ".py")
        written.write_text(_FINDER.replace("NAME", f"{self.name}__mypyc").replace("LIST", listed))
        return written
