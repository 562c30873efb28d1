"""The RocketMQ suite, run once: what each case found, and how two runs differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

from suites.rocketmq_cases import BINARY, CASES, SIGNED
from support.clients.programs import CLIENT_JARS, Program
from support.clients.programs import CLIENTS as SOURCES
from support.java import compiled, java

USER, SECRET = "suite", "suite-secret"
KNOWN: Final = Path(__file__).with_name("rocketmq_facts.json")

# Of the brokers: everything the cases need that is off by default.
BROKER: Final[dict[str, object]] = {
    "timerWheelEnable": "true",
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
    "useServerSideResetOffset": "false",  # else the client is not told (220)
    "transactionTimeOut": 10_000,  # a busy machine may take a while to settle what is settled at once
}
_MECHANISMS: Final[dict[str, object]] = {
    f"{kind}{setting}": value.replace("KIND", kind)
    for kind in ("authentication", "authorization")
    for setting, value in (
        ("Enabled", "true"),
        ("Provider", f"org.apache.rocketmq.auth.KIND.provider.Default{kind.capitalize()}Provider"),
        ("MetadataProvider", f"org.apache.rocketmq.auth.KIND.provider.Local{kind.capitalize()}MetadataProvider"),
    )
}
ACCESS_CONTROL: Final[dict[str, object]] = _MECHANISMS | {
    "initAuthenticationUser": json.dumps({"username": USER, "password": SECRET}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": USER, "secretKey": SECRET}),
}


@dataclass(frozen=True)
class Way:
    """How clients reach the broker: `direct`, or through a gateway in mode `A` or `B`."""

    name: str
    name_server: str
    broker: str  # the address clients are to be told: host:port, or host:low-high

    def run(self, client: str, style: str, attempt: int) -> str:
        """The name of a run, with which all its names begin, so that all runs can share a broker."""
        return f"{self.name}-{client}-{style}-{attempt}"


def start(client: str, style: str, home: Path, chosen: Mapping[Way, list[str]], attempt: int) -> Program:
    """Start these cases of each way, all in one Java: its start and its compiler's work are most of what they cost (measured)."""
    folder = SOURCES / "java" / "rocketmq_suite"
    class_path = compiled(folder, CLIENT_JARS[client], folder / ("since_5" if client.startswith("5") else "before_5"))
    properties = {
        "rocketmq.client.rebalance.waitInterval": "2000",
        # A lock has one second; on a busy machine one that comes late would end the connection, and fail all others on it.
        "com.rocketmq.remoting.client.closeSocketIfTimeout": "false",
    }
    if style == BINARY:
        properties["rocketmq.serialize.type"] = "ROCKETMQ"
    if style == SIGNED:
        properties |= {"access.key": USER, "secret.key": SECRET}
    wanted = {case for cases in chosen.values() for case in cases}
    classes = [name for name, group in CASES.items() if not group.keys().isdisjoint(wanted)]
    home.mkdir(parents=True, exist_ok=True)
    command = java(class_path, "Suite", home, memory=["-Xmx1g"], properties=properties)
    ways = ((way.name_server, way.run(client, style, attempt), way.broker, ",".join(cases)) for way, cases in chosen.items() if cases)
    return Program([*command, ",".join(classes), *chain.from_iterable(ways)], cwd=home)


@dataclass(frozen=True)
class Ended:
    """How a case ended. Facts are what must be the same in every way: counts, orders, codes, words; no times, no addresses."""

    outcome: str  # ok or failed
    facts: dict[str, Any]
    trouble: tuple[str, ...] = ()


def ended(lines: list[dict[str, Any]], run: str) -> dict[str, Ended]:
    """By the name of the case, from what the suite printed of a run."""
    return {line["case"]: Ended(line["outcome"], line["facts"], tuple(line["trouble"])) for line in lines if line["run"] == run}


def known(broker: str, client: str, style: str) -> dict[str, Ended]:
    """What each case finds directly, of brokers of that version; nothing where it is not known."""
    of_version = json.loads(KNOWN.read_text()).get(broker, {})
    return {case: Ended("ok", facts) for case, facts in of_version.get(f"{style}-{client}", {}).items()}


def keep_known(broker: str, client: str, style: str, ends: Mapping[str, Ended]) -> None:
    """Of these brokers alone: those before are known no more."""
    of_version = json.loads(KNOWN.read_text()).get(broker, {}) if KNOWN.exists() else {}
    of_version[f"{style}-{client}"] = {case: ends[case].facts for case in sorted(ends)}
    lines = {
        run: ",\n".join(f'"{case}": {json.dumps(facts, sort_keys=True)}' for case, facts in by.items()) for run, by in of_version.items()
    }
    KNOWN.write_text(f'{{"{broker}": {{\n' + ",\n".join(f'"{run}": {{\n{lines[run]}\n}}' for run in sorted(lines)) + "\n}}\n")


def problems(of: Mapping[str, Ended], wanted: list[str]) -> list[str]:
    """Why a run proves nothing: cases that are missing or have failed. Empty where all is well."""
    found = [f"{case}: did not run" for case in wanted if case not in of]
    for case, end in of.items():
        if end.outcome != "ok":
            found.append(f"{case}: {end.outcome}: " + "\n".join(end.trouble)[:2000])
    return found


def differences(direct: Mapping[str, Ended], through: Mapping[str, Ended], wanted: list[str]) -> list[str]:
    """Everything that is not the same through the gateway, one text each."""
    found = []
    for case in wanted:
        if case not in through or case not in direct:
            found.append(f"{case}: ran {'directly' if case in direct else 'through the gateway' if case in through else 'nowhere'} only")
            continue
        one, other = direct[case], through[case]
        if one.outcome != other.outcome:
            found.append(f"{case}: directly {one.outcome}, through the gateway {other.outcome}: " + "\n".join(other.trouble)[:2000])
        for name in dict.fromkeys([*one.facts, *other.facts]):
            mine, theirs = (end.facts.get(name, "(not said)") for end in (one, other))
            if mine != theirs:
                found.append(f"{case}: {name}: directly {mine!r}, through the gateway {theirs!r}")
    return found
