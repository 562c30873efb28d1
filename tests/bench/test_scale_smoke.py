"""The programs of `bench/scale` work: tiny and short, nothing is said about how fast."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

pytestmark = [pytest.mark.bench, pytest.mark.long]

PROGRAM = Path(__file__).parents[2] / "bench" / "scale" / "run.py"
KINDS = {"oneway", "request"}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Where the results of all programs are, and what they printed."""
    results = tmp_path_factory.mktemp("results")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}  # the build that this run is about
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "all", "--quick", "--results", str(results)],
        env=environment, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return results, done.stdout


def idle(found: dict[str, Any]) -> None:
    for protocol in ("amqp", "rocketmq"):
        assert found[protocol]["descriptors"] > 2 * found[protocol]["connections"]
        assert found[protocol]["end_resident"] > found[protocol]["base_resident"]


def topics(found: dict[str, Any]) -> None:

    assert found["first_pass"]["messages"] == found["second_pass"]["messages"] == found["plan"]["topics"]
    assert {kind: len(places) for kind, places in found["runs"].items()} == dict.fromkeys(KINDS, 4)


def growth(found: dict[str, Any]) -> None:
    for name, places in found["growth"].items():
        few, many = (place["point"][name] for place in places)
        assert many == 10 * few
        assert all(run["messages"] > 0 for place in places for run in place["runs"])


def workers(found: dict[str, Any]) -> None:
    assert {"light", "full"} <= set(found["runs"])
    assert sum(found["connections_of_workers"]["10"]) == 10


def stalls(found: dict[str, Any]) -> None:
    assert {each["kind"] for each in found["happened"]} == {"scrape", "reload by the API", "reload by SIGHUP"}
    assert all(found["probes"][name]["messages"] > 0 for name in ("sluice", "direct", "traffic"))
    longest = [each["us"] for each in found["worst"]]
    assert longest == sorted(longest, reverse=True)


def soak(found: dict[str, Any]) -> None:
    assert {each["kind"] for each in found["pieces"]} == {"request", "oneway", "amqp"}
    assert found["after"]["connections"] == found["before"]["connections"] == 0


@pytest.mark.parametrize("look", [idle, topics, growth, workers, stalls, soak], ids=lambda look: look.__name__)
def test_it_measures_what_it_says(ran: tuple[Path, str], look: Callable[[dict[str, Any]], None]) -> None:
    results, printed = ran
    look(json.loads((results / f"scale-{look.__name__}-quick.json").read_text())["found"])
    assert f"\n{look.__name__} (sluice " in "\n" + printed


def test_the_picture_is_drawn(ran: tuple[Path, str]) -> None:
    assert ElementTree.parse(ran[0] / "scale-growth-quick.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_capacity_is_calculated(ran: tuple[Path, str]) -> None:
    assert "a fleet of 10, with one Redis" in ran[1]
