"""Prints what pip must install besides the product: its dependencies, the named extras and what builds it, from pyproject.toml.

python deploy/requirements.py spark dev
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

described = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
wanted = [*described["build-system"]["requires"], *described["tool"]["sluice"]["compilers"], *described["project"]["dependencies"]]
for extra in sys.argv[1:]:
    wanted += described["project"]["optional-dependencies"][extra]
print("\n".join(dict.fromkeys(wanted)))
