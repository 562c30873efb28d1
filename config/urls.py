"""What all kinds of URLs have in common: the parts are taken apart, and the host is one that can be connected to."""

from __future__ import annotations

from typing import Final
from urllib.parse import SplitResult, urlsplit

from config.addresses import host_fault, is_ipv6
from config.kinds import JSON, Invalid, ScalarKind
from config.problems import quote_text

HIDDEN: Final = "…"  # stands for what may be secret in a URL that is shown; no URL holds it


def shown_url(url: str) -> str:
    """Scheme, host and port of `url`. User, path and query may let somebody in: they are "…", but for the number of a Redis' database.

    The URL of a Unix socket is a path of this machine, and is shown.
    """
    found = urlsplit(url)
    if found.scheme == "unix":
        return url
    user, at, host = found.netloc.rpartition("@")
    if found.scheme in {"redis", "rediss"} and not found.query:
        return f"{found.scheme}://{HIDDEN + at if user else at}{host}{found.path}"
    hidden = at or found.path not in {"", "/"} or found.query or found.fragment
    return f"{found.scheme}://{host}/{HIDDEN}" if hidden else url


class UrlKind(ScalarKind[str]):
    """A URL, kept as it is written."""

    hidden = True

    @property
    def write(self) -> str:
        """The way out of most faults."""
        return f"write it like {self.example}"

    def split(self, text: str) -> SplitResult:
        """The parts, of which the port can be read; raises Invalid."""
        if HIDDEN in text:
            raise Invalid("the URL is one that was shown, without what may be secret", "write the whole URL")
        try:
            url = urlsplit(text)
            _ = url.port
        except ValueError:
            raise Invalid(f"{quote_text(text)} is not a URL", self.write) from None
        return url

    def check_host(self, url: SplitResult) -> None:
        """Raises Invalid where there is no host that can be connected to."""
        host = url.hostname or ""
        fault = "" if is_ipv6(host) else host_fault(host) if host else "is no host"
        if fault:
            raise Invalid(f"{quote_text(host)} {fault}", self.write)
        if url.port == 0:
            raise Invalid("port 0 cannot be connected to", self.write)

    def show(self, value: str) -> JSON:
        """The URL as everybody may see it. It cannot be read back where something was hidden: `split` refuses it."""
        return shown_url(value)
