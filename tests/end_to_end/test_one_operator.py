"""`sluice fleet`: three gateways, each a process with state of its own, and one operator. What is away is named, and catches up."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from support.gateways import Gateway, command
from support.processes import HANG_S, LOOPBACK, free_ports

pytestmark = pytest.mark.slow
RULES: list[dict[str, object]] = [{"name": "all", "match": {"protocol": "rocketmq"}, "per": "topic", "limit": {"messages": "500/s"}}]


class Operator:
    """Somebody with the tokens of all gateways."""

    def __init__(self, gateways: list[Gateway]) -> None:
        self.gateways = gateways

    def fleet(self, verb: str, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        named = [word for each in self.gateways for word in ("-g", f"{each.admin},{each.directory}/state/admin.token")]
        done = subprocess.run([*command(), "fleet", verb, *named, *words], capture_output=True, text=True, timeout=HANG_S, check=False)
        assert done.returncode == code, f"{verb} {words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def rows(self, code: int = 0) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(self.fleet("status", "-o", "json", code=code).stdout)
        return rows


@pytest.fixture(scope="module")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Gateway]]:
    with ExitStack() as running:
        made = []
        for number in range(3):
            ports = free_ports(2)
            listener: dict[str, object] = {
                "name": "rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:{ports[0]}", "upstream": f"{LOOPBACK}:{ports[1]}",
            }  # fmt: skip
            named = {"gateway": {"name": f"gateway-{number}", "state_directory": "state"}}
            folder = tmp_path_factory.mktemp(f"gateway-{number}")
            made.append(running.enter_context(Gateway(folder, [listener], RULES, named, until="/livez")))
        yield made


@pytest.fixture
def operator(gateways: list[Gateway]) -> Operator:
    """Of gateways that run, and have nothing of what the test before has changed but its history."""
    for gateway in gateways:
        if not gateway.alive():
            gateway.start()
        changes = gateway.request("GET", "/v1/live-changes")
        assert gateway.request("PUT", "/v1/live-changes", {"changes": {}}, If_Match=changes.etag).status < 300
    return Operator(gateways)


def limit(gateway: Gateway, topic: str = "orders") -> str:
    return str(gateway.get(f"/v1/limits/rocketmq/{topic}")["levels"][0]["limit"]["messages"])


def last(gateway: Gateway) -> dict[str, Any]:
    found: dict[str, Any] = gateway.get("/v1/history")["items"][0]
    return found


SET = ("limits", "set", "rocketmq", "orders", "--messages", "70/s", "--reason", "incident 12")


def test_a_change_is_made_at_all_gateways_and_taken_back_at_all(operator: Operator) -> None:
    first, *others = operator.gateways
    assert [row["name"] for row in operator.rows()] == ["gateway-0", "gateway-1", "gateway-2"]
    said = operator.fleet("apply", *SET, "--dry-run").stderr
    assert "2 other gateways would get the same" in said
    assert {limit(each) for each in operator.gateways} == {"500/s"}
    operator.fleet("apply", *SET)
    assert {limit(each) for each in operator.gateways} == {"70/s"}
    assert {last(each)["reason"] for each in operator.gateways} == {"incident 12"}
    revision = last(first)["revision"]
    operator.fleet("apply", "rules", "set", "all", "--messages", "300/s")
    assert {limit(each, "others") for each in operator.gateways} == {"300/s"}
    assert all(row["in_sync"] and row["changes"] == 2 for row in operator.rows())
    operator.fleet("rollback", str(revision), "--yes", "--reason", "too low")
    assert {limit(each, "others") for each in operator.gateways} == {"500/s"}
    assert {limit(each) for each in operator.gateways} == {"70/s"}
    assert {last(each)["reason"] for each in others} == {"too low"}
    said = operator.fleet("sync").stderr
    assert said.count("has it already") == 2, "to repeat it changes nothing"


def test_a_gateway_that_is_away_is_named_and_catches_up(operator: Operator) -> None:
    _, second, third = operator.gateways
    assert third.stop() == 0
    said = operator.fleet("apply", *SET, code=4).stderr
    assert f"{third.admin}: AWAY, has not got it" in said
    assert limit(second) == "70/s", "the others have it"
    assert operator.rows(code=4)[2]["away"]
    third.start()
    assert limit(third) == "500/s"
    assert [row["in_sync"] for row in operator.rows(code=6)] == [True, True, False]
    assert "limits/rocketmq/orders: set" in operator.fleet("sync", "--dry-run").stderr
    assert limit(third) == "500/s"
    operator.fleet("sync", "--reason", "gateway-2 is back")
    assert (limit(third), last(third)["reason"]) == ("70/s", "gateway-2 is back")
    assert len(last(third)["changes"]) == 1
    operator.rows()


def test_without_the_reference_nothing_is_changed(operator: Operator) -> None:
    first, second, third = operator.gateways
    assert first.stop() == 0
    assert "is the reference, and away: nothing was changed" in operator.fleet("apply", *SET, code=4).stderr
    assert limit(second) == limit(third) == "500/s"
    first.start()


def test_what_the_reference_refuses_is_changed_nowhere(operator: Operator) -> None:
    said = operator.fleet("apply", "rules", "set", "nobody", "--messages", "5/s", code=7).stderr
    assert "nothing was changed elsewhere" in said
    assert {limit(each) for each in operator.gateways} == {"500/s"}
    assert "cannot be made at all gateways" in operator.fleet("apply", "drain", "--yes", code=2).stderr


def test_live_changes_of_its_own_are_not_overwritten_in_passing(operator: Operator) -> None:
    _, second, third = operator.gateways
    second.cli("limits", "set", "rocketmq", "payments", "--messages", "5/s")
    said = operator.fleet("apply", *SET, code=6).stderr
    assert "gateway-1" in said
    assert "LEFT AS IT IS" in said
    assert (limit(second), limit(second, "payments"), limit(third)) == ("500/s", "5/s", "70/s")
    operator.fleet("sync")
    assert (limit(second), limit(second, "payments")) == ("70/s", "500/s")
    revision = last(second)["revision"]
    second.cli("history", "rollback", str(revision - 1), "--yes")
    assert limit(second, "payments") == "5/s", "what was overwritten is in its history"


def test_live_changes_that_cannot_be_are_refused_in_one_piece(operator: Operator) -> None:
    gateway = operator.gateways[0]
    answer = gateway.request("GET", "/v1/live-changes")
    good = {"messages": "5/s"}
    faulty: tuple[dict[str, object], ...] = ({"quotas": {}}, {"limits/rocketmq/a": {"messages": "fast"}}, {"nothing/x": good})
    for bad in faulty:
        refused = gateway.request("PUT", "/v1/live-changes", {"changes": {"limits/rocketmq/b": good, **bad}}, If_Match=answer.etag)
        assert refused.status == 422, refused.text
        assert refused.json["errors"][0]["pointer"].startswith("/changes/")
    assert gateway.request("PUT", "/v1/live-changes", {"changes": {}}).status == 428
    assert gateway.request("PUT", "/v1/live-changes", {"changes": {}}, If_Match='"other"').status == 412
    assert gateway.get("/v1/live-changes")["changes"] == {}
