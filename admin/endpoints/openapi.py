"""`/v1/openapi.json`: the description of this API, made from ROUTES and the types of their bodies."""

from __future__ import annotations

from typing import Any, Final

import trio

from admin import openapi
from admin.authentication.auth import Role
from admin.context import Context
from admin.http.preconditions import etag
from admin.http.routing import Answer, Route, encode
from admin.http.side_thread import run_in_thread


class Document:
    """The document as it is sent, made once, on a thread: it takes a tenth of a second."""

    def __init__(self) -> None:
        self._making = trio.Lock()
        self._written = b""
        self._etag = ""

    async def answer(self, routes: list[Route]) -> Answer:
        async with self._making:
            if not self._written:
                self._written = await run_in_thread(lambda: encode(openapi.document(routes)))
                self._etag = etag(self._written)
        return Answer(self._written, etag=self._etag)


_document: Final[trio.lowlevel.RunVar[Document]] = trio.lowlevel.RunVar("openapi")


async def get(context: Context) -> Answer:
    try:
        made = _document.get()
    except LookupError:
        made = Document()
        _document.set(made)
    return await made.answer(context.routes)


ROUTES: Final[list[Route]] = [
    Route("GET", "/v1/openapi.json", Role.VIEWER, get, "This API as an OpenAPI 3.1 document", answer=dict[str, Any])
]
