"""Lays the sources out as users get them: one top-level package `sluice`.

In the repository `gateway`, `limiter`, `admin` and the other packages stand side by side. Installed so, they would shadow other people's
`admin` or `config`. Hence a build copies them under `sluice`, as `sluice.gateway` and so on, and rewrites the imports among them. Nothing
else changes but the version (git_version.py), and every line keeps its number. What is imported at run time by its name must be told
relative to `__package__` or `__name__`, because a string is not rewritten.

python deploy/packaging/one_package.py build/one_package
"""

from __future__ import annotations

import ast
import re
import shutil
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

from git_version import FILE, read_version, stamp

ROOT: Final = Path(__file__).resolve().parents[2]
NAME: Final = "sluice"
PACKAGES: Final = ("admin", "cli", "common", "config", "control_plane", "gateway", "limiter", "spark_jobs")
EXAMPLES: Final = ("sluice.yaml", "limits.yaml", "sluice.schema.json", "limits.schema.json")  # all that config/ has beside modules
INIT: Final = '''"""A gateway that limits topics in front of RabbitMQ and RocketMQ. Its command is `sluice`, or `python -m sluice`."""

try:
    __import__(f"{__name__}.native")  # the compiled modules (deploy/packaging/native.py)
except ImportError:
    pass  # none are compiled
'''
MAIN: Final = '''"""`python -m sluice`, where the command is not on the path."""

import sys

from sluice.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
'''
_WORD: Final = re.compile(r"\b(from|import)(\s+)(\w+)")


def rewritten(source: str, file: str) -> str:
    """`source` with imports of our packages as they are called under `sluice`. Raises ValueError, with file and line."""
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source, file)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in PACKAGES and (len(node.names) > 1 or "." in alias.name):
                    remedy = "write `from package import module`, on a line of its own"
                    raise ValueError(f"{file}:{node.lineno}: `import {alias.name}` cannot be put under `{NAME}`: {remedy}")
            if node.names[0].name not in PACKAGES:
                continue
            what = rf"from {NAME} import \3"
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").partition(".")[0] in PACKAGES:
            what = rf"from\2{NAME}.\3"
        elif isinstance(node, ast.Call | ast.List | ast.Tuple) and (name := _named(node)) is not None:
            raise ValueError(f"{file}:{node.lineno}: {name!r} is another under `{NAME}`: write it with __package__ or __name__")
        else:
            continue
        # A statement's column counts bytes; what stands before it on its line is white space or a semicolon's statement.
        line = lines[node.lineno - 1].encode()
        before, rest = line[: node.col_offset].decode(), line[node.col_offset :].decode()
        lines[node.lineno - 1] = before + _WORD.sub(what, rest, count=1)
    return "".join(lines)


def _named(node: ast.Call | ast.List | ast.Tuple) -> str | None:
    """A module of ours that is imported by its name: `import_module("gateway.x")`, `find_spec(…)`, `[python, "-m", "gateway.x"]`."""
    if isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        given = node.args[:1] if called in {"import_module", "find_spec", "__import__"} else []
    else:
        given = [after for word, after in pairwise(node.elts) if isinstance(word, ast.Constant) and word.value == "-m"]
    for each in given:
        if isinstance(each, ast.Constant) and str(each.value).partition(".")[0] in PACKAGES:
            return str(each.value)
    return None


def files() -> Iterator[tuple[str, bytes]]:
    """Each file of the package: its path from the folder that holds `sluice`, and its content."""
    yield f"{NAME}/__init__.py", INIT.encode()
    yield f"{NAME}/__main__.py", MAIN.encode()
    yield f"{NAME}/py.typed", b""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*")):
            if not path.is_file() or "__pycache__" in path.parts or path.suffix == ".so":
                continue
            name = path.relative_to(ROOT).as_posix()
            if package == "config" and path.suffix != ".py" and name.removeprefix("config/") not in EXAMPLES:
                continue  # the state of a gateway that was started beside its example
            content = rewritten(path.read_text(), name).encode() if path.suffix == ".py" else path.read_bytes()
            if name == FILE:
                content = stamp(content.decode(), read_version(ROOT)).encode()
            yield f"{NAME}/{name}", content


def lay_out(folder: Path) -> None:
    """Make `folder` hold exactly the package. A file that is as it should be is not touched: what is newer would be compiled again."""
    wanted = dict(files())
    for name, content in wanted.items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        path.chmod(0o644)  # whatever the umask: it is in the wheel
    for path in sorted((folder / NAME).rglob("*"), reverse=True):
        if path.is_file() and path.relative_to(folder).as_posix() not in wanted:
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()


def main() -> None:
    target = Path(sys.argv[1])
    shutil.rmtree(target, ignore_errors=True)
    lay_out(target)
    print(target / NAME)


if __name__ == "__main__":
    main()
