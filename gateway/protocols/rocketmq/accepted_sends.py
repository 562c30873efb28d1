"""Accepted sends: sends that the gateway answers itself, because a rule lets them wait for longer than a client waits for an answer
(`action: spool` with `answer: accepted_by_gateway`, `docs/spooling.md`).

The naive way answers, keeps the request as it came, and throws away what the broker answers later, known by its `opaque`. But the client
is through with that number, and may use it again: then one of its own answers would be thrown away. Making the requests one-way would do,
but nobody would ever learn that the broker refused one. So each gets an `opaque` of the gateway's own when it is accepted. The header is
changed in that one place; signatures are of `extFields` and body (`docs/design/rocketmq.md` 4.6).

What is no ordinary send is not accepted: prepared (half) messages, whose client goes on with what the answer says; replies; send-backs and
what consumers send to retry topics, since a consumer would forget a message that is not stored yet. Nor is a header whose `opaque` cannot
be told for certain.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from mypy_extensions import i64

from gateway.protocols.octets import u16, u32
from gateway.protocols.rocketmq.headers import JSON, RETRY
from gateway.protocols.rocketmq.refusals import VERSION
from limiter.keys import Key

PREFIX: Final = 8  # bytes before the header
BINARY_OPAQUE: Final = PREFIX + 5  # where it stands in a binary header's frame
BINARY_FIXED: Final = 21  # bytes of a binary header before its remark and extFields
OPAQUE: Final = b'"opaque":'
LONG: Final = ("topic", "sysFlag", "properties", "queueId")  # of SEND_MESSAGE
SHORT: Final = ("b", "f", "i", "e")  # of SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE
NAMES: Final[dict[int, tuple[str, str, str, str]]] = {10: LONG, 310: SHORT, 320: SHORT}
TRANSACTION: Final = 0xC  # bits of sysFlag (MessageSysFlag.TRANSACTION_ROLLBACK_TYPE)
PREPARED: Final = "TRAN_MSG\x01"  # a property; names end with 1, values with 2
UNIQUE: Final = "UNIQ_KEY\x01"
# The gateway's own opaques count down from here, eleven characters each. Clients count up from 0: three billion requests are between.
FIRST_OPAQUE: Final = -1_000_000_000
LAST_OPAQUE: Final = -0x8000_0000
NO_OFFSET: Final = "-1"  # the queue's offset is the broker's to give
REMARK: Final = "accepted by the gateway; the broker does not have it yet"

Text = str | int | bool | None
Fields: Final[Any] = msgspec.defstruct("Fields", [(name, Text, None) for name in (*LONG, *SHORT)], gc=False)
SendHeader: Final[Any] = msgspec.defstruct(
    "SendHeader", [("code", int, 0), ("opaque", int, 0), ("extFields", Fields | None, None)], gc=False
)
decode_send: Final = msgspec.json.Decoder(SendHeader).decode


class Question:
    """What must be known of one send to answer it: its queue and its own unique key, as it says them; where its opaque stands."""

    __slots__ = ("begin", "end", "opaque_at", "opaque_end", "queue", "unique")

    def __init__(self, begin: int, end: int, opaque_at: int, opaque_end: int, queue: int, unique: str) -> None:
        self.begin = begin  # of its frame, in the part's data
        self.end = end
        self.opaque_at = opaque_at  # of the digits, or the four bytes
        self.opaque_end = opaque_end
        self.queue = queue
        self.unique = unique

    def __repr__(self) -> str:
        return f"<Question [{self.begin}:{self.end}] queue={self.queue} {self.unique}>"


class Acceptances:
    """Those of one connection: they number what is accepted."""

    __slots__ = ("opaque", "serial")

    def __init__(self, serial: int) -> None:
        self.opaque = FIRST_OPAQUE  # of the next one
        self.serial = serial  # the same, for its message id: 62 bits, begun at random, so that ids of several gateways are not the same

    def accept(self, data: bytes, questions: list[Question], opaques: list[int]) -> tuple[bytes, list[int], bytes]:
        """The frames of `questions` in `data` with opaques of the gateway's own, these opaques, and the answers to `opaques`."""
        frames: list[bytes] = []
        own: list[int] = []
        answers: list[bytes] = []
        for question, asked in zip(questions, opaques, strict=True):
            opaque = self.opaque
            self.opaque = opaque - 1 if opaque > LAST_OPAQUE else FIRST_OPAQUE
            own.append(opaque)
            frames.append(with_opaque(data, question, opaque))
            answers.append(answer(asked, question, self.serial))
            self.serial = (self.serial + 1) & 0x3FFF_FFFF_FFFF_FFFF
        return b"".join(frames), own, b"".join(answers)

    def __repr__(self) -> str:
        return f"<Acceptances next={self.opaque}>"


def accepts_now(key: Key) -> bool:
    """Whether one of the rules of `key` says that the gateway answers what is spooled. The queue only knows what was said when it was last
    over a limit, and outlives that rule."""
    for bucket in key.buckets:
        rule = bucket.effective.rule
        if rule.action == "spool" and rule.mode == "enforce" and rule.answer == "accepted_by_gateway":
            return True
    return False


def questions_of(data: bytes, start: i64, end: i64) -> list[Question] | None:
    """The sends `data[start:end]`, one for each frame; None where one of them must be answered by the broker itself."""
    found: list[Question] = []
    at: i64 = start
    while at < end:
        frame_end: i64 = at + 4 + u32(data, at)
        word: i64 = u32(data, at + 4)
        header_end: i64 = at + PREFIX + (word & 0xFFFFFF)
        question = (
            read_json_send(data, at, header_end, frame_end) if word >> 24 == JSON else read_binary_send(data, at, header_end, frame_end)
        )
        if question is None:
            return None
        found.append(question)
        at = frame_end
    return found


def read_json_send(data: bytes, at: i64, header_end: i64, frame_end: i64) -> Question | None:
    text = data[at + PREFIX : header_end]
    try:
        header = decode_send(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    names = NAMES.get(header.code)
    fields = header.extFields
    if names is None or fields is None or text.count(OPAQUE) != 1:
        return None
    begin: i64 = text.find(OPAQUE) + len(OPAQUE)
    digits = len(str(header.opaque))
    opaque_end: i64 = begin + digits
    if text[begin:opaque_end] != b"%d" % header.opaque or text[opaque_end : opaque_end + 1] not in (b",", b"}"):
        return None
    question = question_of(
        at,
        frame_end,
        at + PREFIX + begin,
        at + PREFIX + opaque_end,
        getattr(fields, names[0]),
        getattr(fields, names[1]),
        getattr(fields, names[2]),
        getattr(fields, names[3]),
    )
    if question is None:
        return None
    changed = with_opaque(data, question, LAST_OPAQUE)
    try:
        return question if decode_send(changed[PREFIX : PREFIX + (u32(changed, 4) & 0xFFFFFF)]).opaque == LAST_OPAQUE else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def read_binary_send(data: bytes, at: i64, header_end: i64, frame_end: i64) -> Question | None:
    begin: i64 = at + PREFIX
    names = NAMES.get(u16(data, begin))
    if names is None:
        return None
    values: dict[bytes, bytes] = {}
    place: i64 = begin + BINARY_FIXED + u32(data, begin + 13)
    while place < header_end:  # `read_binary` has seen that entries end where they say
        name: i64 = u16(data, place)
        value: i64 = place + name + 6
        place = value + u32(data, value - 4)
        values[data[value - 4 - name : value - 4]] = data[value:place]
    texts = [values.get(name.encode(), b"").decode(errors="replace") for name in names]
    opaque_at: i64 = at + BINARY_OPAQUE
    return question_of(at, frame_end, opaque_at, opaque_at + 4, texts[0], texts[1], texts[2], texts[3])


def question_of(
    begin: i64, end: i64, opaque_at: i64, opaque_end: i64, topic: object, flags: object, properties: object, queue: object
) -> Question | None:
    """What a send says, in either encoding; None where its answer must be the broker's."""
    said = number_of(flags)
    queue_id = number_of(queue)
    text = properties if isinstance(properties, str) else ""
    if said is None or queue_id is None or said & TRANSACTION or PREPARED in text or str(topic).startswith(RETRY.decode()):
        return None
    unique = ""
    if text.startswith(UNIQUE) or f"\x02{UNIQUE}" in text:
        unique = text[text.index(UNIQUE) + len(UNIQUE) :].partition("\x02")[0]
    return Question(begin, end, opaque_at, opaque_end, queue_id, unique)


def number_of(value: object) -> int | None:
    """A whole number, as clients write it (`"4"`, or 4); 0 where nothing is said, None where it is none."""
    if value is None or value == "":
        return 0
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    try:
        return int(value) if isinstance(value, str) and len(value) <= 11 else None
    except ValueError:
        return None


def with_opaque(data: bytes, question: Question, opaque: int) -> bytes:
    """The frame of `question` with another opaque."""
    begin = question.begin
    word = u32(data, begin + 4)
    number = b"%d" % opaque if word >> 24 == JSON else (opaque & 0xFFFF_FFFF).to_bytes(4, "big")
    more: i64 = len(number) - (question.opaque_end - question.opaque_at)
    lengths = int(u32(data, begin) + more).to_bytes(4, "big") + int(word + more).to_bytes(4, "big")
    return b"".join((lengths, data[begin + PREFIX : question.opaque_at], number, data[question.opaque_end : question.end]))


def opaques_of(data: bytes, start: i64, end: i64) -> list[int]:
    """The opaques of accepted sends: what `accept` has put there."""
    found: list[int] = []
    at: i64 = start
    while at < end:
        if data[at + 4] == JSON:
            place = data.index(OPAQUE, at + PREFIX) + len(OPAQUE)
            found.append(int(data[place : place + len(str(FIRST_OPAQUE))]))
        else:
            found.append(int(u32(data, at + BINARY_OPAQUE)) - 0x1_0000_0000)
        at += 4 + u32(data, at)
    return found


def answer(opaque: int, question: Question, serial: int) -> bytes:
    """The answer to one send: success, with all that clients read of it.

    The message id has the form of a broker's (address, port, offset), but names no broker, so nobody looks for the message at a wrong one.
    """
    fields = {"msgId": f"{serial:032X}", "queueId": str(question.queue), "queueOffset": NO_OFFSET}
    if question.unique:
        fields["transactionId"] = question.unique  # as brokers do, whatever the message
    header: bytes = msgspec.json.encode(
        {
            "code": 0,
            "extFields": fields,
            "flag": 1,
            "language": "JAVA",
            "opaque": opaque,
            "remark": REMARK,
            "serializeTypeCurrentRPC": "JSON",
            "version": VERSION,
        }
    )
    return (len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
