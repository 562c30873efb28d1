"""Where sluice is published stands in pyproject.toml, and is written from there into package, chart, image and manifests."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import yaml

from support.environments import ROOT

sys.path.insert(0, str(ROOT / "deploy" / "packaging"))

from addresses import PLACES, Addresses, addresses, files, maintainer, write


def copied(folder: Path) -> Path:
    for name in PLACES:
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(ROOT / name, place) if (ROOT / name).is_dir() else shutil.copy(ROOT / name, place)
    return folder


def test_new_addresses_reach_every_file(tmp_path: Path) -> None:
    folder, old = copied(tmp_path), addresses()
    new = Addresses("https://git.test/acme/sluice", "images.test/acme")
    changed = {str(path.relative_to(folder)) for path in write(new, folder)}
    assert {
        "pyproject.toml", "deploy/helm/sluice/Chart.yaml", "deploy/helm/sluice/values.yaml", "deploy/container/Containerfile",
        "deploy/kubernetes/sidecar.yaml", "deploy/kubernetes/quotas-cronjob.yaml", "docs/deploy/kubernetes.md",
    } <= changed  # fmt: skip
    assert addresses(folder) == new
    assert yaml.safe_load((folder / "deploy/helm/sluice/values.yaml").read_text())["image"]["repository"] == "images.test/acme/sluice"
    left = [str(path) for path in files(folder) if any(each in path.read_text() for each in old)]
    assert left == []
    write(old, folder)
    assert [name for name in changed if (folder / name).read_text() != (ROOT / name).read_text()] == [], "and back"


def test_who_answers_is_named_once() -> None:
    assert maintainer() == "The sluice developers <developers@sluice.invalid>"
    others = [path for path in files(ROOT) if "developers@" in path.read_text() and path.name != "pyproject.toml"]
    assert others in ([], [ROOT / "deploy/debian/copyright"])
