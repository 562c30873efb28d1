"""Broker ports: which broker of a name server has which port of this gateway, kept over restarts.

A client that has asked for a route keeps it while it cannot ask again, so a gateway that comes back must have each broker where it was.
The file is a cache of what clients were told, not a record. It is written as a whole beside itself and renamed, without fsync. One that
cannot be read is left aside with a warning; clients then find the new ports with their next route, within 30 s.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

VERSION: Final = 1
MAX_SEEN_S: Final = 1 << 40  # since 1970; upper bound for `seen`: beyond any real clock, exactly representable as a float
MAX_NAME_CHARS: Final = 255  # of a broker's name; RocketMQ's own limit is 127 (TopicValidator's, for names in general)
Broker = tuple[str, int]  # name, id: 0 is the master


@dataclass(slots=True)
class BrokerPort:
    """A broker, its port here, and when a route last named it (seconds since 1970)."""

    broker: Broker
    port: int
    address: str  # host:port, as in the route
    seen: float


class BrokerPortsFile:
    """The file of one name server listener, in the state directory."""

    def __init__(self, state_directory: Path, listener: str) -> None:
        self.path = state_directory / f"broker-ports.{listener}.json"

    def read(self) -> list[BrokerPort]:
        """Raises OSError, and ValueError where the file holds anything else."""
        try:
            whole = json.loads(self.path.read_bytes())
        except RecursionError:
            raise ValueError("too deep to be a file of broker ports") from None
        if not isinstance(whole, dict) or whole.get("version") != VERSION or not isinstance(whole.get("brokers"), list):
            raise ValueError(f"not a file of broker ports, version {VERSION}")
        found = [_broker_port(entry) for entry in whole["brokers"]]
        if len({one.broker for one in found}) != len(found) or len({one.port for one in found}) != len(found):
            raise ValueError("a broker or a port is listed twice")
        return found

    def write(self, ports: list[BrokerPort]) -> None:
        """Raises OSError."""
        brokers = [
            {"broker": one.broker[0], "id": one.broker[1], "port": one.port, "address": one.address, "seen": round(one.seen)}
            for one in ports
        ]
        beside = self.path.with_suffix(".new")
        beside.write_text(json.dumps({"version": VERSION, "brokers": brokers}, indent=1) + "\n")
        os.replace(beside, self.path)  # noqa: PTH105  -- atomic, by its own name

    def __repr__(self) -> str:
        return f"<BrokerPortsFile {self.path}>"


def _broker_port(entry: object) -> BrokerPort:
    match entry:
        case {"broker": str(name), "id": int(number), "port": int(port), "address": str(address), "seen": int(seen)} if (
            _is_text(name) and number >= 0 and 0 <= seen <= MAX_SEEN_S
        ):
            return BrokerPort((name, number), port, address, float(seen))
    raise ValueError(f"{entry!r} is no broker's port")


def _is_text(name: str) -> bool:
    """Whether a listener may have this name: not too long, and UTF-8 as logs and metrics are, which JSON's lone surrogates are not."""
    try:
        return 0 < len(name) <= MAX_NAME_CHARS and bool(name.encode())
    except UnicodeEncodeError:
        return False
