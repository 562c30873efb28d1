"""A Kubernetes API server with its etcd, and nothing else: it checks and keeps objects, and runs no pod."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from urllib.parse import quote, urlencode

from support.processes import LOOPBACK, Process, free_ports

TOKEN: Final = "token-of-the-test"
PLURALS: Final = {"NetworkPolicy": "networkpolicies"}  # others: the kind and an s


def built(name: str) -> str:
    """A program that `make test-kubernetes` has built."""
    folder = os.environ.get("SLUICE_KUBERNETES")
    assert folder, "run this by `make test-kubernetes`, which builds what it needs"
    return str(Path(folder) / name)


class RefusedError(Exception):
    """The server's reason."""


class ApiServer:
    """A context manager; leaving it ends both processes."""

    def __init__(self, folder: Path) -> None:
        client, peer, self.port = free_ports(3)
        etcd = f"http://{LOOPBACK}:{client}"
        self._processes: list[Process] = []
        self._commands = [
            [
                built("etcd"), "--data-dir", str(folder / "etcd"), "--listen-client-urls", etcd, "--advertise-client-urls", etcd,
                "--listen-peer-urls", f"http://{LOOPBACK}:{peer}", "--unsafe-no-fsync",
            ],
            [
                built("kube-apiserver"), f"--etcd-servers={etcd}", f"--bind-address={LOOPBACK}", f"--secure-port={self.port}",
                f"--cert-dir={folder}/certificates",
                f"--token-auth-file={folder}/tokens.csv",
                f"--service-account-key-file={folder}/key.pem",
                f"--service-account-signing-key-file={folder}/key.pem", "--service-account-issuer=https://kubernetes.default.svc",
                "--disable-admission-plugins=ServiceAccount",
            ],
        ]  # fmt: skip
        self._folder = folder

    def __enter__(self) -> ApiServer:
        (self._folder / "tokens.csv").write_text(f"{TOKEN},admin,admin,system:masters\n")
        subprocess.run(["openssl", "genrsa", "-out", str(self._folder / "key.pem"), "2048"], check=True, capture_output=True)
        for number, command in enumerate(self._commands):
            self._processes.append(Process(command, log=self._folder / f"{number}.log"))
        self._processes[-1].wait_until(self._ready, within=120, what="the API server")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for process in reversed(self._processes):
            process.stop()

    def _ready(self) -> bool:
        try:
            return self._ask("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def _ask(self, method: str, path: str, body: object = None, content: str = "application/json") -> tuple[int, Any]:
        trusting = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection(LOOPBACK, self.port, timeout=60, context=trusting)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Authorization": f"Bearer {TOKEN}", "Content-Type": content})
            answer = connection.getresponse()
            raw = answer.read().decode()
            return answer.status, json.loads(raw) if raw.startswith("{") else raw
        finally:
            connection.close()

    def apply(self, manifest: dict[str, Any], namespace: str = "default", *, dry_run: bool = False) -> dict[str, Any]:
        """Server-side apply; a field that does not exist is an error. Raises RefusedError."""
        group, _, version = manifest["apiVersion"].rpartition("/")
        kind = manifest["kind"]
        plural = PLURALS.get(kind, f"{kind.lower()}s")
        scope = "" if kind in {"Namespace", "CustomResourceDefinition"} else f"/namespaces/{namespace}"
        query = {"fieldManager": "test", "fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
        path = f"{f'/apis/{group}' if group else '/api'}/{version}{scope}/{plural}/{quote(manifest['metadata']['name'])}?{urlencode(query)}"
        status, answer = self._ask("PATCH", path, manifest, "application/apply-patch+yaml")
        if status not in {200, 201}:
            raise RefusedError(
                f"{kind} {manifest['metadata']['name']}: {status}: {answer.get('message') if isinstance(answer, dict) else answer}"
            )
        assert isinstance(answer, dict)
        return answer

    def knows(self, path: str) -> bool:
        return self._ask("GET", path)[0] == 200

    def __repr__(self) -> str:
        return f"<ApiServer at {self.port}>"
