"""What a request's head shows before it is parsed: whether a good token is in it, and whether it asks for a probe.

It says how long the request waits, and how it is read (`places.py`). It grants nothing: who asks is found out as for all requests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Final

from admin.http.parsing import Head

_SHOWN: Final = re.compile(rb"\r\n(authorization|cookie|host|origin|sec-fetch-site):[ \t]*([^\r]*)", re.IGNORECASE)
_PLAIN_GET: Final = re.compile(rb"GET (/[a-z]+) HTTP/1\.1\r\n((?:[A-Za-z0-9-]+:[\t\x20-\x7e]*\r\n)+)\r\n")
_NOT_PLAIN: Final = frozenset({"authorization", "cookie", "content-length", "expect", "transfer-encoding", "upgrade"})


class FirstLook:
    """How the heads of one port are looked at. Without arguments: all are strangers'."""

    def __init__(self, probes: Collection[str] = (), is_good: Callable[[Head], bool] = lambda _: False) -> None:
        """`probes`: paths. `is_good`: whether the headers that say who asks have a good token or the secret of a session."""
        self._probes = frozenset(probes)
        self._is_good = is_good

    def is_known(self, raw: bytes) -> bool:
        """Whether the request has a good token."""
        shown = {name.decode().lower(): value.rstrip(b" \t") for name, value in _SHOWN.findall(raw)}
        return not shown.keys().isdisjoint({"authorization", "cookie"}) and self._is_good(Head("GET", "/", "", shown, 0))

    def probe(self, raw: bytes) -> Head | None:
        """The whole head, where it asks for a probe, has no token, and cannot be read in two ways. None: let h11 read it."""
        found = _PLAIN_GET.fullmatch(raw)
        if found is None or found[1].decode() not in self._probes:
            return None
        headers: dict[str, bytes] = {}
        for line in found[2].split(b"\r\n")[:-1]:
            name, _, value = line.partition(b":")
            key = name.decode().lower()
            if key in headers or key in _NOT_PLAIN:
                return None
            headers[key] = value.strip(b" \t")
        return Head("GET", found[1].decode(), "", headers, 0) if "host" in headers else None
