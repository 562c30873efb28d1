"""Kind of value: a host and a port."""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from typing import NamedTuple

from gateway.settings.document import Node, Scalar, kind_of
from gateway.settings.kinds import JSON, Invalid, Reading, ScalarKind
from gateway.settings.problems import quoted


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

    def parse(self, scalar: Scalar, place: str, reading: Reading) -> Address:
        text = scalar.text
        if re.fullmatch("[0-9]{1,5}", text):
            raise Invalid(f"{quoted(text)} is a port without a host", f"did you mean 127.0.0.1:{text}?")
        host, colon, port = text.rpartition(":")
        if not colon or not re.fullmatch("[0-9]{1,5}", port):
            raise Invalid(f"{quoted(text)} has no port", f"write it like {self.example}")
        if not host or host == "*":
            raise Invalid(
                f"{quoted(text)} names no host", f"did you mean 0.0.0.0:{port}?" if self.bind else f"write it like {self.example}"
            )
        if "://" in text or "/" in text:
            raise Invalid(f"{quoted(text)} is not host:port", f"write it like {self.example}")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
            if not _is_ipv6(host):
                raise Invalid(f"{quoted(host)} is not an IPv6 address", f"write it like {self.example}")
        elif ":" in host:
            raise Invalid(f"{quoted(text)} is not host:port", f'an IPv6 address stands in brackets: "[{host}]:{port}"')
        elif not _is_host(host):
            raise Invalid(f"{quoted(host)} is not a host", f"write it like {self.example}")
        if int(port) > 65535:
            raise Invalid(f"{port} is not a port", "ports go up to 65535")
        if int(port) == 0 and not self.bind:
            raise Invalid("port 0 cannot be connected to", f"write it like {self.example}")
        return Address(host, int(port))

    def show(self, value: Address) -> JSON:
        return str(value)

    def schema(self) -> dict[str, JSON]:
        host = r"(?:\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9]+)?\]|[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252}))"
        return {"type": "string", "pattern": f"^{host}:[0-9]{{1,5}}$", "examples": [self.example]}


def _is_ipv6(host: str) -> bool:
    try:
        IPv6Address(host)
    except ValueError:
        return False
    return True


def _is_host(host: str) -> bool:
    """An IPv4 address or a name; what looks like a number must be an address."""
    if re.fullmatch("[0-9.]+", host):
        octets = host.split(".")
        return len(octets) == 4 and all(re.fullmatch("0|[1-9][0-9]{0,2}", octet) and int(octet) < 256 for octet in octets)
    return re.fullmatch("[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}", host) is not None
