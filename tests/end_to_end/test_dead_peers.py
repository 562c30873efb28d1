"""A client's host and a broker's host that vanish without a word: the gateway notices, and lets go of the connection's other side.

The client and one of the brokers have a network namespace of their own, whose cable is unplugged. Neither connection has heartbeats.
`pidfd_getfd` (root) has the gateway's own sockets: the test reads how they are set up, and shortens their keepalive for a test's sake.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from pamqp import commands

from gateway.listeners.tcp import KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, KEEPALIVE_PROBES
from support.amqp import frames as amqp
from support.gateways import command
from support.namespaces import HERE, THERE, Hosts
from support.processes import HANG_S, Process, wait_until

pytestmark = pytest.mark.namespaces

BROKER = """
import socket, sys, threading, time
*frames, close_ok = map(bytes.fromhex, sys.argv[2:])
def serve(client):
    client.recv(8)
    for each in frames:
        client.sendall(each)
        time.sleep(0.3)
    said = b""
    while data := client.recv(65536):
        said += data
        if b"\\0\\x0a\\0\\x32" in said:  # connection.close, of a client that is gone; else the gateway waits a minute for the answer
            client.sendall(close_ok)
            break
    while client.recv(65536):
        pass
server = socket.create_server(("0.0.0.0", int(sys.argv[1])))
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""
CLIENT = """
import socket, sys, time
client = socket.create_connection((sys.argv[1], int(sys.argv[2])))
client.sendall(bytes.fromhex(sys.argv[3]))
data = b""
while b"\\0\\x0a\\0\\x29" not in data:
    data += client.recv(65536)
print("open", flush=True)
while client.recv(65536):
    pass
print("closed", flush=True)
time.sleep(600)
"""
WITHOUT_HEARTBEATS = [
    amqp.broker_start(),
    amqp.method(0, commands.Connection.Tune(2047, 131072, 0)),
    amqp.method(0, commands.Connection.OpenOk()),
]
LOGIN = b"".join(
    [
        amqp.PROTOCOL_HEADER,
        amqp.method(0, commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US")),
        amqp.method(0, commands.Connection.TuneOk(2047, 131072, 0)),
        amqp.method(0, commands.Connection.Open("/")),
    ]
)
KEEPALIVE = (
    (socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S),
    (socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S),
    (socket.TCP_KEEPCNT, KEEPALIVE_PROBES),
)
PIDFD_GETFD = 438  # its number; Python has no function for it


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    made = Hosts()
    try:
        made.make()
        yield made
    finally:
        made.remove()


def sockets_across(pid: int) -> list[socket.socket]:
    """The process's own connections to the other host, not copies: what is set on one is set for the process."""
    process = os.pidfd_open(pid)
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        if not str(link.readlink()).startswith("socket:"):
            continue
        descriptor = ctypes.CDLL(None, use_errno=True).syscall(PIDFD_GETFD, process, int(link.name), 0)
        if descriptor < 0:
            pytest.fail(f"pidfd_getfd: {os.strerror(ctypes.get_errno())}; run this test as root")
        sock = socket.socket(fileno=descriptor)
        if sock.family == socket.AF_INET and peer_of(sock) == THERE:
            found.append(sock)
        else:
            sock.close()
    os.close(process)
    return found


def peer_of(sock: socket.socket) -> str:
    try:
        return str(sock.getpeername()[0])
    except OSError:
        return ""  # it listens


def test_hosts_that_vanish_without_a_word_are_noticed_on_either_side(hosts: Hosts, tmp_path: Path) -> None:
    near, far = ({"name": name, "protocol": "amqp"} for name in ("near", "far"))
    config = {
        "version": 1,
        "gateway": {"state_directory": "state"},
        "listeners": [
            {**near, "bind": f"{HERE}:5672", "upstream": "127.0.0.1:5673"},
            {**far, "bind": "127.0.0.1:5674", "upstream": f"{THERE}:5673"},
        ],
        "admin": {"bind": "127.0.0.1:9180", "socket": "admin.sock"},
        "access_log": "off",
    }
    (tmp_path / "sluice.yaml").write_text(yaml.safe_dump(config))
    with ExitStack() as running:

        def start(host: str, *argv: str, name: str) -> Process:
            return running.enter_context(Process(["ip", "netns", "exec", host, *argv], log=tmp_path / name, cwd=tmp_path))

        served = [frames.hex() for frames in (*WITHOUT_HEARTBEATS, amqp.method(0, commands.Connection.CloseOk()))]
        for host in (hosts.gateway, hosts.client):
            start(host, sys.executable, "-c", BROKER, "5673", *served, name=f"broker-{host}")
        gateway = start(hosts.gateway, *command(), "run", "-c", str(tmp_path / "sluice.yaml"), name="gateway.log")
        gateway.wait_until(lambda: '"event": "started"' in gateway.output(), within=60, what="sluice run")
        lost = start(hosts.client, sys.executable, "-c", CLIENT, HERE, "5672", LOGIN.hex(), name="lost-client")
        left = start(hosts.gateway, sys.executable, "-c", CLIENT, "127.0.0.1", "5674", LOGIN.hex(), name="left-client")
        for client in (lost, left):
            client.wait_until(partial(says, client, "open"), within=20, what="connection.open-ok")

        across = sockets_across(gateway.pid)
        assert len(across) == 2, "one client and one broker on the other host"
        for sock in across:
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            for name, value in KEEPALIVE:
                assert sock.getsockopt(socket.IPPROTO_TCP, name) == value
                sock.setsockopt(socket.IPPROTO_TCP, name, 1)
            sock.close()
        time.sleep(4)  # longer than that takes with nobody there: peers that are there and say nothing stay
        assert sum(counts(tmp_path, hosts, "connections_active").values()) == 2

        hosts.unplug()
        wait_until(lambda: sum(counts(tmp_path, hosts, "connections_active").values()) == 0, within=30, what="both are noticed")
        left.wait_until(partial(says, left, "closed"), within=10, what="the client whose broker has vanished is told")
        closed = {name: dict(causes) for name, causes in counts(tmp_path, hosts, "connections_closed").items()}
        assert closed == {"near": {"client": 1}, "far": {"broker_lost": 1}}
        hosts.plug_in()
        gateway.popen.send_signal(signal.SIGTERM)
        assert gateway.popen.wait(HANG_S) == 0


def says(program: Process, word: str) -> bool:
    return word in program.output()


def counts(folder: Path, hosts: Hosts, key: str) -> dict[str, Any]:
    """One number of each listener."""
    argv = ["ip", "netns", "exec", hosts.gateway, *command(), "listeners", "-o", "json", "--admin", f"unix:{folder}/admin.sock"]
    environment = os.environ | {"SLUICE_TOKEN_FILE": str(folder / "state" / "admin.token")}
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=HANG_S, env=environment, cwd=folder)
    return {listener["name"]: listener[key] for listener in json.loads(done.stdout)}
