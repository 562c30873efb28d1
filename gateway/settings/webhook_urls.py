"""Kinds of values: where a webhook's receiver is."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from gateway.settings.addresses import Address, host_fault, is_ipv6
from gateway.settings.document import Scalar
from gateway.settings.kinds import JSON, Invalid, Reading, ScalarKind
from gateway.settings.problems import quoted

PORTS: Final = {"http": 80, "https": 443}  # by scheme
MAX_URL_CHARS: Final = 2000  # characters; what all servers take (a guess, after old browsers' 2083)
_SECRET_PARAMETER: Final = re.compile(r"(?i)(?:^|&)[^=&]*(?:token|key|passw|secret|credential|sig|auth)[^=&]*=")


class UrlParts(NamedTuple):
    """A URL as a request needs it."""

    scheme: str
    address: Address
    target: str  # path and query

    @property
    def host_field(self) -> str:
        """The value of the field Host: with the port where it is not the scheme's own."""
        text = str(self.address)
        return text.removesuffix(f":{self.address.port}") if self.address.port == PORTS[self.scheme] else text


def parts_of(url: str) -> UrlParts:
    """The parts of a URL that `WebhookUrl` has accepted."""
    found = urlsplit(url)
    target = (found.path or "/") + (f"?{found.query}" if found.query else "")
    return UrlParts(found.scheme, Address(found.hostname or "", found.port or PORTS[found.scheme]), target)


class WebhookUrl(ScalarKind[str]):
    """`http://host[:port][/path]` or `https://...`, with nothing secret in it."""

    placeholder = ""
    wanted = "a URL"
    example = "https://alerts.example/hooks/sluice"

    def parse(self, scalar: Scalar, path: str, reading: Reading) -> str:
        text = scalar.text
        write = f"write it like {self.example}"
        try:
            url = urlsplit(text)
            port = url.port
        except ValueError:
            raise Invalid(f"{quoted(text)} is not a URL", write) from None
        if url.scheme not in PORTS or not text.startswith(f"{url.scheme}://"):
            near = f"did you mean http://{text}?" if re.fullmatch(r"[A-Za-z0-9_.-]+(:[0-9]{1,5})?(/[!-~]*)?", text) else write
            raise Invalid("not the URL of a receiver", f"{near} It begins with http:// or https://")
        if url.username is not None or url.password is not None:
            remedy = "put the password or the token into a file, and name it in token_file (with user: for HTTP Basic)"
            raise Invalid("the URL holds credentials, for everybody to see who sees the configuration", remedy)
        if _SECRET_PARAMETER.search(url.query):
            remedy = "put it into a file, and name it in token_file: it is sent as Authorization: Bearer"
            raise Invalid("the URL's query holds what looks like a secret", remedy)
        if url.fragment or text.endswith("#"):
            raise Invalid("the URL has a fragment, which no server gets to see", "leave out # and what follows")
        if len(text) > MAX_URL_CHARS or re.fullmatch("[!-~]*", text) is None:
            raise Invalid(f"{quoted(text)} has other signs than a URL has, or too many", "percent-encode them")
        host = url.hostname or ""
        fault = "" if is_ipv6(host) else host_fault(host) if host else "is no host"
        if fault:
            raise Invalid(f"{quoted(host)} {fault}", write)
        if port == 0:
            raise Invalid("port 0 cannot be connected to", write)
        return text

    def show(self, value: str) -> JSON:
        return value

    def schema(self) -> dict[str, JSON]:
        return {"type": "string", "pattern": "^https?://[^@#]+$", "examples": [self.example]}
