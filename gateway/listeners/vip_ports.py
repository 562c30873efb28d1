"""VIP ports: the second port of a broker's listener, for clients whose VIP channel is on.

A RocketMQ broker listens two below its port as well, for sends that must not wait behind pulls. Clients whose VIP channel is on (by default
up to 4.4) dial that much below whatever port a route told them. So a broker's listener takes them there, too, and leads them to the
broker's ordinary port, which answers all that the other does. It is one listener with two sockets: limits, caps and counters are the same.

The first two brokers have their VIP ports below the range of `broker_ports`. Where such a port cannot be had, the broker's listener does
without; a client with the VIP channel on then fails to connect, and never reaches another broker (`settings/port_ranges.py`).
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterable

from common import log
from config.port_ranges import VIP
from gateway.listeners.listener import Listener


def with_vip(ports: Iterable[int]) -> list[int]:
    """The brokers' ports, and those two below."""
    return [each for port in ports for each in (port, port - VIP) if each > 0]


def open_vip(listener: Listener, port: int, inherited: socket.socket | None) -> None:
    """Let the listener, which is open on `port`, listen two below as well, if there is such a port; a log line where it cannot be had."""
    if port <= VIP:
        return
    try:
        listener.open_vip(port - VIP, inherited)
    except OSError as error:
        remedy = "let nothing else listen there, or set vipChannelEnabled to false in the clients that have it on; others need nothing"
        log.event(logging.WARNING, "vip_port_unavailable", listener=listener.name, port=port - VIP, err=str(error), remedy=remedy)
