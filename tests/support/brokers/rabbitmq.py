"""A private RabbitMQ: the installed server, on free loopback ports, with its state in a scratch directory and an epmd of its own.

Needs Debian's `rabbitmq-server` to be installed, not running. Ready about 5 s after its start (measured, 2 cores).

`SLUICE_RABBITMQ` names a folder that `rabbitmq4.sh` has filled: then that RabbitMQ is run, with the folder's `/usr` in place of the
machine's in a mount namespace of its own. All else, scratch folders and sockets too, is the same inside and outside. `make test` sets it; a
plain `pytest` takes the one that `make rabbitmq4` has unpacked, if it has (tests/conftest.py). Set to nothing: the installed one.
"""

from __future__ import annotations

import http.client
import json
import os
import shlex
import signal
import socket
import subprocess
from base64 import b64encode
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from support.processes import HANG_S, LOOPBACK, Process, accepts, free_ports
from support.ran import ran

PROGRAMS = Path("/usr/lib/rabbitmq/bin")  # not /usr/sbin: those wrappers change to the user rabbitmq
UNPACKED = os.environ.get("SLUICE_RABBITMQ", "")
REMEDY = "RabbitMQ is not installed: run `make test` (it installs it), or `apt-get install --no-install-recommends rabbitmq-server`"
UNPACKED_REMEDY = f"there is no RabbitMQ in SLUICE_RABBITMQ={UNPACKED}: run `make rabbitmq4`, which unpacks one, or unset the variable"
NO_BUSY_WAITING = "+sbwt none +sbwtdcpu none +sbwtdio none"  # on two cores an idle Erlang would take time from what runs beside it
PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
PROXY_LINE = b"PROXY TCP4 127.0.0.1 127.0.0.1 1 1\r\n"  # version 1; RabbitMQ 3.10 crashes its reader on version 2's LOCAL


class RabbitMQMissingError(RuntimeError):
    """The server is not installed; the message says how to mend it."""


def as_seen_by_rabbitmq(*command: str | Path) -> list[str]:
    """The command that runs `command` with the RabbitMQ that is under test as the machine's own."""
    words = [str(word) for word in command]
    if not UNPACKED:
        return words
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]  # whoever is not root may mount in a user namespace alone
    return ["unshare", *as_root, "--mount", "--", "sh", "-c", 'mount --bind "$0" /usr && exec "$@"', str(unpacked_usr()), *words]


def unpacked_usr() -> Path:
    return Path(UNPACKED).resolve() / "root" / "usr"


def version() -> str:
    """The version of what is under test, as Debian's package says it, e.g. `4.0.5`."""
    if UNPACKED:
        return (Path(UNPACKED) / "version").read_text().partition("-")[0]
    asked = ["dpkg-query", "--show", "--showformat=${Version}", "rabbitmq-server"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.partition("-")[0]


class RabbitMQ:
    """One broker. A context manager: entering starts it and waits until it takes connections, leaving stops it and its epmd."""

    def __init__(
        self,
        directory: Path,
        *,
        management: bool = False,
        bind: tuple[str, int] | None = None,
        proxy_protocol: bool = False,
        tls: tuple[Path, Path, Path] | None = None,
        plugins: tuple[str, ...] = (),
        settings: tuple[str, ...] = (),
        erlang: str = "",
    ) -> None:
        """`bind` is where it listens for AMQP (default: a free port on 127.0.0.1), for clients that do not let themselves be told."""
        if UNPACKED:
            if not (unpacked_usr() / PROGRAMS.relative_to("/usr") / "rabbitmq-server").exists():
                raise RabbitMQMissingError(UNPACKED_REMEDY)
        elif not (PROGRAMS / "rabbitmq-server").exists():
            raise RabbitMQMissingError(REMEDY)
        self.directory = directory
        self.management = management
        self.settings = settings  # further lines of its configuration file
        self.erlang = erlang  # further arguments of its Erlang: what its configuration file has no word for
        self.plugins = plugins  # beside those the other arguments ask for
        self.proxy_protocol = proxy_protocol  # every connection must begin with a PROXY header
        self.port, self.management_port, self._distribution_port, self._epmd_port = free_ports(4)
        self.address = LOOPBACK
        if bind is not None:
            self.address, self.port = bind
        self.tls = tls  # CA, certificate, key: speaks TLS as well, to clients with a certificate of this CA; the user may be its CN
        (self.tls_port,) = free_ports(1)
        self._epmd: Process | None = None
        self._server: Process | None = None

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{self.address}:{self.port}/%2F"

    @property
    def pid(self) -> int:
        """The node's: of the script that it began as, whose descendants the rest is."""
        assert self._server is not None, "not started"
        return self._server.pid

    def _environment(self) -> dict[str, str]:
        return os.environ | self._settings()

    def _settings(self) -> dict[str, str]:
        scratch = self.directory
        return {
            "HOME": str(scratch / "home"),
            "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
            "RABBITMQ_NODENAME": "rabbit@localhost",
            "RABBITMQ_CONFIG_FILE": str(scratch / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_MNESIA_BASE": str(scratch / "mnesia"),
            "RABBITMQ_LOG_BASE": str(scratch / "log"),
            "RABBITMQ_LOGS": str(scratch / "log/rabbit.log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(scratch / "enabled_plugins"),
            "RABBITMQ_PID_FILE": str(scratch / "rabbit.pid"),
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "ERL_EPMD_ADDRESS": LOOPBACK,
            "ERL_EPMD_PORT": str(self._epmd_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"-kernel inet_dist_use_interface {{127,0,0,1}} +S 2:2 {NO_BUSY_WAITING} {self.erlang}",
        }

    def start(self) -> RabbitMQ:
        for name in ("home", "mnesia", "log"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        lines = [
            f"listeners.tcp.1 = {self.address}:{self.port}",
            "loopback_users.guest = true",
            f"log.file = {self.directory}/log/rabbit.log",
            "log.file.level = info",
            "disk_free_limit.absolute = 200MB",
            *self.settings,
        ]
        if self.proxy_protocol:
            lines.append("proxy_protocol = true")
        if self.tls is not None:
            ca, certificate, key = self.tls
            lines += [
                f"listeners.ssl.1 = {LOOPBACK}:{self.tls_port}",
                f"ssl_options.cacertfile = {ca}",
                f"ssl_options.certfile = {certificate}",
                f"ssl_options.keyfile = {key}",
                "ssl_options.verify = verify_peer",
                "ssl_options.fail_if_no_peer_cert = true",
                "auth_mechanisms.1 = PLAIN",
                "auth_mechanisms.2 = EXTERNAL",
                "ssl_cert_login_from = common_name",
            ]
        if self.management:
            lines += [f"management.tcp.ip = {LOOPBACK}", f"management.tcp.port = {self.management_port}"]
        (self.directory / "rabbitmq.conf").write_text("\n".join(lines) + "\n")
        plugins = [*self.plugins] + ["rabbitmq_management"] * self.management + ["rabbitmq_auth_mechanism_ssl"] * (self.tls is not None)
        (self.directory / "enabled_plugins").write_text(f"[{','.join(plugins)}].\n")
        environment = self._environment()
        epmd = as_seen_by_rabbitmq("epmd", "-port", str(self._epmd_port), "-address", LOOPBACK)
        self._epmd = Process(epmd, log=self.directory / "epmd.log", env=environment)
        self._epmd.wait_until(lambda: accepts(LOOPBACK, self._epmd_port), within=600, what="epmd")
        self.start_node()
        if self.management:
            assert self._server is not None
            self._server.wait_until(lambda: accepts(LOOPBACK, self.management_port), within=30, what="RabbitMQ's management API")
        return self

    def start_node(self) -> None:
        """Start the node, with what it has stored; for the first time, or after `kill`."""
        self._server = Process(
            as_seen_by_rabbitmq(PROGRAMS / "rabbitmq-server"), log=self.directory / "stdout.log", env=self._environment()
        )
        self._server.wait_until(self._speaks_amqp, within=600, what="RabbitMQ")  # 5 s, where nothing else runs
        ran("RabbitMQ", version())

    def kill(self) -> None:
        """SIGKILL the node: nothing is said to anybody; what it has stored stays for `start_node`."""
        assert self._server is not None, "not started"
        self._server.stop(grace=0, number=signal.SIGKILL)

    def _speaks_amqp(self) -> bool:
        """The port is open a moment before the broker answers; ready means that `connection.start` has come."""
        try:
            with socket.create_connection((self.address, self.port), timeout=2) as client:
                client.sendall((PROXY_LINE if self.proxy_protocol else b"") + PROTOCOL_HEADER)
                return client.recv(1) == b"\x01"
        except OSError:
            return False

    def stop(self) -> None:
        """End the node and its epmd. Its state is thrown away, so there is no need for the slow orderly stop (5 s)."""
        if self._server is not None:
            self._server.signal_tree(signal.SIGCONT)  # a stopped process does not hear anything else
            self._server.stop(grace=0, number=signal.SIGKILL)
        if self._epmd is not None:
            self._epmd.stop(grace=2)

    def pause(self) -> None:
        """SIGSTOP: connections stay open, nothing is read or answered, as in a hung or swapping broker."""
        if self._server is not None:
            self._server.signal_tree(signal.SIGSTOP)

    def resume(self) -> None:
        if self._server is not None:
            self._server.signal_tree(signal.SIGCONT)

    def control(self, *arguments: str) -> str:
        """Run `rabbitmqctl` against this node (0.4 s a call); returns what it printed."""
        command = as_seen_by_rabbitmq(PROGRAMS / "rabbitmqctl", "--quiet", *arguments)
        done = subprocess.run(command, env=self._environment(), capture_output=True, text=True, check=False, timeout=HANG_S)
        if done.returncode:
            raise RuntimeError(f"rabbitmqctl {' '.join(arguments)}: {done.stderr or done.stdout}")
        return done.stdout

    def control_script(self) -> Path:
        """A `rabbitmqctl` for this node that needs no environment, for programs that call it themselves."""
        script = self.directory / "rabbitmqctl"
        settings = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in self._settings().items())
        command = shlex.join(as_seen_by_rabbitmq(PROGRAMS / "rabbitmqctl"))
        script.write_text(f'#!/bin/sh\n{settings}exec {command} "$@"\n')
        script.chmod(0o755)
        return script

    def api(self, path: str) -> object:
        """GET from the management API (only with `management=True`), e.g. `api("queues/%2F")`."""
        connection = http.client.HTTPConnection(LOOPBACK, self.management_port, timeout=HANG_S)
        credentials = {"Authorization": "Basic " + b64encode(b"guest:guest").decode()}
        connection.request("GET", f"/api/{quote(path, safe='/%')}", headers=credentials)
        with connection.getresponse() as response:
            return json.load(response)

    def __enter__(self) -> RabbitMQ:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            self.stop()

    def __repr__(self) -> str:
        state = "running" if self._server is not None and self._server.alive() else "stopped"
        return f"<RabbitMQ {state} {self.url}>"
