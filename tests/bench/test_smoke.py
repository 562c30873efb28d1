"""The benchmark works: real HAProxy, real sluice, real load, hardly any of it. Nothing here looks at how long anything took."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from proxies import HERE
from records import loaded
from report import report

from support.processes import HANG_S

WORKS = (
    "RocketMQ request/reply, 32", "RocketMQ request/reply, traffic", "RocketMQ stream, 200 B", "RocketMQ pulls", "AMQP stream, 200 B",
    "AMQP confirms", "AMQP deliveries", "new connection", "traffic of 10,000 topics",
)  # fmt: skip


@pytest.mark.bench
def test_a_moment_of_each_kind_of_work_directly_and_through_relay_haproxy_and_sluice(tmp_path: Path) -> None:
    """The load programs themselves check every answer, and that all bytes have arrived."""
    subprocess.run(["make", "-s", "-C", HERE / "load"], check=True)
    command = [sys.executable, str(HERE / "run.py"), "--rounds", "1", "--seconds", "0.1", "--warm-up", "0", "--results", str(tmp_path)]
    command += ["--only", "direct", "relay", "haproxy", "sluice", "--group", "stand-ins", "--work", *WORKS]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr

    (kept,) = tmp_path.glob("*.json")
    bench = loaded(kept)
    assert report(bench) in done.stdout
    assert {name.rpartition(", ")[2] for name in bench.results} == {
        "32 connections", "64 connections", "4 connections", "200 B", "two topics in turn", "half refused", "all refused", "3 pages open",
        "traffic", "traffic of 10,000 topics", "a new connection for each ten", "TLS on both hops",
    }  # fmt: skip
    assert set(bench.proxies) == {"relay", "haproxy", "sluice"}
    for work in bench.works:
        for peer in bench.results[work.name]:
            (run,) = bench.runs(work.name, peer)
            assert run.messages > 0, (work.name, peer)
            assert (run.cpu_s is None) == (peer == "direct"), (work.name, peer)
            if peer != "direct":
                assert run.cpu_s is not None
                assert run.cpu_s > 0, (work.name, peer)
            if "request/reply" in work.name:
                percentiles = [each for each in (run.p50_us, run.p99_us, run.p999_us) if each is not None]
                assert len(percentiles) == 3, (work.name, peer)
                assert 0 < percentiles[0], (work.name, peer)  # noqa: SIM300
                assert percentiles == sorted(percentiles), (work.name, peer)


@pytest.mark.slow
def test_a_load_that_finds_a_wrong_answer_ends_the_benchmark(tmp_path: Path) -> None:
    """Publishes that are to be refused, and a stand-in that confirms them all."""
    subprocess.run(["make", "-s", "-C", HERE / "load"], check=True)
    script = (
        "from pathlib import Path\n"
        "from proxies import running\n"
        "from records import Work\n"
        "from run import load\n"
        "with running(Path(), ['direct'], {'confirms'}) as started:\n"
        "    load(Work('wrong', 'confirms', 'publish 1 {s} 10 5 a nacked'), started['direct'], 0.1)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=HANG_S
    )
    assert done.returncode == 1
    assert "wrong through direct: publish: confirmed otherwise than expected" in done.stderr
