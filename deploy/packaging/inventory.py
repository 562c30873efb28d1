"""What stands beside a release's packages: the SBOM (CycloneDX 1.6), the licences of all dependencies, and locked requirements.

Equal inputs are equal bytes: nothing is random, and the time is that of the release.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deploy import lock

if TYPE_CHECKING:
    from dependencies import Dependency

OURS: Final = "sluice-gateway"
UPLOT: Final = "pkg:npm/uplot@1.6.32"  # a copy of it draws the dashboard's charts (admin/dashboard/vendor)
COPIED: Final[list[dict[str, Any]]] = [
    {
        "type": "library", "bom-ref": UPLOT, "name": "uplot", "version": "1.6.32", "description": "Charts", "scope": "required",
        "licenses": [{"expression": "MIT"}], "purl": UPLOT,
    }
]  # fmt: skip


class Package(NamedTuple):
    """Of Debian. `control`: all of its description, as dpkg keeps it."""

    name: str
    version: str
    architecture: str
    control: str


def sbom(version: str, moment: int, found: Sequence[Dependency]) -> str:
    """CycloneDX 1.6 as JSON. A component that only an extra brings is `optional`, and says which."""
    return _document(version, moment, found, ())


def image_sbom(version: str, moment: int, found: Sequence[Dependency], packages: Sequence[Package]) -> str:
    """The same of a container image: what sluice needs there is `found`, and Debian's packages are beside it."""
    return _document(version, moment, found, packages)


def _document(version: str, moment: int, found: Sequence[Dependency], packages: Sequence[Package]) -> str:
    root = _purl(OURS, version)
    references = {each.name: _purl(each.name, each.version) for each in found}
    debian = [_debian(each) for each in packages]
    all_of_it = " ".join([root, *references.values(), *(each["purl"] for each in debian)])
    made: dict[str, Any] = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, all_of_it)}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application", "bom-ref": root, "name": OURS, "version": version, "purl": root,
                "licenses": [{"expression": "Apache-2.0"}],
            },
        },
        "components": [*(_component(each, references[each.name]) for each in found), *COPIED, *debian],
        "dependencies": [
            {"ref": root, "dependsOn": sorted([*(references[each.name] for each in found if each.direct), UPLOT])},
            *(
                {"ref": references[each.name], "dependsOn": sorted(references[name] for name in each.needs if name in references)}
                for each in found
            ),
            *({"ref": each["bom-ref"], "dependsOn": []} for each in debian),
        ],
    }  # fmt: skip
    return json.dumps(made, indent=1) + "\n"


def _component(each: Dependency, reference: str) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": "library", "bom-ref": reference, "name": each.name, "version": each.version, "description": each.summary,
        "scope": "optional" if each.extras else "required", "licenses": [{"expression": each.licence}], "purl": reference,
    }  # fmt: skip
    if each.home:
        made["externalReferences"] = [{"type": "website", "url": each.home}]
    # The index has several files of one version; which of them is installed depends on the machine, so all are named.
    made["properties"] = [{"name": "sluice:file:sha256", "value": digest} for digest in each.hashes]
    made["properties"] += [{"name": "sluice:extra", "value": extra} for extra in each.extras]
    return made


def _debian(each: Package) -> dict[str, Any]:
    """What a package of Debian's is called: https://github.com/package-url/purl-spec, type deb."""
    reference = f"pkg:deb/debian/{each.name}@{quote(each.version, safe='.~-')}?arch={each.architecture}&distro=debian-12"
    return {
        "type": "library", "bom-ref": reference, "name": each.name, "version": each.version, "scope": "required", "purl": reference,
    }  # fmt: skip


def _purl(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{version}"


def licences(version: str, found: Sequence[Dependency]) -> str:
    """A table for people, in Markdown."""
    lines = [
        f"# Licences of what sluice {version} brings with it", "",
        "sluice itself is under Apache-2.0. Each package has its licence's text with it, in its `dist-info` folder.", "",
        "| package | version | licence | comes with | |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for each in found:
        by = ", ".join(f"`[{extra}]`" for extra in each.extras) or "always"
        lines.append(f"| {each.name} | {each.version} | {each.licence} | {by} | {each.home} |")
    lines.append("| uplot | 1.6.32 | MIT | a copy, for the dashboard | https://github.com/leeoniya/uPlot |")
    return "\n".join(lines) + "\n"


def requirements(version: str, found: Sequence[Dependency], *extras: str) -> str:
    """For pip's --require-hashes: what sluice needs with these extras, each version with the hashes of its files."""
    locked = lock.read(lock.REQUIREMENTS)
    wanted = [each for each in found if not each.extras or set(each.extras) & set(extras)]
    head = f"# Dependencies of {OURS} {version}{' with ' + ', '.join(extras) if extras else ''}, as they were tested."
    return "\n".join([head, *(locked[each.name].text for each in wanted)]) + "\n"
