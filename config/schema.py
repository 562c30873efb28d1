"""The JSON Schemas of both files, for editors: `config/sluice.schema.json` and `config/limits.schema.json`.

Made from the settings types; a test compares the files with them. Write them anew with `sluice config schema [--rules]`.
What they accept is what the decoder accepts, but for checks across settings and ranges of values with units.
"""

from __future__ import annotations

import json
from typing import Final

from config.kinds import JSON
from config.settings import ROOT, RULES_FILE

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, JSON]:
    """JSON Schema of sluice.yaml."""
    made: dict[str, JSON] = {
        "$schema": DIALECT,
        "title": "sluice.yaml",
        "description": "Configuration of the sluice gateway.",
        **ROOT.schema(),
    }
    return {**made, "type": "object", "required": ["listeners"], "not": {"required": ["rules", "rules_file"]}}


def rules_schema() -> dict[str, JSON]:
    """JSON Schema of limits.yaml."""
    return {"$schema": DIALECT, "title": "limits.yaml", "description": "Rules of the sluice gateway.", **RULES_FILE.schema()}


def text(made: dict[str, JSON]) -> str:
    """A schema as it stands in its file."""
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"
