"""Kind of value: a range of ports that the gateway hands out itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

from config.document import Scalar
from config.kinds import JSON, Invalid, Reading, ScalarKind
from config.problems import quote_text

PATTERN: Final = r"([0-9]{1,5})\s*-\s*([0-9]{1,5})"
VIP: Final = 2  # a RocketMQ client that uses the "VIP channel" dials this much below the port it was told


class PortRange(NamedTuple):
    """Ports from `first` to `last`, both included."""

    first: int
    last: int

    def for_brokers(self) -> list[int]:
        """The ports brokers get, lowest first: two of every four, so that none is VIP below another.

        VIP below a broker's port listens that broker's own listener or nobody (`listeners/vip_ports.py`): a client with the VIP channel
        switched on must not reach another broker.
        """
        return [port for port in range(self.first, self.last + 1) if (port - self.first) % (2 * VIP) < VIP]

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


def outgoing_ports() -> PortRange | None:
    """The ports that the kernel gives to outgoing connections (ip(7), ip_local_port_range); None where it does not say."""
    try:
        first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
        return PortRange(int(first), int(last))
    except (OSError, ValueError):
        return None


class Ports(ScalarKind[PortRange]):
    """`first-last`."""

    placeholder = PortRange(0, 0)
    wanted = "a range of ports"

    def parse(self, scalar: Scalar, path: str, reading: Reading) -> PortRange:
        found = re.fullmatch(PATTERN, scalar.text)
        if found is None:
            raise Invalid(f"{quote_text(scalar.text)} is not a range of ports", f"write it like {self.example}")
        first, last = int(found[1]), int(found[2])
        if not 1 <= first <= 65535 or not 1 <= last <= 65535:
            raise Invalid(f"{quote_text(scalar.text)} is not a range of ports", "ports go from 1 to 65535")
        if last < first:
            raise Invalid(f"{quote_text(scalar.text)} ends before it begins", f"did you mean {last}-{first}?")
        return PortRange(first, last)

    def schema(self) -> dict[str, JSON]:
        return {"type": "string", "pattern": "^[0-9]{1,5}\\s*-\\s*[0-9]{1,5}$", "examples": [self.example]}
