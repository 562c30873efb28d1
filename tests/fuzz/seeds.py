"""Writes the committed corpus, small real sessions: `python tests/fuzz/seeds.py`.

Run it when a format or a target changes; file names are contents' hashes, as libFuzzer's own.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"


def recorded() -> list[tuple[str, bytes]]:
    """A session of pika's with RabbitMQ 3.10: who spoke, and what."""
    lines = (ROOT / "tests/gateway/protocols/amqp/vectors/pika_session.jsonl").read_text().splitlines()
    return [(who, base64.b64decode(data)) for who, data in map(json.loads, lines)]


def seeds() -> Iterator[tuple[str, bytes]]:
    from support import amqp, rocketmq

    session = recorded()
    client = b"".join(data for who, data in session if who == "client")
    broker = b"".join(data for who, data in session if who == "broker")
    yield "amqp_client", b"\x00" + client[:3000]
    yield "amqp_broker", b"\x00" + broker[:3000]
    frames = [frame.raw for frame in amqp.read(client) if len(frame.raw) < 1000]
    for at in range(0, len(frames), 6):
        yield "amqp_client", b"\x01" + b"".join(frames[at : at + 6])
    answers = [frame.raw for frame in amqp.read(broker) if len(frame.raw) < 1000]
    for at in range(0, len(answers), 6):
        yield "amqp_broker", b"\x01" + b"".join(answers[at : at + 6])
    message = amqp.publish(1, "r", b"hello" * 20, mandatory=True, cut=30)
    yield "amqp_client", b"\x01" + message * 3 + amqp.HEARTBEAT + amqp.publish(2, "d") * 3
    yield "amqp_client", b"\x07" + amqp.publish(2, "x", b"y" * 5000, cut=4000)
    yield "amqp_broker", b"\x01" + amqp.ack(1, 1) + amqp.nack(1, 2) + amqp.ack(1, 3, multiple=True) + amqp.deliver(2, b"z" * 50, cut=20)
    for number in range(24):
        yield "amqp_talk", bytes((7 * number + 37 * at * at) % 256 for at in range(12 + number * 4))
    yield "amqp_talk", bytes([1, 0, 130, 0, 1, 0, 1, 0, 33, 150, 17, 150, 3, 225, 0, 170, 150, 150])
    start_ok = next(frame.raw for frame in amqp.read(client) if frame.name == "Connection.StartOk")
    yield "amqp_handshake", b"\x00" + start_ok[11:-1]
    yield "amqp_handshake", b"\x01" + (2047).to_bytes(2, "big") + (131072).to_bytes(4, "big") + b"\x00\x3c"
    yield "amqp_handshake", b"\x02\x01/\x00\x00"
    yield "amqp_handshake", b"\x04\x05LOGINS\x00\x00\x00\x03ann\x08PASSWORDS\x00\x00\x00\x06secret"
    yield "amqp_handshake", b"\x04\x04listA\x00\x00\x00\x0aF\x00\x00\x00\x05\x01aF\x00\x00"
    yield "rocketmq_client", b"\x00" + rocketmq.send("orders", opaque=1) + rocketmq.send("orders", opaque=2, binary=True)
    yield "rocketmq_client", b"\x01" + rocketmq.heartbeat(opaque=3) + rocketmq.send_back(opaque=4)
    yield "rocketmq_client", b"\x02" + rocketmq.send(opaque=5, body=rocketmq.batch_body(b"a", b"b"), batch=True)
    yield "proxy_header", b"PROXY TCP4 192.0.2.7 192.0.2.1 50112 5672\r\nAMQP"
    yield "proxy_header", b"PROXY TCP6 2001:db8::1 ::1 1 65535\r\n"
    yield "proxy_header", b"PROXY UNKNOWN whatever\r\n"
    yield "proxy_header", SIGNATURE + b"\x21\x11\x00\x0c" + bytes(range(12)) + b"AMQP"
    yield "proxy_header", SIGNATURE + b"\x21\x21\x00\x27" + bytes(39)
    yield "proxy_header", SIGNATURE + b"\x20\x00\x00\x00"


def main() -> None:
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    shutil.rmtree(HERE / "corpus", ignore_errors=True)
    for target, data in seeds():
        directory = HERE / "corpus" / target
        directory.mkdir(parents=True, exist_ok=True)
        (directory / hashlib.sha1(data, usedforsecurity=False).hexdigest()).write_bytes(data)


if __name__ == "__main__":
    main()
