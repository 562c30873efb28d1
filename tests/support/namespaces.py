"""Two hosts on one machine: network namespaces with a cable (veth) between them, which can be unplugged."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from typing import Final

import pytest

HERE: Final = "10.213.77.1"  # the gateway's address
THERE: Final = "10.213.77.2"  # its clients'


@dataclass
class Hosts:
    """Two namespaces that reach each other. Needs root and iproute2."""

    gateway: str = f"sluice-{os.getpid()}-g"
    client: str = f"sluice-{os.getpid()}-c"

    @property
    def veth(self) -> str:
        """The two ends of the cable are called so, with a g for the gateway's and a c for the client's."""
        return f"sl{os.getpid() % 1_000_000}"

    def make(self) -> None:
        veth = self.veth
        for name in (self.gateway, self.client):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", self.gateway, "link", "add", f"{veth}g", "type", "veth", "peer", "name", f"{veth}c", "netns", self.client)
        for name, device, address in ((self.gateway, f"{veth}g", HERE), (self.client, f"{veth}c", THERE)):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", device)
            ip("-n", name, "link", "set", device, "up")

    def unplug(self) -> None:
        """From now on neither hears of the other again: no FIN, no RST, no ICMP, as when a host loses its power."""
        ip("-n", self.client, "link", "set", f"{self.veth}c", "down")

    def plug_in(self) -> None:
        ip("-n", self.client, "link", "set", f"{self.veth}c", "up")

    def remove(self) -> None:
        for name in (self.gateway, self.client):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def ip(*words: str) -> None:
    try:
        done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.fail("this test needs `ip` of iproute2: apt-get install iproute2")
    if done.returncode:
        pytest.fail(f"no network namespaces can be made here (ip {' '.join(words)}: {done.stderr.strip()}): run this test as root")
