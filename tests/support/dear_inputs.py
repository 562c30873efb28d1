"""Dear inputs: messages that clients may send to make a gateway work, each kind as a template. Nothing refuses them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pamqp import commands

from support.amqp import frames as amqp
from support.clients.raw_amqp import opening
from support.rocketmq.frames import encode_request, frame, send

DIGITS: Final = "0123456"  # which the number of a message replaces


@dataclass(frozen=True)
class Input:
    """`count` messages like `message`. `kind`: "rocketmq" and "amqp" are sent, "nameserver" asked, "… connection" are connections."""

    name: str
    kind: str
    message: bytes
    count: int

    def make(self, first: int, count: int) -> bytes:
        before, _, after = self.message.partition(DIGITS.encode())
        if before == self.message:
            return self.message * count
        return b"".join([b"%b%07d%b" % (before, number, after) for number in range(first, first + count)])


def loose(text: bytes) -> bytes:
    """With a group that varies, so that no template meets it."""
    header = b'{"code":310,"extFields":{"a":"%b","b":"one","i":"%b"},"flag":2,"opaque":1}' % (DIGITS.encode(), text)
    return frame(header, b"x")


def one_way(code: int, fields: dict[str, str], body: bytes = b"x") -> bytes:
    return encode_request(code, dict(fields), body, flag=2)


def declare() -> bytes:
    return amqp.method(1, commands.Queue.Declare(0, f"q{DIGITS}", nowait=True))


def table() -> bytes:
    return amqp.method(1, commands.Basic.Publish(routing_key="k")) + amqp.grown_header(1, 8000, b"x")


BLANKS: Final = f'{{ "code":310, "extFields":{{"a":"{DIGITS}","b":"one"}},"flag":2,"opaque":1}}'
UNKNOWN: Final = ",".join(f'"{"x" * 54}{DIGITS if at == 0 else f"{at:07}"}{at:03}":1' for at in range(16))
INPUTS: Final = (
    Input("one topic", "rocketmq", one_way(310, {"a": "g", "b": "one"}), 60_000),
    Input("new topics", "rocketmq", one_way(310, {"a": "g", "b": DIGITS}), 60_000),
    Input("new topics, full headers", "rocketmq", send(DIGITS, b"x", one_way=True), 60_000),
    Input("new groups", "rocketmq", one_way(310, {"a": DIGITS, "b": "one"}), 60_000),
    Input("new access keys", "rocketmq", one_way(310, {"a": "g", "b": "one", "AccessKey": DIGITS}), 40_000),
    Input("send-backs of new groups", "rocketmq", one_way(36, {"group": DIGITS, "offset": "1", "delayLevel": "3"}, b""), 60_000),
    Input("heartbeats", "rocketmq", one_way(34, {}, b'{"clientID":"%b","producerDataSet":[{"groupName":"g"}]}' % DIGITS.encode()), 60_000),
    Input("codes that it does not know", "rocketmq", one_way(9999, {"x": DIGITS}), 60_000),
    Input("headers: half an emoji", "rocketmq", loose(rb"\ud83d"), 60_000),
    Input("headers: a control character", "rocketmq", loose(b"\x01"), 60_000),
    Input("headers: GBK", "rocketmq", loose(b"\xc4\xe3\xba\xc3 ........"), 60_000),
    Input("headers: blanks", "rocketmq", frame(BLANKS.encode(), b"x"), 60_000),
    Input("headers: 16 unknown fields", "rocketmq", frame(f'{{"code":310,{UNKNOWN},"flag":2,"opaque":1}}'.encode(), b"x"), 10_000),
    Input("headers: 8 kB of control characters", "rocketmq", loose(b"\x01" * 8000), 4000),
    Input("headers: 8 kB of half emojis", "rocketmq", loose(rb"\ud83d" * 1333), 4000),
    Input("headers: 8 kB that are not UTF-8", "rocketmq", loose(b"\xff" * 8000 + b"x" * 8), 4000),
    Input("questions for routes", "nameserver", encode_request(105, {"topic": DIGITS}), 20_000),
    Input("connections", "rocketmq connection", b"", 1000),
    Input("connections with a send", "rocketmq connection", one_way(310, {"a": "g", "b": "one"}), 1000),
    Input("one key", "amqp", amqp.publish(1, "onekey", b"x"), 60_000),
    Input("new routing keys", "amqp", amqp.publish(1, DIGITS, b"x"), 60_000),
    Input("new exchanges", "amqp", amqp.publish(1, "k", b"x", exchange=DIGITS), 60_000),
    Input("heartbeats", "amqp", amqp.HEARTBEAT, 100_000),
    Input("new queues", "amqp", declare(), 60_000),
    Input("header tables of 8 kB", "amqp", table(), 4000),
    Input("connections", "amqp connection", b"", 1000),
    Input("connections that log in", "amqp connection", opening(1), 1000),
)  # fmt: skip
