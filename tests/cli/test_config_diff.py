"""`sluice config diff`: a file against what runs, and two files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.busy_gateway import RULES, BusyGateway, busy_gateway

pytestmark = pytest.mark.slow  # a gateway with floods

LISTENERS = "listeners: [{name: a, protocol: amqp, bind: 127.0.0.1:1, upstream: 127.0.0.1:2}]\n"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BusyGateway]:
    with busy_gateway(tmp_path_factory.mktemp("busy")) as found:
        yield found


def test_the_file_that_runs_does_not_differ(gateway: BusyGateway) -> None:
    done = gateway.cli("config", "diff", str(gateway.config), "--exit-code")
    assert (done.stdout, done.stderr.strip().endswith("no difference")) == ("", True)


def test_each_value_that_differs_is_a_line_and_a_viewer_may_look(gateway: BusyGateway) -> None:
    other = gateway.directory / "other.yaml"
    configuration = yaml.safe_load(gateway.config.read_text())
    configuration["log"] = {"level": "debug"}
    configuration["rules_file"] = "other-limits.yaml"
    other.write_text(yaml.safe_dump(configuration))
    rules = [{**RULES[0], "limit": {"messages": "25/s"}}, RULES[2], RULES[1]]
    (gateway.directory / "other-limits.yaml").write_text(yaml.safe_dump({"rules": yaml.safe_load(yaml.safe_dump(rules))}))
    done = gateway.cli("config", "diff", str(other), "--exit-code", "--token-file", str(gateway.viewer_file), check=False)
    assert done.returncode == 1, done.stderr
    assert set(done.stdout.splitlines()) == {
        "log.level: info -> debug", "rules.orders.limit.messages: 20/s -> 25/s", "rules: order changed"
    }  # fmt: skip
    assert "sluice reload --dry-run" in done.stderr


def test_two_files(sluice: Any, tmp_path: Path) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text(LISTENERS)
    second.write_text(LISTENERS.replace("127.0.0.1:2", "127.0.0.1:3") + "rules: [{name: r, limit: {messages: 1/s}}]\n")
    ran = sluice("config", "diff", first, second)
    assert ran.code == 0
    assert "listeners.a.upstream: 127.0.0.1:2 -> 127.0.0.1:3\n" in ran.out
    assert "rules" in ran.out
    assert sluice("config", "diff", first, first, "--exit-code").code == 0
    assert sluice("config", "diff", first, second, "--exit-code").code == 1


def test_a_faulty_file_is_exit_3(sluice: Any, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(LISTENERS + "limiter: {treads: 1}\n")
    assert sluice("config", "diff", tmp_path / "a.yaml").code == 3
