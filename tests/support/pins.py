"""What the tests run against and fix at one version: client libraries, brokers and suites, as the files that fetch them have it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

from suites.catalogue import SUITES
from suites.go_suite import GoSuite
from support.clients.probes import CELERY_LIBRARIES, PYTHON_LIBRARIES
from support.clients.programs import CLIENTS
from support.clients.rocketmq_probes import CPP
from support.java import MAVEN, POMS, ROOT


@dataclass(frozen=True)
class Pin:
    """One version of one library. `registry`: maven, pypi, npm or go."""

    registry: str
    name: str
    version: str
    place: str  # the file that says so, from the root

    @property
    def kept(self) -> bool:
        """An old version on purpose: its pom has it in its name."""
        return self.version in self.place


@cache
def pins() -> tuple[Pin, ...]:
    """All of them, each version of a library once."""
    found: dict[tuple[str, str, str], Pin] = {}
    for pin in (*_maven(), *_python(), *_node(), *_go(), *_suites()):
        found.setdefault((pin.registry, pin.name, pin.version), pin)
    return tuple(found.values())


def versions_of(name: str) -> list[str]:
    """Those of the library `name`, the newest first. Raises KeyError where nothing of that name is fetched."""
    found = [pin.version for pin in pins() if pin.name == name]
    if not found:
        raise KeyError(name)
    return sorted(found, key=numbers, reverse=True)


def numbers(version: str) -> tuple[int, ...]:
    """`33.8.0-jre` as (33, 8, 0), to compare versions by."""
    return tuple(int(digits) for digits in re.findall(r"\d+", version.partition("-")[0]))


def _maven() -> Iterator[Pin]:
    for pom in sorted(POMS.glob("*.pom.xml")):
        if pom.name.startswith("hadoop-"):  # the version of Spark's own
            continue
        for dependency in ElementTree.parse(pom).iter(f"{MAVEN}dependency"):
            group, artifact, version = (dependency.findtext(f"{MAVEN}{tag}", "") for tag in ("groupId", "artifactId", "version"))
            yield Pin("maven", f"{group}:{artifact}", version, _path(pom))


def _python() -> Iterator[Pin]:
    for requirements, place in (
        ((*PYTHON_LIBRARIES, *CELERY_LIBRARIES), "tests/support/clients/probes.py"),
        ((CPP,), "tests/support/clients/rocketmq_probes.py"),
    ):
        for requirement in requirements:
            name, _, version = requirement.partition("==")
            yield Pin("pypi", name, version, place)
    (pika,) = re.findall(r"^pika==(\S+)", (ROOT / "deploy/requirements.lock").read_text(), re.MULTILINE)
    yield Pin("pypi", "pika", pika, "deploy/requirements.lock")


def _suites() -> Iterator[Pin]:
    for suite in SUITES.values():
        registry, name = ("go", suite.module) if isinstance(suite, GoSuite) else ("pypi", suite.project)
        yield Pin(registry, name, suite.version.removeprefix("v"), "tests/suites/catalogue.py")


def _node() -> Iterator[Pin]:
    for file in sorted(CLIENTS.glob("*/package.json")):
        for name, version in json.loads(file.read_text())["dependencies"].items():
            yield Pin("npm", name, version, _path(file))


def _go() -> Iterator[Pin]:
    for file in sorted(CLIENTS.glob("*/go.mod")):
        for name, version in re.findall(r"^(?:require)?\s*([\w./-]+) v(\S+)$", file.read_text(), re.MULTILINE):
            yield Pin("go", name, version, _path(file))


def _path(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()
