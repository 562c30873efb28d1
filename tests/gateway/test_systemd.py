"""What systemd passes and is sent, with real descriptors: the process that inherits them is one of its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gateway import systemd
from gateway.systemd import Inheritance
from support.processes import HANG_S, LOOPBACK
from support.supervision import Supervisor

HEIR = """
import json, os
from common import log
from gateway import systemd
handler = log.start("debug", "json")
inheritance = systemd.inherit()
found = {"variables": [name for name in os.environ if name.startswith("LISTEN_")], "inherited": repr(inheritance)}
for bind in json.loads(os.environ["BINDS"]):
    sock = inheritance.take_at(tuple(bind))
    found[str(bind)] = None if sock is None else [sock.getsockname()[1], sock.getblocking(), os.get_inheritable(sock.fileno())]
for name in json.loads(os.environ["NAMES"]):
    sock = inheritance.take_named(name)
    found[name] = None if sock is None else sock.getsockname()[1]
inheritance.close_rest()
print(json.dumps(found))
handler.close()
"""


def heir(held: Supervisor, binds: list[tuple[str, int]], names: list[str]) -> tuple[dict[str, object], list[dict[str, object]]]:
    """A process started with the sockets: what it found, and its log lines."""
    environment = os.environ | {"BINDS": json.dumps(binds), "NAMES": json.dumps(names)}
    argv = held.command([sys.executable, "-c", HEIR])
    done = subprocess.run(argv, env=environment, pass_fds=held.descriptors, capture_output=True, text=True, check=True, timeout=HANG_S)
    return json.loads(done.stdout), [json.loads(line) for line in done.stderr.splitlines()]


def test_sockets_are_found_by_address_and_by_name_and_the_rest_is_closed_with_a_warning() -> None:
    with Supervisor({"rabbit": (LOOPBACK, 0), "rocket": (LOOPBACK, 0), "nobody": (LOOPBACK, 0)}) as held:
        rabbit, rocket, nobody = (held.address(name) for name in ("rabbit", "rocket", "nobody"))
        found, lines = heir(held, [rabbit, rabbit], ["rocket", "other"])
        socket.create_connection(nobody, timeout=5).close()  # closed there, not here
    assert found.pop("inherited") == (
        f"<Inheritance 3 left: rabbit 127.0.0.1:{rabbit[1]}, rocket 127.0.0.1:{rocket[1]}, nobody 127.0.0.1:{nobody[1]}>"
    )
    assert found == {"variables": [], str(list(rabbit)): None, "rocket": rocket[1], "other": None}
    (line,) = lines
    assert (line["event"], line["socket"], line["bind"]) == ("inherited_socket_unused", "nobody", f"127.0.0.1:{nobody[1]}")


def test_a_name_in_the_bind_is_looked_up_and_its_socket_never_blocks_nor_reaches_children() -> None:
    with Supervisor({"": (LOOPBACK, 0)}) as held:
        port = held.address("")[1]
        found, lines = heir(held, [("localhost", port)], [])
    assert found[str(["localhost", port])] == [port, False, False]
    assert lines == []


def test_systemds_socket_for_a_port_alone_is_that_of_any_address() -> None:
    """`ListenStream=5672` makes [::]:5672, which takes IPv4 too."""
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as both:
        port = both.getsockname()[1]
        inheritance = Inheritance([("sluice.socket", both)])
        assert inheritance.take_at((LOOPBACK, port)) is None
        assert inheritance.take_at(("0.0.0.0", port)) is both
        assert inheritance.take_at(("0.0.0.0", port)) is None, "given out once"
    with socket.create_server(("::", 0), family=socket.AF_INET6) as six:
        inheritance = Inheritance([("sluice.socket", six)])
        assert inheritance.take_at(("0.0.0.0", six.getsockname()[1])) is None
        assert inheritance.take_at(("::", six.getsockname()[1])) is six


def test_sockets_for_another_process_are_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    environ = {"LISTEN_PID": "1", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "rabbit"}
    assert repr(systemd.inherit(environ)) == "<Inheritance 0 left: >"
    assert environ == {}
    assert [record.getMessage() for record in caplog.records] == ["inherited_sockets_not_ours"]
    caplog.clear()
    assert repr(systemd.inherit({"PATH": "/bin"})) == "<Inheritance 0 left: >"
    assert caplog.records == []


@pytest.mark.parametrize("kind", ["udp", "connected", "file"])
def test_a_descriptor_that_is_no_listening_socket_is_named_and_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    with socket.create_server((LOOPBACK, 0)) as server, socket.create_connection(server.getsockname()) as connected:
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        file = os.open("/dev/null", os.O_RDONLY)
        descriptor = {"udp": udp.detach(), "connected": os.dup(connected.fileno()), "file": file}[kind]
        monkeypatch.setattr(systemd, "FIRST", descriptor)
        inheritance = systemd.inherit({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "rabbit"})
    assert inheritance.take_named("rabbit") is None
    (record,) = caplog.records
    assert record.getMessage() == "inherited_socket_unusable"


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_sent_each_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, abstract: bool) -> None:
    address = f"@sluice-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind("\0" + address[1:] if abstract else address)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        systemd.notify("READY=1")
        systemd.notify("RELOADING=1")
        assert ear.recv(100) == b"READY=1"
        assert ear.recv(100).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
    systemd.notify("STOPPING=1")  # nobody listens any more: no error
    monkeypatch.delenv("NOTIFY_SOCKET")
    systemd.notify("STOPPING=1")
