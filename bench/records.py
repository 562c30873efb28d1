"""What a run of the benchmark leaves behind: its JSON, typed.

The works and their goals stand in the file as well as the numbers, so that a report or a chart can be made again from a kept file alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import msgspec

USUAL: Final = ("direct", "relay", "haproxy", "envoy", "sluice")
BUFFERS: Final = "buffers"  # HAProxy with buffers of 128 KiB
LEVELS: Final = "levels"  # sluice with limits per topic, user and client and a cap of the listener
NEVER: Final = "never"  # sluice with `limiter: {inline: never}`: every batch goes over the limiter's thread
TLS: Final = "-tls"  # behind a backend's name: with TLS on both hops of the proxy
PEERS: Final = ("direct", "relay", "haproxy", BUFFERS, "envoy", "sluice", LEVELS, NEVER)
BLIND: Final = ("haproxy", "envoy")  # peers that pass bytes
BETTER: Final = "better"  # in a goal: of these two the one that does better at the work in this run
NAMES: Final = {
    "direct": "direct", "relay": "bare relay", "haproxy": "HAProxy", BUFFERS: "HAProxy, 128 KiB buffers", "envoy": "Envoy",
    "sluice": "sluice", LEVELS: "sluice, four levels", NEVER: "sluice, inline: never",
}  # fmt: skip


class Goal(msgspec.Struct, frozen=True):
    """What sluice is to reach in a work: its measure as a multiple of another's.

    cpu: processor time per message, at most `bound` times `of`'s. added_p50: the median latency beyond the direct one, at most so many
    times `of`'s. rate: messages per second, at least so many times `of`'s. `of` is a peer, or BETTER of HAProxy and Envoy.
    """

    measure: Literal["cpu", "added_p50", "rate"]
    bound: float
    of: str = "haproxy"
    work: str = ""  # compared with `of` at another work of this name
    through: str = "sluice"  # or LEVELS

    @property
    def at_most(self) -> bool:
        return self.measure != "rate"

    def reached(self, found: float) -> bool:
        return found <= self.bound if self.at_most else found >= self.bound


class Work(msgspec.Struct, frozen=True):
    """One kind of load: which program, at which backend."""

    name: str
    backend: str
    command: str  # a program of bench/bin (or java) and its arguments after the port; {s} stands for the seconds
    goals: tuple[Goal, ...] = ()
    peers: tuple[str, ...] = USUAL
    pages: int = 0  # of the dashboard, open on sluice meanwhile


class Run(msgspec.Struct, omit_defaults=True):
    """One piece of work through one peer: what the load program printed, and the processor time of the peer's process tree."""

    messages: int
    seconds: float
    warmup: int = 0  # messages before those that count; they cost processor time, too
    p50_us: float | None = None
    p99_us: float | None = None
    p999_us: float | None = None
    cpu_s: float | None = None  # None: nothing between load and backend
    user_s: float | None = None  # the kernel counts these two in hundredths of a second
    system_s: float | None = None

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds

    @property
    def cpu_us(self) -> float | None:
        """Processor microseconds per message."""
        return None if self.cpu_s is None else self.cpu_s / (self.messages + self.warmup) * 1e6


class Machine(msgspec.Struct):
    cpu: str
    processors: int
    memory_gib: float
    virtual: bool  # a guest of a hypervisor
    kernel: str
    python: str
    load_before: float  # load average of the last minute when the run began
    stolen: float = 0.0  # share of the run's processor time that the hypervisor kept for others
    congestion_control: str = ""  # TCP's, as the system has it; "": unknown


class Base(msgspec.Struct):
    """A proxy without load."""

    start_s: float  # until it accepts
    base_mib: float  # resident


class Bench(msgspec.Struct):
    """One run of the benchmark: `results` by work, by peer, one for each round."""

    at: str
    machine: Machine
    versions: dict[str, str]
    rounds: int
    seconds: float
    warm_up_s: float
    proxies: dict[str, Base]
    works: list[Work]
    results: dict[str, dict[str, list[Run]]]
    commit: str = ""  # of the tree

    def runs(self, work: str, peer: str) -> list[Run]:
        """Of all rounds; none where that was not measured."""
        return self.results.get(work, {}).get(peer, [])


def loaded(path: Path) -> Bench:
    """Raises msgspec.ValidationError where the file is not of this kind."""
    return msgspec.json.decode(path.read_bytes(), type=Bench)


def stored(bench: Bench, path: Path) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(bench), indent=1) + b"\n")
