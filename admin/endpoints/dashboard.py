"""The dashboard's files, as `admin/dashboard/` has them: all read and hashed when somebody asks for the first one, compressed one by one.

Most gateways are never asked. All are read at once, so that those of an upgrade that is not running yet are not mixed with them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cache, cached_property
from typing import Final

from admin.authentication.auth import Role
from admin.context import Context
from admin.dashboard import MISSING, PAGES, POLICY, VENDOR, DashboardFile
from admin.http.boundary import READS
from admin.http.parsing import Head
from admin.http.routing import Answer, Route
from admin.http.scrape_formats import preferences, wants_gzip
from common.records import dataclass

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

    def __init__(self, path: str, page: DashboardFile) -> None:
        """Raises OSError where there is none."""
        self._plain = Content.of(page.read())
        self.etag = self._plain.etag
        self._type = page.content_type
        self._caching = FOR_EVER if path.startswith(VENDOR) else ASK

    @cached_property
    def _packed(self) -> Content | None:
        """None: it is hardly smaller."""
        import gzip  # here, as few gateways' pages are ever looked at

        packed = Content.of(gzip.compress(self._plain.body, 9, mtime=0), "gzip")
        return packed if len(packed.body) < WORTHWHILE * len(self._plain.body) else None

    @property
    def body(self) -> bytes:
        return self._plain.body

    def answer(self, asked: Mapping[str, bytes]) -> Answer:
        """The file, or 304 where the browser has it already. `asked`: the request's headers."""
        headers = {"Content-Security-Policy": POLICY, "Cache-Control": self._caching}
        if self._packed is not None:
            headers["Vary"] = "Accept-Encoding"
        content = self._plain
        if self._packed is not None and wants_gzip(asked.get("accept-encoding", b"")):
            content = self._packed
        if names(asked.get("if-none-match", b""), content.etag):
            return Answer(b"", 304, content.etag, self._type, headers)
        if content.encoding:
            headers["Content-Encoding"] = content.encoding
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
    path = f"/dashboard/{MISSING}"
    return Answer(files()[path].body, 404, content_type=PAGES[path].content_type, headers={"Content-Security-Policy": POLICY})


def static(path: str, page: DashboardFile) -> Route:
    """A route that answers with the bytes the file had when all were read."""

    async def get(context: Context) -> Answer:
        return files()[path].answer(context.request.head.headers)

    return Route("GET", path, Role.NOBODY, get, page.summary, answer_type=page.content_type, statuses=(200, 304), any_query=True)


def revision_of(files: Iterable[StaticFile]) -> str:
    """Another one where any of the files is."""
    return hashlib.sha256("".join(file.etag for file in files).encode()).hexdigest()[:16]


@cache
def files() -> dict[str, StaticFile]:
    """All files, by their paths. Raises OSError where one is missing from the wheel."""
    return {path: StaticFile(path, page) for path, page in PAGES.items()}


@cache
def revision() -> str:
    """A page that was loaded from another one is told to load again."""
    return revision_of(files().values())


ROUTES: Final[list[Route]] = [static(path, page) for path, page in PAGES.items()]
