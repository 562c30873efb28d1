"""On what it was measured: the machine, and the versions of what was compared."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Final

from kept import congestion_control
from proxies import program
from records import BUFFERS, LEVELS, NEVER, Machine

from support.brokers import rocketmq
from support.brokers.rabbitmq import PROGRAMS
from support.gateways import command
from support.java import tool

NUMBER: Final = re.compile(r"\b\d+(?:\.\d+)+[\w.+~-]*")


def machine() -> Machine:
    lines = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^(?:model name|Model)\s*:\s*(.+)$", lines, re.MULTILINE)
    return Machine(
        cpu=model[1] if model else platform.machine(),
        processors=os.cpu_count() or 1,
        memory_gib=round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        virtual=" hypervisor" in lines,
        kernel=platform.release(),
        python=platform.python_version(),
        load_before=os.getloadavg()[0],
        congestion_control=congestion_control(),
    )


def processor_ticks() -> tuple[int, int]:
    """Of all processors since boot: stolen by the hypervisor, and in all. From the first line of /proc/stat."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[7], sum(ticks)


def stolen_since(before: tuple[int, int]) -> float:
    """The hypervisor's share since then."""
    stolen, total = (now - then for now, then in zip(processor_ticks(), before, strict=True))
    return stolen / total if total else 0.0


def said(*command: str) -> str:
    """What a program says of itself, on either stream."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout + done.stderr


def version(words: str) -> str:
    """The first version number in it: HAProxy says "HAProxy version 2.6.12-1 2026/10/17", Envoy "version: COMMIT/1.36.2/Clean/...".

    "unknown" where there is none.
    """
    found = NUMBER.search(words)
    return found[0] if found else "unknown"


def versions(peers: list[str], backends: set[str]) -> dict[str, str]:
    """Of all programs that take part."""
    found: dict[str, str] = {}
    if {"haproxy", BUFFERS} & set(peers):
        found["HAProxy"] = version(said(program("haproxy"), "-v"))
    if "envoy" in peers:
        found["Envoy"] = version(said(program("envoy"), "--version"))
    if {"sluice", LEVELS, NEVER} & set(peers):
        words = said(*command(), "version")
        found["sluice"] = f"{version(words)} ({'compiled' if 'compiled' in words else 'pure Python'})"
    if "rabbitmq" in backends:
        found["RabbitMQ"] = version(said(str(PROGRAMS / "rabbitmqctl"), "version"))
    if "broker" in backends:
        found["RocketMQ"] = rocketmq.VERSION
        found["Java"] = version(said(tool("java", "openjdk-17-jdk-headless"), "-version"))
    return found
