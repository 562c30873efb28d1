"""What is fuzzed of RocketMQ: both header decoders against a slow one, clients' and brokers' streams, talks of both."""

from __future__ import annotations

import re
import struct
from contextlib import suppress

from fuzz.scripts import LARGEST_HELD, LETTERS, Script, check_memory, cut, spool_disk

from gateway.pipeline.errors import ProtocolError
from gateway.protocols.rocketmq.headers import LONG_NAMES, MAX_NAME_BYTES, SEND_BACK, SHORT_NAMES, Header, read_binary, read_json
from gateway.protocols.rocketmq.template_cache import TemplateCache
from limiter.limits import Limit, Rate
from limiter.rules.match import Match
from limiter.rules.rule import Rule
from support.rocketmq import frames as rocketmq
from support.rocketmq.slow_headers import Read, read_header
from support.wires.conversations import Talk, rule

SECOND = 1_000_000_000
NUMBER = re.compile(rb'("maxMsgNums?"\s*:\s*"?)\d+')
LONGEST_SPOOLED = 60  # minutes; 200 acts bring some 1,500 messages, of which one a second leaves
RULES = {action: rule(action, messages=1, burst=1, protocol="rocketmq", topic=letter, name=action) for action, letter in LETTERS.items()}
PULLS = Rule("pulls", Match(protocol="rocketmq", operation="consume"), limit=Limit(messages=Rate(5), messages_burst=3), open_for_ns=0)


# ---- headers -----------------------------------------------------------------------------------------------------------


def meaning_of(read: Read) -> tuple[str, str, bool]:
    """Topic, group and batch of what is limited; a Header says the same in bytes."""
    ext = read.ext
    if read.flag & 1:
        return "", "", False
    topic = group = ""
    batch = False
    if read.code in SHORT_NAMES:
        topic, group, batch = ext.get("b", ""), ext.get("a", ""), ext.get("m", "").lower() == "true"
    elif read.code in LONG_NAMES:
        topic, group, batch = ext.get("topic", ""), ext.get("producerGroup", ""), ext.get("batch", "").lower() == "true"
    elif read.code == SEND_BACK:
        topic = f"%RETRY%{ext['group']}" if ext.get("group") else ""
    if topic.startswith("%RETRY%"):
        group = topic.removeprefix("%RETRY%")
    return topic, group, batch


def is_name(raw: bytes, text: str) -> bool:
    """Whether `raw` is that text as Java writes it, or the beginning of it that a name may have."""
    found, text = raw.decode(errors="replace"), text.encode(errors="replace").decode()
    return found == text or (len(raw) == MAX_NAME_BYTES and text.startswith(found.rstrip("\ufffd")))


def check_header(header: Header, read: Read) -> None:
    code = read.code % 0x10000 if read.kind == 1 else read.code
    assert (header.code, header.flag, header.opaque) == (code, read.flag, read.opaque), f"{header} / {read}"
    topic, group, batch = meaning_of(read)
    assert is_name(header.topic, topic), f"{header} / {read}"
    if topic:
        assert is_name(header.group, group), f"{header} / {read}"
        assert header.batch == batch, f"{header} / {read}"


def rocketmq_header(data: bytes) -> None:
    """Either encoding: what both we and the slow decoder take means the same to both; what we take alone is at most passed on unread."""
    if not data:
        return
    kind, text = data[0] & 1, data[1:]
    with suppress(ProtocolError, ValueError, RecursionError, struct.error):
        header = read_json(text) if kind == 0 else read_binary(text, 0, len(text))
        check_header(header, read_header(kind, text))


HONEST = [rocketmq.send(topic, opaque=opaque, born=1795247411000 + opaque)[8:-200] for topic in ("r", "free") for opaque in (1, 22, 333)]
HONEST += [rocketmq.send(topic, opaque=opaque, code=10)[8:-200] for topic in ("r", "free") for opaque in (4, 55)]


LEARNED = TemplateCache()
for _text in HONEST:
    LEARNED.learn(_text, read_json(_text))


def rocketmq_template(data: bytes) -> None:
    """Headers made from honest ones by cutting and pasting: one that is recognised means what the parser, or the slow decoder, reads."""
    templates = TemplateCache()
    templates.templates = LEARNED.templates[:]
    script = Script(data)
    text = HONEST[script.byte() % len(HONEST)]
    for _ in range(8):
        if script.at >= len(data):
            break
        at = (script.byte() * 256 + script.byte()) % (len(text) + 1)
        text = text[:at] + script.take(script.byte() % 24) + text[at + script.byte() % 24 :]
    known = templates.match(text, 0, len(text))
    if known is None:
        return
    opaque = templates.opaque
    with suppress(ProtocolError):
        read = read_json(text)
        found = (known.topic, known.group, known.batch, known.flag, opaque)
        assert found == (read.topic, read.group, read.batch, read.flag, read.opaque), f"{text!r}"
    with suppress(ValueError, RecursionError):
        slow = read_header(0, text)
        assert opaque == slow.opaque
        topic, group, batch = meaning_of(slow)
        assert is_name(known.topic, topic), f"{text!r}"
        assert is_name(known.group, group), f"{text!r}"
        assert known.batch == batch, f"{text!r}"


# ---- streams -----------------------------------------------------------------------------------------------------------


def frames_of(data: bytes) -> list[bytes]:
    """The whole frames at the beginning of `data`."""
    frames = []
    at = 0
    while at + 8 <= len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data) or end < at + 8:
            break
        frames.append(data[at:end])
        at = end
    return frames


def check_selection(forwarded: bytes, said: bytes) -> None:
    """What was forwarded is some of the frames that were said, in their order; the last one may be incomplete."""
    rest = map(without_number, frames_of(said))
    whole = frames_of(forwarded)
    for frame in whole:
        assert without_number(frame) in rest, f"forwarded, but not said, or out of order: {frame!r}"
    left = forwarded[sum(map(len, whole)) :]
    assert left in said


def without_number(frame: bytes) -> object:
    """`frame`, or what a poll says without the number of messages that it asks for: it may go on for fewer."""
    if b"maxMsgNum" not in frame:
        return frame
    end = 8 + int.from_bytes(frame[5:8], "big")
    with suppress(ValueError, RecursionError, struct.error):
        read = read_header(frame[4], frame[8:end])
        ext = {name: value for name, value in read.ext.items() if not name.startswith("maxMsgNum")}
        return read.code, read.opaque, read.flag, read.remark, ext, frame[end:]
    return NUMBER.sub(rb"\1", frame[8:])  # JSON that brokers read and the slow decoder does not: a control character in a name


def rocketmq_client(data: bytes) -> None:
    """RocketMQ requests, some keys limited, whole or large; an error is the client's, and nothing behind it is forwarded."""
    if not data:
        return
    said = data[1:]
    outcomes = []
    for how in (0, 1, 2 + data[0]):
        talk = Talk("rocketmq", RULES["reject"], PULLS, hold_bytes=300 if data[0] & 1 else 1 << 20, mixes=how != 1)
        error = None
        try:
            talk.client(said, cut(said, how))
            talk.broker(rocketmq.response(1))
        except ProtocolError as raised:
            error = f"{raised.whose}: {raised}"
        assert error is None or error.startswith("client: "), error
        check_selection(talk.to_broker, said)
        whole = [frame for frame in frames_of(talk.to_broker) if not data[0] & 1]
        outcomes.append((error, whole, talk.requests if error is None else []))
        check_memory(talk, len(said))
    assert outcomes[1] == outcomes[0], "byte by byte the outcome is another"
    assert outcomes[2] == outcomes[0], "cut differently, the outcome is another"


def rocketmq_broker(data: bytes) -> None:
    """What a broker answers, to sends and to pulls that are limited: passed on as it is, at once, and understood the same in any pieces."""
    if not data:
        return
    said = data[1:]
    asked = b"".join(rocketmq.send("free", opaque=opaque) for opaque in range(4))
    asked += b"".join(rocketmq.encode_request(code, PULL, opaque=opaque) for opaque, code in ((4, 11), (5, 11), (6, 361), (7, 200_050)))
    outcomes = []
    for how in (0, 1, 2 + data[0]):
        talk = Talk("rocketmq", RULES["reject"], *(PULLS,) * (data[0] & 1))
        talk.client(asked)
        error = None
        try:
            for piece in cut(said, how):
                before = len(talk.to_client)
                talk.broker(piece)
                assert talk.to_client[before:] == piece, "kept back, or altered"
        except ProtocolError as raised:
            error = f"{raised.whose}: {raised.cause}"
        assert error in (None, "broker: broker_protocol_error"), error
        conversation = talk.conversation
        signals = [repr(signal) for signal in conversation.reports.busy]
        delivered = sum(one.received for one in conversation.reports.delivered)
        outcomes.append((error, conversation.settled(), signals, delivered) if error is None else error)
        check_memory(talk, len(said))
    assert outcomes[1] == outcomes[0], "byte by byte it was understood otherwise"
    assert outcomes[2] == outcomes[0], "cut differently it was understood otherwise"


PULL: dict[str, rocketmq.Value] = {
    "topic": "t", "consumerGroup": "g", "queueId": 1, "queueOffset": 5, "maxMsgNums": 32, "sysFlag": 2, "suspendTimeoutMillis": 15000,
    "invisibleTime": 60000, "pollTime": 15000, "bornTime": 1795247411000, "initMode": 0, "commitOffset": 0, "subVersion": 0,
}  # fmt: skip
TOPICS = ("free", "x", *LETTERS.values())


def _client_says(script: Script, opaque: int) -> bytes:
    what = script.byte()
    topic = TOPICS[script.byte() % len(TOPICS)] if what < 160 or 200 <= what < 220 else ""
    binary = what & 64 != 0
    if what < 128:
        return rocketmq.send(
            topic, b"x" * (what & 7) * 90, opaque=opaque, code=(310, 10, 325)[what % 3], one_way=what & 32 != 0, binary=binary
        )
    if what < 144:
        body = rocketmq.batch_body(*[b"y" * what] * (what & 7))
        return rocketmq.send(topic, body[: script.byte() * 4], opaque=opaque, code=320, batch=True)
    if what < 160:
        return rocketmq.send_back(topic, opaque=opaque, binary=what & 1 == 1)
    if what < 200:
        return rocketmq.encode_request((11, 361, 200_050, 200_054, 200_052)[what % 5], PULL, opaque=opaque)
    if what < 220:
        return rocketmq.encode_request(what * 41, {"b": topic}, script.take(what - 200), opaque=opaque, flag=what & 3, binary=what & 4 == 4)
    return rocketmq.heartbeat(opaque=opaque) if what < 230 else script.take(what - 220)


def _broker_says(script: Script, opaque: int) -> bytes:
    what = script.byte()
    if what < 128:
        return rocketmq.response(opaque, (0, 0, 0, 2, 19, 21, 215, 1)[what & 7], script.take(what >> 3), "busy" if what & 32 else None)
    if what < 190:
        code = (39, 40, 220, 221, 307, 309, 326)[what % 7]
        return rocketmq.encode_request(code, {"x": "y"}, script.take(what & 15), opaque=opaque, flag=what & 2, binary=what & 1 == 1)
    return script.take(what - 190)


def rocketmq_talk(data: bytes) -> None:
    """Both sides of a conversation, act by act, with every action's limits: nothing but ProtocolError, and nothing is kept for ever."""
    check_memory(talk_of(data), len(data))


def talk_of(data: bytes) -> Talk:
    script = Script(data)
    talk = Talk("rocketmq", *RULES.values(), PULLS, hold_bytes=(1 << 12, LARGEST_HELD)[script.byte() & 1], disk=spool_disk())
    with suppress(ProtocolError):
        for _ in range(200):
            if script.at >= len(data):
                break
            choice = script.byte()
            if choice < 130:
                talk.client(_client_says(script, choice & 15))
            elif choice < 225:
                talk.broker(_broker_says(script, choice & 15))
            elif choice < 248:
                talk.wait(choice * 10_000_000)
                talk.work()
            elif choice < 252:
                talk.conversation.renew_keys()
                talk.conversation.lines.limits_changed()
            else:
                talk.tick()
        talk.wait(60 * SECOND)
        conversation = talk.conversation
        spooled = LONGEST_SPOOLED if conversation.lines.has_paged else 0
        while conversation.budget.held_messages and spooled:
            talk.work()
            talk.wait(60 * SECOND)
            spooled -= 1
        assert conversation.budget.held_messages == 0, "held for longer than any client waits, or its turn has never come"
        conversation.describe()
        conversation.lines.first_waiting()
        repr(conversation)
    return talk
