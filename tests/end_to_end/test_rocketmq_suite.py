"""The RocketMQ suite: every feature of the Java client, directly, in mode A and in mode B, and no difference.

Directly means a broker that tells its own address. The same broker stands behind the gateway's name server (mode B); for mode A there is a
second one, whose address the gateway has. The gateway has one rule with a limit far above what is sent, so that everything is decoded
and judged.

What a case finds directly is known of the newest brokers (suites/rocketmq_facts.json), so `make test` runs each client in one mode alone,
and every way what is not as is known. Where it is not known, a case that has failed directly says nothing of the gateway. It is run again,
every way, AGAIN times at most, and the test says so.

All cases of all ways at a time keep a small machine so busy that a client now and then waits too long, whichever way it has. So what was
not the same through the gateway is run REPEATED times more, every way, beside little else: it must be the same each time that it succeeds
directly, and the test says so. What the gateway does only now and then, and none of these times, is not found here.

`make test` runs each client once, in mode A or B, `make test-long` in both; `make test-clients` (SLUICE_EVERY_STYLE=1) runs each client in
each style, every way, and holds what is known against what it has found. SLUICE_GOLDEN=1 writes it.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pytest

from suites.rocketmq_cases import CLIENTS, QUICK, SIGNED, STYLES, cases
from suites.rocketmq_suite import ACCESS_CONTROL, BROKER, Ended, Way, differences, ended, keep_known, known, problems, start
from support.brokers.name_servers import port_range
from support.brokers.rocketmq import ADVERTISED, VERSION, RocketMQ
from support.clients.programs import CLIENT_JARS
from support.gateways import Gateway
from support.java import MavenUnreachableError, jars
from support.processes import LOOPBACK
from support.tls import Authority

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow]

HIGH: list[dict[str, object]] = [
    {"name": "high", "match": {"protocol": "rocketmq"}, "per": "topic", "limit": {"messages": "100k/s", "bytes": "1GiB/s"}}
]
MESSAGES = 500  # in each mode; one client alone sends about 1,000
AGAIN = 2
REPEATED = 3
PATIENCE_S = 400.0  # of one run of all cases, which takes less than one and a half minutes
Ends = dict[str, dict[str, Ended]]  # by way and case

KIND_OF = {style: "guarded" if style == SIGNED else "open" for style in STYLES}
MODES = ("A", "B")
EVERY_STYLE, GOLDEN = (os.environ.get(name) == "1" for name in ("SLUICE_EVERY_STYLE", "SLUICE_GOLDEN"))
CHOSEN = [(style, client) for style in STYLES for client in CLIENTS] if EVERY_STYLE else list(QUICK)


def runs_of(*modes: str) -> pytest.MarkDecorator:
    """The cases of a test: each chosen style and client, in each mode where there are modes; `make test` has those of QUICK."""
    each: list[tuple[str, ...]] = [(mode,) for mode in modes] or [()]
    cells = [
        pytest.param(
            KIND_OF[style], style, client, *mode, id="-".join([style, client, *mode]),
            marks=() if EVERY_STYLE or not modes or mode == (QUICK[style, client],) else pytest.mark.long,
        )
        for style, client in CHOSEN for mode in each
    ]  # fmt: skip
    names = ("ways", "style", "client", *["way"][: len(modes)])
    return pytest.mark.parametrize(names, cells, indirect=["ways"], scope="module")


class Ways:
    """The ways to a broker, `open` or `guarded` by access control: directly, and through one gateway in the modes that are asked for.

    The broker that is reached directly and in mode B is started when the first of them is needed.
    """

    def __init__(self, kind: str, modes: tuple[str, ...], directory: Path, started: ExitStack) -> None:
        self.modes = modes
        self._directory = directory
        self._started = started
        self._properties = BROKER | (ACCESS_CONTROL if kind == "guarded" else {})
        certificate, key = Authority(directory).issue("gateway", LOOPBACK)
        tls: dict[str, object] = {"tls": {"certificate": str(certificate), "key": str(key), "mode": "permissive"}}
        if kind == "guarded":
            tls["upstream_tls"] = {"verify": "none"}
        listeners: list[dict[str, object]] = []
        self._ports = port_range(4)
        if "A" in modes:
            self._hidden = self._start("hidden")
            listeners += self._hidden.listeners
        if "B" in modes:
            names: dict[str, object] = {"name": "names", "protocol": "rocketmq-nameserver", "bind": f"{LOOPBACK}:0"}
            names |= {"upstream": self._in_sight.name_server, "advertise": LOOPBACK, "broker_ports": "{}-{}".format(*self._ports)}
            listeners.append(names)
        self.gateway = started.enter_context(Gateway(directory / "gateway", [each | copy.deepcopy(tls) for each in listeners], HIGH))

    def _start(self, name: str, advertised: str = ADVERTISED) -> RocketMQ:
        broker = RocketMQ(self._directory / name, self._properties, advertised=advertised, tls="permissive")
        return self._started.enter_context(broker)

    @cached_property
    def _in_sight(self) -> RocketMQ:
        return self._start("in-sight", LOOPBACK)

    def __getitem__(self, name: str) -> Way:
        if name == "A":
            return Way(name, self._hidden.name_server, f"{self._hidden.advertised}:{self._hidden.port}")
        if name == "B":
            return Way(name, f"{LOOPBACK}:{self.gateway.port('names')}", "{}:{}-{}".format(LOOPBACK, *self._ports))
        return Way(name, self._in_sight.name_server, f"{LOOPBACK}:{self._in_sight.port}")


@pytest.fixture(scope="module")
def ways(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    kind: str = request.param
    given = [item.callspec.params for item in request.session.items if item.path == request.path and isinstance(item, pytest.Function)]
    asked = {each.get("way") for each in given if each["ways"] == kind}
    with ExitStack() as started:
        try:
            for jar_set in CLIENT_JARS.values():
                jars(jar_set)
            made = Ways(kind, tuple(mode for mode in MODES if mode in asked), tmp_path_factory.mktemp(f"suite-{kind}"), started)
        except MavenUnreachableError as error:
            pytest.skip(f"ROCKETMQ'S SUITE IS NOT RUN, its jars are not here and Maven Central cannot be reached: {error}")
        yield made
        assert complaints(made.gateway) == []
        assert judged(made.gateway) > MESSAGES * len(made.modes), "the clients went round the gateway"


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
def runs(ways: Ways, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Runs]:
    """A function from a client's version and a style to what their runs have found; each is run once."""
    had: dict[tuple[str, str], Runs | AssertionError] = {}

    def side_by_side(client: str, style: str, wanted: set[str], attempt: int, but: str = "") -> Ends:
        """Every way, `but` one. Raises AssertionError where the program has failed or not ended."""
        home: Path = tmp_path_factory.mktemp(f"home-{client}-{style}-{attempt}")
        names = [name for name in ("direct", *ways.modes) if name != but]
        chosen = {ways[name]: [case for case in cases(client, style, name) if case in wanted] for name in names}
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
            unlike = [text for mode in ways.modes for text in unlike_direct(found.ends, client, style, mode)]
            found.again += unlike
            for attempt in range(1 + AGAIN, 1 + AGAIN + REPEATED if unlike else 0):
                repeated = side_by_side(client, style, names(unlike), attempt)
                for case in names(unlike) & set(repeated["direct"]):
                    if repeated["direct"][case].outcome == "ok":
                        for way, ends in repeated.items():
                            found.ends[way] |= {case: ends[case]} if case in ends else {}
                if any(unlike_direct(found.ends, client, style, mode) for mode in ways.modes):
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

    @runs_of()
    def test_every_case_succeeds_without_a_gateway_and_is_as_known(runs: Callable[[str, str], Runs], client: str, style: str) -> None:
        ends = runs(client, style).ends["direct"]
        found = problems(ends, cases(client, style, "direct"))
        assert found == [], "\n".join(found)
        if GOLDEN and (style, client) in QUICK:
            keep_known(VERSION, client, style, ends)
        before = known(VERSION, client, style)
        assert before == {case: Ended("ok", end.facts) for case, end in ends.items()} or not before


@runs_of(*MODES)
def test_every_case_is_the_same_through_the_gateway(
    runs: Callable[[str, str], Runs], client: str, style: str, way: str, record_property: Callable[[str, object], None]
) -> None:
    ran = runs(client, style)
    if ran.again:
        record_property("remark", "run again, every way, after one of them was not as known, or had failed:\n" + "\n".join(ran.again))
    assert problems(ran.ends["direct"], cases(client, style, "direct")) == []
    found = unlike_direct(ran.ends, client, style, way)
    assert found == [], "\n".join(found)
