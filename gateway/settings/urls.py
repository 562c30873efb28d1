"""What all kinds of URLs have in common: the parts are taken apart, and the host is one that can be connected to."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from gateway.settings.addresses import host_fault, is_ipv6
from gateway.settings.kinds import JSON, Invalid, ScalarKind
from gateway.settings.problems import quoted


class UrlKind(ScalarKind[str]):
    """A URL, kept as it is written."""

    @property
    def write(self) -> str:
        """The way out of most faults."""
        return f"write it like {self.example}"

    def split(self, text: str) -> SplitResult:
        """The parts, of which the port can be read; raises Invalid."""
        try:
            url = urlsplit(text)
            _ = url.port
        except ValueError:
            raise Invalid(f"{quoted(text)} is not a URL", self.write) from None
        return url

    def check_host(self, url: SplitResult) -> None:
        """Raises Invalid where there is no host that can be connected to."""
        host = url.hostname or ""
        fault = "" if is_ipv6(host) else host_fault(host) if host else "is no host"
        if fault:
            raise Invalid(f"{quoted(host)} {fault}", self.write)
        if url.port == 0:
            raise Invalid("port 0 cannot be connected to", self.write)

    def show(self, value: str) -> JSON:
        return value
