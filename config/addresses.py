"""Kinds of values: a host and a port, a host, a network."""

from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Final, NamedTuple

from config.document import Node, Scalar, kind_of
from config.kinds import JSON, Invalid, Reading, ScalarKind
from config.problems import quote_text
from limiter.rules.patterns import Addresses

MAX_HOST_CHARS: Final = 253  # characters; a host name; RFC 1035, 2.3.4
MAPPED_BITS: Final = 96  # bits of ::ffff:0:0/96, below which the IPv4 addresses stand; RFC 4291, 2.5.5.2
MAX_LABEL_CHARS: Final = 63  # characters; a part between dots; RFC 1035, 2.3.4
NAME_PATTERN: Final = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,62})(?:\.[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,62}))*"


class Address(NamedTuple):
    """A host (name or IP address, IPv6 without brackets) and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class HostPort(ScalarKind[Address]):
    """`host:port` or `[v6]:port`; port 0 (a free one) only where the gateway binds."""

    placeholder = Address("", 0)
    wanted = "an address"

    def __init__(self, example: str, *, bind: bool) -> None:
        self.example = example
        self.bind = bind

    def read(self, node: Node, path: str, reading: Reading) -> Address:
        if not isinstance(node, Scalar):
            raise Invalid(
                f"expected host:port, got {kind_of(node)}", 'write it like 127.0.0.1:5672, an IPv6 address in quotes: "[::1]:5672"'
            )
        return super().read(node, path, reading)

    def parse(self, scalar: Scalar, path: str, reading: Reading) -> Address:
        text = scalar.text
        if re.fullmatch("[0-9]{1,5}", text):
            raise Invalid(f"{quote_text(text)} is a port without a host", f"did you mean 127.0.0.1:{text}?")
        host, colon, port = text.rpartition(":")
        if not colon or not re.fullmatch("[0-9]{1,5}", port):
            raise Invalid(f"{quote_text(text)} has no port", f"write it like {self.example}")
        if not host or host == "*":
            raise Invalid(
                f"{quote_text(text)} names no host", f"did you mean 0.0.0.0:{port}?" if self.bind else f"write it like {self.example}"
            )
        if "://" in text or "/" in text:
            raise Invalid(f"{quote_text(text)} is not host:port", f"write it like {self.example}")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
            if not is_ipv6(host):
                raise Invalid(f"{quote_text(host)} is not an IPv6 address", f"write it like {self.example}")
        elif ":" in host:
            raise Invalid(f"{quote_text(text)} is not host:port", f'an IPv6 address stands in brackets: "[{host}]:{port}"')
        elif fault := host_fault(host):
            raise Invalid(f"{quote_text(host)} {fault}", f"write it like {self.example}")
        if int(port) > 65535:
            raise Invalid(f"{port} is not a port", "ports go up to 65535")
        if int(port) == 0 and not self.bind:
            raise Invalid("port 0 cannot be connected to", f"write it like {self.example}")
        return Address(host, int(port))

    def schema(self) -> dict[str, JSON]:
        host = rf"(?:\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9]+)?\]|{NAME_PATTERN}\.?)"
        return {"type": "string", "pattern": f"^{host}:[0-9]{{1,5}}$", "examples": [self.example]}


class HostName(ScalarKind[str]):
    """A host's name or IP address without a port, as it stands in a certificate; IPv6 without brackets."""

    placeholder = ""
    wanted = "a host name or an address"

    def parse(self, scalar: Scalar, path: str, reading: Reading) -> str:
        text = scalar.text
        if ":" in text:
            if "%" in text or not is_ipv6(text):
                raise Invalid(f"{quote_text(text)} is not an IPv6 address", f"write it like {self.example}, without a port")
        elif fault := host_fault(text):
            raise Invalid(f"{quote_text(text)} {fault}", f"write it like {self.example}")
        elif text.endswith("."):
            raise Invalid(f"{quote_text(text)} ends with a dot", f"no certificate has it: write {text.removesuffix('.')}")
        return text

    def schema(self) -> dict[str, JSON]:
        return {"type": "string", "pattern": rf"^(?:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*|{NAME_PATTERN})$", "examples": [self.example]}


class Network(ScalarKind[str]):
    """A client address or a network of them (CIDR)."""

    placeholder = ""
    wanted = "an address or a network"

    def parse(self, scalar: Scalar, path: str, reading: Reading) -> str:
        try:
            Addresses(scalar.text)
        except ValueError as error:
            raise Invalid(str(error), f"write an address or a network like {self.example}") from None
        return scalar.text

    def schema(self) -> dict[str, JSON]:
        return {"type": "string", "examples": [self.example]}


def network_of(text: str) -> IPv4Network | IPv6Network:
    """A network (CIDR) or a single address. One of IPv4 addresses on an IPv6 socket (::ffff:10.0.0.0/104) is that of the IPv4 addresses."""
    network = ip_network(text)
    if isinstance(network, IPv6Network) and network.prefixlen >= MAPPED_BITS:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return IPv4Network((int(mapped), network.prefixlen - MAPPED_BITS))
    return network


def is_ipv6(host: str) -> bool:
    try:
        IPv6Address(host)
    except ValueError:
        return False
    return True


def host_fault(host: str) -> str:
    """What is wrong with an IPv4 address or a name, as the end of a sentence; "" for a good one.

    A host of digits and dots must be an address. The lengths are DNS's; beyond them resolver and TLS raise errors of their own. A final dot
    (the root, which keeps a resolver from its search list) is allowed.
    """
    if re.fullmatch("[0-9.]+", host):
        octets = host.split(".")
        good = len(octets) == 4 and all(re.fullmatch("0|[1-9][0-9]{0,2}", octet) and int(octet) < 256 for octet in octets)
        return "" if good else "is not a host: an IPv4 address is four numbers up to 255, and a name has a letter"
    if re.fullmatch("[A-Za-z0-9_.-]+", host) is None:
        return "is not a host"
    labels = host.removesuffix(".").split(".")
    if not all(labels):
        return "is not a host: it has a dot with nothing before it"
    if any(len(label) > MAX_LABEL_CHARS for label in labels):
        return f"is not a host: a part between dots has {MAX_LABEL_CHARS} characters at most"
    if len(host) > MAX_HOST_CHARS:
        return f"is not a host: a name has {MAX_HOST_CHARS} characters at most"
    if any(label.startswith("-") or label.endswith("-") for label in labels):
        return "is not a host: no part between dots begins or ends with a hyphen"
    return ""
