"""Trusted proxies: the peers of which a PROXY header is believed.

The header says which address a client has, and rules, caps per address, `remote_admin.allow` and the broker go by it. So whoever may
send one may be anybody. "The PROXY protocol", section 5, leaves it to the receiver to take headers from known peers only. The peer's
address is the kernel's, from a finished TCP handshake, which nobody forges who does not receive what is sent there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from config.addresses import network_of
from limiter.rules.patterns import Addresses

MAX_SHOWN: Final = 5  # networks that a refusal names; a guess


class UntrustedPeerError(Exception):
    """A peer that is not among the trusted proxies. The text names it, and the setting."""


class TrustedProxies:
    """The networks of a listener's `trusted_proxies`. Raises ValueError for a text that is no network."""

    __slots__ = ("_networks", "texts")

    def __init__(self, texts: Sequence[str] = ()) -> None:
        self.texts = tuple(texts)
        self._networks = tuple(Addresses(str(network_of(text))) for text in texts)

    def believes(self, peer: str) -> bool:
        """Whether the peer with this address may send PROXY headers. IPv4 on an IPv6 socket is IPv4."""
        return any(network.matches(peer) for network in self._networks)

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
