"""The browser's boundary: which sites may make a browser send us requests (`docs/design/reliability.md` 5).

Listening on loopback does not keep web pages out: a page whose name resolves to 127.0.0.1 after it was loaded (DNS rebinding) is
same-origin with us, sends no Origin on GET, and CORS is never consulted. But it cannot choose the Host header, which is its own name. So
every request must name us by an address, as localhost, or as configured, and a request that changes something must not come from another
site.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from admin.http.parsing import Head
from admin.http.problems import ProblemError

_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
READS: Final = ("GET", "HEAD")
MAX_HOST_SHOWN: Final = 255  # characters of a Host header in a message; the longest name there is (RFC 1035, 2.3.4)


class Boundary:
    """The names of this server that a Host header may have, beside addresses and localhost."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = frozenset(name.lower().strip("[]").rstrip(".") for name in names)

    def check(self, head: Head) -> None:
        """Raises ProblemError 421 for a Host that is not ours, 403 for a change requested by another site."""
        host = head.headers.get("host")
        if host is not None and not self._ours(host.decode("latin-1")):
            name = host.decode("latin-1")[:MAX_HOST_SHOWN]
            raise ProblemError(
                421,
                "misdirected",
                f"the Host header names {name!a}, which is not among the names of this gateway; use an address or localhost, "
                "or add the name to admin.names in the configuration and reload",
            )
        if head.method not in READS:
            self._check_site(head)

    def _ours(self, host: str) -> bool:
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = found[1].lower().rstrip(".")
        if name == "localhost" or name.endswith(".localhost") or name in self._names:
            return True
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True

    def _check_site(self, head: Head) -> None:
        site = head.headers.get("sec-fetch-site")
        if site is not None:
            if site not in (b"same-origin", b"none"):
                raise ProblemError(403, "cross-site", "a page of another site may not change anything here")
        elif "origin" in head.headers and not _of_our_origin(head):
            raise ProblemError(403, "cross-site", "a page of another origin may not change anything here")


def comes_from_here(head: Head) -> bool:
    """Whether a browser says that a page of this origin asks. Browsers say it of every change; a page cannot say it for itself."""
    site = head.headers.get("sec-fetch-site")
    return site == b"same-origin" if site is not None else _of_our_origin(head)


def denies_to_come_from_here(head: Head) -> bool:
    """Whether a browser says that another origin asks; of a read without a word about it, none does."""
    site = head.headers.get("sec-fetch-site")
    if site is not None:
        return site not in (b"same-origin", b"none")
    return "origin" in head.headers and not _of_our_origin(head)


def _of_our_origin(head: Head) -> bool:
    own = head.headers.get("host", b"").decode("latin-1").lower()
    try:
        parts = urlsplit(head.headers.get("origin", b"").decode("latin-1").lower())
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(own) and parts.netloc == own
