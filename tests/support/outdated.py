"""What the tests run against, beside the newest of its registry: `make outdated`.

Each registry is asked through its ordinary client, of what we name alone. Exit codes: 0 nothing is more than one minor version behind, 1
something is that is not an old version on purpose, 2 a registry could not be asked, and then nothing is known of what it has.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from support.pins import Pin, numbers, pins

# Debian 12's own packages: the version is not ours to choose.
DEBIAN: Final = ("ruby-bunny", "librabbitmq-dev")
MAVEN_PLUGIN: Final = "org.codehaus.mojo:versions-maven-plugin:2.18.0:display-dependency-updates"
NEWER: Final = re.compile(r"([\w.-]+:[\w.-]+) \.+[\s\[\]A-Z]*?(\S+) -> (\S+)")


class RegistryError(RuntimeError):
    """A registry could not be asked; the message has its client's own words."""


def _said(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise RegistryError(f"{' '.join(command)[:100]}: {(done.stdout + done.stderr).strip()[-500:]}")
    return done.stdout


def pypi(names: Iterable[str]) -> dict[str, str]:
    found = {}
    for name in names:
        newest = re.match(r"\S+ \((\S+)\)", _said(sys.executable, "-m", "pip", "--disable-pip-version-check", "index", "versions", name))
        if newest is None:
            raise RegistryError(f"pip index versions {name} names no version")
        found[name] = newest[1]
    return found


def npm(names: Iterable[str]) -> dict[str, str]:
    return {name: _said("npm", "view", name, "version").strip() for name in names}


def go(names: Iterable[str]) -> dict[str, str]:
    return {name: json.loads(_said("go", "list", "-m", "-json", f"{name}@latest"))["Version"].removeprefix("v") for name in names}


def maven(names: Iterable[str]) -> dict[str, str]:
    """All in one project, as Maven takes seconds to start. The plugin names only those that have newer versions than 0."""
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>0</version></dependency>"
        for group, _, artifact in (name.partition(":") for name in names)
    )
    with tempfile.TemporaryDirectory() as scratch:
        pom = Path(scratch) / "pom.xml"
        pom.write_text(
            "<project><modelVersion>4.0.0</modelVersion><groupId>sluice.tests</groupId><artifactId>outdated</artifactId><version>1</version>"
            f"<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>"
        )
        ignored = "-Dmaven.version.ignore=(?i).*-(alpha|beta|m|rc)[-.0-9]*"
        said = _said("mvn", "-B", "-f", str(pom), MAVEN_PLUGIN, ignored, "-DprocessDependencyManagement=false")
    found = {name: newest for name, _, newest in NEWER.findall(said)}
    missing = sorted(set(names) - set(found))
    if missing:
        raise RegistryError(f"Maven names no version of {', '.join(missing)}: {said[-500:]}")
    return found


REGISTRIES: Final[Mapping[str, Callable[[list[str]], dict[str, str]]]] = {"maven": maven, "pypi": pypi, "npm": npm, "go": go}


def behind(ours: str, newest: str) -> str:
    """How far, in a word: "" for the same or a newer one, "patch", "minor" for one minor version, "far" for more."""
    mine, theirs = ((*numbers(version), 0, 0, 0)[:3] for version in (ours, newest))
    if mine >= theirs:
        return ""
    if mine[:2] == theirs[:2]:
        return "patch"
    return "minor" if mine[0] == theirs[0] and theirs[1] - mine[1] == 1 else "far"


def judged(pin: Pin, newest: str) -> tuple[str, bool]:
    """What there is to say of a pin, and whether it is too far behind."""
    if pin.kept:
        return "old on purpose", False
    distance = behind(pin.version, newest)
    return {"": "", "patch": "a patch behind", "minor": "one minor behind", "far": "BEHIND"}[distance], distance == "far"


def main() -> int:
    known = pins()
    newest: dict[str, str] = {}
    unasked = 0
    for registry, ask in REGISTRIES.items():
        names = sorted({pin.name for pin in known if pin.registry == registry})
        try:
            newest |= ask(names)
        except (RegistryError, OSError, subprocess.TimeoutExpired) as error:
            print(f"make outdated: {registry} could not be asked, so nothing is known of {', '.join(names)}: {error}", file=sys.stderr)
            unasked += 1
    bad = 0
    rows = [("registry", "name", "ours", "newest", "", "where")]
    for pin in sorted(known, key=lambda pin: (pin.registry, pin.name, numbers(pin.version))):
        if pin.name in newest:
            word, too_far = judged(pin, newest[pin.name])
            bad += too_far
            rows.append((pin.registry, pin.name, pin.version, newest[pin.name], word, pin.place))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print(f"Not asked, as they are Debian 12's own packages: {', '.join(DEBIAN)}.")
    return 2 if unasked else 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
