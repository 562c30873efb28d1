"""The incident that started it all, in about a minute: `make demo-incident`.

A real RocketMQ broker, made weak, ten topics that send at a steady rate, and one consumer group that begins to send everything back. A
table each second. First nothing stops the storm; then, while it still blows, the group gets a limit; at last the two defaults of
`config/limits.yaml` meet it. The exit code is 0 if the harm could be seen and went away, else 1.

    incident.py [--plot PATH.svg] [--compare RUNS]

`--plot` draws the picture of the docs, with its data beside it as JSON. `--compare` tells instead, for each limit, how the 99th percentile
of the other topics compares with that of the calm before, RUNS times in turn.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any, Final

from story import Gateway, MachineError, expect, perform, say  # isort: skip  -- sets the path to the tests' support
from plot import draw

from support.brokers.rocketmq import VERSION, RocketMQ
from support.clients.storm import FLOW_CONTROL, SYSTEM_BUSY, Second
from support.incident import CLIENTS, GROUP, PER_TOPIC, RETRIES, WEAK, Incident, Phase, QuietSecond, default_rules, percentile
from support.java import JavaMissingError, MavenUnreachableError

CALM_S: Final = 5
STORM_S: Final = 10
COMPARED_S: Final = 8
KEY: Final = ("rocketmq", RETRIES)
OFF: Final = (*KEY, "--mode", "off")
TIGHT: Final = (*KEY, "--messages", "20/s", "--burst-messages", "5", "--open-for", "0s")
EVEN: Final = (*KEY, "--messages", "100/s", "--burst-messages", "5", "--open-for", "0s")


class Table:
    """A line each second; keeps the seconds for the plot."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.seconds: list[dict[str, float]] = []
        self._busy = self._broker_busy()

    def head(self, title: str) -> None:
        say(f"\n{title}")
        say("  second │     ten quiet topics      │       the group's send-backs        │ busy, says │ refused most, as `sluice topics`")
        say("         │   sent   failed    p99 ms │   sent  stored  shed by it  refused │ the broker │ tells it, messages a second")

    def row(self, _second: int, quiet: QuietSecond, storm: Second | None) -> None:
        codes = {} if storm is None else storm.codes
        busy = self._broker_busy()
        line = {
            "storm": storm is not None,
            "sends": len(quiet.ms) + quiet.failures,
            "failed": quiet.failures,
            "p99_ms": round(percentile(quiet.ms, 0.99), 2),
            "sent": 0 if storm is None else storm.sent,
            "passed": codes.get(0, 0),
            "shed": codes.get(SYSTEM_BUSY, 0),
            "refused": codes.get(FLOW_CONTROL, 0),
            "busy": busy - self._busy,
        }
        self._busy = busy
        self.seconds.append(line)
        left = f"{line['sends']:>7} {line['failed'] or '':>8} {line['p99_ms']:>9.1f}"
        middle = f"{line['sent']:>7} {line['passed']:>7} {line['shed']:>11} {line['refused']:>8}" if storm else " " * 36
        say(f"  {len(self.seconds):>6} │ {left} │ {middle} │ {line['busy'] or '':>10} │ {self._worst() if line['refused'] else ''}")

    def _broker_busy(self) -> int:
        """How often the broker said that it has too much to do, to whomever."""
        return sum(count for listener in self.gateway.get("/v1/listeners")["items"] for count in listener["broker_busy"].values())

    def _worst(self) -> str:
        items = self.gateway.get("/v1/topics")["items"]
        clients: list[dict[str, Any]] = next((item["clients"] for item in items if item["topic"] == RETRIES), [])
        return ", ".join(f"{client['client']} {client['refused_per_second']:.0f}" for client in clients)


def tell(scratch: Path, summary: list[str], plot: Path | None) -> None:
    """The story."""
    say("Starting RocketMQ's name server and a weak broker, and a gateway at the broker's advertised address ...")
    broker = RocketMQ(scratch / "broker", WEAK)
    gateway = Gateway(scratch / "gateway", broker.listeners, default_rules())
    try:
        with broker:
            gateway.sluice("limits", "set", *OFF, "--reason", "demo: as before there was a limit", show=False)
            with Incident(broker, scratch / "client", seconds=300) as incident:
                _acts(gateway, incident, summary, plot)
            _named(gateway, summary)
    finally:
        gateway.stop()


def _acts(gateway: Gateway, incident: Incident, summary: list[str], plot: Path | None) -> None:
    rate = incident.calibrate()
    say(f"Ten topics send {PER_TOPIC} messages/s each. Group {GROUP} has {len(CLIENTS)} clients and will send back {rate}/s in all.")
    table = Table(gateway)
    table.head("Calm, then the storm, and nothing that stops it:")
    before = incident.calm(CALM_S, table.row)
    without = incident.storm("without a limit", STORM_S, table.row)
    first = table.seconds[:]
    gateway.sluice("limits", "set", *TIGHT, "--reason", "demo: retry storm", "--yes")
    table.head("Calm again, then the same storm against that limit:")
    between = incident.calm(CALM_S, table.row)
    tight = incident.storm("a tight limit", STORM_S, table.row)
    second = table.seconds[len(first) :]
    gateway.sluice("topics", "-q", RETRIES)
    gateway.sluice("listeners")
    gateway.sluice("limits", "unset", *KEY, "--reason", "demo: back to the rules", "--yes")
    table.head("And against the defaults, 100/s for each consumer group:")
    defaults = incident.storm("the defaults", STORM_S, table.row)
    summary += map(_summed, (without, tight, defaults))
    summary.append(f"calm: p99 {before.p99_ms:.1f} and {between.p99_ms:.1f} ms")
    if without.failures < 0.05 * without.sends:
        raise MachineError("this broker takes the storm: hardly a send of another topic fails without a limit")
    for phase in (tight, defaults):
        if phase.failures:  # what is busy with something else fails sends without a storm, too
            raise MachineError(f"{phase.failures} sends of other topics fail under {phase.name}")
    if plot is not None:
        _draw(plot, rate, first, second)
        summary.append(f"drawn: {plot}")


def _summed(phase: Phase) -> str:
    assert phase.storm is not None
    codes = phase.storm.codes
    return (
        f"{phase.name}: {phase.failures} of {phase.sends} sends of other topics failed, p99 {phase.p99_ms:.0f} ms; of {phase.storm.sent} "
        f"send-backs the broker stored {codes[0]} and shed {codes[SYSTEM_BUSY]}, sluice refused {codes[FLOW_CONTROL]}"
    )


def _named(gateway: Gateway, summary: list[str]) -> None:
    """The gateway's log names the group and its worst client."""
    kinds = "limit_reached", "limit_recovered"
    reached = [event for event in gateway.events() if event["event"] in kinds and event["topic"] == RETRIES]
    expect("the log says that the group is over its limit", held=bool(reached))
    told = max(reached, key=lambda event: int(event["client_refused"]))
    fields = ("event", "topic", "group", "client", "client_refused", "clients", "refused")
    summary.append("the log: " + " ".join(f"{name}={told[name]}" for name in fields))
    expect(
        "the log names the group and the client that most of it comes from",
        held=(told["group"], told["client"]) == (GROUP, next(iter(CLIENTS))),
    )


def _draw(plot: Path, rate: int, first: list[dict[str, float]], second: list[dict[str, float]]) -> None:
    data = {
        "title": "One consumer group's retry storm, and ten topics that have no part in it",
        "subtitle": f"RocketMQ {VERSION} with one send thread, Java client {VERSION}, ten topics at {PER_TOPIC}/s each; "
        f"grey: the group sends back {rate:,} messages/s",
        "panels": [
            {"title": "Without a limit", "seconds": first},
            {"title": "With a limit of 20/s on the group", "seconds": second},
        ],
    }
    plot.parent.mkdir(parents=True, exist_ok=True)
    plot.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")
    plot.write_text(draw(data))


def compare(scratch: Path, summary: list[str], runs: int) -> None:
    """Calm and storm in turn, under each limit."""
    broker = RocketMQ(scratch / "broker", WEAK)
    gateway = Gateway(scratch / "gateway", broker.listeners, default_rules())
    limits: dict[str, tuple[str, ...]] = {
        "tight (20/s, burst 5, no breaker)": ("set", *TIGHT),
        "even (100/s, burst 5, no breaker)": ("set", *EVEN),
        "defaults (100/s, burst 100, breaker 1 s)": ("unset", *KEY),
    }
    calm: list[Phase] = []
    storms: dict[str, list[Phase]] = {name: [] for name in limits}
    try:
        with broker:
            gateway.sluice("limits", "set", *OFF, show=False)
            with Incident(broker, scratch / "client", seconds=60 + runs * 3 * (2 * COMPARED_S + 5)) as incident:
                say(f"storm: {incident.calibrate()}/s")
                for _ in range(runs):
                    for name, words in limits.items():
                        calm.append(incident.calm(COMPARED_S))
                        gateway.sluice("limits", *words, "--yes", show=False)
                        storms[name].append(incident.storm(name, COMPARED_S))
                        say(f"  {name:42} calm p99 {calm[-1].p99_ms:7.1f} ms, storm {storms[name][-1].p99_ms:7.1f} ms, "
                            f"failed {storms[name][-1].failures}")  # fmt: skip
                        if name.startswith("defaults"):
                            gateway.sluice("limits", "set", *OFF, show=False)
    finally:
        gateway.stop()
    summary.append(_spread("calm", calm))
    summary.extend(_spread(name, phases) for name, phases in storms.items())


def _spread(name: str, phases: list[Phase]) -> str:
    p99 = sorted(phase.p99_ms for phase in phases)
    median = statistics.median(phase.median_ms for phase in phases)
    failures, sends = sum(phase.failures for phase in phases), sum(phase.sends for phase in phases)
    spread = f"least {p99[0]:.1f}, median {statistics.median(p99):.1f}, most {p99[-1]:.1f} ms"
    return f"{name}: p99 of {len(p99)} runs of {COMPARED_S} s: {spread}; median {median:.1f} ms; failed {failures} of {sends}"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--plot", type=Path, metavar="PATH.svg")
    options.add_argument("--compare", type=int, metavar="RUNS")
    given = options.parse_args()

    def story(scratch: Path, summary: list[str]) -> None:
        if given.compare:
            compare(scratch, summary, given.compare)
        else:
            tell(scratch, summary, given.plot)

    return perform(story, (JavaMissingError, MavenUnreachableError))


if __name__ == "__main__":
    sys.exit(main())
