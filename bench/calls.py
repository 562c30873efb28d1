"""How many calls of the product's functions one message takes, and in how many files: the width of its way, which no profile shows.

PYTHONPATH=.:tests .venv/bin/python bench/calls.py

One session of the data plane over socket pairs (`support/wires`), interpreted, one rule, the limiter on the loop's thread. WARM messages
first, so that what is made once is made; then one, from the client's bytes to the broker's; then the broker's answer to it. A function of
the product counts whenever it is entered; the calls of C functions, of the library and of the harness do not.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from pamqp import commands

from gateway.protocols.rocketmq.template_cache import known
from limiter.limits import Limit, Rate
from limiter.rules.rule_set import Match, Rule
from support.amqp import frames as amqp
from support.builds import build_of
from support.rocketmq import frames as rocketmq
from support.wires.wires import Wires

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = tuple(f"{ROOT / room}/" for room in ("gateway", "limiter", "common"))
WARM = 20
RULE = Rule("limited", Match(), limit=Limit(messages=Rate(1000), messages_burst=1000))

Calls = Counter[tuple[str, str]]  # by file and function


def count(work: Callable[[], object]) -> Calls:
    """The calls of the product's functions while `work` is done."""
    calls: Calls = Counter()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PRODUCT):
            calls[code.co_filename.removeprefix(f"{ROOT}/"), code.co_qualname] += 1

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def measure(protocol: str) -> dict[str, Calls]:
    """Of one message there, and of its answer back."""
    known.clear()  # what other connections have shown of RocketMQ's headers decides what is compared
    with Wires(RULE) as wires:
        client, broker = wires.connect(protocol)
        if protocol == "amqp":
            client.sendall(amqp.greeting(channels=(1,), confirms=(1,)))
            wires.run()
            broker.sendall(amqp.broker_start() + amqp.method(0, commands.Connection.OpenOk()) + amqp.opened(1))
            broker.sendall(amqp.method(1, commands.Confirm.SelectOk()))
        wires.run()
        found: dict[str, Calls] = {}
        for number in range(1, WARM + 2):
            client.sendall(
                amqp.publish(1, "orders", b"x" * 100) if protocol == "amqp" else rocketmq.send("orders", b"x" * 100, opaque=number)
            )
            found["there"] = count(wires.sweep)
            wires.run(0.001)
            broker.recv(1 << 16)
            broker.sendall(amqp.method(1, commands.Basic.Ack(number, multiple=False)) if protocol == "amqp" else rocketmq.response(number))
            found["back"] = count(wires.sweep)
            wires.run(0.001)
            client.recv(1 << 16)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--all", action="store_true", help="print each function")
    arguments = parser.parse_args()
    if build_of("limiter.keys")[0] == "compiled":
        parser.error("compiled functions are not seen: run it with PYTHONPATH=.:tests from the source tree")
    for protocol in ("amqp", "rocketmq"):
        for way, calls in measure(protocol).items():
            files = {file for file, _ in calls}
            print(f"{protocol:9} {way:6} {calls.total():4} calls of {len(calls)} functions in {len(files)} files")
            for (file, function), times in calls.items() if arguments.all else ():
                print(f"    {times:3} {file}::{function}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
