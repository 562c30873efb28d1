"""The HTTP session with a collector: of its answer at most MAX_ANSWER_BYTES are read, all within the time-out.

OpenTelemetry's exporter reads whatever a collector sends, each read with a time-out of its own. Imported only with `tracing` on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from common.bounded_socket import Allowance, bounded

if TYPE_CHECKING:
    from urllib3.poolmanager import PoolManager

MAX_ANSWER_BYTES: Final = 65_536  # bytes; head and body: a real one has some 200, and an error's text; a guess


class BoundedAdapter(HTTPAdapter):
    """Connections with bounded sockets, also through a proxy."""

    def __init__(self, allowance: Allowance) -> None:
        self._pools: dict[str, Any] = {
            "http": _pool(HTTPConnectionPool, HTTPConnection, allowance),
            "https": _pool(HTTPSConnectionPool, HTTPSConnection, allowance),
        }
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = self._pools

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> PoolManager:
        manager: PoolManager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = self._pools
        return manager


class BoundedSession(requests.Session):
    """One request at a time."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__()
        self._allowance = Allowance(timeout_s, MAX_ANSWER_BYTES)
        for scheme in ("http://", "https://"):
            self.mount(scheme, BoundedAdapter(self._allowance))
        self.hooks["response"].append(_leave_compressed)

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        self._allowance.begin()
        return super().send(request, **kwargs)


def _pool(base: type[HTTPConnectionPool], connection: type[HTTPConnection], allowance: Allowance) -> type[HTTPConnectionPool]:
    return type(f"Bounded{base.__name__}", (base,), {"ConnectionCls": bounded(connection, "connect", allowance)})


def _leave_compressed(response: requests.Response, *args: object, **kwargs: object) -> None:
    """Nobody reads the body, and 64 KiB of gzip may be 64 MiB of text."""
    response.raw.headers.pop("content-encoding", None)
