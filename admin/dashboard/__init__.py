"""The web dashboard: static files, served beside the API. To add a file, put it here and name it in PAGES.

A file holds no data. It is the same for everybody and for every gateway, so it is shown without a token, as the probes are. A page that
shows data reads it over `/v1` like any other client, with a session that the operator's token began (`admin/endpoints/session.py`). So
there is one way to the data, with its roles, limits and audit, and nothing in this folder can leak it.

PAGES is all that can be asked for: a path is looked up in it and never joined to a folder's, so no path leads out. The bytes are read
once, when somebody asks for the first of them (`admin/endpoints/dashboard.py`).

VIEWS are the addresses of the screens. All have the one page, whose script shows the screen that the address names. So a screen can be
linked to, and the back button works. A topic in an address is as in the API's paths: `/topics/amqp/%2F/orders/order.created`. It may also
be one segment, in which AMQP's text is percent-encoded once more, as in older bookmarks.

POLICY lets a page run, show and ask what comes from here, and nothing else from anywhere: no script or style in the page itself, no other
host. `data:` is for pictures that a script has drawn.

Files must be in the wheel: their endings stand in pyproject.toml, [tool.setuptools.package-data].
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Final

from admin.http.parsing import CONTENT_SECURITY
from common.records import dataclass
from limiter.protocols import AMQP

HTML: Final = "text/html; charset=utf-8"
TYPES: Final[dict[str, str]] = {  # by a file's ending
    ".css": "text/css; charset=utf-8",
    ".html": HTML,
    ".js": "text/javascript; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
POLICY: Final = f"{CONTENT_SECURITY}; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:"
VENDOR: Final = "/dashboard/vendor/"  # files of others, with their version in the path: what is served there never changes
FOLDER: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class DashboardFile:
    """A file of this folder, as it is served."""

    file: str  # its path in this folder
    summary: str  # in the API's description

    def read(self) -> bytes:
        return (FOLDER / self.file).read_bytes()

    @property
    def content_type(self) -> str:
        return TYPES[PurePosixPath(self.file).suffix]


OF_TOPICS: Final = {
    "topics": "All topics, with one of them open",
    "quotas": "The quota of one topic",
    "t": "One topic, for the team it belongs to",
}
VIEWS: Final[dict[str, str]] = {  # a screen's address -> what it shows
    "/": "The overview: what is wrong now",
    "/topics": "All topics",
    "/connections": "All connections",
    "/connections/{id}": "One connection",
    "/brokers": "Brokers and listeners",
    "/changes": "The history of changes",
    "/changes/{revision}": "One change",
    "/quotas": "Quotas",
    "/configuration": "The configuration",
    **{f"/{head}/{topic}": what for head, what in OF_TOPICS.items() for topic in ("{protocol}/{topic}", AMQP.path)},
}
SCRIPTS: Final[dict[str, str]] = {  # ES modules, as they are written; theme.js, before the first paint, and stream.js are classic scripts
    "theme.js": "the theme and the language, before the first paint",
    "app.js": "the frame of all screens",
    "act.js": "what can be done about a client",
    "advice.js": "what client libraries show",
    "advice_table.js": "which of these texts are each client library's, and how each action shows, from `sluice why`",
    "api.js": "requests",
    "brokers.js": "brokers and listeners",
    "changes.js": "the history",
    "chart.js": "charts",
    "configuration.js": "the configuration",
    "confirm.js": "questions before something is done",
    "connections.js": "connections",
    "dom.js": "from state to elements",
    "edit.js": "the change of a limit",
    "format.js": "numbers and times",
    "live.js": "the stream",
    "my_topic.js": "the page for a team",
    "overview.js": "the overview",
    "parts.js": "what several screens have",
    "quotas.js": "quotas",
    "router.js": "addresses",
    "screen_data.js": "what screens read again and again",
    "sign_in.js": "signing in",
    "store.js": "what the page knows",
    "stream.js": "the stream, once for all tabs: a shared worker",
    "text.js": "languages",
    "topic.js": "one topic",
    "topics.js": "all topics",
    "messages/en.js": "English",
    "messages/zh.js": "Chinese",
    "messages/advice_en.js": "what client libraries show, in English",
    "messages/advice_zh.js": "what client libraries show, in Chinese",
}
MISSING: Final = "missing.html"  # what a browser is shown at an address that nothing is at; programs get the API's JSON
UPLOT: Final = "vendor/uplot-1.6.32"
VENDORED: Final[dict[str, str]] = {  # of others, unchanged
    f"{UPLOT}/uPlot.iife.min.js": "uPlot 1.6.32, which draws charts",
    f"{UPLOT}/uPlot.min.css": "The style of uPlot's charts",
    f"{UPLOT}/LICENSE.txt": "The licence of uPlot (MIT)",
    f"{UPLOT}/SHA256.txt": "The checksums of uPlot's files, as sha256sum checks them",
}
PAGES: Final[dict[str, DashboardFile]] = {  # path -> what is served there
    **{path: DashboardFile("index.html", f"A page: {what}") for path, what in VIEWS.items()},
    "/dashboard/missing.html": DashboardFile(MISSING, "A page: there is nothing at this address"),
    "/dashboard/style.css": DashboardFile("style.css", "The style of the dashboard's pages"),
    "/dashboard/icon.svg": DashboardFile("icon.svg", "The picture that a browser shows in the page's tab"),
    **{f"/dashboard/{file}": DashboardFile(file, f"A part of the dashboard's script: {what}") for file, what in SCRIPTS.items()},
    **{f"/dashboard/{file}": DashboardFile(file, what) for file, what in VENDORED.items()},
}
