"""The RocketMQ suite: every feature of the Java client, directly, in mode A and in mode B, and no difference.

Directly means a broker that tells its own address. The same broker stands behind the gateway's name server (mode B); for mode A there is a
second one, whose address the gateway has. The gateway has one rule with a limit far above what is sent, so that everything is decoded
and judged.

What a case finds directly is known of the newest brokers (suites/rocketmq_facts.json), so `make test` runs modes A and B alone, and every
way what is not as is known. Where it is not known, a case that has failed directly says nothing of the gateway. It is run again, every way,
AGAIN times at most, and the test says so.

All cases of all ways at a time keep a small machine so busy that a client now and then waits too long, whichever way it has. So what was
not the same through the gateway is run REPEATED times more, every way, beside little else: it must be the same each time that it succeeds
directly, and the test says so. What the gateway does only now and then, and none of these times, is not found here.

`make test` runs each client once; `make test-clients` (SLUICE_EVERY_STYLE=1) runs each client in each style, every way, and holds what is
known against what it has found. SLUICE_GOLDEN=1 writes it.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from suites.rocketmq_cases import CLIENTS, QUICK, SIGNED, STYLES, cases
from suites.rocketmq_suite import ACCESS_CONTROL, BROKER, Ended, Way, differences, ended, keep_known, known, problems, start
from support.brokers.name_servers import port_range
from support.brokers.rocketmq import VERSION, RocketMQ
from support.clients.programs import CLIENT_JARS
from support.gateways import Gateway
from support.java import MavenUnreachableError, jars
from support.processes import LOOPBACK
from support.tls import Authority

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow]

HIGH: list[dict[str, object]] = [
    {"name": "high", "match": {"protocol": "rocketmq"}, "per": "topic", "limit": {"messages": "100k/s", "bytes": "1GiB/s"}}
]
MESSAGES = 1000  # one client alone sends about 2,000 in modes A and B together
AGAIN = 2
REPEATED = 3
PATIENCE_S = 400.0  # of one run of all cases, which takes less than one and a half minutes
Ends = dict[str, dict[str, Ended]]  # by way and case

WAYS_OF = {style: "guarded" if style == SIGNED else "open" for style in STYLES}
EVERY = [(style, client) for style in STYLES for client in CLIENTS]
EVERY_STYLE, GOLDEN = (os.environ.get(name) == "1" for name in ("SLUICE_EVERY_STYLE", "SLUICE_GOLDEN"))
CHOSEN = EVERY if EVERY_STYLE else QUICK
clients = pytest.mark.parametrize(
    ("ways", "style", "client"),
    [(WAYS_OF[style], style, client) for style, client in CHOSEN],
    indirect=["ways"],
    scope="module",
    ids=[f"{style}-{client}" for style, client in CHOSEN],
)


@pytest.fixture(scope="module")
def ways(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Way]]:
    """The three ways to a broker, `open` or `guarded` by access control, and one gateway for two of them."""
    kind: str = request.param
    directory = tmp_path_factory.mktemp(f"suite-{kind}")
    properties = BROKER | (ACCESS_CONTROL if kind == "guarded" else {})
    with ExitStack() as started:
        try:
            for jar_set in CLIENT_JARS.values():
                jars(jar_set)
            in_sight = RocketMQ(directory / "in-sight", properties, advertised=LOOPBACK, tls="permissive")
            hidden = RocketMQ(directory / "hidden", properties, tls="permissive")
        except MavenUnreachableError as error:
            pytest.skip(f"ROCKETMQ'S SUITE IS NOT RUN, its jars are not here and Maven Central cannot be reached: {error}")
        for broker in (in_sight, hidden):
            started.enter_context(broker)
        certificate, key = Authority(directory).issue("gateway", LOOPBACK)
        tls: dict[str, object] = {"tls": {"certificate": str(certificate), "key": str(key), "mode": "permissive"}}
        if kind == "guarded":
            tls["upstream_tls"] = {"verify": "none"}
        first, last = port_range(4)
        names: dict[str, object] = {
            "name": "names",
            "protocol": "rocketmq-nameserver",
            "bind": f"{LOOPBACK}:0",
            "upstream": in_sight.name_server,
            "advertise": LOOPBACK,
            "broker_ports": f"{first}-{last}",
        }
        listeners = [listener | copy.deepcopy(tls) for listener in [*hidden.listeners, names]]
        gateway = started.enter_context(Gateway(directory / "gateway", listeners, HIGH))
        yield [
            Way("direct", in_sight.name_server, f"{LOOPBACK}:{in_sight.port}"),
            Way("A", hidden.name_server, f"{hidden.advertised}:{hidden.port}"),
            Way("B", f"{LOOPBACK}:{gateway.port('names')}", f"{LOOPBACK}:{first}-{last}"),
        ]
        assert complaints(gateway) == []
        assert judged(gateway) > MESSAGES, "the clients went round the gateway"


def complaints(gateway: Gateway) -> list[str]:
    """The errors the gateway has logged: without a limit that is reached, and with healthy brokers, there is no cause for any."""
    return [line for line in gateway.log().splitlines() if '"level": "error"' in line or line.startswith("Traceback")]


def judged(gateway: Gateway) -> float:
    """How many sends the gateway has decoded, judged and let pass."""
    names = {"name": "sluice_messages_forwarded_total", "protocol": "rocketmq", "operation": "produce"}
    return sum(sample.value for sample in gateway.samples() if names.items() <= ({"name": sample.name} | sample.labels).items())


def names(problems: list[str]) -> set[str]:
    """The cases that these texts begin with."""
    return {text.partition(":")[0] for text in problems}


def unlike_direct(ends: Ends, client: str, style: str, way: str) -> list[str]:
    return differences(ends["direct"], ends[way], cases(client, style, way))


@dataclass
class Runs:
    """What the runs of one client in one style have found, all ways side by side."""

    ends: Ends
    again: list[str] = field(default_factory=list)  # what was run again, and why


@pytest.fixture(scope="module")
def runs(ways: list[Way], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Runs]:
    """A function from a client's version and a style to what their runs have found; each is run once."""
    had: dict[tuple[str, str], Runs | AssertionError] = {}

    def side_by_side(client: str, style: str, wanted: set[str], attempt: int, but: str = "") -> Ends:
        """Every way, `but` one. Raises AssertionError where the program has failed or not ended."""
        home: Path = tmp_path_factory.mktemp(f"home-{client}-{style}-{attempt}")
        chosen = {way: [case for case in cases(client, style, way.name) if case in wanted] for way in ways if way.name != but}
        lines = start(client, style, home, chosen, attempt).result(PATIENCE_S)
        return {way.name: ended(lines, way.run(client, style, attempt)) for way, some in chosen.items() if some}

    def run(client: str, style: str) -> Runs | AssertionError:
        wanted = cases(client, style, "direct")
        before = {} if EVERY_STYLE or GOLDEN else known(VERSION, client, style)
        try:
            found = Runs(side_by_side(client, style, set(wanted), 0, but="direct" if before else ""))
            found.ends.setdefault("direct", before)
            for attempt in range(1, 1 + AGAIN):
                failed = problems(found.ends["direct"], wanted)
                if not failed:
                    break
                found.again += failed
                for way, ends in side_by_side(client, style, names(failed), attempt).items():
                    found.ends[way] |= ends
            unlike = [text for way in ("A", "B") for text in unlike_direct(found.ends, client, style, way)]
            found.again += unlike
            for attempt in range(1 + AGAIN, 1 + AGAIN + REPEATED if unlike else 0):
                repeated = side_by_side(client, style, names(unlike), attempt)
                for case in names(unlike) & set(repeated["direct"]):
                    if repeated["direct"][case].outcome == "ok":
                        for way, ends in repeated.items():
                            found.ends[way] |= {case: ends[case]} if case in ends else {}
                if any(unlike_direct(found.ends, client, style, way) for way in ("A", "B")):
                    break
        except AssertionError as error:
            return error
        return found

    def once(client: str, style: str) -> Runs:
        if (client, style) not in had:
            had[client, style] = run(client, style)
        found = had[client, style]
        if isinstance(found, AssertionError):
            raise found
        return found

    return once


if EVERY_STYLE or GOLDEN:

    @clients
    def test_every_case_succeeds_without_a_gateway_and_is_as_known(runs: Callable[[str, str], Runs], client: str, style: str) -> None:
        ends = runs(client, style).ends["direct"]
        found = problems(ends, cases(client, style, "direct"))
        assert found == [], "\n".join(found)
        if GOLDEN and (style, client) in QUICK:
            keep_known(VERSION, client, style, ends)
        before = known(VERSION, client, style)
        assert before == {case: Ended("ok", end.facts) for case, end in ends.items()} or not before


@pytest.mark.parametrize("way", ["A", "B"])
@clients
def test_every_case_is_the_same_through_the_gateway(
    runs: Callable[[str, str], Runs], client: str, style: str, way: str, record_property: Callable[[str, object], None]
) -> None:
    ran = runs(client, style)
    if ran.again:
        record_property("remark", "run again, every way, after one of them was not as known, or had failed:\n" + "\n".join(ran.again))
    assert problems(ran.ends["direct"], cases(client, style, "direct")) == []
    found = unlike_direct(ran.ends, client, style, way)
    assert found == [], "\n".join(found)
