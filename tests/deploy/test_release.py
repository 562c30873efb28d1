"""What `make release` leaves: one top-level package, the same bytes twice; and a version without a CHANGELOG is refused.

The compiled wheel takes minutes: `make test-packages` (test_installed.py) and `make e2e`, which runs on it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import requires
from pathlib import Path

import jsonschema
import pytest
import yaml
from packaging.requirements import Requirement

from gateway.build import VERSION
from support.environments import ROOT
from support.packages import PACKAGING, PURE, SOURCE, git

sys.path.insert(0, str(PACKAGING))

from builders import BUILDERS, builder, for_arm64, locked
from git_version import BuildVersion
from inventory import UPLOT
from one_package import PACKAGES, lay_out, rewritten
from sources import RefusedError, changes, check_release, moment

pytestmark = pytest.mark.slow  # what is built takes its time


@pytest.fixture(scope="module")
def names(released: Path) -> list[str]:
    return zipfile.ZipFile(released / PURE).namelist()


@pytest.mark.packages
def test_the_checksums_are_of_all_that_is_there(released: Path) -> None:
    lines = dict(line.split("  ")[::-1] for line in (released / "SHA256SUMS").read_text().splitlines())
    assert set(lines) == {path.name for path in released.iterdir()} - {"SHA256SUMS"}
    assert {PURE, SOURCE} < set(lines)
    assert lines == {name: hashlib.sha256((released / name).read_bytes()).hexdigest() for name in lines}


@pytest.mark.packages
def test_the_wheel_has_one_package_and_what_belongs_to_it(released: Path, names: list[str]) -> None:
    assert {name.partition("/")[0] for name in names} == {"sluice", f"sluice_gateway-{VERSION}.dist-info"}
    wanted = {"sluice/py.typed", "sluice/limiter/py.typed", "sluice/__main__.py", "sluice/admin/dashboard/index.html"}
    assert wanted <= set(names)
    with zipfile.ZipFile(released / PURE) as wheel:
        for example in ("sluice.yaml", "limits.yaml", "sluice.schema.json", "limits.schema.json"):
            assert wheel.read(f"sluice/config/{example}") == (ROOT / "config" / example).read_bytes()
        assert f"Version: {VERSION}\n" in wheel.read(f"sluice_gateway-{VERSION}.dist-info/METADATA").decode()
    sources = {f"sluice/{path.relative_to(ROOT).as_posix()}" for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == sources | {"sluice/__init__.py", "sluice/__main__.py"}


@pytest.mark.packages
def test_the_source_distribution_has_what_builds_it_and_nothing_that_was_built(released: Path) -> None:
    with tarfile.open(released / SOURCE) as packed:
        found = {member.name.partition("/")[2] for member in packed.getmembers() if member.isfile()}
    assert {
        "setup.py",
        "pyproject.toml",
        "CHANGELOG.md",
        "config/sluice.yaml",
        "deploy/packaging/backend.py",
        "deploy/packaging/compiler.py",
        "deploy/packaging/native.py",
        "deploy/packaging/one_package.py",
        "limiter/keys.py",
    } <= found
    assert not [name for name in found if name.startswith(("build/one_package", "tests/")) or name.endswith((".so", ".pyc"))]


@pytest.mark.packages
def test_the_sbom_is_cyclonedx_and_has_every_dependency(released: Path) -> None:
    made = json.loads((released / f"sluice-{VERSION}.cdx.json").read_text())
    by_name = {each["name"]: each for each in made["components"]}
    assert {"trio", "h11", "pyyaml", "msgspec", "pamqp", "click", "librt"} <= {
        name for name, each in by_name.items() if each["scope"] == "required"
    }
    assert {"pyspark", "redis", "boto3", "zstandard", "opentelemetry-sdk"} <= {
        name for name, each in by_name.items() if each["scope"] == "optional"
    }
    references = {each["bom-ref"] for each in made["components"]} | {made["metadata"]["component"]["bom-ref"]}
    assert {each["ref"] for each in made["dependencies"]} == references - {UPLOT}, "a copy needs nothing"
    assert UPLOT in references
    assert {name for each in made["dependencies"] for name in each["dependsOn"]} <= references
    jsonschema.validate(made, CYCLONEDX)
    listed = (released / f"sluice-{VERSION}-licences.txt").read_text()
    assert all(f"| {name} | {each['version']} | {each['licenses'][0]['expression']} |" in listed for name, each in by_name.items())


# What CycloneDX 1.6 demands of the parts that are used here (its own schema is not in any package that the tests install).
TEXT = {"type": "string", "minLength": 1}
COMPONENT = {
    "type": "object",
    "required": ["type", "name"],
    "properties": {
        "type": {"enum": ["application", "library"]}, "bom-ref": TEXT, "name": TEXT, "version": TEXT, "purl": TEXT,
        "description": {"type": "string"}, "scope": {"enum": ["required", "optional", "excluded"]},
        "licenses": {"type": "array", "maxItems": 1, "items": {"type": "object", "required": ["expression"], "additionalProperties": False,
                                                                "properties": {"expression": TEXT}}},
        "externalReferences": {"type": "array", "items": {"type": "object", "required": ["url", "type"]}},
        "properties": {"type": "array", "items": {"type": "object", "required": ["name", "value"], "additionalProperties": False,
                                                  "properties": {"name": TEXT, "value": {"type": "string"}}}},
    },
    "additionalProperties": False,
}  # fmt: skip
CYCLONEDX = {
    "type": "object",
    "required": ["bomFormat", "specVersion"],
    "properties": {
        "$schema": {"const": "http://cyclonedx.org/schema/bom-1.6.schema.json"},
        "bomFormat": {"const": "CycloneDX"}, "specVersion": {"const": "1.6"}, "version": {"type": "integer", "minimum": 1},
        "serialNumber": {"pattern": "^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
        "metadata": {"type": "object", "properties": {"component": COMPONENT}},
        "components": {"type": "array", "uniqueItems": True, "items": COMPONENT},
        "dependencies": {"type": "array", "uniqueItems": True, "items": {"type": "object", "required": ["ref"]}},
    },
    "additionalProperties": False,
}  # fmt: skip


@pytest.mark.packages
def test_locked_requirements_have_hashes_and_no_extras(released: Path) -> None:
    text = (released / f"sluice-{VERSION}-requirements.txt").read_text()
    assert "trio==" in text
    assert "--hash=sha256:" in text
    assert "pyspark" not in text


# ---- installed ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, released: Path) -> Path:
    """A virtual environment with the pure wheel; the dependencies are those of this one."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=120)
    (place,) = (folder / "lib").glob("python*/site-packages")
    words = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--python", str(folder / "bin" / "python")]
    subprocess.run([*words, "install", "--no-deps", "--no-index", str(released / PURE)], check=True, timeout=120)
    for path in map(Path, sys.path):  # without our own packages, which the source tree or an installed wheel has
        for each in path.iterdir() if path.name == "site-packages" else ():
            if each.name not in {*PACKAGES, "sluice"} and not each.name.startswith(("sluice_", "__")) and not (place / each.name).exists():
                (place / each.name).symlink_to(each)
    return folder


def sluice(environment: Path, *words: str, by: tuple[str, ...] = ("sluice",), cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    clean = {"PATH": os.environ["PATH"], "HOME": str(environment)}
    return subprocess.run(
        [str(environment / "bin" / by[0]), *by[1:], *words],
        cwd=cwd or environment,
        env=clean,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.packages
@pytest.mark.parametrize("by", [("sluice",), ("python", "-m", "sluice")], ids=" ".join)
def test_the_installed_command_works(environment: Path, by: tuple[str, ...]) -> None:
    assert sluice(environment, "--version", by=by).stdout.startswith(f"sluice {VERSION} (pure Python, ")
    (example,) = environment.glob("lib/python*/site-packages/sluice/config/sluice.yaml")
    checked = sluice(environment, "check", str(example), by=by)
    assert checked.returncode == 0, checked
    assert checked.stderr.rstrip().endswith("0 warnings")


@pytest.mark.packages
def test_nobodys_module_is_shadowed(environment: Path) -> None:
    tried = sluice(environment, "-c", "import sluice; import limiter", by=("python",))
    assert "No module named 'limiter'" in tried.stderr


@pytest.mark.packages
def test_the_quota_job_finds_itself_run_as_a_file(environment: Path) -> None:
    """As spark-submit does it: its own folder is first on the path."""
    (job,) = environment.glob("lib/python*/site-packages/sluice/spark_jobs/nightly.py")
    tried = sluice(environment, str(job), "--help", by=("python",))
    assert (tried.returncode, tried.stderr) == (0, "")
    assert "--allow-partial" in tried.stdout


@pytest.mark.packages
def test_every_verb_is_found_by_its_name(environment: Path) -> None:
    listed = sluice(environment, "--help").stdout
    for verb in ("limits", "quotas", "log", "support-bundle", "token", "completion"):
        assert f"  {verb} " in listed
        assert sluice(environment, verb, "--help").returncode == 0, verb


@pytest.mark.packages
def test_a_child_process_is_found_by_its_name(environment: Path, tmp_path: Path) -> None:
    """Workers are started as `python -m` of a module, which is called otherwise in the wheel."""
    config = tmp_path / "sluice.yaml"
    written = {
        "version": 1, "gateway": {"workers": 2, "state_directory": "state"}, "access_log": "off", "admin": {"bind": "127.0.0.1:0"},
        "listeners": [{"name": "rabbit", "protocol": "amqp", "bind": "127.0.0.1:0", "upstream": "127.0.0.1:1"}],
    }  # fmt: skip
    config.write_text(yaml.safe_dump(written))
    words = [str(environment / "bin" / "sluice"), "run", "-c", str(config), "--set", "log.format=json"]
    said = []
    with subprocess.Popen(words, cwd=tmp_path, env={"PATH": os.environ["PATH"]}, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        for line in running.stderr:
            said.append(line)
            if json.loads(line)["event"] == "started":
                break
        running.terminate()
        running.stderr.read()
    assert '"workers": 2' in said[-1], said
    assert running.returncode == 0


# ---- from the source distribution --------------------------------------------------------------------------------------


@pytest.fixture
def unpacked(released: Path, tmp_path: Path) -> Path:
    with tarfile.open(released / SOURCE) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)  # Debian's 3.11.2 has none yet
        packed.extractall(tmp_path)
    return tmp_path / f"sluice_gateway-{VERSION}"


def wheel_of(source: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    words = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "wheel",
        "-v",
        "--no-index",
        "--no-build-isolation",
        "--no-deps",
        "-w",
        "out",
        ".",
    ]
    surroundings = {**os.environ, "SLUICE_COMPILE": "", **environment}
    return subprocess.run(words, cwd=source, env=surroundings, capture_output=True, text=True, check=False, timeout=300)


def broken_compiler(folder: Path, does: str) -> str:
    path = folder / "cc"
    path.write_text(f"#!/bin/sh\n{does}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.packages
@pytest.mark.parametrize("wanted", ["", "1"])
def test_a_compiler_that_cannot_compile_makes_pure_python_and_says_why(unpacked: Path, wanted: str) -> None:
    compiler = broken_compiler(unpacked, "echo 'try.c:2:10: fatal error: stdio.h: No such file or directory' >&2; exit 1")
    done = wheel_of(unpacked, CC=compiler, SLUICE_COMPILE=wanted)
    assert "stdio.h: No such file or directory" in done.stdout + done.stderr
    if wanted:  # who insists is refused
        assert done.returncode == 1
        assert "SLUICE_COMPILE=1, but compiling is impossible" in done.stdout + done.stderr
    else:
        assert done.returncode == 0, done.stdout + done.stderr
        assert "sluice: building pure Python" in done.stdout + done.stderr
        assert [path.name for path in (unpacked / "out").iterdir()] == [PURE]


@pytest.mark.packages
def test_a_compiler_that_fails_later_makes_pure_python(unpacked: Path) -> None:
    """It compiles three lines, and none of our modules: out of memory, or a header that it does not like."""
    compiler = broken_compiler(unpacked, 'case "$*" in *build/units*) echo "cc: out of memory" >&2; exit 1;; esac; exec cc "$@"')
    kept = tuple(f"limiter/{name}.py" for name in ("keys", "topics"))
    listed = (unpacked / "pyproject.toml").read_text()
    start, end = listed.index("compiled = ["), listed.index("[tool.pytest")
    (unpacked / "pyproject.toml").write_text(
        f"{listed[:start]}compiled = {json.dumps(kept)}\ninterpreted = []\n\n{listed[end:]}"
    )  # mypyc is quick
    done = wheel_of(unpacked, CC=compiler)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sluice: building pure Python (compiling failed: " in done.stdout + done.stderr
    (made,) = (unpacked / "out").iterdir()
    found = zipfile.ZipFile(made).namelist()
    assert "sluice/limiter/keys.py" in found
    assert not [name for name in found if name.endswith(".so")]


# ---- refused -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "gateway").mkdir()
    shutil.copy(ROOT / "gateway" / "build.py", tmp_path / "gateway")
    return tmp_path


SECTION = f"## [{VERSION}] - 2026-11-23\n\n* a change\n"
TAGGED = BuildVersion(VERSION, f"v{VERSION}", 0, "c" * 40, changed=False)


@pytest.mark.parametrize(("text", "words"), [
    ("## [Unreleased]\n\n* a change\n", f"CHANGELOG.md has no section `## [{VERSION}] - YYYY-MM-DD`"),
    (f"## [{VERSION}]\n\n* a change without a day\n", "has no section"),
    (f"## [{VERSION}] - 2026-11-23\n\n## [0.0.1] - 2026-01-01\n\n* old\n", f"the section of {VERSION} is empty"),
    (f"## [Unreleased]\n\n* one more\n\n{SECTION}", "has changes under [Unreleased]"),
])  # fmt: skip
def test_a_tag_without_its_changes_is_refused(project: Path, text: str, words: str) -> None:
    (project / "CHANGELOG.md").write_text(f"# Changelog\n\n{text}")
    with pytest.raises(RefusedError) as refused:
        check_release(TAGGED, project)
    assert words in str(refused.value)


def test_a_build_says_what_it_lacks_to_be_published(project: Path) -> None:
    (project / "CHANGELOG.md").write_text(f"# Changelog\n\n## [Unreleased]\n\n{SECTION}")
    assert check_release(TAGGED, project) == ""
    assert changes(VERSION, project) == "* a change"
    assert check_release(TAGGED._replace(changed=True), project) == "files differ from the commit of the tag"
    assert check_release(TAGGED._replace(tag="", commits=7), project) == f"no tag v{VERSION} on this commit"
    assert check_release(TAGGED._replace(commits=7), project) == f"no tag v{VERSION} on this commit"
    with pytest.raises(RefusedError, match=r"git fetch --unshallow --tags"):
        check_release(TAGGED._replace(tag="", commits=None), project)
    with pytest.raises(RefusedError, match=rf"the tag is v9\.0\.0, and VERSION in gateway/build\.py is {re.escape(VERSION)}"):
        check_release(TAGGED._replace(tag="v9.0.0"), project)


def test_the_files_of_a_release_are_as_old_as_the_commit(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without git, as in a source distribution, as the newest day of the CHANGELOG."""
    (project / "CHANGELOG.md").write_text(SECTION)
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    assert moment(project) == 1795392000
    git(project, "init", "--quiet")
    git(project, "add", ".")
    git(project, "commit", "--quiet", "-m", "all", "--date=@1000000000")
    assert moment(project) == int(git(project, "log", "-1", "--format=%ct"))
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "12")
    assert moment(project) == 12


def test_imports_are_rewritten_and_nothing_else() -> None:
    source = '''"""from limiter import x"""
from gateway.app import App; import limiter
from . import here
import os, sys
if True:
    from  admin import (  # admin.bind
        ports,
    )
SETTING = "admin.bind"
'''
    wanted = source.replace("from gateway.app", "from sluice.gateway.app").replace("import limiter\n", "from sluice import limiter\n")
    assert rewritten(source, "x.py") == wanted.replace("from  admin", "from  sluice.admin")


@pytest.mark.parametrize("line", [
    "import gateway.app", "import os, limiter",
    "import_module('gateway.app')", "run([python, '-P', '-m', 'gateway.app'])", "find_spec('limiter')",
])  # fmt: skip
def test_what_cannot_be_rewritten_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(ValueError, match=r"x\.py:2: "):
        rewritten(f"\n{line}\n", "x.py")


def test_what_is_gone_from_the_sources_is_gone_from_the_package(tmp_path: Path) -> None:
    lay_out(tmp_path)
    old = tmp_path / "sluice" / "limiter" / "gone" / "away.py"
    old.parent.mkdir()
    old.write_text("")
    unchanged = (tmp_path / "sluice" / "limiter" / "keys.py").stat().st_mtime_ns
    lay_out(tmp_path)
    assert not old.parent.exists()
    assert (tmp_path / "sluice" / "limiter" / "keys.py").stat().st_mtime_ns == unchanged


def test_an_interpreter_that_is_not_there_or_too_old_is_refused_before_anything_is_compiled(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"no-such-python: .*name an interpreter by its path"):
        builder("no-such-python", tmp_path)
    old = tmp_path / "python3.10"
    old.write_text("#!/bin/sh\necho cpython-310 /usr/include/python3.10 3.10.4 of a test\n")
    old.chmod(0o755)
    with pytest.raises(RefusedError, match=r"is Python 3\.10\.4: sluice needs 3\.11"):
        builder(str(old), tmp_path)
    old.write_text("#!/bin/sh\necho cpython-312 /no-such-headers 3.12.1 of a test\n")
    with pytest.raises(RefusedError, match=r"no Python\.h in /no-such-headers: install its headers"):
        builder(str(old), tmp_path)
    assert builder(sys.executable, tmp_path) == sys.executable
    assert list(tmp_path.iterdir()) == [old]


def test_what_builds_it_is_all_that_these_need_themselves() -> None:
    """An environment is made of them without their dependencies, which pip would fetch unhashed."""
    known = {name.lower().replace("_", "-") for name in BUILDERS}
    for name in BUILDERS:
        for text in requires(name) or []:
            wanted = Requirement(text)
            if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
                assert wanted.name.lower().replace("_", "-") in known, f"{name} needs {wanted.name}"
    assert locked(*BUILDERS).count("==") == len(BUILDERS)


def test_arm64_without_its_python_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"has no Python 3\.\d+ for arm64: Debian 12 has 3\.11"):
        for_arm64(tmp_path / "root", tmp_path / "work")
    assert not (tmp_path / "work").exists()
