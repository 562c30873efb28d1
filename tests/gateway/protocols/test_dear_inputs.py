"""No message that a client can think of costs the gateway more than some twenty times what its client pays: here, decoding it to a key.

The whole, with both processes and the kernel's part, is measured by `make bench-inputs` (docs/performance.md).
"""

from __future__ import annotations

import socket
import time

import pytest

from limiter.judge import Judge
from limiter.limits import Limit, Rate
from limiter.new_names import AT_ONCE
from limiter.rules.rule import Rule
from limiter.rules.rule_set import RuleSet
from support.builds import build_of
from support.dear_inputs import INPUTS, Input
from support.wires.conversations import Talk
from support.wires.idle_connections import AMQP

SENT = [row for row in INPUTS if row.kind in {"rocketmq", "amqp"}]
TURN_BYTES = 50_000
# Compiled at most 15 was seen, also beside busy loops. Interpreted, a byte of an odd header costs what a message should.
MOST = 22 if build_of("gateway.session.session")[0] == "compiled" else 400
TURNS = 600  # 60 were too few once, while all processors had tests: 24


def decode(talk: Talk, data: bytes) -> None:
    at = 0
    while at < len(data):
        at = talk.conversation.decode(data, at, 512, [])


@pytest.mark.parametrize("row", SENT, ids=[f"{row.kind}: {row.name}" for row in SENT])
def test_decoding_costs_at_most_so_many_times_what_making_and_sending_costs(row: Input) -> None:
    """A client that makes each message from a template and writes them to a socket. In turn, until it is cheap enough once."""
    judge = Judge(RuleSet((Rule("all", limit=Limit(messages=Rate(10_000_000))),)), bounds_names=True)
    judge.origins.now = 10**15
    talk = Talk(row.kind, judge=judge)
    for client, broker in AMQP[:4] if row.kind == "amqp" else []:
        talk.client(client)
        talk.broker(broker)
    count = max(TURN_BYTES // len(row.message), 4)
    decode(talk, row.make(0, AT_ONCE if len(row.message) < 1000 else count))
    least = float("inf")
    left, right = socket.socketpair()
    with left, right:
        left.setblocking(False)
        for turn in range(TURNS):
            began = time.thread_time()
            data = row.make(AT_ONCE + turn * count, count)
            assert left.send(data) == len(data)
            sent = time.thread_time() - began
            assert len(right.recv(len(data), socket.MSG_WAITALL)) == len(data)
            began = time.thread_time()
            decode(talk, data)
            least = min(least, (time.thread_time() - began) / sent)
            if least <= MOST:
                return
    raise AssertionError(f"{least:.0f} times what it costs to send, in {TURNS} turns; {MOST} are allowed")
