"""The web dashboard: static files, served beside the API. To add a page, put its file here and name it in PAGES.

A file holds no data. It is the same for everybody and for every gateway, so it is shown without a token, as the probes are. A page that
shows data reads it over `/v1` like any other client, with the operator's token, and keeps that token in memory only. So there is one way
to the data, with its roles, limits and audit, and nothing in this folder can leak it.

PAGES is all that can be asked for: a path is looked up in it and never joined to a folder's, so no path leads out. The bytes are read
once, when the routes are made (`admin/endpoints/dashboard.py`). A file missing from the wheel thus stops the start instead of one request.

POLICY lets a page take its style from here and nothing else from anywhere. There is no script, so none is allowed. The first page
with one keeps it in a file here and adds `script-src 'self'; connect-src 'self'`, but never 'unsafe-inline', nor another host.

Files must be in the wheel: their endings stand in pyproject.toml, [tool.setuptools.package-data].
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from admin.http import CONTENT_SECURITY

HTML: Final = "text/html; charset=utf-8"
CSS: Final = "text/css; charset=utf-8"
POLICY: Final = f"{CONTENT_SECURITY}; style-src 'self'"
FOLDER: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Page:
    """A file of this folder, as it is served."""

    file: str
    content_type: str
    summary: str  # in the API's description

    def read(self) -> bytes:
        return (FOLDER / self.file).read_bytes()


PAGES: Final[dict[str, Page]] = {  # path -> what is served there
    "/": Page("index.html", HTML, "The front page: what this port is, and where to go on"),
    "/dashboard/style.css": Page("style.css", CSS, "The style of the dashboard's pages"),
}
