"""The gateway's image, its root filesystem run as a container runtime would run it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support import images
from support.brokers.rabbitmq import RabbitMQ
from support.first_limits import Clock, assert_limited, assert_seen, command_of, first_queue
from support.processes import HANG_S, LOOPBACK, Process, free_ports


def contained(root: Path, writable: Path, *words: str) -> list[str]:
    """As a runtime would run it, with the folders `state` and `log` of `writable` for its volumes."""
    for name in ("state", "log"):
        place = writable / name
        place.mkdir(exist_ok=True)
        subprocess.run(["chown", "65532:65532", str(place)], check=True)
        place.chmod(0o700)
    mounts = ["--tmpfs", "/tmp", "--bind", str(writable / "state"), "/var/lib/sluice", "--bind", str(writable / "log"), "/var/log/sluice"]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    return images.contained(root, mounts, environment, "/var/lib/sluice", *words)


def ports_of(bind: int, broker: int, admin: int) -> list[str]:
    """Options that put the image's listener, its broker and its admin port elsewhere on loopback."""
    return [
        "--set", f"listeners.rabbit.bind={LOOPBACK}:{bind}", "--set", f"listeners.rabbit.upstream={LOOPBACK}:{broker}",
        "--admin-bind", f"{LOOPBACK}:{admin}",
    ]  # fmt: skip


def limited_and_seen(root: Path, writable: Path, rabbitmq: RabbitMQ, page: str) -> str:
    """The page's commands in the running container, until the dashboard shows the flood, on ports of this test's. Returns a remark."""
    port, admin = free_ports(2)
    url, clock = f"http://{LOOPBACK}:{admin}", Clock(page)
    words = contained(root, writable, "/usr/bin/sluice", "run", "-c", "/etc/sluice/sluice.yaml", *ports_of(port, rabbitmq.port, admin))
    running = Process(words, log=writable / "log.txt")

    def typed(verb: str) -> str:
        command = contained(root, writable, "/usr/bin/sluice", *command_of("container", verb), "--admin", url)
        asked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG_S)
        assert asked.returncode == 0, asked
        return asked.stdout

    try:
        alive = ["curl", "-sf", f"{url}/livez"]
        running.wait_until(lambda: subprocess.run(alive, capture_output=True, check=False).returncode == 0, within=60, what="it")
        clock.at("started")
        with first_queue(rabbitmq) as queue:
            typed("limits set")
            counted = assert_limited(f"amqp://guest:guest@{LOOPBACK}:{port}/%2F", queue)
        clock.at("limited")
        assert_seen(url, {"token": typed("token new").strip()}, counted)
        clock.at("seen")
    finally:
        running.stop()
    return clock.remark(counted)
