"""A backtest on a standalone cluster, whose workers have nothing of ours but what the session sends them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from limiter.quota_snapshot import Quota, Snapshot, dump
from support.access_logs import SyntheticLog, steady
from support.spark_cluster import environment, running_cluster

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.spark
@pytest.mark.long
def test_the_workers_of_a_cluster_replay_with_the_limiter_that_is_sent_to_them(tmp_path: Path) -> None:
    log = SyntheticLog(tmp_path / "log", "2026-11-20")
    log.run({"orders": steady(20), "audit": steady(5)}, range(60), seed=1)
    log.write()
    (tmp_path / "tight.json").write_bytes(dump(Snapshot("2026-11-20T01:00:00Z", "test", quotas=(Quota("rocketmq", "orders", (10, 10)),))))
    (tmp_path / "limits.yaml").write_text("rules: [{name: audit, match: {topic: audit}, limit: {messages: 2/s}, action: delay}]\n")
    found = {}
    with running_cluster(tmp_path) as cluster:
        for name, master in (("cluster", cluster.master), ("here", "local[1]")):
            words = [
                sys.executable,
                "-m",
                "cli.main",
                "quotas",
                "backtest",
                "--log",
                f"file://{tmp_path}/log",
                "--from",
                "2026-11-20",
            ]
            words += ["--quotas", str(tmp_path / "tight.json"), "--limits", str(tmp_path / "limits.yaml"), "--master", master, "-o", "json"]
            options = "--executor-memory 512m --conf spark.sql.shuffle.partitions=2 pyspark-shell"
            env = environment(PYTHONPATH=str(ROOT), PYSPARK_SUBMIT_ARGS=options)
            done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=240)
            assert done.returncode == 0, done.stderr[-3000:]
            found[name] = json.loads(done.stdout)
        assert len(cluster.executors()) >= 1
    assert found["cluster"] == found["here"]
    assert found["here"]["totals"]["tight"]["refused"] > 300
    assert found["here"]["totals"]["limits"]["held"] > 100
