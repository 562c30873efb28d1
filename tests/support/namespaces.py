"""Two hosts on one machine: network namespaces with a cable (veth) between them, which can be unplugged. And one that loses packets."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pytest

HERE: Final = "10.213.77.1"  # the gateway's address
THERE: Final = "10.213.77.2"  # its clients'
CLONE_NEWNET: Final = 0x40000000  # <linux/sched.h>
LOAD_RANDOM: Final = 0xFFFFF000 + 56  # <linux/filter.h>: SKF_AD_OFF + SKF_AD_RANDOM
DROP: Final = 2  # TC_ACT_SHOT


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


@contextmanager
def own_loopback() -> Iterator[str]:
    """The calling thread, and every process that it starts meanwhile, is in a namespace with nothing but a loopback; the namespace's name.

    Sockets that are open stay where they are.
    """
    name = f"sluice-{os.getpid()}-l"
    ip("netns", "add", name)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    inside = os.open(f"/run/netns/{name}", os.O_RDONLY)
    try:
        ip("-n", name, "link", "set", "lo", "up")
        _enter(inside)
        yield name
    finally:
        _enter(before)
        os.close(before)
        os.close(inside)
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)  # os.setns came with Python 3.12
    if libc.setns(namespace, CLONE_NEWNET):
        pytest.fail(f"setns: {os.strerror(ctypes.get_errno())}; run this test as root")


@contextmanager
def losing(part: float, device: str = "lo") -> Iterator[None]:
    """So much of the packets that go out of a device of the thread's namespace are lost, by chance.

    By a filter of four instructions, as kernels are often without netem: load a random number, drop if it is below the threshold.
    """
    threshold = round(part * 2**32)
    run("tc", "qdisc", "add", "dev", device, "clsact")
    try:
        program = f"4,32 0 0 {LOAD_RANDOM},53 1 0 {threshold},6 0 0 {DROP},6 0 0 0"
        run("tc", "filter", "add", "dev", device, "egress", "bpf", "da", "bytecode", program)
        yield
    finally:
        run("tc", "qdisc", "delete", "dev", device, "clsact")


def ip(*words: str) -> None:
    run("ip", *words)


def run(*words: str) -> None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.fail(f"this test needs `{words[0]}` of iproute2: apt-get install iproute2")
    if done.returncode:
        pytest.fail(f"no network namespaces can be made here ({' '.join(words)}: {done.stderr.strip()}): run this test as root")
