"""Characters of names that strangers chose which would do something where they are shown: move the cursor, turn letters round, hide."""

from __future__ import annotations

import re
from typing import Final

# Control characters (C0, DEL, C1), bidirectional marks and overrides, zero-width and line separators, and surrogates.
UNSAFE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def escape(text: str) -> str:
    r"""`text` with each of them as JSON escapes it: `\u202e`."""
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
