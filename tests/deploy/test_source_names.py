"""The sources' names for the installed wheel: the same modules, and packages that keep what they have taken from their modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.pages import ROOT

PROGRAM = """
import sys
sys.path = [PACKAGES, *(path for path in sys.path if path.startswith((sys.prefix, sys.base_prefix)))]
exec(compile(open(HOOK).read(), HOOK, "exec"))
import config
import config.schema
import config.later
from config import schema
import sluice.config.later
assert schema() == "called", schema
assert config.later is sluice.config.later
assert config is sluice.config
"""


def test_a_function_that_is_called_as_its_module_stays_one(tmp_path: Path) -> None:
    config = tmp_path / "sluice" / "config"
    config.mkdir(parents=True)
    (config.parent / "__init__.py").touch()
    (config / "__init__.py").write_text("from sluice.config.schema import schema\n")
    (config / "schema.py").write_text("def schema():\n    return 'called'\n")
    (config / "later.py").touch()
    hook = str(ROOT / "deploy" / "packaging" / "sluice_source_names.py")
    program = PROGRAM.replace("PACKAGES", repr(str(tmp_path))).replace("HOOK", repr(hook))
    done = subprocess.run(
        [sys.executable, "-c", f"__name__ = 'hook'\n{program}"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
