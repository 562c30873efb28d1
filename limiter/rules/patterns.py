"""Patterns: how a rule names topics, queues, exchanges and clients.

Three kinds, told apart by how they are written:

* **exact**: no special character.
* **glob**: `*` any characters, `?` one, `[abc]` one of them; `[*]` for a star itself. The whole name must match, case included.
* **words** (AMQP routing keys only): words are split at dots; `*` is exactly one word, which may be empty; `#` is any number of words,
  none included. The empty key has no words, so `*` does not match it and `#` does (measured against RabbitMQ, `docs/design/amqp.md` 3).

Names are bytes on the wire. They are compared as text, with bytes that are not UTF-8 kept distinct (`surrogateescape`), so that `?` is one
character in every alphabet and a glob can match bytes that are not text.
"""

from __future__ import annotations

import re
from fnmatch import translate
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

EXACT: Final = 0
GLOB: Final = 1
WORDS: Final = 2
IPV6_BITS: Final = 128
NO_WORDS: Final[list[str]] = []


class Pattern:
    """One name or pattern, compiled. `kind` is EXACT, GLOB or WORDS."""

    __slots__ = ("_expression", "_words", "kind", "text")

    def __init__(self, text: str, kind: int) -> None:
        self.text = text
        self.kind = kind
        self._expression: re.Pattern[str] | None = None  # of a glob, from its first comparison on: to compile it takes 0.1 ms
        self._words = split_words(text) if kind == WORDS else NO_WORDS

    def matches(self, name: str) -> bool:
        if self.kind == EXACT:
            return name == self.text
        if self.kind == GLOB:
            if self._expression is None:
                self._expression = re.compile(translate(self.text))
            return self._expression.match(name) is not None
        return words_match(self._words, split_words(name))

    # The literal parts of every name that matches (`limiter.rules.anchors`).

    def exact(self) -> str | None:
        """The one name that matches."""
        return self.text if self.kind == EXACT else None

    def prefix(self) -> str:
        """The beginning of every name that matches."""
        if self.kind == WORDS:
            return ".".join(self._words[: first_wild(self._words)])
        return self.text[: min((at for at in (self.text.find(sign) for sign in "*?[") if at >= 0), default=len(self.text))]

    def suffix(self) -> str:
        """The end of every name that matches."""
        if self.kind == WORDS:
            words = self._words[::-1]
            return ".".join(words[: first_wild(words)][::-1])
        return self.text[max(self.text.rfind(sign) for sign in "*?]") + 1 :]

    def literal_words(self) -> list[str]:
        """Words that every matching name has; empty ones are too common to be of use."""
        return [word for word in self._words if word not in {"*", "#", ""}]

    def chunks(self) -> list[str]:
        """The literal stretches of a glob, without any text that may be inside brackets."""
        if self.kind != GLOB:
            return []
        opening = self.text.find("[")
        if opening < 0:
            return self.text.replace("?", "*").split("*")
        before, after = self.text[:opening], self.text[max(opening, self.text.rfind("]")) + 1 :]
        return [*before.replace("?", "*").split("*"), *(after.replace("?", "*").split("*") if "]" in self.text[opening:] else [])]

    def __repr__(self) -> str:
        return f"<Pattern {('exact', 'glob', 'words')[self.kind]} {self.text!r}>"


def name_pattern(text: str) -> Pattern:
    """A pattern for everything but routing keys: a glob where it holds `*`, `?` or `[`, else the exact name."""
    return Pattern(text, GLOB if is_glob(text) else EXACT)


def routing_key_pattern(text: str) -> Pattern:
    """A pattern for a routing key: AMQP words where `*` or `#` stands as a whole word, else a glob, else exact."""
    words = split_words(text)
    return Pattern(text, WORDS) if "*" in words or "#" in words else name_pattern(text)


def is_glob(text: str) -> bool:
    return "*" in text or "?" in text or "[" in text


def name_text(name: bytes) -> str:
    """A name on the wire as the text that patterns are compared with."""
    return name.decode("utf-8", "surrogateescape")


def split_words(key: str) -> list[str]:
    """The words of a routing key: split at dots, empty words count, but the empty key has none."""
    return key.split(".") if key else []


def first_wild(words: list[str]) -> int:
    """The number of words before the first wildcard."""
    return next((at for at, word in enumerate(words) if word in {"*", "#"}), len(words))


def words_match(pattern: list[str], words: list[str]) -> bool:
    """Whether `words` match; time is at most len(pattern) * len(words): only the last `#` is ever tried again."""
    at = 0
    word = 0
    resume_at = -1  # in `pattern`, after the last `#`
    resume_word = 0  # in `words`, where that `#` ends next time
    while word < len(words):
        if at < len(pattern) and pattern[at] == "#":
            at += 1
            resume_at = at
            resume_word = word
        elif at < len(pattern) and (pattern[at] == "*" or pattern[at] == words[word]):
            at += 1
            word += 1
        elif resume_at >= 0:
            resume_word += 1
            at = resume_at
            word = resume_word
        else:
            return False
    while at < len(pattern) and pattern[at] == "#":
        at += 1
    return at == len(pattern)


class Addresses:
    """The client addresses of one network (CIDR) or one host. Raises ValueError where `text` is neither."""

    __slots__ = ("_network", "single", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._network: IPv4Network | IPv6Network = ip_network(text)
        self.single = self._network.num_addresses == 1

    def network(self) -> tuple[int, int, int]:
        """IP version, length of the prefix, and the first address as a number."""
        return self._network.version, self._network.prefixlen, int(self._network.network_address)

    def host(self) -> str:
        """The address of a single host, in the form in which clients' addresses are compared."""
        return str(self._network.network_address)

    def matches(self, client: str) -> bool:
        """Whether `client` (an address without port) is one of them; a text that is no IP address (a Unix socket) never is."""
        try:
            address = ip_address(client.partition("%")[0])
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return address in self._network

    def __repr__(self) -> str:
        return f"<Addresses {self.text}>"


@lru_cache(4096)
def client_network(client: str, length: int) -> str:
    """The client that an address counts as: an IPv6 address's network of that `length`, else the address itself.

    A host with one IPv6 address mostly has 2^64 of them (RFC 7934), and with a bucket for each it would have no limit.
    """
    if ":" not in client or length == IPV6_BITS:
        return client
    try:
        address = ip_address(client)
    except ValueError:
        return client
    if not isinstance(address, IPv6Address) or address.is_loopback:
        return client
    return str(IPv6Network((int(address), length), strict=False))


@lru_cache(4096)  # reading an address costs a third of matching a key, and clients are few
def plain_address(client: str) -> str:
    """`client` in the one form in which addresses are compared (an IPv4 address stays IPv4 on an IPv6 socket)."""
    try:
        address = ip_address(client.partition("%")[0])
    except ValueError:
        return client
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)
