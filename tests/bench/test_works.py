"""The list of works holds together, and is chosen from as the command line says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from machine import version
from proxies import BROKERS, HERE, STAND_INS, WITH_TLS
from records import BETTER, BLIND
from run import turned
from works import TRAFFIC, WORKS, chosen

ROOT = Path(__file__).parents[2]
NAMES = [work.name for work in WORKS]


def test_benches_begin_as_they_are_written_down() -> None:
    """Where `tests` is alone on the path, `tests/gateway` is found in place of the package. None of these commands started for a week."""
    said = [path.read_text() for path in (ROOT / "Makefile", ROOT / "docs" / "performance.md", *(ROOT / "bench").rglob("*.py"))]
    paths = [found for text in said for found in re.findall(r"PYTHONPATH=(\S+) \S*python bench/", text)]
    assert len(paths) >= 10
    assert set(paths) <= {".:tests", "bench:."}
    for program in ("run.py", "decisions.py", "scale/run.py"):
        words = [sys.executable, f"bench/{program}", "--help"]
        subprocess.run(words, cwd=ROOT, env=os.environ | {"PYTHONPATH": ".:tests"}, check=True, capture_output=True)


def test_every_work_has_its_program_and_its_backend() -> None:
    for work in WORKS:
        program = work.command.split()[0]
        source = HERE / "load" / ("rocketmq/Load.java" if program == "java" else f"{program}.c")
        assert source.exists(), work.name
        assert work.backend in {*STAND_INS, *WITH_TLS, *BROKERS}, work.name


def test_names_are_unique_and_goals_refer_to_what_is_measured() -> None:
    peers = {work.name: work.peers for work in WORKS}
    assert len(peers) == len(NAMES)
    for work in WORKS:
        for goal in work.goals:
            held_against = BLIND if goal.of == BETTER else (goal.of,)
            assert set(held_against) <= set(peers[goal.work or work.name]), work.name
            assert "sluice" in work.peers, work.name


def test_where_two_peers_are_measured_the_better_one_is_the_bar() -> None:
    """Of traffic the goals are multiples of HAProxy's with its default buffers; the page has the cheaper one's beside them."""
    for work in set(WORKS) - set(TRAFFIC):
        for goal in work.goals:
            if set(BLIND) <= set(work.peers):
                assert goal.of == BETTER, work.name


def test_groups_are_the_stand_ins_and_the_brokers() -> None:
    stand_ins, brokers = chosen("stand-ins", []), chosen("brokers", [])
    assert [work.name for work in chosen("all", [])] == NAMES
    assert [work.name for work in [*stand_ins, *brokers]] == NAMES
    assert all(work.name.startswith(("RabbitMQ", "RocketMQ broker")) for work in brokers)
    assert not any("broker" in work.name or "RabbitMQ" in work.name for work in stand_ins)


def test_works_are_chosen_by_any_part_of_their_names() -> None:
    assert [work.name for work in chosen("all", ["AMQP stream, 200", "AMQP stream, 16", "Java sync"])] == [
        "AMQP stream, 200 B",
        "AMQP stream, 16 KiB",
        "RocketMQ broker, Java sync, 16 threads",
    ]


def test_each_round_begins_with_the_next_peer() -> None:
    assert [turned("abc", turn) for turn in range(4)] == [list("abc"), list("bca"), list("cab"), list("abc")]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://haproxy.org/", "2.6.12-1+deb12u4"),
        ("/usr/bin/envoy  version: 84305a6cb64bd55aaf606bdd53de7cd6080427a1/1.36.2/Clean/RELEASE/BoringSSL", "1.36.2"),
        ('openjdk version "17.0.13" 2024-10-15', "17.0.13"),
        ("3.10.8\n", "3.10.8"),
        ("no such thing", "unknown"),
    ],
)
def test_versions_are_found_in_what_programs_say(words: str, found: str) -> None:
    assert version(words) == found
