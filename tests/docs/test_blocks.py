"""Blocks of the pages that need more than the gateway of a walk: each as the page shows it, with folders and ports replaced.

Where a machine that runs tests has not what a block needs, or must not be changed, a program stands in (support/readers.py). It takes
nothing but what the real one would take.
"""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from admin.access import Access
from cli.quota_nightly import nightly
from common.log_files.compression import compress
from common.log_files.names import look
from common.tls.context import client_hop
from support.access_logs import SyntheticLog, steady
from support.admin.serving import serving
from support.busy_gateway import VIEWER, BusyGateway
from support.log_files import NOON, log_file
from support.pages import Block, shown
from support.processes import HANG_S
from support.readers import APT_GET, DEPLOY_FOLDER, HDFS, JOURNALCTL, PIP, SSH, SYSTEMCTL, Reader
from support.s3_stand_in import s3_stand_in
from support.tls import Authority

pytestmark = pytest.mark.slow  # processes for each

LOG: Final = "/var/log/sluice"
QUOTAS: Final = {
    "version": 1, "computed_at": "2026-11-21T01:00:00Z", "code": "test", "inputs": [], "parameters": {},
    "quotas": [{"protocol": "rocketmq", "topic": "orders", "messages": {"rate": 30, "burst": 30}}],
}  # fmt: skip


def at(gateway: BusyGateway, folder: Path) -> Reader:
    """Somebody at a shell beside a gateway, with its token; without a terminal to be asked on."""
    token = gateway.directory / "state" / "admin.token"
    return Reader(folder, {}, {"SLUICE_ADMIN": gateway.admin, "SLUICE_TOKEN_FILE": str(token)})


# ---- the access log ----------------------------------------------------------------------------------------------------


def test_the_log_is_compacted(tmp_path: Path) -> None:
    log_file(tmp_path / "log")
    Reader(tmp_path, {LOG: str(tmp_path / "log")}, {}, {"pip": PIP}).run(shown("docs/access-log.md", "sluice log compact"))
    assert len(list((tmp_path / "log").rglob("*.parquet"))) == 1


def test_the_log_is_shipped_to_s3_once_and_again_and_again(tmp_path: Path) -> None:
    """The block's last line goes on until SIGTERM."""
    block = shown("docs/access-log.md", "sluice log ship")
    *once, last = block.text.rstrip().splitlines()
    log_file(tmp_path / "log")
    with s3_stand_in("logs") as s3:
        reader = Reader(tmp_path, {LOG: str(tmp_path / "log")}, s3.environment(), {"pip": PIP})
        reader.run(Block(block.page, block.line, block.language, "\n".join(once)))
        assert sorted(key.rpartition("/")[2] for key in s3.objects) == ["g1-b1-000000.jsonl", "hr=12.json"]
        log_file(tmp_path / "log", NOON + 3600)
        process = reader.start(last.partition("#")[0])
        try:
            process.wait_until(lambda: "file shipped to s3://logs/sluice" in process.output(), within=60, what="a round")
            process.popen.send_signal(signal.SIGTERM)
            assert process.popen.wait(HANG_S) == 0
        finally:
            reader.close()
        assert len(s3.objects) == 4


def test_rclone_copies_what_is_compressed_and_nothing_else(tmp_path: Path) -> None:
    log, target = tmp_path / "log", tmp_path / "target"
    for number in range(3):
        log_file(log, number=number)
    for file, codec in zip(look(log).files, ("zstd", "gzip"), strict=False):
        compress(file, codec, lambda: None)
    log_file(log, NOON + 3600, form="jsonl.open")
    (log / "manifest" / "g1" / "dt=2026-11-21").mkdir(parents=True)
    (log / "manifest" / "g1" / "dt=2026-11-21" / "hr=12.json").write_text("{}")
    (log / "shipped").mkdir()
    (log / "shipped" / "mark").touch()
    (log / "dt=2026-11-21" / "hr=12" / "g1-b1-000002.jsonl.gz.tmp").touch()
    remote = {"RCLONE_CONFIG_REMOTE_TYPE": "alias", "RCLONE_CONFIG_REMOTE_REMOTE": str(target), "HOME": str(tmp_path)}
    reader = Reader(tmp_path, {LOG: str(log)}, remote)
    for _ in range(2):
        reader.run(shown("docs/access-log.md", "rclone copy"))
        log_file(log, NOON + 3600, number=1)  # and a second round with something new that is plain
    copied = sorted(str(path.relative_to(target / "logs" / "sluice")) for path in target.rglob("*") if path.is_file())
    assert copied == [
        "dt=2026-11-21/hr=12/g1-b1-000000.jsonl.zst", "dt=2026-11-21/hr=12/g1-b1-000001.jsonl.gz", "manifest/g1/dt=2026-11-21/hr=12.json",
    ]  # fmt: skip


def test_hadoops_client_copies_what_is_compressed_once(tmp_path: Path) -> None:
    """With a stand-in for `hdfs`; the loop around it is the shell's own."""
    log = tmp_path / "log"
    for number in range(3):
        log_file(log, number=number)
    for file, codec in zip(look(log).files, ("zstd", "gzip"), strict=False):
        compress(file, codec, lambda: None)
    reader = Reader(tmp_path, {LOG: str(log)}, {}, {"hdfs": HDFS})
    for _ in range(2):
        reader.run(shown("docs/access-log.md", "hdfs dfs"))
    folder = tmp_path / "hdfs" / "logs" / "sluice" / "dt=2026-11-21" / "hr=12"
    assert sorted(path.name for path in folder.iterdir()) == ["g1-b1-000000.jsonl.zst", "g1-b1-000001.jsonl.gz"]
    assert (folder / "g1-b1-000001.jsonl.gz").read_bytes() == (log / "dt=2026-11-21" / "hr=12" / "g1-b1-000001.jsonl.gz").read_bytes()


# ---- the nightly job ---------------------------------------------------------------------------------------------------


def test_an_empty_machine_gets_java_and_sluice(tmp_path: Path) -> None:
    """What would be fetched is looked at and not fetched: pip and apt-get stand in, `venv` is Python's own."""
    (tmp_path / "opt").mkdir()
    (tmp_path / "usr" / "bin").mkdir(parents=True)
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "sluice_gateway-1.0-py3-none-any.whl").touch()  # which `make build` leaves
    folders = {"/opt/sluice": str(tmp_path / "opt" / "sluice"), "/usr/bin/sluice": str(tmp_path / "usr" / "bin" / "sluice")}
    venv = 'mkdir -p "$3/bin" && cp "$READER/programs/pip" "$READER/programs/sluice" "$3/bin"'
    stand_ins = {"pip": PIP, "apt-get": APT_GET, "python3": f'[ "$1 $2" = "-m venv" ] && {venv}'}
    reader = Reader(tmp_path, folders, {}, stand_ins)
    reader.run(shown("docs/quotas.md", "apt-get install -y python3-venv"))
    asked = subprocess.run([tmp_path / "usr" / "bin" / "sluice", "version"], capture_output=True, text=True, check=True)
    assert "sluice" in asked.stdout


def test_the_timer_of_systemd_is_installed(tmp_path: Path) -> None:
    (tmp_path / "etc" / "systemd" / "system").mkdir(parents=True)
    reader = Reader(tmp_path, {"/etc/systemd": f"{tmp_path}/etc/systemd", "deploy/": DEPLOY_FOLDER}, {},
                    {"systemctl": SYSTEMCTL, "journalctl": JOURNALCTL})  # fmt: skip
    reader.run(shown("docs/running-the-quota-job.md", "systemctl start sluice-quotas"))


def test_tunnels_lead_to_gateways_that_nightly_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenSSH reads the options and says what it would do; the names of the page lead nowhere."""
    block = shown("docs/running-the-quota-job.md", "SLUICE_GATEWAYS")
    reader = Reader(tmp_path, {}, {"HOME": str(tmp_path)}, {"ssh": SSH})
    said = reader.run(Block(block.page, block.line, block.language, f'{block.text}\necho "$SLUICE_GATEWAYS"'))
    ports = ("9181", "9182")
    for port in ports:
        assert f"localforward {port} [127.0.0.1]:9180" in said
    assert said.count("exitonforwardfailure yes") == len(ports)
    monkeypatch.setenv("SLUICE_GATEWAYS", said.splitlines()[-1])
    asked = nightly.make_context("nightly", ["--log", "log", "--state", "state"])
    assert [each.partition(",")[0] for each in asked.params["gateways"]] == [f"http://127.0.0.1:{port}" for port in ports]


@pytest.mark.spark
@pytest.mark.slow
def test_quotas_are_computed_planned_and_applied_from_todays_log(busy: BusyGateway) -> None:
    """From the log that the gateway has written since it started."""
    reader = at(busy, busy.directory)
    reader.replaced["sluice quotas apply quotas.json"] = "sluice quotas apply --yes quotas.json"  # what it would ask on a terminal
    reader.replaced["sluice quotas plan quotas.json"] = "sluice quotas plan quotas.json || [ $? = 2 ]"  # the page: 2 when something changes
    reader.run(shown("docs/quotas.md", "--date $(date -u +%F)"), within=900)
    assert busy.get("/v1/quotas/status")["published"] is not None


@pytest.mark.spark
@pytest.mark.long  # Spark starts three times, for what the examples of --help do in one session (tests/spark_jobs/test_examples.py)
def test_quotas_are_computed_and_tried_on_days_that_were(busy: BusyGateway, tmp_path: Path) -> None:
    for day in ("2026-11-14", "2026-11-20"):
        log = SyntheticLog(tmp_path / "access-log", day)
        log.run({"orders": steady(20)}, range(0, 86_400, 60), seed=1)
        log.write()
    (tmp_path / "limits.yaml").write_text("rules: [{name: all, limit: {messages: 10/s}}]\n")
    assert busy.put("/v1/quotas", {**QUOTAS, "quotas": []}).status == 200  # those of other tests would all vanish, which a rail stops
    reader = at(busy, tmp_path)
    reader.replaced["sluice quotas apply quotas.json"] = "sluice quotas apply --yes quotas.json"
    reader.run(shown("docs/quotas.md", "sluice quotas plan  quotas.json"), within=900)
    assert json.loads((tmp_path / "quotas.json").read_text())["date"] == "2026-11-20"
    reader.run(shown("docs/backtest.md", "sluice quotas backtest"), within=900)  # Spark starts twice: a busy machine takes minutes
    assert json.loads((tmp_path / "result.json").read_text())["totals"]


# ---- a running gateway -------------------------------------------------------------------------------------------------


def test_quotas_are_reported(busy: BusyGateway, tmp_path: Path) -> None:
    for name in ("quotas.json", "last-night.json"):
        (tmp_path / name).write_text(json.dumps(QUOTAS))
    assert busy.put("/v1/quotas", QUOTAS).status == 200
    try:
        said = at(busy, tmp_path).run(shown("docs/quotas.md", "sluice quotas report"))
    finally:
        busy.put("/v1/quotas", {**QUOTAS, "quotas": []})
    assert said.count("orders (rocketmq)") == 2
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    assert (tmp_path / "report.md").exists()


def test_a_developer_is_told_why(busy: BusyGateway, tmp_path: Path) -> None:
    (tmp_path / "orders-team.token").write_text(VIEWER)
    (tmp_path / "orders-team.token").chmod(0o600)
    reader = Reader(tmp_path, {"http://127.0.0.1:9180": busy.admin}, {})
    said = reader.run(shown("docs/my-messages-are-refused.md", "sluice why"))
    assert said.count("limited now") == 3, said


def test_tokens_are_made_listed_rotated_and_revoked(busy: BusyGateway, tmp_path: Path) -> None:
    said = at(busy, tmp_path).run(shown("docs/reaching-the-admin-port.md", "sluice token new grafana"))
    assert "grafana" in said


def test_the_admin_port_is_reached_by_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    (tmp_path / "one").mkdir()
    access = Access(tls=client_hop(*authority.issue("server", "localhost"), None).context)
    with serving(tmp_path, "one", access=access) as served:
        api: Any = served.gateways[0]
        (tmp_path / "ca.pem").write_bytes(authority.file.read_bytes())
        (tmp_path / "my.token").write_bytes((api.folder / "admin.token").read_bytes())
        reader = Reader(tmp_path, {"sluice.monitoring.svc:9180": f"localhost:{api.address[1]}"}, {})
        said = reader.run(shown("docs/reaching-the-admin-port.md", "sluice status --admin https"))
        assert said.startswith("health ")
        assert " one " in said.splitlines()[0]
