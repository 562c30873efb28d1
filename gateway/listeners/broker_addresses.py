"""Addresses of brokers as routes tell them, and whether one of them is the gateway's own."""

from __future__ import annotations

import socket
from functools import lru_cache
from ipaddress import ip_address
from typing import Final

from config.addresses import Address, host_fault
from config.checks import ANY
from gateway.pipeline.routes import RouteError

MAX_ADDRESS_CHARACTERS: Final = 320  # of a broker's address: a name has 253 at most
LOCALHOST: Final = {"localhost": "127.0.0.1"}


@lru_cache(1024)  # addresses; a name server's brokers have dozens, and each route that a client asks for tells some again
def parse(address: str) -> Address:
    """A broker's address as it stands in a route: `host:port`, an IPv6 host with or without brackets. Raises RouteError."""
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    dialled = len(address) <= MAX_ADDRESS_CHARACTERS and port.isascii() and port.isdecimal() and 0 < int(port) < 65536
    if not colon or not host or not dialled:
        raise RouteError(f"a broker's address in the route is no host:port: {address[:80]!r}")
    fault = "" if ":" in host else host_fault(host)
    if fault:
        raise RouteError(f"a broker's address in the route {fault}: {address[:80]!r}")
    return Address(host, int(port))


def reaches(address: Address, bound: tuple[str, int], called: str = "") -> bool:
    """Whether a connection to `address` would reach the socket bound to `bound` (host, port), which clients know as `called` too.

    Names are compared as they stand: looking them up could take seconds.
    """
    host, port = bound
    if port != address.port:
        return False
    theirs = LOCALHOST.get(address.host, address.host)
    return theirs in (LOCALHOST.get(host, host), LOCALHOST.get(called, called)) or (host in ANY and _is_local(theirs))


def _is_local(host: str) -> bool:
    """Whether `host` is an address of this machine; False for names."""
    try:
        family = socket.AF_INET6 if ip_address(host).version == 6 else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))  # only an address of this machine can be bound
    except (OSError, ValueError):
        return False
    return True
