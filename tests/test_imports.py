"""Who may import whom (`docs/architecture.md`), read from the source with `ast`: a forbidden import fails here with its line.

Imports for types only count as others do: what a file has to know of another one is the same.
"""

from __future__ import annotations

import ast
import graphlib
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OURS = ("common", "limiter", "config", "gateway", "admin", "control_plane", "spark_jobs", "cli")

# package -> what of ours it may import
ALLOWED = {
    "common": ("common",),
    "limiter": ("limiter", "common"),
    "config": ("config", "limiter", "common"),
    "gateway": ("gateway", "config", "limiter", "common"),
    "admin": ("admin", "limiter", "common"),
    "control_plane": ("control_plane", "gateway", "admin", "config", "limiter", "common"),
    "spark_jobs": ("spark_jobs", "limiter.protocols", "limiter.quota_snapshot", "common"),
    "cli": ("cli", "config", "control_plane", "gateway", "limiter", "spark_jobs", "common"),
}
EXCEPTIONS = {  # rooms and files that need a little more; and one room that has the limiter judge
    "admin/alerting": (*ALLOWED["admin"], "config", "gateway.build"),  # it is given the limits that are over, and knows no gateway
    "cli/audit.py": (*ALLOWED["cli"], "admin"),  # it checks the journals without a gateway
    "spark_jobs/nights": (*ALLOWED["spark_jobs"], "limiter.limits", "limiter.units"),  # a plan is read by people
    "spark_jobs/method": (*ALLOWED["spark_jobs"], "limiter.topics"),  # how people write topics
    "spark_jobs/backtest": (*ALLOWED["spark_jobs"], "limiter"),  # it replays logs through the limiter itself, not through a model of it
}

# The rooms of each package, one line a storey, from the lowest to the highest. A file imports its own storey and those below.
STOREYS = {
    "limiter": """
limits protocols operations
algorithms topics credit
leases rules bypass quota_snapshot units
fair_share new_names
buckets
keys recent_keys in_flight reservation
columns scanned_columns
request
decisions executor
limit_state
judge
""",
    "gateway": """
build clock
systemd admission
counting transport
pipeline waiting
protocols
close_causes session
assembly event_loop fleet remote_admin
listeners
ports
broker_load
telemetry
lifecycle
app data_plane
workers
""",
}
RANKS = {
    f"{package}.{room}": rank
    for package, storeys in STOREYS.items()
    for rank, storey in enumerate(storeys.strip().splitlines())
    for room in storey.split()
}
# Two files that are one idea may import each other, for types only: the pair -> why it is one idea.
PAIRS = {
    ("admin.context", "admin.http.routing"): "a route names its handler, which takes the context of one request to that route",
    ("admin.http.exchange", "admin.http.server"): "the server answers what an exchange reads",
    ("limiter.keys", "limiter.recent_keys"): "an origin has the keys that it has used lately",
    ("limiter.rules.rule", "limiter.rules.rule_checks"): "a rule is checked when it is made, and its checks read it",
}
OUTER_RING = (
    "app.py",
    "broker_load/",
    "event_loop/event_loop.py",
    "lifecycle/",
    "listeners/",
    "remote_admin.py",
    "transport/channel_io.py",
    "workers/",
)
TRIO_ALLOWED = ("admin/", "control_plane/", *(f"gateway/{name}" for name in OUTER_RING))
OWN_PROCESSES = "common/log_files/"  # rooms whose libraries are loaded by processes of their own, and no message waits for them
VIEWS = "common/views/"  # types of msgspec, which gateway and admin have anyway; spark_jobs import none of them
# mypyc's: native integers of the compiled build, plain ones in the other; and the lock of its run-time library
LIMITER_MAY_USE = sys.stdlib_module_names | {"mypy_extensions", "librt"}


@cache
def files() -> list[Path]:
    return sorted(path for package in OURS for path in (ROOT / package).rglob("*.py"))


def module_of(path: Path) -> str:
    return str(path.relative_to(ROOT)).removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def package_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0]


@cache
def imports(path: Path, *, as_script: bool = True) -> list[tuple[int, str]]:
    """Every module `path` imports, with the line; `from a import b` counts as a.b when that is a module, else as a.

    `as_script`: also what it imports only when it is run by itself.
    """
    found: list[tuple[int, str]] = []
    tree = ast.parse(path.read_text())
    if not as_script:
        tree.body = [node for node in tree.body if not (isinstance(node, ast.If) and "__main__" in ast.unparse(node.test))]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.extend((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            assert node.module is not None
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                place = ROOT / whole.replace(".", "/")
                found.append((node.lineno, whole if place.with_suffix(".py").exists() or place.is_dir() else node.module))
    return found


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


@cache
def rank(module: str) -> int:
    best = max((name for name in RANKS if within(module, name)), key=len, default=None)
    assert best is not None, f"{module}: give its room a place in STOREYS (and a line in docs/architecture.md)"
    return RANKS[best]


def test_imports_stay_within_the_rules() -> None:
    faults = []
    for path in files():
        name = str(path.relative_to(ROOT))
        package = package_of(path)
        allowed = next((rule for prefix, rule in EXCEPTIONS.items() if name.startswith(prefix)), ALLOWED[package])
        for line, module in imports(path):
            top = module.partition(".")[0]
            if top in OURS:
                if not any(within(module, permitted) for permitted in allowed):
                    faults.append(f"{name}:{line}: {package} may not import {module}")
            elif package in ("common", "limiter") and not (
                top in LIMITER_MAY_USE or name.startswith(OWN_PROCESSES) or (name.startswith(VIEWS) and top == "msgspec")
            ):
                faults.append(f"{name}:{line}: {package} uses the standard library and mypyc's own only, not {module}")
            if top == "trio" and not name.startswith(TRIO_ALLOWED):
                faults.append(f"{name}:{line}: trio belongs to the outer ring")
    assert not faults, "\n".join(faults)


def test_lower_rooms_never_import_higher_ones() -> None:
    faults = []
    for path in files():
        own, package = module_of(path), package_of(path)
        if package not in STOREYS or own == package:
            continue
        for line, module in imports(path):
            if within(module, package) and module != package and rank(module) > rank(own):
                faults.append(f"{path.relative_to(ROOT)}:{line}: {own} (rank {rank(own)}) imports {module} (rank {rank(module)})")
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("package", OURS)
def test_no_files_import_each_other_in_a_circle(package: str) -> None:
    graph = {module_of(path): {module for _, module in imports(path, as_script=False)} for path in files() if package_of(path) == package}
    for one, other in PAIRS:
        if one in graph:
            assert other in graph[one], f"{one} does not import {other} any more: take them off PAIRS"
            assert one in graph[other], f"{other} does not import {one} any more: take them off PAIRS"
            graph = as_one(graph, one, other)
    circle = circle_in(graph)
    assert circle is None, f"a circle: {' -> '.join(circle or [])}; each imports the next one"


def as_one(graph: dict[str, set[str]], one: str, other: str) -> dict[str, set[str]]:
    """`graph` with two files taken for one, so that a circle through both is still found."""
    merged = {file: {one if name == other else name for name in imported} for file, imported in graph.items()}
    merged[one] = (merged[one] | merged.pop(other)) - {one}
    return merged


def circle_in(graph: dict[str, set[str]]) -> list[str] | None:
    """Files of `graph` (file -> what it imports) that import each other in turn; None: there are none."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(reversed(error.args[1]))
    return None


def test_nothing_of_sparks_jobs_is_compiled() -> None:
    """So their tests run once only, from the source tree (`make test`). What else they may import is in ALLOWED."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["sluice"]
    matched = {path for pattern in listed["compiled"] for path in ROOT.glob(pattern)}
    compiled = matched - {ROOT / name for name in listed["interpreted"]}
    shared = {ROOT / f"{module.replace('.', '/')}.py" for module in ALLOWED["spark_jobs"] if within(module, "limiter")}
    theirs = {*(ROOT / "spark_jobs").rglob("*.py"), *shared}
    assert ROOT / "limiter" / "judge.py" in compiled
    assert {path for path in matched if path.is_relative_to(ROOT / "common")} == {ROOT / "common" / "octets.py"}
    assert "common.octets" not in {module for path in theirs for _, module in imports(path)}
    for path in shared:
        ours = {module for _, module in imports(path) if module.partition(".")[0] in OURS}
        assert ours <= set(ALLOWED["spark_jobs"]), f"{path.name}: {ours}"
    assert theirs & compiled == set()


def test_the_rules_catch_a_forbidden_import(tmp_path: Path) -> None:
    source = tmp_path / "bad.py"
    source.write_text("from gateway import app\nimport limiter.judge\n")
    assert imports(source) == [(1, "gateway.app"), (2, "limiter.judge")]


def test_the_rules_catch_a_circle() -> None:
    circle = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}}
    assert circle_in(circle) in (["a", "b", "c", "a"], ["b", "c", "a", "b"], ["c", "a", "b", "c"])
    assert circle_in(as_one(circle, "a", "c")) in (["a", "b", "a"], ["b", "a", "b"])
    assert circle_in(as_one({"a": {"b"}, "b": {"a", "c"}}, "a", "b")) is None
    assert circle_in({"a": {"b", "c"}, "b": {"c"}}) is None
