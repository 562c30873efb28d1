"""A pod's gateway as a process of this machine, its ConfigMap and Secret mounted in a folder; and somebody at a shell with kubectl."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from support.busy_gateway import BusyGateway
from support.processes import LOOPBACK, free_ports
from support.readers import DEPLOY_FOLDER, HELM, KUBECTL, Reader

UPSTREAMS = ("rabbitmq.messaging.svc.cluster.local:5672", "rabbitmq.messaging:5672")  # of the manifests


@contextmanager
def pod_of(files: Mapping[str, str], broker: str, folder: Path) -> Iterator[tuple[BusyGateway, Reader]]:
    """The gateway runs with the ConfigMap's `files` before `broker`. $SECRETS is where the Secret is mounted, empty at first."""
    mount = folder / "pod"
    gateway = BusyGateway(folder / "other", broker, broker, [])
    port, probes = free_ports(2)
    places = dict.fromkeys(UPSTREAMS, broker) | {
        "/etc/sluice-tokens": str(mount),
        "/var/lib/sluice/state": str(gateway.directory / "state"), "127.0.0.1:5672": f"{LOOPBACK}:{port}",
        "127.0.0.1:9180": f"{LOOPBACK}:{gateway.admin_port}", "0.0.0.0:9181": f"{LOOPBACK}:{probes}",
    }  # fmt: skip
    mount.mkdir()
    for name, text in files.items():
        for theirs, ours in places.items():
            text = text.replace(theirs, ours)  # noqa: PLW2901
        (mount / name).write_text(text)
    gateway.config = mount / "sluice.yaml"
    environment = {"SLUICE_ADMIN": gateway.admin, "SLUICE_TOKEN_FILE": str(gateway.directory / "state" / "admin.token")}
    reader = Reader(folder, {" deploy/": f" {DEPLOY_FOLDER}"}, environment, {"kubectl": KUBECTL, "helm": HELM})
    reader.environment["SECRETS"] = str(mount)
    with gateway:
        yield gateway, reader


def wait_for_tokens(gateway: BusyGateway) -> None:
    """Until the gateway has read those of the Secret, which came after its start."""
    gateway.process.wait_until(
        lambda: not any("token" in warning for warning in gateway.get("/v1/status")["warnings"]), within=30, what="the tokens",
    )  # fmt: skip
