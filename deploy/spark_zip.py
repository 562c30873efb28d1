"""Builds what `spark-submit` needs: `make spark-zip` puts it into dist/.

    sluice-spark-VERSION.zip                 spark_jobs, limiter and common, for --py-files
    sluice-spark-VERSION.py                  nightly.py, the program
    sluice-spark-VERSION-requirements.txt    packages of the driver and the workers, pinned to what the tests ran with

Equal sources are equal bytes: names in order, one fixed time.
"""

from __future__ import annotations

import re
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "deploy" / "packaging"))

from git_version import read_version  # noqa: E402  -- its folder is not on the path before

PACKAGES: Final = ("common", "limiter", "spark_jobs")  # limiter: the backtest replays through its buckets
MOMENT: Final = (1980, 1, 1, 0, 0, 0)  # the first that a zip can hold
IMPORTED: Final = ("numpy",)  # pyarrow and pandas no longer ask for it by themselves


def requirements() -> list[str]:
    """The packages of the extra `spark`, at the versions of this environment."""
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["spark"]
    wanted = [re.split(r"[<>=!~\[; ]", text, maxsplit=1)[0] for text in extra]
    return sorted(f"{name}=={metadata.version(name)}" for name in {*wanted, *IMPORTED})


def build(target: Path) -> list[Path]:
    """Write the three files into `target` and return them."""
    target.mkdir(parents=True, exist_ok=True)
    version = read_version(ROOT).text
    stem = f"sluice-spark-{version}"
    archive, program, pinned = target / f"{stem}.zip", target / f"{stem}.py", target / f"{stem}-requirements.txt"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for package in PACKAGES:
            for path in sorted((ROOT / package).rglob("*.py")):
                _add(file, path.relative_to(ROOT).as_posix(), path.read_bytes())
        about = f"Metadata-Version: 2.1\nName: sluice-gateway\nVersion: {version}\n"
        _add(file, f"sluice_gateway-{version}.dist-info/METADATA", about.encode())  # the snapshot names the version that computed it
    program.write_bytes((ROOT / "spark_jobs" / "nightly.py").read_bytes())
    head = "# Python packages of the driver and the workers; a cluster brings its own pyspark of this version\n"
    pinned.write_text(head + "".join(f"{line}\n" for line in requirements()))
    return [archive, program, pinned]


def _add(file: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, MOMENT)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    file.writestr(entry, data)


if __name__ == "__main__":
    for path in build(Path(sys.argv[1])):
        print(path)
