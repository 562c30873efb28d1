"""What sluice brings with it: each package at its locked version, with its licence and what needs it.

The versions and hashes are those of deploy/requirements.lock; licences and dependencies are read from what is installed here, so the
environment must have what the lock says (`make install` sees to that).
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Collection
from email.message import Message
from importlib import metadata
from pathlib import Path
from typing import Final, NamedTuple, cast

from packaging.requirements import Requirement

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from sources import ROOT

from deploy import lock

HOMES: Final = ("Homepage", "homepage", "Source", "Repository", "repository", "Documentation")  # links of a package, the best first
FOR_USERS: Final = ("spark", "redis", "zstd", "otel", "ship", "compact")  # the extras; `dev` is no part of what users install
# Where a package's metadata has no SPDX expression, but a name that only people understand.
SPDX: Final = {
    "apache 2.0": "Apache-2.0", "apache license 2.0": "Apache-2.0", "apache license, version 2.0": "Apache-2.0", "apache-2.0": "Apache-2.0",
    "apache software license": "Apache-2.0", "http://www.apache.org/licenses/license-2.0": "Apache-2.0",
    "bsd": "BSD-3-Clause", "bsd license": "BSD-3-Clause", "bsd 3-clause license": "BSD-3-Clause", "3-clause bsd license": "BSD-3-Clause",
    "mit license": "MIT", "mit": "MIT", "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0", "mpl-2.0": "MPL-2.0",
    "python software foundation license": "PSF-2.0", "dual license": "Apache-2.0 OR BSD-3-Clause",
}  # fmt: skip
# Metadata that says "BSD" or less: read in the package's own LICENSE.
READ: Final = {"pamqp": "BSD-3-Clause", "python-dateutil": "Apache-2.0 AND BSD-3-Clause", "py4j": "BSD-3-Clause", "pandas": "BSD-3-Clause"}


class Dependency(NamedTuple):
    """`licence`: an SPDX expression. `extras`: of sluice, by which it comes; empty: always. `hashes`: SHA-256 of its files on the index.

    `direct`: sluice itself names it, or one of its extras.
    """

    name: str
    version: str
    licence: str
    summary: str
    home: str
    extras: tuple[str, ...]
    needs: tuple[str, ...]
    hashes: tuple[str, ...]
    direct: bool


def licence(name: str, about: Message) -> str:
    """Raises ValueError where nothing says which."""
    if name in READ:
        return READ[name]
    expression = about.get("License-Expression")
    if expression:
        return str(expression)
    classified = [text.rsplit(" :: ", 1)[-1] for text in about.get_all("Classifier") or [] if text.startswith("License :: OSI")]
    found = {SPDX[text.lower()] for text in [str(about.get("License") or "").strip(), *classified] if text.lower() in SPDX}
    if not found:
        raise ValueError(f"{name}: its metadata names no licence known here: read its LICENSE, and name it in READ of dependencies.py")
    return " OR ".join(sorted(found))


def _needs(name: str, extras: frozenset[str]) -> list[tuple[str, frozenset[str]]]:
    found = []
    for text in metadata.requires(name) or []:
        wanted = Requirement(text)
        if wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in [*extras, ""]):
            found.append((lock.normal(wanted.name), frozenset(wanted.extras)))
    return found


def _home(about: Message) -> str:
    links = dict(text.split(", ", 1) for text in about.get_all("Project-URL") or [] if ", " in text)
    named = next((links[label] for label in HOMES if label in links), None)
    return str(about.get("Home-page") or named or "")


def closure(wanted: list[str]) -> dict[str, set[str]]:
    """All packages that `wanted` (requirements) bring, by normal name, with the names of what each needs."""
    found: dict[str, set[str]] = {}
    queue = [(lock.normal(Requirement(text).name), frozenset(Requirement(text).extras)) for text in wanted]
    while queue:
        name, extras = queue.pop()
        if name in found and not extras:
            continue
        needed = _needs(name, extras)
        new = name not in found
        found.setdefault(name, set()).update(each for each, _ in needed)
        queue += needed if new or extras else []
    return found


def dependencies(extras: Collection[str] = FOR_USERS) -> list[Dependency]:
    """Of the product with these extras, by name; no other extra has to be installed.

    Raises ValueError where the lock and this environment differ.
    """
    described = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locked = lock.read(lock.REQUIREMENTS)
    always = closure(described["dependencies"])
    by_extra = {extra: closure(described["optional-dependencies"][extra]) for extra in extras}
    every = always | {name: needs for found in by_extra.values() for name, needs in found.items()}
    asked = [*described["dependencies"], *(text for extra in extras for text in described["optional-dependencies"][extra])]
    direct = {lock.normal(Requirement(text).name) for text in asked}
    made = []
    for name, needs in sorted(every.items()):
        if name not in locked:
            raise ValueError(f"{name} is not in deploy/requirements.lock: make lock")
        installed = metadata.version(name)
        if installed != locked[name].version:
            raise ValueError(f"{name} {installed} is installed, the lock has {locked[name].version}: make install")
        about = cast(Message, metadata.metadata(name))  # its type says less than it can
        by = () if name in always else tuple(extra for extra, found in by_extra.items() if name in found)
        hashes = tuple(sorted(re.findall(r"sha256:([0-9a-f]{64})", locked[name].text)))
        summary = " ".join(str(about.get("Summary") or "").split())
        made.append(
            Dependency(name, installed, licence(name, about), summary, _home(about), by, tuple(sorted(needs)), hashes, name in direct)
        )
    return made
