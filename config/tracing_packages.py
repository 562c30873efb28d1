"""What tracing needs beside its settings: OpenTelemetry's packages, and the file of headers. Nothing of OpenTelemetry is imported here."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from common.regular_files import read_secret

if TYPE_CHECKING:
    from pathlib import Path

OTEL_EXTRA: Final = "pip install 'sluice-gateway[otel]'"
# What is imported, and the package that brings it.
MODULES: Final = {
    "opentelemetry.sdk.trace": "opentelemetry-sdk",
    "opentelemetry.exporter.otlp.proto.http": "opentelemetry-exporter-otlp-proto-http",
}
HEADER: Final = re.compile(r"([A-Za-z0-9!#$%&'*+.^_`|~-]+)[ \t]*:[ \t]*([\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)[ \t]*")


def missing_package() -> str:
    """The first package that is not installed; "" where all are."""
    for module, package in MODULES.items():
        try:
            if find_spec(module) is None:
                return package
        except ModuleNotFoundError:  # not even what is around it
            return package
    return ""


def read_headers(file: Path) -> dict[str, str]:
    """The headers in `file`. Raises OSError, and ValueError for a line that is none; it does not repeat the line, which may be a secret."""
    headers: dict[str, str] = {}
    for number, line in enumerate(read_secret(file, "replace").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        found = HEADER.fullmatch(line)
        if found is None:
            raise ValueError(f"{file}:{number}: not a header of HTTP")
        headers[found[1]] = found[2]
    return headers
