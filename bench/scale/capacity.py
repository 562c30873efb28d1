"""What one sidecar, one machine and one fleet hold, calculated from what the other programs measured. Nothing is measured here.

The formulae, with what they leave out:

  messages per second of a sidecar   = USED / processor time per message, at the highest rate that `growth` measured. A gateway that is
                                       full takes more of them per sweep and so spends less on each: this is on the safe side
  connections of a sidecar           = the lesser of room_for_connections(descriptors) and memory / bytes of an idle one
  messages of a machine              = those of a sidecar * (1 + (workers - 1) * what the second one added), workers ≤ its free cores. The
                                       second is taken to add as much as the first has at the most, whatever was measured
  messages of a fleet                = gateways * those of a sidecar; no message waits for Redis
  limits in use at once, of a fleet  = REDIS_CALLS / (CALLS * gateways): a script call for each bucket in use, gateway and 50 ms

They do not hold where the network or the broker is full before, which is the rule: RabbitMQ or RocketMQ takes several times what sluice
takes for the same message.
"""

from __future__ import annotations

from dataclasses import dataclass

from common.descriptors import room_for_connections

USED = 0.7  # of a core: beyond that waiting grows faster than load (a rule of thumb, for queues with one server)
REDIS_CALLS = 40_000  # a second, one slow core (an estimate, docs/many-gateways-one-limit.md)
CALLS = 20  # a second, of each bucket in use and gateway, at the most (the same)
DESCRIPTORS = (1024, 20_000, 65_536, 1_048_576)  # limits that are met: a shell's, this machine's, systemd's units', Kubernetes nodes'


@dataclass(frozen=True)
class Measured:
    """What the table is made of."""

    request_us: float  # processor time of one gateway per message: requests with answers
    stream_us: float  # the same: a one-way stream
    connection_bytes: float  # resident, of an idle connection
    base_bytes: float
    gain: float  # messages per second of two workers by those of one, each with as much of a core


def messages(cost_us: float, workers: int = 1, gain: float = 2.0) -> float:
    """Per second. `gain` is that of two workers; each further one is taken to add as much as the second, and none more than one has alone:
    two that carry more than twice as much are noise of the measurement, which must not be multiplied by eight.
    """
    return USED * 1e6 / cost_us * (1 + (workers - 1) * (min(gain, 2.0) - 1))


def connections(descriptors: int, memory_bytes: float, measured: Measured) -> int:
    return int(min(room_for_connections(descriptors, listeners=1), (memory_bytes - measured.base_bytes) / measured.connection_bytes))


def shared_limits(gateways: int) -> int:
    """Buckets in use at once, of one Redis on one core."""
    return REDIS_CALLS // (CALLS * gateways)


def two_digits(value: float) -> str:
    """More would promise what nobody has measured."""
    return f"{float(f'{value:.2g}'):,.0f}"


def table(measured: Measured) -> str:
    """As Markdown."""
    lines = [
        "| | messages/s, with answers | messages/s, streamed | connections |",
        "|---|---|---|---|",
    ]

    def line(what: str, workers: int, gateways: int, held: int) -> str:
        rates = [gateways * messages(cost, workers, measured.gain) for cost in (measured.request_us, measured.stream_us)]
        return f"| {what} | {two_digits(rates[0])} | {two_digits(rates[1])} | {two_digits(held)} |"

    for descriptors in DESCRIPTORS[:3]:
        held = connections(descriptors, 512 * 2**20, measured)
        lines.append(line(f"one sidecar, {descriptors:,} descriptors, 512 MiB", 1, 1, held))
    for workers in (2, 4, 8):
        held = workers * connections(DESCRIPTORS[2], 512 * 2**20, measured)
        lines.append(line(f"one machine, workers: {workers}, {DESCRIPTORS[2]:,} descriptors and 512 MiB each", workers, 1, held))
    for gateways in (3, 10, 50):
        held = gateways * connections(DESCRIPTORS[2], 512 * 2**20, measured)
        what = f"a fleet of {gateways}, with one Redis: {shared_limits(gateways):,} limits in use at once"
        lines.append(line(what, 1, gateways, held))
    return "\n".join(lines)
