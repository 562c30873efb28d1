"""Trusted proxies: the peers of which a PROXY header is believed.

The header says which address a client has, and rules, caps per address, `remote_admin.allow` and the broker go by it. So whoever may
send one may be anybody. "The PROXY protocol", section 5, leaves it to the receiver to take headers from known peers only. The peer's
address is the kernel's, from a finished TCP handshake, which nobody forges who does not receive what is sent there.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

MAX_SHOWN: Final = 5  # networks that a refusal names; a guess
MAPPED_BITS: Final = 96  # bits of ::ffff:0:0/96, below which the IPv4 addresses stand; RFC 4291, 2.5.5.2


class UntrustedPeerError(Exception):
    """A peer that is not among the trusted proxies. The text names it, and the setting."""


class TrustedProxies:
    """The networks of a listener's `trusted_proxies`. Raises ValueError for a text that is no network."""

    __slots__ = ("_networks", "texts")

    def __init__(self, texts: Sequence[str] = ()) -> None:
        self.texts = tuple(texts)
        self._networks = tuple(network_of(text) for text in texts)

    def believes(self, peer: str) -> bool:
        """Whether the peer with this address may send PROXY headers. IPv4 on an IPv6 socket is IPv4."""
        try:
            address = ip_address(peer.partition("%")[0])
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)

    def check(self, peer: str, listener: str) -> None:
        """Raises UntrustedPeerError."""
        if self.believes(peer):
            return
        shown = ", ".join(self.texts[:MAX_SHOWN]) + (f", and {len(self.texts) - MAX_SHOWN} more" if len(self.texts) > MAX_SHOWN else "")
        raise UntrustedPeerError(
            f"{peer} is not among trusted_proxies of listener {listener} ({shown}), whose clients come through a load balancer; "
            "add it there if it is one, or let the client connect to a listener without `accept_proxy_protocol`"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TrustedProxies) and self.texts == other.texts

    def __hash__(self) -> int:
        return hash(self.texts)

    def __repr__(self) -> str:
        return f"<TrustedProxies {', '.join(self.texts)}>"


def network_of(text: str) -> IPv4Network | IPv6Network:
    """A network (CIDR) or a single address. One of IPv4 addresses on an IPv6 socket (::ffff:10.0.0.0/104) is that of the IPv4 addresses."""
    network = ip_network(text)
    if isinstance(network, IPv6Network) and network.prefixlen >= MAPPED_BITS:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return IPv4Network((int(mapped), network.prefixlen - MAPPED_BITS))
    return network
