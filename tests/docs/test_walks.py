"""The pages' shell blocks, executed as they stand, page by page and from top to bottom, as a reader copies them.

Ports and paths of the pages are this test's own. What needs a broker, Spark, systemd or root's folders is in ELSEWHERE, with the test that
reads it from the page and runs it. A block that no test runs fails. Commands within the text: test_inline.py.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Final

import pytest

from support.brokers.rabbitmq import RabbitMQ
from support.first_limits import Clock, assert_seen
from support.floods import Counted
from support.gateways import Gateway
from support.pages import MAKE, ROOT, Block, blocks, pages, shown
from support.processes import LOOPBACK, free_ports
from support.ran_elsewhere import Ran, calls
from support.readers import Reader

pytestmark = pytest.mark.slow  # a gateway for each page

RULES: Final = [
    {"name": "orders", "match": {"protocol": "rocketmq", "topic": "order*"}, "per": "topic", "limit": {"messages": "500/s"}},
    {"name": "amqp-topics", "match": {"protocol": "amqp"}, "per": "topic", "limit": {"messages": "500/s"}},
]
MEETS_A_GATEWAY: Final = ("docs/admin-api.md", "docs/changing-limits.md", "docs/how-a-decision-is-made.md", "docs/spooling.md")
EVERY_NIGHT: Final = "tests/deploy/test_every_night.py"
DEPLOY: Final = "tests/docs/test_deploy_pages.py"
DEBIAN: Final = "tests/deploy/test_debian.py"
PACKAGE: Final = "test_from_the_package_to_a_flood_in_the_dashboard_as_the_page_says"
INSTALLED: Final = "tests/deploy/test_installed.py"
BLOCKS: Final = "tests/docs/test_blocks.py"
ELSEWHERE: Final = {  # page, words that only this block has
    ("docs/access-log.md", "sluice log compact"): Ran(f"{BLOCKS}::test_the_log_is_compacted"),
    ("docs/access-log.md", "sluice log ship"): Ran(f"{BLOCKS}::test_the_log_is_shipped_to_s3_once_and_again_and_again"),
    ("docs/access-log.md", "rclone copy"): Ran(f"{BLOCKS}::test_rclone_copies_what_is_compressed_and_nothing_else"),
    ("docs/access-log.md", "hdfs dfs"): Ran(f"{BLOCKS}::test_hadoops_client_copies_what_is_compressed_once"),
    ("docs/deploy/kubernetes.md", "create secret generic"): Ran(f"{DEPLOY}::test_kubernetes_from_nothing_to_a_limited_message"),
    ("docs/deploy/kubernetes.md", "kubectl apply -k"): Ran(f"{DEPLOY}::test_kubernetes_from_nothing_to_a_limited_message"),
    ("docs/deploy/kubernetes.md", "limits get amqp"): Ran(f"{DEPLOY}::test_kubernetes_from_nothing_to_a_limited_message"),
    ("docs/deploy/kubernetes.md", "get secret"): Ran(f"{DEPLOY}::test_kubernetes_from_nothing_to_a_limited_message"),
    ("docs/deploy/kubernetes.md", "helm install"): Ran(f"{DEPLOY}::test_helms_command_names_the_chart"),
    ("docs/deploy/container.md", "skopeo copy"): Ran(
        "tests/deploy/test_image.py::test_it_serves_as_nobody_on_a_read_only_root", by="packages"
    ),
    ("docs/deploy/debian.md", "apt-get install"): Ran(f"{DEBIAN}::{PACKAGE}", by="packages"),
    ("docs/deploy/debian.md", "cat /var/lib/sluice"): Ran(f"{DEBIAN}::{PACKAGE}", by="packages"),
    ("docs/deploy/debian.md", "systemctl enable"): Ran(f"{DEBIAN}::{PACKAGE}", by="packages"),
    ("docs/deploy/debian.md", "limits set"): Ran(f"{DEBIAN}::{PACKAGE}", by="packages"),
    ("docs/deploy/pip.md", "-m venv sluice-env"): Ran(f"{INSTALLED}::test_pip_and_a_first_limit_as_the_page_says", by="packages"),
    ("docs/deploy/pip.md", "pipx install"): Ran(f"{INSTALLED}::test_pipx_and_uv_as_the_page_says", by="packages"),
    ("docs/deploy/pip.md", "--require-hashes"): Ran(f"{INSTALLED}::test_pip_and_a_first_limit_as_the_page_says", by="packages"),
    ("docs/deploy/pip.md", "sluice-env/bin/sluice run"): Ran(f"{INSTALLED}::test_pip_and_a_first_limit_as_the_page_says", by="packages"),
    ("docs/deploy/pip.md", "-m venv sluice-next"): Ran(
        f"{INSTALLED}::test_an_upgrade_under_load_refuses_nobody_as_the_page_says", by="packages"
    ),
    ("docs/deploy/pip.md", "limits set"): Ran(f"{INSTALLED}::test_pip_and_a_first_limit_as_the_page_says", by="packages"),
    ("docs/deploy/systemd.md", "python3 -m venv"): Ran(f"{DEPLOY}::test_systemd_from_nothing_to_a_limit"),
    ("docs/deploy/systemd.md", "sluice init"): Ran(f"{DEPLOY}::test_systemd_from_nothing_to_a_limit"),
    ("docs/deploy/systemd.md", "systemctl enable --now sluice.socket"): Ran(f"{DEPLOY}::test_systemd_from_nothing_to_a_limit"),
    ("docs/deploy/systemd.md", "cat /var/lib/sluice"): Ran("tests/deploy/test_first_floods.py::test_systemd", by="packages"),
    ("docs/deploy/fleet.md", "sluice fleet status"): Ran(f"{DEPLOY}::test_a_fleet_is_changed_and_brought_back"),
    ("docs/deploy/fleet.md", "sluice fleet apply"): Ran(f"{DEPLOY}::test_a_fleet_is_changed_and_brought_back"),
    ("docs/deploy/fleet.md", "sluice fleet rollback"): Ran(f"{DEPLOY}::test_a_fleet_is_changed_and_brought_back"),
    ("docs/deploy/fleet.md", "sluice fleet sync"): Ran(f"{DEPLOY}::test_a_fleet_is_changed_and_brought_back"),
    ("docs/monitoring.md", "runbook_url"): Ran(
        "tests/deploy/test_prometheus_rules.py::test_the_line_of_the_page_makes_a_link_of_each_runbook"
    ),
    ("docs/my-messages-are-refused.md", "sluice why"): Ran(f"{BLOCKS}::test_a_developer_is_told_why"),
    ("docs/quotas.md", "--date $(date -u +%F)"): Ran(f"{BLOCKS}::test_quotas_are_computed_planned_and_applied_from_todays_log"),
    ("docs/quotas.md", "apt-get install -y python3-venv"): Ran(f"{BLOCKS}::test_an_empty_machine_gets_java_and_sluice"),
    ("docs/quotas.md", "sluice token new --file /etc"): Ran(
        f"{EVERY_NIGHT}::test_the_way_from_an_empty_machine_makes_a_good_configuration"
    ),
    ("docs/quotas.md", "sluice quotas plan  quotas.json"): Ran(f"{BLOCKS}::test_quotas_are_computed_and_tried_on_days_that_were"),
    ("docs/quotas.md", "--shadow-nights 3"): Ran(f"{EVERY_NIGHT}::test_the_commands_of_the_page_run_a_night"),
    ("docs/quotas.md", "token new nightly"): Ran(f"{EVERY_NIGHT}::test_the_command_with_the_tokens_file_publishes_a_night"),
    ("docs/running-the-quota-job.md", "skopeo copy"): Ran(
        "tests/deploy/test_every_night.py::test_the_image_of_the_cron_job_publishes_at_both_gateways", by="packages"
    ),
    ("docs/running-the-quota-job.md", "spark-submit"): Ran("tests/spark_jobs/test_stores.py::test_the_pages_commands_on_s3", by="storage"),
    ("docs/running-the-quota-job.md", "systemctl start sluice-quotas"): Ran(f"{BLOCKS}::test_the_timer_of_systemd_is_installed"),
    ("docs/running-the-quota-job.md", "SLUICE_GATEWAYS"): Ran(f"{BLOCKS}::test_tunnels_lead_to_gateways_that_nightly_takes"),
    ("docs/backtest.md", "sluice quotas backtest"): Ran(f"{BLOCKS}::test_quotas_are_computed_and_tried_on_days_that_were"),
    ("docs/quotas.md", "sluice quotas report"): Ran(f"{BLOCKS}::test_quotas_are_reported"),
    ("docs/reaching-the-admin-port.md", "sluice status --admin https"): Ran(f"{BLOCKS}::test_the_admin_port_is_reached_by_tls"),
    ("docs/reaching-the-admin-port.md", "sluice token new grafana"): Ran(f"{BLOCKS}::test_tokens_are_made_listed_rotated_and_revoked"),
}


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway for both protocols whose brokers are away: what an operator does needs none."""
    ports = free_ports(4)
    listeners = [
        {"name": "rabbit", "protocol": "amqp", "bind": f"{LOOPBACK}:{ports[0]}", "upstream": f"{LOOPBACK}:{ports[1]}"},
        {"name": "rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:{ports[2]}", "upstream": f"{LOOPBACK}:{ports[3]}"},
    ]
    with Gateway(tmp_path / "gateway", listeners, RULES, until="/livez") as running:
        yield running


def elsewhere(block: Block) -> Ran | None:
    return next((test for (page, words), test in ELSEWHERE.items() if page == block.page and words in block.text), None)


@pytest.mark.parametrize("page", MEETS_A_GATEWAY)
def test_a_page_about_a_running_gateway_can_be_followed(page: str, gateway: Gateway) -> None:
    reader = Reader(gateway.directory, {"127.0.0.1:9180": f"{LOOPBACK}:{gateway.admin_port}"},
                    {"SLUICE_ADMIN": f"http://{LOOPBACK}:{gateway.admin_port}"})  # fmt: skip
    for block in blocks(ROOT / page, "sh"):
        revisions = gateway.get("/v1/history")["items"]
        if revisions:
            reader.replaced["rollback 41"] = f"rollback {revisions[0]['revision']} --yes"
        endless = re.sub(r"^curl -sN", "timeout --preserve-status 3 curl -sN", block.text, flags=re.MULTILINE)
        text = re.sub(r"(timeout --preserve-status .*)", r"\1 || true", endless)
        output = reader.run(Block(block.page, block.line, block.language, text))
        assert '"title"' not in output, f"{block.id}: a problem was answered\n{output}"


def follow(reader: Reader, page: list[Block], admin_port: str) -> int:
    """Run blocks of a page. One that ends with `sluice run` goes on until the next such; what follows is for another terminal."""
    made = 0
    for block in page:
        if elsewhere(block) or MAKE.match(block.text):
            continue
        *before, last = block.text.rstrip().splitlines()
        if last.removeprefix(".venv/bin/").startswith("sluice run"):
            for process in reader.started:
                process.stop()
            if before:
                reader.run(replace(block, text="\n".join(before)))
            process = reader.start(last)
            process.wait_until(lambda: _alive(admin_port), within=60, what="the gateway")
        else:
            reader.run(block)
        made += 1
    return made


def test_the_readmes_first_limit_can_be_followed(tmp_path: Path) -> None:
    ports = dict(zip(("5672", "5673", "9180"), map(str, free_ports(3)), strict=True))
    reader = Reader(tmp_path, ports, at_port(ports["9180"]))
    try:
        assert follow(reader, blocks(ROOT / "README.md", "sh"), ports["9180"]) >= 3
    finally:
        reader.close()


@pytest.mark.rabbitmq
@pytest.mark.slow
def test_the_tutorial_can_be_followed_beside_a_real_rabbitmq(
    tmp_path: Path, rabbitmq: RabbitMQ, record_property: Callable[[str, object], None]
) -> None:
    """From a checkout and the install command on: what is run is what pip has made of it, in the folder that the page has made."""
    checkout, stranger = tmp_path / "checkout", tmp_path / "sluice-try"
    parts = [
        "admin",
        "cli",
        "common",
        "config",
        "control_plane",
        "gateway",
        "limiter",
        "spark_jobs",
        "deploy/packaging",
        "pyproject.toml",
        "setup.py",
        "README.md",
        "LICENSE",
    ]
    listed = subprocess.run(["git", "ls-files", "-z", *parts], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, checkout / name)
    ports = dict(zip(("5670", "9180"), map(str, free_ports(2)), strict=True)) | {"5672": str(rabbitmq.port)}
    installing, *others = blocks(ROOT / "docs" / "tutorial.md", "sh")
    installed = Reader(checkout, {}, {}, {"python3": f'exec {quote(sys.executable)} "$@"'})
    last = installed.run(replace(installing, text=f"{installing.text}\ncommand -v sluice; command -v python"))
    assert last.splitlines()[-2:] == [str(stranger / "env" / "bin" / name) for name in ("sluice", "python")]
    reader = Reader(stranger, ports, at_port(ports["9180"]))
    reader.environment["PATH"] = f"{stranger / 'env' / 'bin'}:{os.environ['PATH']}"  # as `activate` does
    reader.environment.pop("PYTHONPATH", None)
    clock = Clock("docs/tutorial.md")
    try:
        assert follow(reader, others[:2], ports["9180"]) == 2
        clock.at("limited")
        passed, refused = map(int, re.findall(r"\d+", reader.outputs[-1]))
        flood = Counted(passed, refused, 3)
        assert_seen(f"http://{LOOPBACK}:{ports['9180']}", {"token": (stranger / "state/admin.token").read_text().strip()}, flood, "orders")
        clock.at("seen")
        assert follow(reader, others[2:], ports["9180"]) == 4
        clock.at("all steps")
    finally:
        reader.close()
    record_property("remark", clock.remark(flood))
    assert refused > 0
    assert passed >= 20
    assert "5/s (burst 5): would have refused" in reader.outputs[-1]


def at_port(port: str) -> dict[str, str]:
    """The environment of a reader whose gateway has its admin port elsewhere than the page."""
    return {"SLUICE_ADMIN": f"http://{LOOPBACK}:{port}", "SLUICE_ADMIN__BIND": f"{LOOPBACK}:{port}"}


def _alive(port: str) -> bool:
    asked = subprocess.run(["curl", "-sf", f"http://{LOOPBACK}:{port}/livez"], capture_output=True, check=False)
    return asked.returncode == 0


SHOWN = [block for page in pages() for block in blocks(page, "sh")]


def test_every_block_of_the_pages_is_run_by_some_test() -> None:
    strangers = {}
    for block in SHOWN:
        if elsewhere(block) or block.page in {"README.md", "docs/tutorial.md", *MEETS_A_GATEWAY}:
            continue
        lines = [line for line in block.text.splitlines() if line.strip() and not line.startswith("#") and not MAKE.match(line)]
        if lines:
            strangers[block.id] = lines
    assert strangers == {}, "no test runs these blocks; let a test run them, and name that here"  # the others: test_inline.py


@pytest.mark.parametrize(("place", "ran"), ELSEWHERE.items(), ids=lambda value: " ".join(value) if isinstance(value, tuple) else "")
def test_what_runs_elsewhere_is_read_from_the_page_and_run_there(place: tuple[str, str], ran: Ran) -> None:
    """The test takes the block from the page itself, so the two cannot drift apart; and its target is the one that is named."""
    page, words = place
    shown(page, words)
    assert calls(ran.tree, ran.name, "shown", page, words), f"{ran.test} does not read the block"
    assert ran.apart == ran.by, "in `make test`, or named as what is not"


def test_a_test_that_does_not_read_the_block_is_found() -> None:
    tree = ast.parse("def test_a(fixed): pass\ndef fixed(): return shown('page', 'words')\ndef test_b(): 'shown(page, words)'")
    assert calls(tree, "test_a", "shown", "page", "words")
    assert not calls(tree, "test_b", "shown", "page", "words")
    assert not calls(tree, "test_a", "shown", "page", "other words")
