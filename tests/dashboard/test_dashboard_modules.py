"""The dashboard's modules by themselves, in node: what a screen makes of the gateway's answers (`modules.mjs`)."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from admin.dashboard import FOLDER

pytestmark = [pytest.mark.browser, pytest.mark.slow]  # with the browser's tests, which need node, too

MODULES: Final = Path(__file__).with_name("modules.mjs")
LONGEST_S: Final = 120  # seconds; a case on a busy machine
CASES: Final = re.findall(r'^test\("(\w+)"', MODULES.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's files where node takes them for modules."""
    made = tmp_path_factory.mktemp("page")
    shutil.copytree(FOLDER, made / "dashboard", ignore=shutil.ignore_patterns("vendor", "*.py", "__pycache__"))
    (made / "package.json").write_text('{"type": "module"}')
    return made / "dashboard"


@pytest.mark.parametrize("case", CASES)
def test_in_node(folder: Path, case: str) -> None:
    node = shutil.which("node")
    assert node is not None, "no node: run `sh deploy/system-packages.sh node`"
    done = subprocess.run([node, str(MODULES), str(folder), case], capture_output=True, text=True, timeout=LONGEST_S, check=False)
    assert done.returncode == 0, done.stderr
