"""A resolver that takes its time (F49 of docs/design/reliability.md): who wants that name waits, and nobody else."""

from __future__ import annotations

import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.amqp import frames as amqp
from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.clients.fresh import Sender, expect_confirm
from support.gateways import Gateway, StartGateway, amqp_listener, limit_path
from support.processes import LOOPBACK, wait_until

pytestmark = pytest.mark.rabbitmq

TAKES_S = 10
LONGEST_S = 8.0  # less than what a loop would wait that waits for the resolver
NEWCOMERS = 60  # more than trio has threads for others' blocking calls (40)
NAME = "slow.test"
LIBRARY = f"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

typedef int (*resolver)(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found) {{
    if (node && strcmp(node, "{NAME}") == 0) {{
        if (hints && hints->ai_flags & AI_NUMERICHOST)
            return EAI_NONAME;
        if (access(HEALED, F_OK) != 0)
            sleep({TAKES_S});
        node = "{LOOPBACK}";
    }}
    return ((resolver) dlsym(RTLD_NEXT, "getaddrinfo"))(node, service, hints, found);
}}
"""


def slow_resolver(folder: Path, healed: Path) -> Path:
    """A library whose getaddrinfo takes long for NAME, until there is the file `healed`; to be loaded before the C library."""
    source, library = folder / "slow.c", folder / "slow.so"
    source.write_text(LIBRARY)
    words = ["cc", "-shared", "-fPIC", f'-DHEALED="{healed}"', "-o", str(library), str(source), "-ldl"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"cc: {done.stderr}"
    return library


def test_a_resolver_that_takes_long_keeps_only_those_waiting_who_want_its_name(
    rabbitmq: RabbitMQ, start_gateway: StartGateway, tmp_path: Path
) -> None:
    healed = tmp_path / "healed"
    library = slow_resolver(tmp_path, healed)
    listeners = [
        amqp_listener(f"{LOOPBACK}:{rabbitmq.port}"),
        amqp_listener(f"{NAME}:{rabbitmq.port}") | {"name": "named"},
    ]
    gateway: Gateway = start_gateway(listeners, [], until="/livez", under=["env", f"LD_PRELOAD={library}"])
    named, path = gateway.port("named"), limit_path("amqp", "/", "amq.default", "named")
    with Queue(rabbitmq.url, "named") as queue, Sender(gateway, queue.name).sending() as sender, ExitStack() as waiting:
        began, before, sender.longest_s = time.monotonic(), sender.confirmed, 0.0
        for _ in range(NEWCOMERS):
            waiting.enter_context(socket.create_connection((LOOPBACK, named))).sendall(amqp.PROTOCOL_HEADER)
        while time.monotonic() - began < TAKES_S:
            asked = time.monotonic()
            gateway.put(path, {"messages": "1000000/s", "reason": f"{asked}"})
            assert time.monotonic() - asked < LONGEST_S, "a live change waited for the resolver"
            expect_confirm(gateway, queue.name, within=LONGEST_S)
        assert sender.longest_s < LONGEST_S, "a message waited for the resolver"
        assert sender.confirmed > before
        healed.touch()
        expect_confirm(gateway, queue.name, "named", within=3 * TAKES_S)
    wait_until(lambda: gateway.answers("/readyz"), within=3 * TAKES_S, what="both brokers to be there")
