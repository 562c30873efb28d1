"""Who may import whom (`docs/architecture.md`), read from the source with `ast`: a forbidden import fails here with its line."""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OURS = ("limiter", "gateway", "admin", "spark_jobs")

# package -> what of ours it may import
ALLOWED = {
    "limiter": ("limiter",),
    "gateway": ("gateway", "limiter"),
    "admin": ("admin", "limiter"),
    "spark_jobs": ("spark_jobs", "limiter.snapshot"),
}
COMPOSERS = {  # these files put the rooms together or serve the command line
    "gateway/app.py": ("gateway", "limiter", "admin"),
    "gateway/reloads.py": ("gateway", "limiter", "admin.ports"),
    "gateway/workers/parent.py": ("gateway", "limiter", "admin"),
    "gateway/workers/member.py": ("gateway", "limiter", "admin"),
    "gateway/cli": ("gateway", "limiter", "spark_jobs"),
}

# Inside gateway, from the lowest to the highest; a file may import its own rank and below. The longest matching name counts.
RANKS: dict[str, int] = {
    "gateway.protocols.octets": 0, "gateway.messages": 0, "gateway.conversation": 1, "gateway.accounts": 1, "gateway.pipeline": 1,
    "gateway.channel": 1, "gateway.tls": 1, "gateway.log": 1, "gateway.build": 0, "gateway.settings": 1,
    "gateway.admission": 1, "gateway.proxy_protocol": 1,
    "gateway.causes": 0, "gateway.supervisor": 1,
    "gateway.histogram": 1, "gateway.metrics": 2, "gateway.access_log": 2, "gateway.heartbeats": 2, "gateway.broker_flow": 2,
    "gateway.access_log_lines": 2,
    "gateway.protocols": 3, "gateway.actions": 3, "gateway.handlers": 4, "gateway.assembly": 5, "gateway.session": 6,
    "gateway.session_end": 6, "gateway.departure": 6, "gateway.session_clock": 6, "gateway.session_view": 6, "gateway.session_sums": 6,
    "gateway.resting": 7, "gateway.sweep": 7, "gateway.judged": 7, "gateway.memory": 7, "gateway.event_loop": 8, "gateway.accepting": 8,
    "gateway.accepting.doors": 9,
    "gateway.accepting.broker_listeners": 9, "gateway.fleet": 8,
    "gateway.channel_waits": 8, "gateway.backlogs": 9, "gateway.refused_clients": 2, "gateway.limit_events": 8, "gateway.fills": 8,
    "gateway.remote_admin": 9, "gateway.view": 9, "gateway.scrape": 9, "gateway.housekeeping": 9, "gateway.drain": 9, "gateway.reloads": 9,
    "gateway.app": 9, "gateway.caps": 9, "gateway.workers": 9, "gateway.cli": 10,
}  # fmt: skip
OUTER_RING = (
    "event_loop.py",
    "accepting/",
    "housekeeping.py",
    "drain.py",
    "remote_admin.py",
    "reloads.py",
    "app.py",
    "workers/",
    "channel_waits.py",
    "backlogs/",
)
TRIO_ALLOWED = ("admin/", *(f"gateway/{name}" for name in OUTER_RING))
# mypyc's: native integers of the compiled build, plain ones in the other; and the lock of its run-time library
LIMITER_MAY_USE = sys.stdlib_module_names | {"mypy_extensions", "librt"}


def files() -> list[Path]:
    return sorted(path for package in OURS for path in (ROOT / package).rglob("*.py"))


def imports(path: Path) -> list[tuple[int, str]]:
    """Every module `path` imports, with the line; `from a import b` counts as a.b when that is a module, else as a."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(path.read_text())):
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


def rank(module: str) -> int:
    best = max((name for name in RANKS if within(module, name)), key=len, default=None)
    assert best is not None, f"{module}: give it a rank in RANKS (and a line in docs/architecture.md)"
    return RANKS[best]


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_stay_within_the_rules(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    package = name.partition("/")[0]
    allowed = next((rule for prefix, rule in COMPOSERS.items() if name.startswith(prefix)), ALLOWED[package])
    for line, module in imports(path):
        top = module.partition(".")[0]
        if top in OURS:
            assert any(within(module, permitted) for permitted in allowed), f"{name}:{line}: {package} may not import {module}"
        elif package == "limiter":
            assert top in LIMITER_MAY_USE, f"{name}:{line}: limiter uses the standard library and mypyc's own only, not {module}"
        if top == "trio":
            assert name.startswith(TRIO_ALLOWED), f"{name}:{line}: trio belongs to the outer ring"


@pytest.mark.parametrize("path", sorted((ROOT / "gateway").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_lower_rooms_never_import_higher_ones(path: Path) -> None:
    own = str(path.relative_to(ROOT)).removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    if own == "gateway":
        return
    for line, module in imports(path):
        if within(module, "gateway") and module != "gateway":
            assert rank(module) <= rank(own), f"{path.name}:{line}: {own} (rank {rank(own)}) imports {module} (rank {rank(module)})"


def test_nothing_of_sparks_jobs_is_compiled() -> None:
    """So their tests run once only, from the source tree (`make test`). What else they may import is in ALLOWED."""
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["sluice"]["compiled"]
    compiled = {path for pattern in patterns for path in ROOT.glob(pattern)}
    theirs = {*(ROOT / "spark_jobs").rglob("*.py"), ROOT / "limiter" / "snapshot.py"}
    assert ROOT / "limiter" / "judge.py" in compiled
    assert ALLOWED["spark_jobs"] == ("spark_jobs", "limiter.snapshot")
    assert [module for _, module in imports(ROOT / "limiter" / "snapshot.py") if module.partition(".")[0] in OURS] == []
    assert theirs & compiled == set()


def test_the_rules_catch_a_forbidden_import(tmp_path: Path) -> None:
    source = tmp_path / "bad.py"
    source.write_text("from gateway import app\nimport limiter.judge\n")
    assert imports(source) == [(1, "gateway.app"), (2, "limiter.judge")]
