"""The documentation builds as a site, without a warning, and every page is in its contents."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.site
@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-E",
        "-d",
        str(tmp_path / "doctrees"),
        "-c",
        "docs/site",
        ".",
        str(tmp_path / "site"),
    ]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (built.returncode, built.stderr) == (0, "")
    pages = {path.relative_to(ROOT).with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert [str(page) for page in sorted(pages) if not (tmp_path / "site" / page).is_file()] == []
    assert (tmp_path / "site" / "index.html").is_file()
