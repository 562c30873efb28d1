"""What is fuzzed of RocketMQ's name servers: route rewriting, and talks with clients."""

from __future__ import annotations

import json
from contextlib import suppress

from fuzz.scripts import Script, check_memory, cut

from gateway.pipeline.errors import ProtocolError
from gateway.pipeline.routes import RouteError
from gateway.protocols.nameserver.rewriting import rewrite
from support.rocketmq import frames as rocketmq
from support.wires.conversations import Ports, Talk

ROUTES = (105, 106, 901, 304)


def _same_but_for_addresses(one: object, other: object, *, within: bool = False) -> bool:
    """Whether two JSON values differ at most in texts that are brokers' addresses."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            _same_but_for_addresses(one[name], other[name], within=within or name in ("brokerAddrs", "brokerAddr")) for name in one
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_same_but_for_addresses(*pair, within=within) for pair in zip(one, other, strict=True))
    return (within and isinstance(one, str) and isinstance(other, str)) or one == other


def nameserver_route(data: bytes) -> None:
    """The body of a route: rewritten or refused; what is not an address stays; what was rewritten is not rewritten into something else."""
    try:
        found = rewrite(data, Ports())
    except RouteError:
        return
    with suppress(ValueError, RecursionError):
        before = json.loads(data)
        after = json.loads(found)
        assert _same_but_for_addresses(before, after), f"{data!r} became {found!r}"


def nameserver_talk(data: bytes) -> None:
    """A name server's client and its answers, however they are cut."""
    if not data:
        return
    script = Script(data[1:])
    said = answers = b""
    for opaque in range(20):
        if script.at >= len(script.data):
            break
        what = script.byte()
        code = (*ROUTES, 103, 9_999)[what % 6]
        said += rocketmq.encode_request(code, {"topic": "t"}, script.take(what & 7), opaque=opaque & 7, binary=what & 64 != 0)
        if what & 8:
            answers += rocketmq.response(
                (opaque ^ what) & 7 if what & 16 else opaque & 7, 0 if what & 32 else 17, script.take(script.byte())
            )
    rest = script.take(len(script.data))
    said, answers = (said + rest, answers) if data[0] & 1 else (said, answers + rest)
    outcomes = []
    for how in (0, 1, 2 + data[0]):
        talk = Talk("rocketmq-nameserver")
        error = None
        try:
            talk.client(said, cut(said, how))
            talk.broker(answers, cut(answers, how))
        except ProtocolError as raised:
            error = f"{raised.whose}: {raised.cause}"
        outcomes.append((error, talk.to_broker, talk.to_client) if error is None else error)
        check_memory(talk, len(data))
    assert outcomes[1] == outcomes[0], "byte by byte the outcome is another"
    assert outcomes[2] == outcomes[0], "cut differently, the outcome is another"
