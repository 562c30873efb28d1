"""A reader of `GET /v1/stream`: what a browser's EventSource does, by hand."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import h11
import trio

from support.admin.admin_client import Control


@dataclass
class Said:
    """One server-sent event; a comment has the kind `:`."""

    kind: str
    id: str
    data: Any


class Reader:
    """One open stream."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.status = 0
        self.headers: dict[str, str] = {}
        self.ended = False
        self._connection = h11.Connection(h11.CLIENT)
        self._text = ""

    async def begin(self, path: str, headers: dict[str, str]) -> None:
        request = h11.Request(method="GET", target=path, headers=list({"Host": "127.0.0.1", **headers}.items()))
        await self.stream.send_all(self._connection.send(request) + self._connection.send(h11.EndOfMessage()))
        while not self.status:
            event = self._connection.next_event()
            if event is h11.NEED_DATA:
                self._connection.receive_data(bytes(await self.stream.receive_some(65536)))
            elif isinstance(event, h11.Response):
                self.status = event.status_code
                self.headers = {name.decode(): value.decode() for name, value in event.headers}

    async def _more(self) -> None:
        while True:
            event = self._connection.next_event()
            if event is h11.NEED_DATA:
                self._connection.receive_data(bytes(await self.stream.receive_some(65536)))
                continue
            if isinstance(event, h11.Data):
                self._text += bytes(event.data).decode()
            else:
                self.ended = True
            return

    async def next(self, kind: str | None = None) -> Said:
        """The next message, of that kind if one is named (others are passed over). Raises EOFError at the stream's end."""
        with trio.fail_after(20):
            while True:
                while "\n\n" not in self._text:
                    if self.ended:
                        raise EOFError
                    await self._more()
                block, self._text = self._text.split("\n\n", 1)
                said = parsed(block)
                if said.kind != "retry" and kind in (None, said.kind):
                    return said


def parsed(block: str) -> Said:
    if block.startswith(":"):
        return Said(":", "", block[1:].strip())
    fields = dict(line.split(": ", 1) for line in block.split("\n"))
    if "retry" in fields:
        return Said("retry", "", fields["retry"])
    return Said(fields["event"], fields.get("id", ""), json.loads(fields["data"]))


@asynccontextmanager
async def reading(
    api: Control, query: str = "", role: str = "viewer", headers: dict[str, str] | None = None, token: str | None = None
) -> AsyncIterator[Reader]:
    """An open stream, or the refusal of one; with the token "" no token is sent."""
    async with await api.connect() as stream:
        reader = Reader(stream)
        known = {} if token == "" else {"Authorization": f"Bearer {token or api.token(role)}"}
        await reader.begin(f"/v1/stream{query}", {**known, **(headers or {})})
        yield reader
