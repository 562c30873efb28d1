"""Kinds of values: where something is that is spoken to by HTTP. Of such a URL only scheme, host and port are shown."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from config.addresses import Address
from config.document import Scalar
from config.kinds import JSON, Invalid, Reading
from config.urls import HIDDEN, UrlKind

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
    """The parts of a URL that `HttpUrl` has accepted."""
    found = urlsplit(url)
    target = (found.path or "/") + (f"?{found.query}" if found.query else "")
    return UrlParts(found.scheme, Address(found.hostname or "", found.port or PORTS[found.scheme]), target)


class HttpUrl(UrlKind):
    """`http://host[:port][/path]` or `https://...`, without a login and without a fragment."""

    wanted = "a URL"
    whose = ""  # whose URL it is, in messages
    for_logins = ""  # the way out for who has put a login into the URL

    def parse(self, scalar: Scalar, path: str, reading: Reading) -> str:
        return self.accept(scalar.text)

    def accept(self, text: str) -> str:
        """The URL; raises Invalid."""
        url = self.split(text)
        if url.scheme not in PORTS or not text.startswith(f"{url.scheme}://"):
            host = re.fullmatch(r"([A-Za-z0-9_.-]+(?::[0-9]{1,5})?)(/[!-~]*)?", text)
            near = f"did you mean http://{host[1]}{'/' + HIDDEN if host[2] else ''}?" if host else self.write
            raise Invalid(f"not the URL of {self.whose}", f"{near} It begins with http:// or https://")
        if url.username is not None or url.password is not None:
            raise Invalid("the URL holds credentials, for everybody to see who sees the configuration", self.for_logins)
        self.check(url, text)
        if url.fragment or text.endswith("#"):
            raise Invalid("the URL has a fragment, which no server gets to see", "leave out # and what follows")
        if len(text) > MAX_URL_CHARS or re.fullmatch("[!-~]*", text) is None:
            raise Invalid("the URL has other signs than a URL has, or too many", "percent-encode them")
        self.check_host(url)
        return text

    def check(self, url: SplitResult, text: str) -> None:
        """What else this URL may not be; raises Invalid."""

    def schema(self) -> dict[str, JSON]:
        return {"type": "string", "pattern": "^https?://[^@#]+$", "examples": [self.example]}


class WebhookUrl(HttpUrl):
    """Where a webhook's receiver is; nothing in its query is secret."""

    placeholder = ""
    example = "https://alerts.example/hooks/sluice"
    whose = "a receiver"
    for_logins = "put the password or the token into a file, and name it in token_file (with user: for HTTP Basic)"

    def check(self, url: SplitResult, text: str) -> None:
        if _SECRET_PARAMETER.search(url.query):
            remedy = "put the URL into a file, and name it in url_file; or the secret in token_file: it is sent as Authorization: Bearer"
            raise Invalid("the URL's query holds what looks like a secret", remedy)


class WebhookUrlInFile(WebhookUrl):
    """The same in a file of its own, where its query may hold a secret."""

    def check(self, url: SplitResult, text: str) -> None:
        """Nothing more."""


def webhook_url_in_file(text: str) -> str | None:
    """The URL of a webhook's receiver that stands in a file of its own; None where something else does."""
    try:
        return WebhookUrlInFile().accept(text)
    except Invalid:
        return None


class CollectorUrl(HttpUrl):
    """Where a collector takes traces: the whole URL, path included, and no query."""

    example = "http://127.0.0.1:4318/v1/traces"
    placeholder = example
    whose = "a collector"
    for_logins = "put a header Authorization into headers_file"

    def check(self, url: SplitResult, text: str) -> None:
        if url.query:
            raise Invalid("the URL holds more than where the collector is", self.write)
        if url.hostname and url.path in {"", "/"} and not url.fragment:
            raise Invalid("the URL has no path", f"did you mean {text.rstrip('/')}/v1/traces?")
