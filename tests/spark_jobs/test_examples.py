"""The examples of `sluice quotas compute` and `backtest`, word for word, in the session that the other tests have."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cli.main import main
from support.access_logs import SyntheticLog, steady
from support.examples import OF_SPARK, examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_the_examples_of_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the folder that they speak of: a log of their days, daily states in `daily`, limits, and the quotas that the first computes."""
    for day in ("2026-11-14", "2026-11-20"):
        log = SyntheticLog(tmp_path / "access-log", day)
        log.run({"orders": steady(20)}, range(0, 86_400, 60), seed=1)
        log.write()
    (tmp_path / "limits.yaml").write_text("rules: [{name: all, limit: {messages: 10/s}}]\n")
    monkeypatch.chdir(tmp_path)
    lines = [each for each in examples() if each.startswith(OF_SPARK)]
    assert len(lines) == 4
    for line in sorted(lines, key=lambda each: ("compute" not in each, "--limits" not in each)):
        code = main(shlex.split(line)[1:])
        said = capsys.readouterr()
        assert code == 0, f"{line}: exit {code}\n{said.out}\n{said.err}"
        assert said.out or said.err, "an example shows something"
    assert json.loads((tmp_path / "quotas.json").read_text())["date"] == "2026-11-20"
