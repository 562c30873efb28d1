"""The dashboard's files, as `admin/dashboard/` has them: read, hashed and compressed once, when the routes are made."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from admin.authentication.auth import Role
from admin.context import Context
from admin.dashboard import MISSING, PAGES, POLICY, VENDOR, Page
from admin.http.boundary import READS
from admin.http.parsing import Head
from admin.http.routing import Answer, Route
from admin.http.scrape_formats import preferences, wants_gzip

FOR_EVER: Final = "public, max-age=31536000, immutable"  # a year, the longest that caches keep (RFC 2616 14.21; a custom since)
ASK: Final = "no-cache"  # kept, but asked for each time: an upgrade of the gateway shows at the next load
WORTHWHILE: Final = 0.9  # of its size that a file must fall below to be sent compressed; a guess


@dataclass(frozen=True, slots=True)
class Content:
    """A file's bytes, in one encoding."""

    body: bytes
    etag: str
    encoding: str = ""

    @classmethod
    def of(cls, body: bytes, encoding: str = "") -> Content:
        return cls(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"', encoding)


class StaticFile:
    """One file at one path."""

    def __init__(self, path: str, page: Page) -> None:
        """Raises OSError where there is none."""
        self._plain = Content.of(page.read())
        self.etag = self._plain.etag
        packed = Content.of(gzip.compress(self._plain.body, 9, mtime=0), "gzip")
        self._packed = packed if len(packed.body) < WORTHWHILE * len(self._plain.body) else None
        self._type = page.content_type
        self._headers = {"Content-Security-Policy": POLICY, "Cache-Control": FOR_EVER if path.startswith(VENDOR) else ASK}
        if self._packed is not None:
            self._headers["Vary"] = "Accept-Encoding"

    @property
    def body(self) -> bytes:
        return self._plain.body

    async def get(self, context: Context) -> Answer:
        """The file, or 304 where the browser has it already."""
        asked = context.request.head.headers
        content = self._plain
        if self._packed is not None and wants_gzip(asked.get("accept-encoding", b"")):
            content = self._packed
        if names(asked.get("if-none-match", b""), content.etag):
            return Answer(b"", 304, content.etag, self._type, self._headers)
        headers = {**self._headers, "Content-Encoding": content.encoding} if content.encoding else self._headers
        return Answer(content.body, etag=content.etag, content_type=self._type, headers=headers)


def names(if_none_match: bytes, etag: str) -> bool:
    """Whether the header names this ETag, compared weakly (RFC 9110, 13.1.2)."""
    choices = [choice.strip().removeprefix("W/") for choice in if_none_match.decode("latin-1").split(",")]
    return etag in choices or choices == ["*"]


def missing_page(head: Head) -> Answer | None:
    """What a person sees at an address that nothing is at, with or without a session; None: a program asks, or somebody for the API."""
    wants_html = preferences(head.headers.get("accept", b"")).get("text/html", 0.0) > 0
    if head.method not in READS or not wants_html or head.path.startswith("/v1/"):
        return None
    file = FILES[f"/dashboard/{MISSING}"]
    return Answer(file.body, 404, content_type=PAGES[f"/dashboard/{MISSING}"].content_type, headers={"Content-Security-Policy": POLICY})


def static(path: str, page: Page, file: StaticFile) -> Route:
    """A route that answers with the bytes the file had when it was read."""
    return Route("GET", path, Role.NOBODY, file.get, page.summary, answer_type=page.content_type, statuses=(200, 304), any_query=True)


def revision_of(files: Iterable[StaticFile]) -> str:
    """Another one where any of the files is."""
    return hashlib.sha256("".join(file.etag for file in files).encode()).hexdigest()[:16]


FILES: Final = {path: StaticFile(path, page) for path, page in PAGES.items()}
REVISION: Final = revision_of(FILES.values())  # a page that was loaded from another one is told to load again
ROUTES: Final[list[Route]] = [static(path, page, FILES[path]) for path, page in PAGES.items()]
