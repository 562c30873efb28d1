"""Writes the committed corpus, small real sessions: `python tests/fuzz/seeds.py`.

Run it when a format or a target changes; file names are contents' hashes, as libFuzzer's own. What stands there besides was found by
fuzzing (`minimise.py`) and stays.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
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


def rocketmq_seeds() -> Iterator[tuple[str, bytes]]:
    """From the frames that RemotingCommand wrote, and from headers spelled in every way we could think of."""
    from support.rocketmq import frames as rocketmq
    from support.rocketmq.remoting import frames_file, headers_file

    lines = [json.loads(line) for line in gzip.decompress(frames_file("5.3.3").read_bytes()).decode().splitlines()]
    spoken = {
        who: [bytes.fromhex(line["frame"]) for line in lines if line["from"] == who and len(line["frame"]) < 1200]
        for who in ("client", "broker")
    }
    for frame in spoken["client"][::17] + spoken["broker"][::11]:
        header = frame[8 : 8 + int.from_bytes(frame[5:8], "big")]
        yield "rocketmq_header", bytes([frame[4]]) + header
    for row in json.loads(headers_file().read_text())[::3]:
        yield "rocketmq_header", b"\x00" + bytes.fromhex(row["header"])
    for at in range(0, len(spoken["client"]), 40):
        yield "rocketmq_client", bytes([at % 256]) + b"".join(spoken["client"][at : at + 3])
    for at in range(0, len(spoken["broker"]), 8):
        yield "rocketmq_broker", bytes([at % 256]) + b"".join(spoken["broker"][at : at + 3])
    pulled = b"".join(frame for frame in spoken["broker"] if frame[4] == 0 and b'"nextBeginOffset"' in frame)
    yield (
        "rocketmq_broker",
        b"\x01" + pulled.replace(b'"opaque":', b'"opaque":4,"x":') + rocketmq.response(5, 19) + rocketmq.response(-1, 2, remark="busy"),
    )
    yield "rocketmq_broker", b"\x01" + b"".join(rocketmq.response(opaque, body=b"z" * opaque) for opaque in range(8))
    for number in range(24):
        yield "rocketmq_template", bytes((5 * number + 3 * at) % 256 for at in range(4 + number))
    yield "rocketmq_template", b'\x00\x00\x60\x08","b":"c\x00'
    route = {
        "brokerDatas": [{"brokerAddrs": {"0": "10.0.0.1:10911", "1": "10.0.0.2:10911"}, "brokerName": "a", "cluster": "c"}],
        "queueDatas": [],
    }
    text = json.dumps(route, separators=(",", ":")).encode()
    for body in (text, text.replace(b'"0"', b"0").replace(b'"1"', b"1"), json.dumps(route, indent=1).encode(), b'{"brokerAddr":"h:1"}'):
        yield "nameserver_route", body
        yield "nameserver_talk", b"\x00\x28" + bytes([len(body) % 256]) + body[:255] + b"\x01\x09\x12\x1b"
    yield (
        "nameserver_talk",
        b"\x01\x04" + rocketmq.encode_request(105, {"topic": "t"}, opaque=9) + rocketmq.encode_request(103, None, b"x" * 50, opaque=10),
    )


def talk_seeds() -> Iterator[tuple[str, bytes]]:
    """For each action a flood of what it limits, on a channel without confirms and on one with them, one-way and not; then time passes."""
    from fuzz.scripts import LETTERS
    from fuzz.targets.amqp import KEYS
    from fuzz.targets.rocketmq import TOPICS

    for letter in LETTERS.values():
        flood = b"".join(bytes([channel, 6, KEYS.index(letter)]) * 5 for channel in (1, 0))
        yield "amqp_talk", b"\x01" + flood + b"\xef\xf0" * 12
        flood = b"".join(bytes([opaque, 1 + 32 * (opaque & 1), TOPICS.index(letter)]) for opaque in range(10))
        yield "rocketmq_talk", b"\x01" + flood + b"\xf7\xff" * 12


def seeds() -> Iterator[tuple[str, bytes]]:
    from support.amqp import frames as amqp
    from support.rocketmq import frames as rocketmq

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
    yield from talk_seeds()
    start_ok = next(frame.raw for frame in amqp.read(client) if frame.name == "Connection.StartOk")
    yield "amqp_handshake", b"\x00" + start_ok[11:-1]
    yield "amqp_handshake", b"\x01" + (2047).to_bytes(2, "big") + (131072).to_bytes(4, "big") + b"\x00\x3c"
    yield "amqp_handshake", b"\x02\x01/\x00\x00"
    yield "amqp_handshake", b"\x04\x05LOGINS\x00\x00\x00\x03ann\x08PASSWORDS\x00\x00\x00\x06secret"
    yield "amqp_handshake", b"\x04\x04listA\x00\x00\x00\x0aF\x00\x00\x00\x05\x01aF\x00\x00"
    yield from rocketmq_seeds()
    yield "rocketmq_client", b"\x00" + rocketmq.send("orders", opaque=1) + rocketmq.send("orders", opaque=2, binary=True)
    yield "rocketmq_client", b"\x01" + rocketmq.heartbeat(opaque=3) + rocketmq.send_back(opaque=4)
    yield "rocketmq_client", b"\x02" + rocketmq.send(opaque=5, body=rocketmq.batch_body(b"a", b"b"), batch=True)
    yield "proxy_header", b"PROXY TCP4 192.0.2.7 192.0.2.1 50112 5672\r\nAMQP"
    yield "proxy_header", b"PROXY TCP6 2001:db8::1 ::1 1 65535\r\n"
    yield "proxy_header", b"PROXY UNKNOWN whatever\r\n"
    yield "proxy_header", SIGNATURE + b"\x21\x11\x00\x0c" + bytes(range(12)) + b"AMQP"
    yield "proxy_header", SIGNATURE + b"\x21\x21\x00\x27" + bytes(39)
    yield "proxy_header", SIGNATURE + b"\x20\x00\x00\x00"
    yield from takeover_seeds()


def takeover_seeds() -> Iterator[tuple[str, bytes]]:
    """As both sides speak, of this version and of one before, and in pieces."""
    hello = b'{"format": 1, "state_directory": "/", "pid": 4711, "workers": 1}\n'
    for flag in (1, 3, 9):
        yield "takeover", bytes([flag]) + hello + b'{"ready": true}\n'
    says = hello.replace(b"}", b', "says": "serving"}')
    for last in (b"", b'{"serving": true}\n', b'{"serving": false}\n', b'{"ready": true}\n'):
        yield "takeover", b"\x01" + says + b'{"ready": true}\n' + last
    yield "takeover", b"\x01" + hello.replace(b', "workers": 1', b"")
    yield "takeover", b"\x01" + hello.replace(b'"/"', b'"/elsewhere"') + b'{"ready": true}\n'
    for answer in (
        b'{"pid": 42}\n',
        b'{"go": true, "until": "serving"}\n',
        b'{"done": true}\n',
        b'{"error": "the running gateway is stopping"}\n',
        b"[" * 3000 + b"\n",
    ):
        yield "takeover", b"\x00" + answer
        yield "takeover", b"\x06" + answer


def main() -> None:
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    from fuzz.text_seeds import text_seeds

    for target, data in (*seeds(), *text_seeds()):
        directory = HERE / "corpus" / target
        directory.mkdir(parents=True, exist_ok=True)
        (directory / hashlib.sha1(data, usedforsecurity=False).hexdigest()).write_bytes(data)


if __name__ == "__main__":
    main()
