"""The ways to run `sluice quotas nightly` every night, each executed as the page and the files of `deploy/` write it, with paths replaced.

Gateways configured as the page says, with the token that the page makes; a log of three days. The crontab publishes two nights; each other
way begins with an empty state, so it has the second one to compute and to publish itself.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from limiter.quota_snapshot import load
from support.access_logs import SyntheticLog, steady
from support.examples import example
from support.gateways import Gateway, command
from support.images import USER, built, contained, described, reachable, unpacked
from support.pages import shown
from support.processes import HANG_S, LOOPBACK, Process, free_ports
from support.readers import DEPLOY_FOLDER, SYSTEMCTL, Reader
from support.spark_cluster import Cluster, spark_home
from support.spark_cluster import environment as spark_environment

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "quotas.md"
RUNNING = ROOT / "docs" / "running-the-quota-job.md"
SYSTEMD = ROOT / "deploy" / "systemd"
CRONJOB = ROOT / "deploy" / "kubernetes" / "quotas-cronjob.yaml"
APPLICATION = ROOT / "deploy" / "kubernetes" / "quotas-sparkapplication.yaml"
DAGS = ROOT / "deploy" / "airflow"
AIRFLOW = ROOT / "build" / "airflow" / "bin" / "airflow"  # `make test-airflow` makes it
FOLDERS = {  # of the page and the files -> within the test's folder
    "/var/log/sluice": "srv/access-log",
    "/var/lib/sluice-quotas": "srv/quota-state",
    "/etc/sluice": "etc",
    "/usr/bin/sluice": "bin/sluice",
    "/run/lock": "home",
    "/srv": "srv",
}
NAMES = ("gateway-0", "gateway-1")
JAVA_OPTIONS = (  # of those that Spark itself adds for its executors, what Arrow and Netty need
    "-Dio.netty.tryReflectionSetAccessible=true",
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.lang", "java.lang.invoke", "java.nio", "java.util", "sun.nio.ch")),
)
RULES = [{"name": "all", "match": {"protocol": "rocketmq"}, "limit": {"messages": "1000/s"}}]


def blocks(language: str) -> list[str]:
    """The code blocks in that language of both pages, of the night and of how the job is started."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text() + RUNNING.read_text(), re.MULTILINE | re.DOTALL)


def block_with(language: str, text: str) -> str:
    (found,) = [block for block in blocks(language) if text in block]
    return found


def yesterday() -> str:
    return f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}"


class Machine:
    """Where the job runs: /srv, /etc/sluice and so on are folders of the test; `sluice` is this tree."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.days = [f"{datetime.now(UTC) - timedelta(days=ago):%Y-%m-%d}" for ago in (2, 1, 0)]  # today is yesterday after midnight
        for name in ("bin", "srv", "etc", "home"):
            (folder / name).mkdir()
        sluice = folder / "bin" / "sluice"
        sluice.write_text(f'#!/bin/sh\nexec {shlex.join(command())} "$@"\n')
        sluice.chmod(0o755)
        self.gateways: list[Gateway] = []
        for name, day in itertools.product(NAMES, self.days):
            log = SyntheticLog(folder / "srv" / "access-log", day, gateway=name)
            log.run({"orders": steady(20)}, range(0, 86_400, 60), seed=1)
            log.write()

    def here(self, text: str) -> str:
        """`text` with the paths and ports of this machine."""
        text = re.sub("|".join(FOLDERS), lambda found: str(self.folder / FOLDERS[found[0]]), text)
        for port, gateway in zip((9180, 9181), self.gateways, strict=False):
            text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{gateway.admin_port}")
        return text

    def environment(self, **more: str) -> dict[str, str]:
        """As cron has it: nearly nothing. SLUICE_ADMIN stands in for the port 9180, which a test cannot take."""
        path = f"{self.folder / 'bin'}:/usr/local/bin:/usr/bin:/bin"
        java = {name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ}
        return {"PATH": path, "HOME": str(self.folder / "home"), "SLUICE_ADMIN": self.gateways[0].admin, **java, **more}

    def run(self, words: list[str], environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        env = self.environment() if environment is None else environment
        return subprocess.run(words, env=env, capture_output=True, text=True, timeout=900, check=False, cwd=self.folder)

    def forget(self) -> None:
        """No state any more: the next night has all to do."""
        shutil.rmtree(self.folder / FOLDERS["/var/lib/sluice-quotas"], ignore_errors=True)

    def published_at(self, gateway: int = 0) -> str:
        """When the quotas in force at a gateway were published; "": none are."""
        return str((self.gateways[gateway].get("/v1/quotas/status")["published"] or {}).get("at", ""))

    def nights(self) -> set[str]:
        """The day that a night may have learned from last: two where midnight has passed since the tests began."""
        return {self.days[1], yesterday()}

    def published(self, gateway: int = 0) -> str:
        """The last day that the quotas in force at a gateway have learned from; "": none are."""
        return str(self.gateways[gateway].get("/v1/quotas").get("date", ""))


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """With gateways that have the token of the page, made as the page makes it: at each running gateway, by its administrator."""
    made = Machine(tmp_path_factory.mktemp("machine"))
    for name in NAMES:
        port = free_ports(1)[0]
        listener = {"name": "one", "protocol": "rocketmq", "bind": "127.0.0.1:0", "upstream": f"127.0.0.1:{port}"}
        settings = {"gateway": {"name": name, "state_directory": "state"}, "access_log": "off"}
        made.gateways.append(Gateway(made.folder / f"of-{name}", [listener], RULES, settings, until="/livez"))
    (making,) = [line for line in block_with("sh", "token new nightly").splitlines() if "token new" in line]
    token = made.folder / "etc" / "nightly.token"
    with made.gateways[0], made.gateways[1]:
        for number, (name, gateway) in enumerate(zip(NAMES, made.gateways, strict=True), 1):
            admin = {"SLUICE_ADMIN": gateway.admin, "SLUICE_TOKEN_FILE": str(gateway.directory / "state" / "admin.token")}
            done = made.run(["sh", "-c", made.here(making)], made.environment(**admin))
            assert done.returncode == 0, done.stderr
            assert token.stat().st_mode & 0o777 == 0o600
            for each in (f"{name}.token", f"of-{number}.token"):  # as the cron job and the tunnels call them
                (made.folder / "etc" / each).write_text(token.read_text())
            if gateway is made.gateways[0]:
                first = token.read_text()
            token.unlink()
        token.write_text(first)
        yield made


def test_the_crontab_has_five_fields_and_no_percent_sign() -> None:
    """cron takes % for the end of a line. No CRON_TZ: Debian's cron (3.0pl1-162) does not know the name."""
    (entry,) = block_with("cron", "sluice").splitlines()
    assert re.fullmatch(r"20 0-6 \* \* \* +\S.*", entry)
    assert "%" not in entry


@pytest.mark.spark
@pytest.mark.long
def test_the_line_of_the_crontab_publishes_two_nights(machine: Machine) -> None:
    (entry,) = block_with("cron", "sluice").splitlines()
    line = entry.split(maxsplit=5)[5]
    done = machine.run(["sh", "-c", machine.here(f"{line} --date {machine.days[0]}")])  # as it ran a day ago
    assert done.returncode == 0, done.stderr
    assert machine.published() == machine.days[0]
    for _ in range(2):  # again an hour later: done already
        done = machine.run(["sh", "-c", machine.here(line)])
        assert done.returncode == 0, done.stderr
        assert machine.published() in machine.nights()


@pytest.mark.spark
@pytest.mark.slow
def test_the_commands_of_the_page_run_a_night(machine: Machine) -> None:
    """The one that `--help` has as well, by the token in its environment."""
    line = shown("docs/quotas.md", "--shadow-nights 3").text
    assert line.strip() == example("quota-state --shadow-nights 3")
    environment = machine.environment(SLUICE_TOKEN_FILE=machine.here("/etc/sluice/nightly.token"))
    done = machine.run(["sh", "-e", "-c", machine.here(line)], environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.spark
@pytest.mark.long
def test_the_command_with_the_tokens_file_publishes_a_night(machine: Machine) -> None:
    """With the token that the machine has made, as the page has it made."""
    _, nightly = machine.here(shown("docs/quotas.md", "token new nightly").text).splitlines()
    machine.forget()
    done = machine.run(["sh", "-e", "-c", nightly])
    assert done.returncode == 0, done.stderr
    assert machine.published() in machine.nights()


def unit(name: str) -> dict[str, list[str]]:
    """The settings of a unit file, in order."""
    found: dict[str, list[str]] = {}
    for line in (SYSTEMD / name).read_text().splitlines():
        key, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


def test_systemd_knows_every_word_of_the_units(tmp_path: Path) -> None:
    for name in ("sluice-quotas.service", "sluice-quotas.timer"):
        text = (SYSTEMD / name).read_text().replace("/usr/bin/sluice", "/bin/true")
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / "sluice-quotas.timer"), str(tmp_path / "sluice-quotas.service")],
        capture_output=True, text=True, timeout=HANG_S, check=False,
    )  # fmt: skip
    assert (done.returncode, [line for line in done.stderr.splitlines() if "sluice-quotas" in line]) == (0, [])
    (at,) = unit("sluice-quotas.timer")["OnCalendar"]
    done = subprocess.run(["systemd-analyze", "calendar", at], capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.spark
@pytest.mark.long
def test_the_unit_runs_with_the_credential_that_systemd_gives_it(machine: Machine) -> None:
    service = unit("sluice-quotas.service")
    (start,), (credential,) = service["ExecStart"], service["LoadCredential"]
    name, _, source = credential.partition(":")
    credentials = machine.folder / "home" / "credentials"
    credentials.mkdir(exist_ok=True)
    (credentials / name).write_text(Path(machine.here(source)).read_text())
    words = [word.replace("${CREDENTIALS_DIRECTORY}", str(credentials)) for word in shlex.split(machine.here(start))]
    machine.forget()
    before = machine.published_at()
    done = machine.run(words)
    assert done.returncode == 0, done.stderr
    assert "published at 1 gateway" in done.stderr, "it had nothing to do where another way had done the night"
    assert machine.published_at() > before
    assert machine.published() in machine.nights()


def tunnels() -> list[str]:
    """The lines of the page about gateways on other machines."""
    return block_with("sh", "SLUICE_GATEWAYS").splitlines()


@pytest.mark.slow
def test_ssh_knows_every_word_of_the_tunnels() -> None:
    assert shutil.which("ssh") is not None, "needs ssh: sh deploy/system-packages.sh ssh"
    lines = [line for line in tunnels() if line.startswith("ssh ")]
    assert len(lines) == 2
    for line in lines:
        done = subprocess.run(["ssh", "-G", *shlex.split(line)[1:]], capture_output=True, text=True, timeout=HANG_S, check=False)
        assert done.returncode == 0, done.stderr
        assert "exitonforwardfailure yes" in done.stdout
        assert "localforward " in done.stdout


@pytest.mark.spark
@pytest.mark.long
def test_the_gateways_behind_tunnels_are_all_published_at(machine: Machine) -> None:
    """SLUICE_GATEWAYS as the page exports it, with the gateways' own ports for those of the tunnels."""
    (export,) = [line for line in tunnels() if line.startswith("export ")]
    for number, gateway in enumerate(machine.gateways, 1):
        export = export.replace(f"127.0.0.1:918{number}", f"127.0.0.1:{gateway.admin_port}").replace(
            f"gateway-{number}.token", f"of-{number}.token"
        )
    machine.forget()
    before = [machine.published_at(number) for number in range(2)]
    command = "sluice quotas nightly --log /srv/access-log --state /srv/quota-state"
    done = machine.run(["sh", "-e", "-c", machine.here(f"{export}\n{command}")])
    assert done.returncode == 0, done.stderr
    assert "published at 2 gateways" in done.stderr
    assert all(machine.published_at(number) > at for number, at in enumerate(before))


@pytest.mark.spark
@pytest.mark.long
def test_the_container_of_the_cron_job_publishes_at_both_gateways(machine: Machine) -> None:
    job: dict[str, Any] = next(part for part in yaml.safe_load_all(CRONJOB.read_text()) if part["kind"] == "CronJob")
    assert (job["spec"]["schedule"], job["spec"]["timeZone"]) == ("40 0 * * *", "Etc/UTC")
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert [each["name"] for each in pod["volumes"]] == [each["name"] for each in container["volumeMounts"]]
    machine.forget()
    done = machine.run([machine.here(word) for word in (*container["command"], *container["args"])])
    assert done.returncode == 0, done.stderr
    assert "published at 2 gateways" in done.stderr
    assert {machine.published(number) for number in range(2)} <= machine.nights()


@pytest.fixture(scope="module")
def image(released: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The root filesystem of sluice-quotas, unpacked as the page says, and its configuration."""
    folder = tmp_path_factory.mktemp("image")
    archive = built(released, folder, "sluice-quotas")
    configuration = described(archive)
    copying = shown("docs/running-the-quota-job.md", "skopeo copy").text
    root = unpacked(archive, tmp_path_factory.mktemp("bundle"), copying)
    archive.unlink()
    shutil.rmtree(root.parents[1] / "layout")
    yield root, configuration
    shutil.rmtree(root.parent)


@pytest.mark.packages
def test_the_image_of_the_cron_job_publishes_at_both_gateways(machine: Machine, image: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """Its container as it is written: command, arguments, variables, user, read-only root and volumes; only the ports are this test's."""
    root, configuration = image
    job: dict[str, Any] = next(part for part in yaml.safe_load_all(CRONJOB.read_text()) if part["kind"] == "CronJob")
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    context, group = container["securityContext"], pod["securityContext"]["fsGroup"]
    assert configuration["User"] == f"{context['runAsUser']}:{context['runAsGroup']}" == f"{USER}:{group}"
    assert context["readOnlyRootFilesystem"]
    shutil.copytree(machine.folder / "srv/access-log", tmp_path / "data/access-log")
    (tmp_path / "tokens").mkdir()
    for name in NAMES:
        shutil.copyfile(machine.folder / "etc" / f"{name}.token", tmp_path / "tokens" / f"{name}.token")
    reachable(tmp_path, root)
    subprocess.run(["chown", "-R", f"{USER}:{group}", str(tmp_path / "data")], check=True)
    subprocess.run(["chgrp", "-R", str(group), str(tmp_path / "tokens")], check=True)
    subprocess.run(["chmod", "-R", "u=rX,g=rX,o=", str(tmp_path / "tokens")], check=True)
    mounts: list[str] = []
    for each in container["volumeMounts"]:
        options = {"work": ["--tmpfs"], "tokens": ["--ro-bind", str(tmp_path / "tokens")], "data": ["--bind", str(tmp_path / "data")]}
        mounts += [*options[each["name"]], each["mountPath"]]
    variables = dict(each.split("=", 1) for each in configuration["Env"]) | {each["name"]: each["value"] for each in container["env"]}
    command = [*container["command"], *container["args"]]
    for port, gateway in zip((9180, 9181), machine.gateways, strict=True):
        command = [word.replace(f"127.0.0.1:{port}", f"127.0.0.1:{gateway.admin_port}") for word in command]
    before = [machine.published_at(number) for number in range(2)]
    done = machine.run(contained(root, mounts, variables, configuration["WorkingDir"], *command))
    assert done.returncode == 0, done.stderr
    assert "published at 2 gateways" in done.stderr
    assert all(machine.published_at(number) > at for number, at in enumerate(before))
    assert {machine.published(number) for number in range(2)} <= machine.nights()


@pytest.mark.packages
def test_the_image_is_a_driver_and_an_executor_as_spark_on_kubernetes_starts_them(
    machine: Machine, image: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """With the program and the arguments of the SparkApplication, on a log in a folder. A master without workers stands for the API server.

    The test starts the executor that the driver waits for, as kubelet would, with the variables that Spark gives a pod.
    """
    root, configuration = image
    (application,) = yaml.safe_load_all(APPLICATION.read_text())
    template = application["spec"]["template"]
    for name in ("conf", "local"):
        (tmp_path / name).mkdir()
    shutil.copytree(machine.folder / "srv/access-log", tmp_path / "srv/access-log")
    port, page, driver = free_ports(3)
    settings = {
        "spark.master": f"spark://{LOOPBACK}:{port}", "spark.app.name": "night", "spark.driver.host": LOOPBACK, "spark.driver.port": driver,
        "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": 2, "spark.driver.memory": "512m",
    }  # fmt: skip
    (tmp_path / "conf/spark.properties").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    (tmp_path / "hosts").write_text(f"{LOOPBACK} localhost {socket.gethostname()}\n")  # kubelet writes the pod's own name there
    reachable(tmp_path, root)
    subprocess.run(["chown", "-R", f"{USER}:{USER}", *(str(tmp_path / name) for name in ("srv", "conf", "local"))], check=True)
    mounts = ["--tmpfs", "/tmp", "--bind", str(tmp_path / "srv"), "/srv", "--bind", str(tmp_path / "local"), "/tmp/local",
              "--ro-bind", str(tmp_path / "conf"), "/tmp/conf", "--ro-bind", str(tmp_path / "hosts"), "/etc/hosts"]  # fmt: skip
    every = dict(each.split("=", 1) for each in configuration["Env"])
    every |= {"SPARK_CONF_DIR": "/tmp/conf", "SPARK_LOCAL_DIRS": "/tmp/local"}

    def started(name: str, variables: Mapping[str, str], *words: str) -> Process:
        command = contained(root, mounts, every | dict(variables), configuration["WorkingDir"], *configuration["Entrypoint"], *words)
        return Process(command, log=tmp_path / f"{name}.log", cwd=tmp_path)

    arguments = [word.replace("s3a://bucket/", "file:///srv/") for word in template["arguments"]]
    submitted = ["--properties-file", "/tmp/conf/spark.properties", "--class", "org.apache.spark.deploy.PythonRunner",
                 template["mainApplicationFile"], *arguments, "--min-active-days", "1"]  # fmt: skip
    with ExitStack() as running:
        start = [str(spark_home() / "bin/spark-class"), "org.apache.spark.deploy.master.Master"]
        options = ["--host", LOOPBACK, "--port", str(port), "--webui-port", str(page)]
        cluster = Cluster(f"spark://{LOOPBACK}:{port}", f"http://{LOOPBACK}:{page}", tmp_path)
        running.enter_context(Process([*start, *options], log=tmp_path / "master.log", env=spark_environment(), cwd=tmp_path))
        night = running.enter_context(started("driver", {"SPARK_DRIVER_BIND_ADDRESS": LOOPBACK}, "driver", *submitted))
        night.wait_until(cluster.has_an_application, within=120, what="the driver is there")
        variables = {
            "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@{LOOPBACK}:{driver}", "SPARK_EXECUTOR_ID": "1",
            "SPARK_EXECUTOR_CORES": "1", "SPARK_EXECUTOR_MEMORY": "512m", "SPARK_RESOURCE_PROFILE_ID": "0",
            "SPARK_APPLICATION_ID": cluster.state()["activeapps"][0]["id"], "SPARK_EXECUTOR_POD_IP": LOOPBACK,
            "SPARK_EXECUTOR_POD_NAME": "night-exec-1", **{f"SPARK_JAVA_OPT_{number}": each for number, each in enumerate(JAVA_OPTIONS)},
        }  # fmt: skip
        executor = running.enter_context(started("executor", variables, "executor"))
        code = night.popen.wait(900)
        assert code == 0, f"{code}: {night.output()[-3000:]}{executor.output()[-3000:]}"
    assert {quota.topic for quota in load((tmp_path / "srv/quotas.json").read_bytes()).quotas} == {"orders"}


@pytest.mark.packages
def test_the_image_of_the_cron_job_has_five_programs_and_java_trusts_the_authorities(image: tuple[Path, dict[str, Any]]) -> None:
    root, _ = image
    programs = {path.name for folder in ("bin", "sbin", "usr/bin", "usr/sbin") for path in (root / folder).glob("*")}
    assert programs == {"python3.11", "sluice", "bash", "chmod", "dirname", "env", "rm"}
    assert not [path for path in root.rglob("*") if path.is_file() and not path.is_symlink() and path.stat().st_mode & 0o6000], "setuid"
    found = (root / "srv").stat()
    assert (found.st_mode & 0o7777, found.st_uid, found.st_gid) == (0o750, USER, USER)
    assert {"openjdk-17-jre-headless", "libc6", "python3.11-minimal"} <= {path.name for path in (root / "var/lib/dpkg/status.d").iterdir()}
    reachable(root)
    (keytool,) = root.glob("usr/lib/jvm/java-17-openjdk-*/bin/keytool")
    words = ["-list", "-cacerts", "-storepass", "changeit"]
    asked = contained(root, ["--tmpfs", "/tmp"], {}, "/", f"/{keytool.relative_to(root)}", *words)
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=HANG_S)
    assert done.returncode == 0, done
    certificates = (root / "etc/ssl/certs/ca-certificates.crt").read_text().count("BEGIN CERTIFICATE")
    assert f"contains {certificates} entries" in done.stdout


def airflow(machine: Machine, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    settings = {
        "AIRFLOW_HOME": str(machine.folder / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "SLUICE_QUOTAS_LOG": machine.here("/srv/access-log"),
        "SLUICE_QUOTAS_STATE": machine.here("/srv/quota-state"),
        "SLUICE_TOKEN_FILE": machine.here("/etc/sluice/nightly.token"),
    }
    return machine.run([str(AIRFLOW), *words], machine.environment(**(settings | more)))


@pytest.mark.airflow
@pytest.mark.slow
def test_airflow_reads_the_dag_and_runs_it(machine: Machine) -> None:
    assert airflow(machine, "db", "migrate").returncode == 0
    errors = airflow(machine, "dags", "list-import-errors", "-o", "json")
    assert errors.returncode == 0, errors.stderr
    machine.forget()
    before = machine.published_at()
    done = airflow(machine, "dags", "test", "sluice_quotas")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "new_state=success" in done.stdout + done.stderr
    assert machine.published_at() > before
    assert machine.published() in machine.nights()
    done = airflow(machine, "dags", "test", "sluice_quotas", SLUICE_QUOTAS_LOG="ftp://nowhere/log")
    assert done.returncode == 1
    assert "ended with 2: wrong usage" in done.stdout + done.stderr
    assert "up_for_retry" not in (done.stdout + done.stderr).lower(), "trying again does not mend it"


def test_the_way_from_an_empty_machine_makes_a_good_configuration(tmp_path: Path) -> None:
    """Its blocks but for the packages, with /etc, /var and /run within the test's folder, and a stand-in for systemctl."""
    page = PAGE.read_text()
    section = page[page.index("## From an empty machine") : page.index("## Run it")]
    (settings,) = re.findall(r"^ {3}```yaml\n(.*?)^ {3}```$", section, re.MULTILINE | re.DOTALL)
    (tmp_path / "etc" / "sluice").mkdir(parents=True)
    (tmp_path / "etc" / "systemd" / "system").mkdir(parents=True)
    folders = {f"{before}/{name}/": f"{before}{tmp_path}/{name}/" for before in (" ", ":") for name in ("etc", "var")}
    folders |= {"/run/credentials/sluice.service": f"{tmp_path}/etc/sluice", " deploy/": f" {DEPLOY_FOLDER}"}  # which systemd makes of it
    reader = Reader(tmp_path, folders, {}, {"systemctl": SYSTEMCTL})
    reader.run(shown("docs/quotas.md", "sluice token new --file /etc"))
    written = tmp_path / "etc" / "sluice" / "sluice.yaml"
    listener = "listeners: [{name: one, protocol: rocketmq, bind: 127.0.0.1:10911, upstream: 127.0.0.1:1}]\n"
    written.write_text(reader.here(re.sub(r"^ {3}", "", settings, flags=re.MULTILINE)) + listener + yaml.safe_dump({"rules": RULES}))
    checked = [*command(), "check", "--strict", "-c", str(written)]
    done = subprocess.run(checked, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "etc" / "systemd" / "system" / "sluice-quotas.timer").exists()
