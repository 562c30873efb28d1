"""RocketMQ's own Proxy in CLUSTER mode: gRPC towards its clients, remoting towards the brokers that its name server names."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

from support.brokers.rocketmq import OPENED_MODULES
from support.java import jars, java
from support.processes import LOOPBACK, Process, accepts, free_ports

if TYPE_CHECKING:
    from pathlib import Path

PROXY = "rocketmq-proxy"


class RocketMQProxy:
    """A context manager: entering starts it and waits until it takes connections, leaving stops it."""

    def __init__(self, directory: Path, name_server: str) -> None:
        self.directory = directory
        self.name_server = name_server
        self._jars = jars(PROXY)
        self.port, self._remoting_port = free_ports(2)  # it listens on all addresses
        self._process: Process | None = None

    @property
    def endpoints(self) -> str:
        """As gRPC clients want them."""
        return f"{LOOPBACK}:{self.port}"

    def __enter__(self) -> RocketMQProxy:
        home = self.directory
        (home / "conf").mkdir(parents=True, exist_ok=True)
        settings = {
            "rocketMQClusterName": "DefaultCluster",
            "namesrvAddr": self.name_server,
            "proxyMode": "CLUSTER",
            "grpcServerPort": self.port,
            "remotingListenPort": self._remoting_port,
            "grpcShutdownTimeSeconds": 1,
        }
        (home / "conf" / "rmq-proxy.json").write_text(json.dumps(settings))
        properties = {"rocketmq.home.dir": str(home), "rmq.logback.configurationFile": "rmq.proxy.logback.xml", "java.io.tmpdir": str(home)}
        command = java(f"{self._jars}/*", "org.apache.rocketmq.proxy.ProxyStartup", home, ["-Xmx256m"], properties)
        command[1:1] = OPENED_MODULES
        self._process = Process(
            [*command, "-pm", "cluster", "-pc", str(home / "conf" / "rmq-proxy.json")], log=home / "proxy.log", cwd=home
        )
        try:
            self._process.wait_until(lambda: accepts(LOOPBACK, self.port), within=90, what="RocketMQ's Proxy")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.stop(grace=0, number=signal.SIGKILL)

    def __repr__(self) -> str:
        return f"<RocketMQProxy {self.endpoints} of {self.name_server}>"
