"""A private RocketMQ: name server and broker from Maven Central's jars, laid out for "same address, split bind".

The broker listens on 127.0.0.1 but tells the name server that it is 127.0.0.2, same port. Whoever listens there (a gateway) is what
clients find; without a gateway nobody can send, which is the point. Ports used: P, P-2 (the "VIP" port) and P+1 (replication, which
the broker opens on all addresses). Ready about 4 s after its start, 190 MB each (measured, 2 cores).
With `advertised=LOOPBACK` it tells its own address instead, and clients reach it without a gateway. `add_brokers` starts more of them.

`SLUICE_ROCKETMQ` names an older version to run instead of the newest, one with a file `maven/rocketmq-VERSION.pom.xml`.

TLS is off unless a test says otherwise, as it costs half of each start (measured). Each program that takes it would make a certificate
for itself when it starts, which takes it some 3 CPU-s more; so it is given one, but for the brokers that take TLS only: what they make
for themselves is what most users' brokers have.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from support.brokers.name_servers import Asker
from support.java import POMS, jars, java
from support.processes import LOOPBACK, Process, accepts, free_ports, is_free, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

JARS = "-".join(filter(None, ("rocketmq", os.environ.get("SLUICE_ROCKETMQ"))))
VERSION = re.findall(r"rocketmq-broker</artifactId><version>([\d.]+)<", (POMS / f"{JARS}.pom.xml").read_text())[0]
ADVERTISED = "127.0.0.2"

# Codes of requests and of answers.
QUERY_CONSUMER_OFFSET = 14
UPDATE_AND_CREATE_TOPIC = 17
UPDATE_BROKER_CONFIG = 25
GET_ROUTE = 105
GET_RUNTIME_INFO = 28
GET_TOPIC_STATS = 202
SUCCESS = 0
TOPIC_NOT_EXIST = 17
QUERY_NOT_FOUND = 22

OPENED_MODULES = [
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
]


def free_broker_port() -> int:
    """P with P and P-2 free on both addresses and P+1 free everywhere; below the range the kernel gives to outgoing connections."""
    for _ in range(200):
        port = random.randrange(20_000, 30_000)
        pairs = [(address, port + offset) for address in (LOOPBACK, ADVERTISED) for offset in (-2, 0)] + [("0.0.0.0", port + 1)]
        if all(is_free(address, number) for address, number in pairs):
            return port
    raise RuntimeError("no free group of ports for a RocketMQ broker between 20000 and 30000")


class RocketMQ:
    """Name server and broker. A context manager: entering starts both and waits until they are ready, leaving stops them."""

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, object] | None = None,
        *,
        advertised: str = ADVERTISED,
        tls: Literal["disabled", "permissive", "enforcing"] = "disabled",
        name_servers: int = 1,
    ) -> None:
        """`advertised` is the address it tells the name servers. Where `tls` is enforcing the broker has a certificate of its own."""
        self.directory = directory
        self.properties = properties or {}  # of the broker's configuration, instead of or beside those below
        self.advertised = advertised
        self.tls = tls
        self._jars = jars(JARS)
        self.name_server_ports = free_ports(name_servers)
        self.port = free_broker_port()
        self._name_servers: list[Process] = []
        self._broker: Process | None = None
        self._more: list[Process] = []

    @property
    def name_server(self) -> str:
        return self.name_servers[0]

    @property
    def name_servers(self) -> list[str]:
        return [f"{LOOPBACK}:{port}" for port in self.name_server_ports]

    @property
    def pid(self) -> int:
        """The first broker's."""
        assert self._broker is not None, "not started"
        return self._broker.pid

    @property
    def vip_port(self) -> int:
        return self.port - 2

    @property
    def listeners(self) -> list[dict[str, object]]:
        """The gateway's listeners for this broker, as `sluice.yaml` wants them."""
        return [
            {"name": name, "protocol": "rocketmq", "bind": f"{self.advertised}:{port}", "upstream": f"{LOOPBACK}:{port}"}
            for name, port in (("rocket", self.port), ("rocket-vip", self.vip_port))
        ]

    def start(self) -> RocketMQ:
        home = self.directory
        home.mkdir(parents=True, exist_ok=True)
        for number, port in enumerate(self.name_server_ports):
            name = f"namesrv-{number}"
            (home / f"{name}.conf").write_text(f"listenPort={port}\nbindAddress={LOOPBACK}\n")
            self._name_servers.append(self._spawn(name, "namesrv.NamesrvStartup", ["-c", str(home / f"{name}.conf")], ["-Xmx128m"]))
        self._broker = self._begin_broker("broker", self.port, {})
        for process in self._name_servers:
            self._await_boot(process, "RocketMQ's name server")
        self._await_broker(self._broker, self.port)
        return self

    def add_brokers(self, *brokers: tuple[str, int], properties: Mapping[str, object] | None = None) -> list[int]:
        """Start more brokers of the same name server: (name, id), a slave's id not being 0. Returns their ports when all are ready.

        `properties` of their configuration, instead of or beside those of the first.
        """
        begun: list[tuple[Process, int]] = []
        for name, number in brokers:
            port = free_broker_port()
            role = {"brokerName": name, "brokerId": number, "brokerRole": "SLAVE" if number else "ASYNC_MASTER"}
            begun.append((self._begin_broker(f"broker-{name}-{number}", port, {**role, **(properties or {})}), port))
            self._more.append(begun[-1][0])
        for broker, port in begun:
            self._await_broker(broker, port)
        return [port for _, port in begun]

    def _begin_broker(self, folder: str, port: int, properties: Mapping[str, object]) -> Process:
        """Start a broker whose configuration, store and log have the name `folder`."""
        home = self.directory
        broker = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerId": 0,
            "brokerRole": "ASYNC_MASTER",
            "flushDiskType": "ASYNC_FLUSH",
            "namesrvAddr": ";".join(self.name_servers),
            "brokerIP1": self.advertised,
            "brokerIP2": LOOPBACK,  # where slaves find their master
            "bindAddress": LOOPBACK,
            "listenPort": port,
            "autoCreateTopicEnable": "true",
            "autoCreateSubscriptionGroup": "true",
            "storePathRootDir": home / f"{folder}-store",
            "mappedFileSizeCommitLog": 16_777_216,
            "mappedFileSizeConsumeQueue": 600_000,
            "maxHashSlotNum": 10_000,
            "maxIndexNum": 40_000,
            "diskMaxUsedSpaceRatio": 95,
            "diskSpaceWarningLevelRatio": 90,
            "diskSpaceCleanForciblyRatio": 85,
            "timerWheelEnable": "true",  # without it the broker lets nobody pop
            "timerFlushIntervalMs": 60_000,  # at each flush it compares the wheel byte by byte: half a processor, always, at the usual 1000
            "traceTopicEnable": "true",
            "transactionCheckInterval": 2000,
            "transactionTimeOut": 2000,
            # The size: what was settled is written down at once, or the broker asks about it again. The interval: when it has passed since
            # the last transaction, TransactionalOpBatchService of 5.5 goes round without a pause and takes a whole processor (measured).
            **(
                {"transactionOpBatchInterval": 500}
                if VERSION == "5.3.3"
                else {"transactionOpMsgMaxSize": 1, "transactionOpBatchInterval": 3_600_000}
            ),
            # TransactionMetricsFlushService of 5.5 goes round without a pause until the first interval after its start has passed: the
            # usual one, 3 s, took 5 CPU-s at each start (measured).
            "transactionMetricFlushInterval": 300,
            # The broker's own topic-blind load shedding would answer "busy" whenever this small machine stumbles.
            "waitTimeMillsInSendQueue": 300_000,
            "osPageCacheBusyTimeOutMills": 300_000,
        }
        broker |= {**self.properties, **properties}
        configuration = home / f"{folder}.conf"
        configuration.write_text("".join(f"{key}={value}\n" for key, value in broker.items()))
        configured = ["-n", str(broker["namesrvAddr"]), "-c", str(configuration)]
        # A limit: every thread that has answered a pull or pop of large messages keeps a buffer of their size.
        return self._spawn(folder, "broker.BrokerStartup", configured, ["-Xmx512m", "-XX:MaxDirectMemorySize=1g"])

    def _await_broker(self, broker: Process, port: int) -> None:
        self._await_boot(broker, "RocketMQ's broker")
        for each in (port, port - 2):
            broker.wait_until(partial(accepts, LOOPBACK, each), within=30, what=f"the broker's port {each}")

    def kill(self) -> None:
        """SIGKILL the first broker. What it has answered is in the kernel's pages of its files, so it is there when it starts again."""
        assert self._broker is not None, "not started"
        self._broker.stop(grace=0, number=signal.SIGKILL)

    def start_broker(self) -> None:
        """Start the first broker again, with what it has stored."""
        self._broker = self._begin_broker("broker", self.port, {})
        self._await_broker(self._broker, self.port)

    def pause(self) -> None:
        """SIGSTOP broker and name server: they take connections, and answer nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def pause_name_server(self, number: int) -> None:
        """The same of one name server alone."""
        self._name_servers[number].signal_tree(signal.SIGSTOP)

    def resume_name_server(self, number: int) -> None:
        self._name_servers[number].signal_tree(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for process in (self._broker, *self._name_servers):
            assert process is not None, "not started"
            process.signal_tree(number)

    @staticmethod
    def _await_boot(process: Process, name: str) -> None:
        process.wait_until(lambda: "boot success" in process.output(), within=60, what=name)

    def _spawn(self, name: str, main: str, arguments: list[str], memory: list[str]) -> Process:
        program = "namesrv" if name.startswith("namesrv") else "broker"
        settings = {"rocketmq.home.dir": str(self.directory), "rmq.logback.configurationFile": f"rmq.{program}.logback.xml"}
        settings["java.io.tmpdir"] = str(self.directory)  # its certificate for TLS, which nobody deletes when it is killed
        settings["tls.server.mode"] = "permissive" if self.tls == "enforcing" and program == "namesrv" else self.tls
        if settings["tls.server.mode"] == "permissive":
            settings |= {"tls.test.mode.enable": "false"} | self._certificate()
        command = java(f"{self._jars}/*", f"org.apache.rocketmq.{main}", self.directory / name, memory, settings)
        command[1:1] = OPENED_MODULES
        return Process([*command, *arguments], log=self.directory / f"{name}.log", cwd=self.directory)

    def _certificate(self) -> dict[str, str]:
        """The properties that name a certificate and its key (PKCS #8, the only kind Java reads); both are made at the first call."""
        certificate, key = self.directory / "server.pem", self.directory / "server.key"
        if not key.exists():
            made = trustme.CA(key_type=trustme.KeyType.ECDSA).issue_cert(LOOPBACK, ADVERTISED, key_type=trustme.KeyType.ECDSA)
            certificate.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
            private = load_pem_private_key(made.private_key_pem.bytes(), None)
            key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return {"tls.server.certPath": str(certificate), "tls.server.keyPath": str(key)}

    def stop(self) -> None:
        for process in (*self._more, self._broker, *self._name_servers):
            if process is not None:
                process.stop(grace=0, number=signal.SIGKILL)  # the store is thrown away: an orderly shutdown (3 s) would be wasted
        for store in self.directory.glob("*-store"):
            shutil.rmtree(store, ignore_errors=True)

    def create_topics(self, *topics: str, port: int | None = None) -> None:
        """Create topics (`name` or `name:queues`, four queues by default) and wait until they are routed.

        They are the first broker's, unless `port` is another's.
        """
        named = {name: queues or "4" for name, _, queues in (word.partition(":") for word in topics)}
        with self.asker(port) as broker:
            for name, queues in named.items():
                header, _ = broker.ask(
                    UPDATE_AND_CREATE_TOPIC, topic=name, defaultTopic="TBW102", readQueueNums=queues, writeQueueNums=queues, perm=6,
                    topicFilterType="SINGLE_TAG", topicSysFlag=0, order=False, attributes="",
                )  # fmt: skip
                assert header["code"] == SUCCESS, f"{name}: {header}"
            # A broker registers for the first time 10 s after its start, and a name server refuses single topics of a broker it does not
            # know. A change of the permission (to what it is) makes the broker register everything at once.
            header, _ = broker.ask(UPDATE_BROKER_CONFIG, b"brokerPermission=6")
            assert header["code"] == SUCCESS, header
        with Asker(self.name_server_ports[0]) as names:
            for name in named:
                wait_until(lambda: b'"queueDatas":[{' in names.ask(GET_ROUTE, topic=name)[1], within=10, what=f"a route for {name}")  # noqa: B023

    def stored(self, *topics: str, port: int | None = None) -> dict[str, int]:
        """How many messages each topic holds, asked of the broker itself; none of a topic that it does not have.

        What it has answered is in its log; a thread of its own puts that into queues, which are what counts: that may take it a while.
        """
        counts = {}
        with self.asker(port) as broker:
            what = "the broker to put what it has stored into its queues"
            wait_until(lambda: b'"dispatchBehindBytes":"0"' in broker.ask(GET_RUNTIME_INFO)[1], within=10, every=0.01, what=what)
            for topic in topics:
                header, body = broker.ask(GET_TOPIC_STATS, topic=topic)
                assert header["code"] in (SUCCESS, TOPIC_NOT_EXIST), f"{topic}: {header}"
                counts[topic] = sum(map(int, re.findall(rb'"maxOffset":([0-9]+)', body)))
                counts[topic] -= sum(map(int, re.findall(rb'"minOffset":([0-9]+)', body)))
        return counts

    def committed(self, topic: str, group: str) -> int:
        """The offset that `group` has committed in the topic's queue 0, asked of the broker itself; 0: none."""
        with self.asker() as broker:
            header, _ = broker.ask(QUERY_CONSUMER_OFFSET, topic=topic, consumerGroup=group, queueId=0)
        assert header["code"] in (SUCCESS, QUERY_NOT_FOUND), f"{topic}, {group}: {header}"
        fields = header.get("extFields") or {}
        assert isinstance(fields, dict)
        return int(fields.get("offset", 0))

    def asker(self, port: int | None = None) -> Asker:
        """A connection past any gateway to the first broker, or to the one on `port`."""
        return Asker(port or self.port, tls=self.tls == "enforcing")

    def __enter__(self) -> RocketMQ:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            self.stop()

    def __repr__(self) -> str:
        state = "running" if self._broker is not None and self._broker.alive() else "stopped"
        return f"<RocketMQ {state} {LOOPBACK}:{self.port} as {self.advertised}, name server {self.name_server}>"
