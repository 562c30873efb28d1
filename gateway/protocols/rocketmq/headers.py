"""Headers: the fields of a request that the limiter needs, out of either of the two encodings.

The naive way decodes a header as the broker does: twenty fields into a map. We read seven. The danger is to read them differently from
the broker, because a client could then be charged to one topic and send to another. RocketMQ reads JSON headers with fastjson 1.2.83,
which forgives almost everything; its behaviour was measured (2026-11, `RemotingSerializable.decode` of 5.3.3):

* The last of two equal keys in `extFields` wins, `null` included; so with msgspec. At the top it may be either: refused
  (`header_ambiguity.py`).
* Numbers and booleans in `extFields` become text (`5`, `true`). Accepted; a fraction, a list or an object as a topic is refused.
* Within texts it takes what is no JSON: half a surrogate pair (`title.slice(0, 7)` of an emoji), control characters as they are, `\\x41`.
  So do we (`loose_texts.py`).
* Single quotes, comments, bare keys, trailing commas: fastjson takes them, no client sends them, we refuse them.
* Where no `opaque` is said, or null, it takes the next number of its own, and its answer would be nobody's here: of a poll it would not be
  counted, of a route not rewritten. Refused (`refuse_without_opaque`); every client says one.
* Top-level keys are matched *roughly* (`Code`, `ext_fields`). We refuse whatever it could take for one of its fields
  (`header_ambiguity.py`).

To refuse means to close the connection, which is what the broker does with a header it cannot read.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from mypy_extensions import i64

from common.octets import u16, u32
from gateway.pipeline.errors import ProtocolError
from gateway.protocols.rocketmq.costly_requests import OPERATION_OF
from gateway.protocols.rocketmq.header_ambiguity import NAMES, decode_raw, is_plain, refuse_ambiguous, unreadable
from gateway.protocols.rocketmq.loose_texts import is_plain_text, is_utf8, tighten
from limiter.protocols import RETRY_PREFIX

JSON: Final = 0  # serialize types, the first byte of a frame's second word
BINARY: Final = 1

RESPONSE: Final = 1  # bits of `flag`
ONE_WAY: Final = 2

NO_OPAQUE: Final = 0x8000_0000  # in the place of one that is not said: no 32-bit number

SEND_BACK: Final = 36  # CONSUMER_SEND_MSG_BACK: the broker writes to %RETRY%<group>
LONG_NAMES: Final = frozenset((10, 324, 370))  # SEND_MESSAGE, SEND_REPLY_MESSAGE, RECALL_MESSAGE: topic, producerGroup, batch
SHORT_NAMES: Final = frozenset((310, 320, 325))  # SEND_MESSAGE_V2, SEND_BATCH_MESSAGE, SEND_REPLY_MESSAGE_V2: b, a, m
RETRY: Final = RETRY_PREFIX.encode()
UNREADABLE: Final = "\ufffd"  # in the place of bytes that are not UTF-8
MAX_NAME_BYTES: Final = 255  # of a topic or group by which it is known; the broker takes no longer topics (TopicValidator)
ACCESS_KEY: Final = b"AccessKey"  # of an ACL-signed request (`docs/design/rocketmq.md` 4.6); C++ clients always send it, empty

# PULL_MESSAGE, LITE_PULL_MESSAGE, POP_MESSAGE, PEEK_MESSAGE, NOTIFICATION, POP_LITE_MESSAGE (5.5): the broker may keep these until there
# is a message
POLLS: Final = frozenset((11, 361, 200050, 200052, 200054, 200070))
CONSUMES: Final = frozenset((11, 361, 200050, 200054, 200070))  # what a consumer goes on by, all but PEEK_MESSAGE: topic, consumerGroup

GROUP_NAMES: Final = (b"group", b"consumerGroup", b"groupName")  # by which requests of OPERATION_OF name a group


class Header:
    """What one request's header means to the limiter: `topic` is the one it writes to, `source` the one it asks messages of.

    Either is empty where the request does not, and then nothing about it is limited, unless it is one of OPERATION_OF: of these `source`
    and `group` are what it names, if it does.

    What is sent to a retry topic is its consumer group's, though the client sends it under a producer group of its own: `group` is that
    of the topic, as with a send-back. `user` is the access key that the request claims; whether it may is the broker's to find out.
    """

    __slots__ = ("batch", "code", "flag", "group", "opaque", "source", "topic", "user")

    def __init__(
        self,
        flag: int,
        opaque: int,
        topic: bytes,
        group: bytes,
        batch: bool,  # noqa: FBT001  -- positional for speed
        code: int,
        user: bytes,
        source: bytes = b"",
    ) -> None:
        self.code = code
        self.user = user
        self.flag = flag
        self.opaque = opaque
        self.batch = batch
        self.topic = topic if len(topic) <= MAX_NAME_BYTES else topic[:MAX_NAME_BYTES]
        self.group = group if len(group) <= MAX_NAME_BYTES else group[:MAX_NAME_BYTES]
        self.source = source if len(source) <= MAX_NAME_BYTES else source[:MAX_NAME_BYTES]

    def __repr__(self) -> str:
        return (
            f"<Header code={self.code} opaque={self.opaque} flag={self.flag} topic={self.topic!r} group={self.group!r} batch={self.batch}"
            f" user={self.user!r} source={self.source!r}>"
        )


# ---- JSON ----------------------------------------------------------------------------------------------------------------

# Types made by defstruct because a class body of msgspec's metaclass cannot be compiled. Any: only presence matters.
Text = str | int | float | bool | None
Number = int | str | None  # what fastjson reads a number from
ExtFields: Final[Any] = msgspec.defstruct(
    "ExtFields",
    [(name, Text, None) for name in ("a", "b", "m", "topic", "producerGroup", "batch", "group", "AccessKey", "consumerGroup", "groupName")],
    gc=False,
)
JsonHeader: Final[Any] = msgspec.defstruct(
    "JsonHeader",
    [
        ("code", Number, 0),
        ("extFields", ExtFields | None, None),
        ("flag", Number, 0),
        ("language", Text, None),
        ("opaque", Number, NO_OPAQUE),
        ("remark", msgspec.Raw, msgspec.Raw()),  # stepped over: values that nobody wants are not built, however large they are
        ("serializeTypeCurrentRPC", msgspec.Raw, msgspec.Raw()),
        ("version", Text, None),
    ],
    gc=False,
)

NUMBERS: Final = ("code", "flag", "opaque")
decode_header: Final = msgspec.json.Decoder(JsonHeader).decode
decode_any: Final = msgspec.json.Decoder().decode
decode_scalar: Final = msgspec.json.Decoder(str | int | float | bool | None).decode


def read_json(text: bytes) -> Header:
    """The header `text`; raises ProtocolError where the broker could not read it or could read it differently."""
    fields = read_fields(text)
    for number in (fields.code, fields.flag, 0 if fields.opaque == NO_OPAQUE else fields.opaque):
        if not -0x8000_0000 <= number <= 0x7FFF_FFFF:
            raise unreadable(f"{number} is no 32-bit number")
    code: int = fields.code
    extra = fields.extFields
    topic = b""
    group = b""
    source = b""
    batch = False
    if extra is None or fields.flag & RESPONSE:
        pass
    elif code in SHORT_NAMES:
        topic = as_bytes(extra.b, text)
        group = as_bytes(extra.a, text)
        batch = is_true(extra.m)
    elif code in LONG_NAMES:
        topic = as_bytes(extra.topic, text)
        group = as_bytes(extra.producerGroup, text)
        batch = is_true(extra.batch)
    elif code == SEND_BACK:
        group = as_bytes(extra.group, text)
        topic = RETRY + group if group else b""
    elif code in CONSUMES:
        source = as_bytes(extra.topic, text)
        group = as_bytes(extra.consumerGroup, text)
    elif code in OPERATION_OF:
        source = as_name(extra.topic, text)
        group = as_name(extra.group or extra.consumerGroup or extra.groupName, text)
    if topic.startswith(RETRY):
        group = topic[len(RETRY) :]
    user = b""
    if extra is not None and (topic or source or isinstance(extra.AccessKey, str)):
        user = as_bytes(extra.AccessKey, text)
    return Header(fields.flag, fields.opaque, topic, group, batch, code, user, source)


def refuse_without_opaque(opaque: int) -> None:
    """Raise ProtocolError where a header says none."""
    if opaque == NO_OPAQUE:
        raise unreadable("it has no opaque")


def read_fields(text: bytes) -> Any:
    """A JsonHeader out of `text`. Raises ProtocolError."""
    try:
        if is_utf8(text):
            return read_strict(text)
    except msgspec.MsgspecError:
        pass
    try:
        return read_strict(tighten(text))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise unreadable(str(error)) from None


def read_strict(text: bytes) -> Any:
    """The same of what is JSON; raises msgspec's errors too, where it is none."""
    try:
        fields = decode_header(text)
    except msgspec.ValidationError:
        return read_unusual(text)
    except RecursionError:
        raise unreadable("nested too deep") from None
    members = _members(text, "the header")
    if not is_plain(text, members) or not members.keys() <= NAMES:
        refuse_ambiguous(text, members)
    for name in NUMBERS:
        value = getattr(fields, name)
        if type(value) is not int:
            setattr(fields, name, as_int(value, name))
    return fields


def read_unusual(text: bytes) -> Any:
    """The same for headers with lists and objects where no client sends them, which the broker can read."""
    members = _members(text, "the header")
    refuse_ambiguous(text, members)
    extra = members.get("extFields")
    given = {} if extra is None or bytes(extra) == b"null" else _members(extra, "extFields")
    return JsonHeader(
        code=as_int(_scalar(members.get("code")), "code"),
        flag=as_int(_scalar(members.get("flag")), "flag"),
        opaque=as_int(_scalar(members.get("opaque")), "opaque"),
        extFields=ExtFields(**{name: _scalar(given.get(name)) for name in ExtFields.__struct_fields__}),
        language=_scalar(members.get("language")),
        version=_scalar(members.get("version")),
    )


def _members(text: Any, what: str) -> dict[str, Any]:
    """The members of the object `text`, each as it stands."""
    try:
        found: dict[str, Any] = decode_raw(text)
    except msgspec.ValidationError:
        raise unreadable(f"{what} is not an object") from None
    except RecursionError:
        raise unreadable("nested too deep") from None
    return found


def _scalar(raw: Any) -> object:
    """The value that is spelled `raw`; None where there is none, and `raw` itself where it is a list or an object."""
    if raw is None:
        return None
    try:
        value: object = decode_scalar(raw)
    except msgspec.ValidationError:
        return raw
    return value


def as_int(value: object, name: str) -> int:
    """A field of the header's own, which fastjson reads from a number or from decimal text."""
    if value is None:
        return NO_OPAQUE if name == "opaque" else 0
    if isinstance(value, str) and len(value) <= 11:
        try:
            return int(value) if value.isascii() and value.lstrip("-").isdigit() else _not_a_number(name)
        except ValueError:
            return _not_a_number(name)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return _not_a_number(name)


def _not_a_number(name: str) -> int:
    raise unreadable(f"{name} is not a whole number")


def as_bytes(value: object, text: bytes) -> bytes:
    """A value of extFields as the broker's map of strings holds it; b"" for null."""
    if isinstance(value, str):
        if UNREADABLE in value and not is_plain_text(text):
            raise unreadable("a topic, group or access key that is not UTF-8")
        return value.encode()
    if value is None:
        return b""
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, int) and not (value == 0 and b"-0" in text):  # fastjson keeps the text of a number: -0 stays "-0"
        return str(value).encode()
    raise unreadable("a topic, group or access key that is neither text nor a whole number")


def as_name(value: object, text: bytes) -> bytes:
    """The same of a request that passes whatever it names; b"" where that is no name."""
    try:
        return as_bytes(value, text)
    except ProtocolError:
        return b""


def is_true(value: object) -> bool:
    """Boolean.parseBoolean of the value's text."""
    return value is True or (isinstance(value, str) and value.lower() == "true")


# ---- binary --------------------------------------------------------------------------------------------------------------

FIXED: Final = 21  # code 2, language 1, version 2, opaque 4, flag 4, length of remark 4, length of extFields 4


def signed32(value: i64) -> i64:
    return value - 0x1_0000_0000 if value >= 0x8000_0000 else value


def read_binary(data: bytes, start: i64, end: i64) -> Header:
    """The header `data[start:end]` in the ROCKETMQ encoding (`docs/design/rocketmq.md` 1.3); raises ProtocolError like `read_json`."""
    if end - start < FIXED:
        raise unreadable(f"{end - start} bytes, the fixed part alone has {FIXED}")
    code: int = u16(data, start)
    opaque: i64 = signed32(u32(data, start + 5))
    flag: i64 = signed32(u32(data, start + 9))
    style: i64 = 0
    if flag & RESPONSE:
        pass
    elif code in SHORT_NAMES:
        style = 1
    elif code in LONG_NAMES:
        style = 2
    elif code == SEND_BACK:
        style = 3
    elif code in CONSUMES:
        style = 4
    elif code in OPERATION_OF:
        style = 5
    if style == 0:
        return Header(flag, opaque, b"", b"", False, code, b"")
    remark: i64 = u32(data, start + 13)
    if remark > end - start - FIXED:
        raise unreadable("the remark is longer than the header")
    at: i64 = start + 17 + remark
    if u32(data, at) != end - at - 4:
        raise unreadable("extFields do not fill the header")
    at += 4
    topic = b""
    group = b""
    user = b""
    batch = False
    while at < end:
        if end - at < 6:
            raise unreadable("extFields end within an entry")
        name: i64 = u16(data, at)
        at += 2
        if name > end - at - 4:
            raise unreadable("a name is longer than extFields")
        value: i64 = at + name + 4
        size: i64 = u32(data, value - 4)
        if size > end - value:
            raise unreadable("a value is longer than extFields")
        if name == 9 and data[at : at + 9] == ACCESS_KEY:
            user = data[value : value + size]
        elif style == 5:
            word = data[at : at + name]
            if word == b"topic":
                topic = data[value : value + size]
            elif word in GROUP_NAMES and size > 0:
                group = data[value : value + size]
        elif style == 1:
            if name == 1:
                letter: i64 = data[at]
                if letter == 98:  # b
                    topic = data[value : value + size]
                elif letter == 97:  # a
                    group = data[value : value + size]
                elif letter == 109:  # m
                    batch = data[value : value + size].lower() == b"true"
        elif name == 5 or name == 13:  # noqa: PLR1714  -- compiled to two comparisons of machine words
            word = data[at : at + name]
            if word == b"topic":
                topic = data[value : value + size]
            elif word == b"batch":
                batch = data[value : value + size].lower() == b"true"
            elif word == (b"group" if style == 3 else b"consumerGroup" if style == 4 else b"producerGroup"):
                group = data[value : value + size]
        at = value + size
    if style == 3:
        topic = RETRY + group if group else b""
        batch = False
    elif style >= 4:
        return Header(flag, opaque, b"", group, False, code, user, topic)
    elif topic.startswith(RETRY):
        group = topic[len(RETRY) :]
    return Header(flag, opaque, topic, group, batch, code, user)
