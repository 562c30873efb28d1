"""The units of deploy/systemd under a real systemd, in namespaces of their own: sockets, readiness, reload, watchdog, sandbox, upgrades.

Clients and brokers' stand-ins are outside; the network is the machine's. `make test-long` has the twenty restarts.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import pika
import pika.exceptions
import pytest

from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.brokers.stand_ins import rabbitmq as rabbitmq_stand_in
from support.brokers.stand_ins import rocketmq as rocketmq_stand_in
from support.clients.newcomers import NEWCOMERS, Newcomers
from support.pages import ROOT
from support.processes import HANG_S, LOOPBACK, free_ports, wait_until
from support.rocketmq.frames import heartbeat
from support.systemd_namespace import SystemdNamespace

pytestmark = [pytest.mark.namespaces, pytest.mark.slow]
UNITS: Final = ROOT / "deploy" / "systemd"
SERVICES: Final = {
    "sluice": 1.2,
    "sluice-quotas": 1.5,
    "sluice-ship": 1.5,
}  # exposure by `systemd-analyze security`, 0 to 10; as the page says
CONFIG: Final = """\
gateway: {{name: host, state_directory: /var/lib/sluice}}
listeners:
  - {{name: rabbit, protocol: amqp, bind: "127.0.0.1:{ports[0]}", upstream: "{rabbit}"}}
  - {{name: rocket, protocol: rocketmq, bind: "127.0.0.1:{ports[1]}", upstream: "{rocket}"}}
admin: {{bind: "127.0.0.1:{ports[2]}"}}
access_log: {{directory: /var/log/sluice}}
disk: {{low_watermark: 1MiB}}
rules: [{{name: all, match: {{protocol: rocketmq}}, per: topic, limit: {{messages: {rate}/s}}}}]
"""


class Machine:
    """The namespace, with the ports of its gateway: AMQP, RocketMQ, admin."""

    def __init__(self, inside: SystemdNamespace, ports: list[int], config: Callable[[str], str]) -> None:
        self.inside = inside
        self.ports = ports
        self.config = config  # by the rate of its rule

    def write(self, name: str, text: str) -> None:
        path = f"/etc/{name}"
        self.inside.run("sh", "-c", 'mkdir -p "$(dirname "$1")" && printf %s "$2" > "$1"', "sh", path, text)

    def sluice(self, *words: str) -> str:
        admin = f"http://{LOOPBACK}:{self.ports[2]}"
        token = "SLUICE_TOKEN_FILE=/var/lib/sluice/admin.token"
        return self.inside.run("env", token, f"SLUICE_ADMIN={admin}", "/opt/sluice/bin/sluice", *words).stdout


@contextmanager
def machine(folder: Path, rabbit: str, rocket: str, **more: str) -> Iterator[Machine]:
    """As somebody has installed it who has read the units' heads."""
    ports = free_ports(3)

    def config(rate: str) -> str:
        return CONFIG.format(ports=ports, rabbit=rabbit, rocket=rocket, rate=rate)

    units = {f"etc/systemd/system/{path.name}": path.read_text() for path in UNITS.iterdir()}
    sockets = "".join(f"ListenStream={LOOPBACK}:{port}\n" for port in ports)
    bare = re.sub(r"^ListenStream=\S+\n", "", units["etc/systemd/system/sluice.socket"], flags=re.MULTILINE)
    units["etc/systemd/system/sluice.socket"] = bare.replace("Backlog=", f"{sockets}Backlog=")
    files = {**units, "etc/sluice/sluice.yaml": config("10"), **more}
    with SystemdNamespace(folder, files) as inside:
        yield Machine(inside, ports, config)


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Machine]:
    with (
        rabbitmq_stand_in() as rabbit,
        rocketmq_stand_in() as rocket,
        machine(tmp_path / "systemd", rabbit.address, rocket.address) as made,
    ):
        yield made


def rocketmq_client(port: int) -> str:
    """Connects, is answered, goes. What became of it."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=HANG_S) as client:
            client.sendall(heartbeat())
            return "answered" if client.recv(4096) else "closed"
    except ConnectionRefusedError:
        return "refused"
    except OSError as error:
        return type(error).__name__


def amqp_client(port: int) -> str:
    """Connects, publishes with a confirm, goes."""
    parameters = pika.ConnectionParameters(LOOPBACK, port, socket_timeout=60, stack_timeout=60, blocked_connection_timeout=60)
    try:
        connection = pika.BlockingConnection(parameters)
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", "jobs", b"x")
        connection.close()
    except pika.exceptions.ConnectionClosedByBroker as error:
        return "told" if error.reply_code == 320 else f"closed with {error.reply_code}"
    except pika.exceptions.AMQPConnectionError as error:
        refused = "refused" in repr(error).lower() or "refused" in repr(error.args).lower() or "refused" in repr(error.__cause__).lower()
        return "refused" if refused else type(error).__name__
    return "answered"


def test_the_socket_starts_the_service_and_systemd_hears_that_it_is_ready(installed: Machine) -> None:
    """`Type=notify`: started is when clients are served. Who came first has waited."""
    inside = installed.inside
    inside.systemctl("start", "sluice.socket")
    assert inside.show("sluice.service", "ActiveState") == "inactive"
    assert rocketmq_client(installed.ports[1]) == "answered"
    inside.wait_for("sluice.service", "ActiveState", "active")
    assert amqp_client(installed.ports[0]) == "answered"
    assert inside.show("sluice.service", "NRestarts") == "0"
    assert "inherited_socket_unused" not in inside.log()
    pid = inside.main_pid("sluice.service")
    status = inside.run("cat", f"/proc/{pid}/status").stdout
    assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE)
    assert re.search(r"^NoNewPrivs:\s+1$", status, re.MULTILINE)
    assert re.search(r"^Seccomp:\s+2$", status, re.MULTILINE)
    assert not re.search(r"^Uid:\s+0\b", status, re.MULTILINE)
    assert inside.run("stat", "-c", "%a", "/var/lib/private/sluice/admin.token").stdout.strip() == "600"


def test_reload_takes_new_rules_and_keeps_the_process(installed: Machine) -> None:
    inside = installed.inside
    inside.systemctl("start", "sluice.socket", "sluice.service")
    pid = inside.main_pid("sluice.service")
    installed.write("sluice/sluice.yaml", installed.config("77"))
    inside.systemctl("reload", "sluice.service")
    wait_until(lambda: "77" in installed.sluice("rules", "list", "-o", "json"), within=30, what="the new limit")
    inside.wait_for("sluice.service", "ActiveState", "active")
    assert inside.main_pid("sluice.service") == pid


def test_a_configuration_that_is_faulty_is_not_tried_again_and_again(installed: Machine) -> None:
    inside = installed.inside
    installed.write("sluice/sluice.yaml", "listener: []\n")
    assert inside.systemctl("start", "sluice.service", check=False).returncode == 1
    assert inside.show("sluice.service", "ExecMainStatus") == "3"
    assert inside.show("sluice.service", "NRestarts") == "0"
    assert inside.show("sluice.service", "ActiveState") == "failed"
    assert "did you mean `listeners`?" in inside.log()


def fed_at(inside: SystemdNamespace) -> int:
    """When the watchdog was fed last: microseconds."""
    return int(inside.show("sluice.service", "WatchdogTimestampMonotonic"))


def test_a_process_that_is_stopped_is_ended_by_the_watchdog_and_another_serves(installed: Machine) -> None:
    """The event loop feeds it, so a process that does not turn is found. Its clients wait in the queue of the sockets."""
    inside = installed.inside
    installed.write("systemd/system/sluice.service.d/soon.conf", "[Service]\nWatchdogSec=2\nTimeoutAbortSec=2\nTimeoutStopSec=4\n")
    inside.systemctl("daemon-reload")
    inside.systemctl("start", "sluice.socket", "sluice.service")
    pid = inside.main_pid("sluice.service")
    began = fed_at(inside)
    wait_until(lambda: fed_at(inside) - began > 5e6, within=60, what="the loop to have fed it for twice as long as its patience")
    assert inside.main_pid("sluice.service") == pid
    inside.run("kill", "-STOP", str(pid))
    # systemd lets the process go on to end it (SIGCONT), so one more client may be accepted, and reset with it.
    assert rocketmq_client(installed.ports[1]) in {"answered", "ConnectionResetError"}
    assert inside.main_pid("sluice.service") != pid
    assert rocketmq_client(installed.ports[1]) == "answered"
    assert inside.show("sluice.service", "NRestarts") == "1"
    assert "Watchdog timeout" in inside.log()


def served_since(seen: dict[str, Counter[str]], before: dict[str, int]) -> bool:
    """Whether more than five clients of each protocol were answered since."""
    return all(seen[name]["answered"] > before[name] + 5 for name in seen)


# pika does not close the sockets of its interrupter where a handshake fails.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.long
def test_restarts_under_load_refuse_nobody(installed: Machine) -> None:
    """An upgrade: the new version is installed, and the service restarted. New clients of both protocols come all the time."""
    restarts = 20
    inside = installed.inside
    inside.systemctl("start", "sluice.socket", "sluice.service")
    enough = threading.Event()
    seen: dict[str, Counter[str]] = {"amqp": Counter(), "rocketmq": Counter()}

    def come(protocol: str, client: Callable[[int], str], port: int) -> None:
        while not enough.is_set():
            seen[protocol][client(port)] += 1
            time.sleep(0.01)

    threads = [threading.Thread(target=come, args=("amqp", amqp_client, installed.ports[0])) for _ in range(2)]
    threads += [threading.Thread(target=come, args=("rocketmq", rocketmq_client, installed.ports[1])) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        pids = {inside.main_pid("sluice.service")}
        for _ in range(restarts):
            before = {name: each["answered"] for name, each in seen.items()}
            inside.systemctl("reset-failed", "sluice.service")  # twenty in as many seconds are more than an operator's: StartLimitBurst
            inside.systemctl("restart", "sluice.service")
            pids.add(inside.main_pid("sluice.service"))
            wait_until(partial(served_since, seen, before), within=60, what="clients of the new one")
    finally:
        enough.set()
        for thread in threads:
            thread.join(60)
    assert len(pids) == restarts + 1
    for protocol, outcomes in seen.items():
        assert outcomes["refused"] == 0, f"{protocol}: {outcomes}"
    # A connection that the end of the old process met may be told or closed; each restart may meet those that are open then, no more.
    met = {name: sum(outcomes.values()) - outcomes["answered"] for name, outcomes in seen.items()}
    assert all(each <= 4 * restarts for each in met.values()), seen


@pytest.mark.rabbitmq
@pytest.mark.parametrize("restarts", [2, pytest.param(20, marks=pytest.mark.long)])
def test_restarts_in_front_of_a_real_broker_lose_nothing(
    tmp_path: Path, rabbitmq: RabbitMQ, restarts: int, record_property: Callable[[str, object], None]
) -> None:
    """RabbitMQ itself behind the unit, with all of its sandbox: what was confirmed is in the queue, once."""
    with (
        Queue(rabbitmq.url, "restarted") as queue,
        rocketmq_stand_in() as rocket,
        machine(tmp_path / "systemd", f"{LOOPBACK}:{rabbitmq.port}", rocket.address) as installed,
    ):
        inside = installed.inside
        inside.systemctl("start", "sluice.socket", "sluice.service")
        newcomers = Newcomers(installed.ports[0], "restarted")
        with newcomers.coming():
            for _ in range(restarts):
                wait_until(partial(newcomers.have_confirmed, len(newcomers.confirmed) + 20), within=60, what="confirms")
                inside.systemctl("reset-failed", "sluice.service")
                inside.systemctl("restart", "sluice.service")
            wait_until(partial(newcomers.have_confirmed, len(newcomers.confirmed) + 20), within=60, what="confirms")
        stored = queue.drain()
    record_property("remark", f"{len(newcomers.confirmed)} confirmed, {newcomers.told} told, {len(newcomers.faults)} closed unheard")
    assert set(newcomers.confirmed) <= set(stored)
    assert len(stored) == len(set(stored))
    assert not [each for each in newcomers.faults if "Refused" in each]
    # Accepted by the old process, and it had said nothing yet: each client may meet that at each restart.
    assert newcomers.told + len(newcomers.faults) <= restarts * NEWCOMERS


def lives(inside: SystemdNamespace, pid: int) -> bool:
    return inside.run("test", "-e", f"/proc/{pid}", check=False).returncode == 0


def held_of(installed: Machine, routing_key: str) -> int:
    """How many messages with this routing key wait in the gateway."""
    found = json.loads(installed.sluice("topics", "list", "-o", "json"))
    return sum(each["waiting"] for each in found if each["topic"].endswith(f"/{routing_key}"))


@pytest.mark.rabbitmq
@pytest.mark.parametrize("upgrades", [2, pytest.param(20, marks=pytest.mark.long)])
def test_at_sigusr2_the_next_process_serves_at_once_whatever_the_one_before_still_holds(
    tmp_path: Path, rabbitmq: RabbitMQ, upgrades: int, record_property: Callable[[str, object], None]
) -> None:
    """It is the service's main process, the one before works off what it holds and ends, and a stop and a start go as ever."""
    held, rate = 240, 20
    limit = f"{{messages: {rate}/s, burst: {{messages: {rate}}}}}"
    slow = f"{{name: slow, match: {{protocol: amqp, routing_key: held}}, per: topic, limit: {limit}}}"
    with (
        Queue(rabbitmq.url, "upgraded") as queue,
        Queue(rabbitmq.url, "held") as waiting,
        rocketmq_stand_in() as rocket,
        machine(tmp_path / "systemd", f"{LOOPBACK}:{rabbitmq.port}", rocket.address) as installed,
    ):
        inside = installed.inside
        config = installed.config("10").replace("/var/lib/sluice}", "/var/lib/sluice, takeover: /var/lib/sluice/takeover.sock}")
        installed.write("sluice/sluice.yaml", config.replace("rules: [", f"rules: [{slow}, "))
        inside.systemctl("start", "sluice.socket", "sluice.service")
        pids = [inside.main_pid("sluice.service")]
        newcomers = Newcomers(installed.ports[0], "upgraded")
        publisher = pika.BlockingConnection(pika.ConnectionParameters(LOOPBACK, installed.ports[0]))
        channel = publisher.channel()
        for number in range(held):
            channel.basic_publish("", waiting.name, b"x", pika.BasicProperties(message_id=str(number)))
        wait_until(lambda: held_of(installed, "held") > held / 2, within=60, what="the gateway holds most of them")
        with newcomers.coming():
            for _ in range(upgrades):
                wait_until(partial(newcomers.have_confirmed, len(newcomers.confirmed) + 20), within=60, what="confirms")
                inside.systemctl("kill", "--kill-who=main", "--signal=SIGUSR2", "sluice.service")
                wait_until(lambda: inside.main_pid("sluice.service") not in pids, within=60, what="the next one to be the main process")
                pids.append(inside.main_pid("sluice.service"))
                if len(pids) == 2:
                    assert lives(inside, pids[0]), "it holds nothing any more: newcomers would not have waited for it either"
            wait_until(partial(newcomers.have_confirmed, len(newcomers.confirmed) + 20), within=60, what="confirms")
        wait_until(lambda: not lives(inside, pids[0]), within=90, what="the first process ends")
        with suppress(pika.exceptions.AMQPError):
            publisher.close()
        assert inside.show("sluice.service", "ActiveState") == "active"
        assert inside.show("sluice.service", "NRestarts") == "0"
        began = fed_at(inside)
        wait_until(lambda: fed_at(inside) > began, within=60, what="the watchdog to be fed by the new main process")
        inside.systemctl("reload", "sluice.service")
        inside.run("kill", "-KILL", str(pids[-1]))
        wait_until(lambda: inside.main_pid("sluice.service") not in [0, *pids], within=60, what="another one for the one that was killed")
        pids.append(inside.main_pid("sluice.service"))
        inside.systemctl("restart", "sluice.service")
        assert inside.main_pid("sluice.service") not in pids
        assert rocketmq_client(installed.ports[1]) == "answered"
        stored = queue.drain()
        assert sorted(waiting.drain(), key=int) == [str(number) for number in range(held)]
        said = inside.log()
    record_property("remark", f"{len(newcomers.confirmed)} confirmed, {newcomers.told} told, {newcomers.longest_s:.2f} s to log in")
    assert newcomers.faults == []
    assert set(newcomers.confirmed) <= set(stored)
    assert len(stored) == len(set(stored))
    assert said.count('"taken_over"') == upgrades
    assert "reception only permitted" not in said, "what a process says of itself that is not the main one"
    assert "which is not our child" not in said


def test_a_next_process_that_does_not_start_leaves_the_running_one_serving(installed: Machine) -> None:
    inside = installed.inside
    config = installed.config("10").replace("/var/lib/sluice}", "/var/lib/sluice, takeover: /var/lib/sluice/takeover.sock}")
    installed.write("sluice/sluice.yaml", config)
    inside.systemctl("start", "sluice.socket", "sluice.service")
    pid = inside.main_pid("sluice.service")
    installed.write("sluice/sluice.yaml", "listener: []\n")
    inside.systemctl("kill", "--kill-who=main", "--signal=SIGUSR2", "sluice.service")
    wait_until(lambda: ") has ended" in inside.log(), within=60, what="the line about it")
    assert rocketmq_client(installed.ports[1]) == "answered"
    assert (inside.main_pid("sluice.service"), inside.show("sluice.service", "ActiveState")) == (pid, "active")
    installed.write("sluice/sluice.yaml", config)
    inside.systemctl("kill", "--kill-who=main", "--signal=SIGUSR2", "sluice.service")
    wait_until(lambda: inside.main_pid("sluice.service") != pid, within=60, what="the next one to be the main process")
    assert rocketmq_client(installed.ports[1]) == "answered"
    inside.systemctl("stop", "sluice.socket", "sluice.service")
    assert inside.show("sluice.service", "Result") == "success", "it was told to stop, and was waited for"
    assert inside.log().count('"stopped"') == 2


def test_the_nights_timer_is_waiting_for_twenty_past_midnight(installed: Machine) -> None:
    inside = installed.inside
    inside.systemctl("start", "sluice-quotas.timer", "sluice-ship.timer")
    at = inside.run("systemctl", "show", "sluice-quotas.timer", "--property=NextElapseUSecRealtime", "--value").stdout
    assert "00:20:00 UTC" in inside.run("date", "-u", "-d", at.strip(), "+%H:%M:%S UTC").stdout
    started = inside.systemctl("start", "sluice-quotas.service", check=False)
    assert started.returncode == 1, "its token is not there"
    assert inside.show("sluice-quotas.service", "ExecMainStatus") == "243", "EXIT_CREDENTIALS: nothing ran without it"


def test_the_token_of_the_nights_job_reaches_both_units(installed: Machine) -> None:
    """As docs/quotas.md sets it up: a file that only root can read, and a credential of the gateway and of the job."""
    inside = installed.inside
    token = "{name: nightly-job, role: operator, file: /run/credentials/sluice.service/nightly.token}"
    bare = installed.config("10")
    installed.write("sluice/sluice.yaml", bare.replace("admin: {", f"admin: {{tokens: [{token}], "))
    installed.sluice("token", "new", "--file", "/etc/sluice/nightly.token")
    drop_in = "[Service]\nLoadCredential=nightly.token:/etc/sluice/nightly.token\n"
    installed.write("systemd/system/sluice.service.d/nightly.conf", drop_in)
    asks = "/opt/sluice/bin/sluice quotas status --token-file ${CREDENTIALS_DIRECTORY}/nightly.token"
    admin = f"SLUICE_ADMIN=http://{LOOPBACK}:{installed.ports[2]}"
    installed.write("systemd/system/sluice-quotas.service.d/asks.conf", f"[Service]\nEnvironment={admin}\nExecStart=\nExecStart={asks}\n")
    inside.systemctl("daemon-reload")
    inside.systemctl("start", "sluice.socket", "sluice.service")
    inside.systemctl("start", "sluice-quotas.service")
    said = inside.log()
    assert "no quotas are in force" in said
    assert "state_warning" not in said, "a token or a folder that is not as it should be"
    assert inside.run("stat", "-c", "%a", "/etc/sluice/nightly.token").stdout.strip() == "600"


# ---- without systemd running ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("service", SERVICES)
def test_how_exposed_a_service_is(service: str) -> None:
    words = ["systemd-analyze", "security", "--offline=true", "--json=short", f"--threshold={SERVICES[service] * 10:.0f}"]
    done = subprocess.run([*words, str(UNITS / f"{service}.service")], capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, f"more exposed than {SERVICES[service]}: {done.stdout}{done.stderr}"
    assert json.loads(done.stdout), "it says what it has looked at"


def test_systemd_knows_every_word_of_the_gateways_units(tmp_path: Path) -> None:
    names = ("sluice.service", "sluice.socket")
    for name in names:
        (tmp_path / name).write_text((UNITS / name).read_text().replace("/usr/bin/sluice", "/bin/true"))
    words = ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / name) for name in names)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "sluice" in line]) == (0, [])
    assert signal.Signals.SIGPROF.name in (UNITS / "sluice.service").read_text()
