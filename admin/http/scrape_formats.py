"""The formats of `/metrics`: OpenMetrics instead of Prometheus' text, and gzip, both made of the text's pieces one by one.

Between two pieces the event loop has a turn, so neither holds traffic up, however long the text is.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import Final

OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
GZIP: Final = 16 + zlib.MAX_WBITS  # zlib's number for gzip's frame
LEVEL: Final = 1  # of 1 to 9; the text repeats itself so much that higher ones gain little for much more time

COUNTER_HEADING: Final = re.compile(r"^# (HELP|TYPE) (\w+)_total ", re.MULTILINE)  # OpenMetrics names a counter's family without its suffix
HELP_QUOTES: Final = re.compile(r"^# HELP .*\".*$", re.MULTILINE)


def wants_openmetrics(accept: bytes) -> bool:
    """Whether `Accept` names OpenMetrics and likes plain text no better (RFC 9110, 12.5.1)."""
    liked = preferences(accept)
    wanted = liked.get("application/openmetrics-text", 0.0)
    return wanted > 0 and wanted >= liked.get("text/plain", 0.0)


def wants_gzip(accept_encoding: bytes) -> bool:
    """Whether `Accept-Encoding` allows gzip."""
    liked = preferences(accept_encoding)
    return liked.get("gzip", liked.get("*", 0.0)) > 0


def preferences(header: bytes) -> dict[str, float]:
    """A header's choices with their weights, the best of each; what cannot be read has weight 0."""
    found: dict[str, float] = {}
    for choice in header.decode("latin-1").split(","):
        name, *parameters = (part.strip().lower() for part in choice.split(";"))
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    weight = float(parameter[2:])
                except ValueError:
                    weight = 0.0
        found[name] = max(found.get(name, 0.0), weight)
    return found


def openmetrics(pieces: Iterator[str]) -> Iterator[str]:
    """Prometheus' text as OpenMetrics 1.0. A heading is never cut by the end of a piece."""
    for piece in pieces:
        named = COUNTER_HEADING.sub(r"# \1 \2 ", piece)
        yield HELP_QUOTES.sub(lambda found: found[0].replace('"', '\\"'), named)
    yield "# EOF\n"


def compress(pieces: Iterator[str]) -> Iterator[bytes]:
    """The text, compressed by gzip piece by piece."""
    packer = zlib.compressobj(LEVEL, zlib.DEFLATED, GZIP)
    for piece in pieces:
        yield packer.compress(piece.encode())
    yield packer.flush()
