"""The wall clock jumps a day ahead, a day back, and is put right (libfaketime): what the product says about time goes on holding.

The steady clocks go on, as where a clock is set: limits and their leases, sessions and time-outs go by them. The end of a live change is a
time of day, and so are the lines of the access log.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from support.brokers.stand_ins import rocketmq as rocketmq_stand_in
from support.clients.lockstep import Flood
from support.gateways import Gateway, StartGateway, limit_path
from support.models.rates import bounds
from support.processes import HANG_S, LOOPBACK, wait_until

RATE = 40
DAY = timedelta(days=1)
LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


class Clock:
    """What the process under it takes for the time of day. CLOCK_MONOTONIC and CLOCK_BOOTTIME are the machine's."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "faketime"
        self.jump(timedelta())
        assert LIBRARY is not None
        faked = {"TIMESTAMP_FILE": str(self._file), "NO_CACHE": "1", "DONT_FAKE_MONOTONIC": "1", "DONT_RESET": "1"}
        told = [f"FAKETIME_{name}={value}" for name, value in faked.items()]
        self.under = ["env", f"LD_PRELOAD={LIBRARY}", "NO_FAKE_STAT=1", *told]

    def jump(self, ahead: timedelta) -> None:
        """So far ahead of the machine's clock from now on."""
        draft = self._file.with_suffix(".new")
        draft.write_text(f"{ahead.total_seconds():+.0f}\n")
        draft.replace(self._file)


@pytest.fixture(autouse=True)
def nothing_of_the_library_stays() -> Iterator[None]:
    """It leaves a file and a semaphore of each process in memory."""
    yield
    for path in Path("/dev/shm").glob("*faketime_s*_*"):
        if not Path("/proc", path.name.rpartition("_")[2]).exists():
            path.unlink(missing_ok=True)


def sign_in(gateway: Gateway) -> str:
    """The cookie of a session."""
    with closing(http.client.HTTPConnection(LOOPBACK, gateway.admin_port, timeout=HANG_S)) as connection:
        headers = {"Content-Type": "application/json", "Sec-Fetch-Site": "same-origin"}
        connection.request("POST", "/v1/session", json.dumps({"token": gateway.token}), headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200
        return str(answer.getheader("Set-Cookie")).partition(";")[0]


def quotas(topic: str) -> dict[str, object]:
    quota = {"protocol": "rocketmq", "topic": topic, "messages": {"rate": 55, "burst": 55}}
    return {"version": 1, "computed_at": "2026-11-21T01:00:00Z", "code": "test", "quotas": [quota]}


def holds(gateway: Gateway, path: str, wanted: bool) -> bool:
    """Whether the live change is in force, as `wanted`; where the clock has jumped over its end it is still stored."""
    return ("override" in [each["origin"] for each in gateway.get(path)["levels"]]) == wanted


def lines_of(gateway: Gateway) -> list[dict[str, object]]:
    files = sorted(gateway.directory.glob("access-log/dt=*/hr=*/*.jsonl*"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.mark.skipif(LIBRARY is None, reason="NOT TESTED: jumps of the clock; sh deploy/system-packages.sh faketime")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_clock_that_jumps_a_day_changes_no_limit_no_session_and_loses_no_line(
    start_gateway: StartGateway, tmp_path: Path, workers: int
) -> None:
    rules: list[dict[str, object]] = [
        {"name": "all", "per": "topic", "limit": {"messages": f"{RATE}/s", "burst": {"messages": RATE}}, "breaker": {"open_for": "0s"}}
    ]
    clock = Clock(tmp_path)
    learned, raised = limit_path("rocketmq", "learned"), limit_path("rocketmq", "raised")
    with rocketmq_stand_in() as broker:
        upstream = f"{LOOPBACK}:{broker.port}"
        listener: dict[str, object] = {"name": "rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:0", "upstream": upstream}
        gateway = start_gateway(
            [listener], rules, under=clock.under, gateway={"name": "clock", "state_directory": "state", "workers": workers},
            access_log={"directory": "access-log", "compress": "off"},
        )  # fmt: skip
        session = sign_in(gateway)
        gateway.put("/v1/quotas", quotas("learned"))
        gateway.put(raised, {"messages": "7/s", "expires": "2h", "reason": "for two hours"})
        flood = Flood(gateway.port("rocket"))
        began = time.monotonic()
        with flood.sending():
            for number, ahead in enumerate((timedelta(), DAY, -DAY, timedelta())):
                clock.jump(ahead)
                gateway.process.wait_until(partial(flood.have_passed, flood.passed + RATE), within=60, what=f"messages to pass at {ahead}")
                gateway.put(limit_path("rocketmq", "other"), {"messages": f"{number + 1}/s", "reason": str(number)})
                newest = gateway.get("/v1/history")["items"][0]
                apart = datetime.fromisoformat(newest["at"]) - datetime.now(UTC) - ahead
                assert (newest["reason"], abs(apart) < DAY / 2) == (str(number), True), "the clock has jumped, and the change is stored"
                assert gateway.request("GET", "/v1/status", authorised=False, Cookie=session).status == 200
                assert "quota" in [each["origin"] for each in gateway.get(learned)["levels"]]
                wait_until(partial(holds, gateway, raised, ahead != DAY), within=30, what=f"what the change is at {ahead}")
        elapsed_s = time.monotonic() - began
        assert flood.faults == []
        assert flood.passed <= bounds(RATE, elapsed_s, RATE)[1], (flood, elapsed_s)
        assert gateway.stop() == 0
        lines = lines_of(gateway)
        counted = [sum(int(str(line.get(name, 0))) for line in lines) for name in ("messages", "refused_messages")]
        assert counted == [flood.passed, flood.refused]
        for boot in {line["boot"] for line in lines}:
            numbers = sorted(int(str(line["seq"])) for line in lines if line["boot"] == boot)
            assert numbers == list(range(len(numbers)))
        assert not [line for line in map(json.loads, gateway.log().splitlines()) if line["level"] in {"error", "critical"}]
