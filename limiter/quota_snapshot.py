"""The quota snapshot: the file in which the nightly job tells the gateway what every topic may send (`docs/design/contract.md` 9).

One canonical form (sorted keys, no spaces, whole numbers as integers), so that equal quotas are equal bytes and a SHA-256 names a
snapshot. Reading is strict and bounded: every fault is a `SnapshotError` with its JSON path, and nothing is read in part.

This module and `limiter.protocols` are all that `spark_jobs` and the gateway share: standard library only, plain values, no rate or rule.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from limiter.protocols import PROTOCOL_NAMES

VERSION: Final = 1
MAX_SNAPSHOT_BYTES: Final = 2**30  # bytes; a snapshot; 200,000 quotas with all their evidence are 0.9 GB
MAX_PUBLISHED_BYTES: Final = 16 * 2**20  # bytes; what a gateway takes of one publication; 10,000 quotas in short form are about 10 MB
MAX_PER_SECOND: Final = 10**15  # tokens; a rate; as limiter.limits
REQUIRED: Final = ("version", "computed_at", "code", "quotas")
OPTIONAL: Final = ("inputs", "parameters", "date", "night")
MAX_HOURLY: Final = 10**6  # times; the factor of the intraday raise: a second of a day as busy as all the others together has 86,400
MAX_TEXT_CHARS: Final = 4096  # characters; one text; AMQP's longest topic: three names of 255 bytes, each byte as %XX, are 2297

HALF_A_PAIR: Final = "holds half a surrogate pair, which no UTF-8 file can"
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")  # how JSON spells one of a pair, or half of none

JSON = None | bool | int | float | str | list["JSON"] | dict[str, "JSON"]


class SnapshotError(ValueError):
    """A fault of a snapshot: `path` as in `quotas[3].messages.rate`."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path or 'snapshot'}: {message}")
        self.path = path


@dataclass(frozen=True, slots=True)
class Quota:
    """The quota of one topic: (rate per second, burst in tokens) of messages and of bytes; None leaves that dimension to the rules."""

    protocol: str
    topic: str  # as text, docs/design/contract.md 4
    messages: tuple[float, int] | None = None
    bytes: tuple[float, int] | None = None
    evidence: dict[str, JSON] = field(default_factory=dict, hash=False)
    hourly_messages: float | None = None  # times the last hour's mean: the rate that the intraday raise may raise this quota to
    hourly_bytes: float | None = None

    def to_json(self) -> dict[str, JSON]:
        found: dict[str, JSON] = {"protocol": self.protocol, "topic": self.topic, "evidence": self.evidence}
        dimensions = (("messages", self.messages, self.hourly_messages), ("bytes", self.bytes, self.hourly_bytes))
        for name, pair, hourly in dimensions:
            if pair is not None:
                limit: dict[str, JSON] = {"rate": drop_fraction(pair[0]), "burst": pair[1]}
                found[name] = limit if hourly is None else {**limit, "hourly": drop_fraction(hourly)}
        return found


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All published quotas, and their inputs. `quotas` is in order of (protocol, topic), no topic twice."""

    computed_at: str  # RFC 3339, UTC
    code: str  # version of the program that computed it
    inputs: tuple[dict[str, JSON], ...] = ()
    parameters: dict[str, JSON] = field(default_factory=dict, hash=False)
    quotas: tuple[Quota, ...] = ()
    version: int = VERSION
    date: str | None = None  # the last day that it learned from, as 2026-11-20
    night: dict[str, JSON] = field(default_factory=dict, hash=False)  # k, target, realised; topics held, learning, pinned

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.quotas, key=lambda quota: (quota.protocol, quota.topic)))
        object.__setattr__(self, "quotas", ordered)
        for earlier, later in itertools.pairwise(ordered):
            if (earlier.protocol, earlier.topic) == (later.protocol, later.topic):
                raise SnapshotError("quotas", f"{later.protocol} topic {later.topic!r} has two quotas; keep one")

    def to_json(self) -> dict[str, JSON]:
        """Both additions to version 1, `date` and `night`, are left out where they are empty."""
        added: dict[str, JSON] = {} if self.date is None else {"date": self.date}
        if self.night:
            added["night"] = self.night
        return added | {
            "version": self.version,
            "computed_at": self.computed_at,
            "code": self.code,
            "inputs": list(self.inputs),
            "parameters": self.parameters,
            "quotas": [quota.to_json() for quota in self.quotas],
        }

    def sha256(self) -> str:
        """The name of this snapshot: SHA-256 of its canonical bytes, in hexadecimal."""
        return hashlib.sha256(dump(self)).hexdigest()


def drop_fraction(number: float) -> int | float:
    """A rate as JSON writes it: an integer where it is whole."""
    return int(number) if number == int(number) else number


def dump(snapshot: Snapshot) -> bytes:
    """The canonical bytes, one line. `load(dump(x)) == x`, and equal snapshots are equal bytes.

    Raises SnapshotError where a value is not representable (NaN in the evidence, a negative rate).
    """
    return b"".join(dump_pieces(dataclasses.replace(snapshot, quotas=()), snapshot.quotas))


def dump_pieces(frame: Snapshot, quotas: Iterable[Quota]) -> Iterator[bytes]:
    """The same in parts: the snapshot without quotas up to where they begin, each quota, and the end. `quotas` are in order; they need not
    be all there at a time. Raises SnapshotError as `dump`."""
    document = frame.to_json()
    read_snapshot(document)
    whole_frame = _canonical(document, "")
    assert whole_frame.endswith(END), "the names that follow quotas"
    yield whole_frame.removesuffix(END)
    before = ("", "")
    for at, quota in enumerate(quotas):
        key = (quota.protocol, quota.topic)
        if key == before:
            raise SnapshotError("quotas", f"{quota.protocol} topic {quota.topic!r} has two quotas; keep one")
        before = key
        entry, path = quota.to_json(), f"quotas[{at}]"
        read_quota(entry, path)  # never write what could not be read again
        try:
            _check_finite(entry)
        except ArithmeticError:
            raise SnapshotError(*_find_non_number(entry, path)) from None
        yield (b"," if at else b"") + _canonical(entry, path)
    yield END + b"\n"


END: Final = f'],"version":{VERSION}}}'.encode()


def _canonical(document: JSON, path: str) -> bytes:
    text = json.dumps(normal(document), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    try:
        return text.encode()
    except UnicodeEncodeError:
        check_texts(document, path)
        raise


AS_IT_IS: Final = frozenset((str, int, bool, type(None)))  # types of values in JSON that are written as they are: most of them


def normal(value: JSON) -> JSON:
    """`value` with every whole float as an integer."""
    if isinstance(value, float):
        return drop_fraction(value)
    if isinstance(value, dict):
        return {name: inner if type(inner) in AS_IT_IS else normal(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [inner if type(inner) in AS_IT_IS else normal(inner) for inner in value]
    return value


def _check_finite(value: JSON) -> None:
    """Raises ArithmeticError for a number in an object or a list that JSON does not have; without the path, which costs more."""
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        if isinstance(inner, float):
            if not math.isfinite(inner):
                raise ArithmeticError
        elif isinstance(inner, (dict, list)):
            _check_finite(inner)


def _find_non_number(value: JSON, path: str) -> tuple[str, str]:
    """The path of the first number that JSON does not have, and what is said of it; ("", "") where all can be written."""
    if isinstance(value, float) and not math.isfinite(value):
        return path, f"{value} is no number that JSON can write"
    inner: list[tuple[JSON, str]] = []
    if isinstance(value, dict):
        inner = [(each, f"{path}.{name}" if path else name) for name, each in value.items()]
    if isinstance(value, list):
        inner = [(each, f"{path}[{at}]") for at, each in enumerate(value)]
    for each, place in inner:
        found = _find_non_number(each, place)
        if found[1]:
            return found
    return "", ""


def load(data: bytes) -> Snapshot:
    """Read a snapshot. Raises SnapshotError naming the JSON path; never anything else, for any bytes."""
    if len(data) > MAX_SNAPSHOT_BYTES:
        raise SnapshotError("", f"{len(data)} bytes, more than the {MAX_SNAPSHOT_BYTES} a snapshot may have")
    try:
        document: JSON = json.loads(data.decode("utf-8-sig"), parse_constant=refuse_constant, object_pairs_hook=refuse_twice)
    except SnapshotError:
        raise
    except (ValueError, RecursionError) as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors, as is a number too long
        raise SnapshotError("", f"not JSON: {error}") from error
    if _SURROGATE.search(data):
        check_texts(document, "")
    return read_snapshot(document)


def check_texts(value: JSON, path: str) -> None:
    """Raises SnapshotError for a text, also a name, that no UTF-8 file can hold: `dump` could not write it."""
    if isinstance(value, str) and not _is_utf8(value):
        raise SnapshotError(path, HALF_A_PAIR)
    if isinstance(value, dict):
        for name, inner in value.items():
            if not _is_utf8(name):
                raise SnapshotError(path, f"a name in it {HALF_A_PAIR}")
            check_texts(inner, f"{path}.{name}" if path else name)
    if isinstance(value, list):
        for at, inner in enumerate(value):
            check_texts(inner, f"{path}[{at}]")


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def refuse_constant(text: str) -> JSON:
    raise SnapshotError("", f"not JSON: {text} is no number")


def refuse_twice(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise SnapshotError("", f"the key {twice!r} appears twice in one object")
    return found


def read_snapshot(document: JSON) -> Snapshot:
    """A snapshot from parsed JSON; raises SnapshotError."""
    top = read_object(document, "", REQUIRED, OPTIONAL)
    if top["version"] != VERSION or isinstance(top["version"], bool):
        raise SnapshotError("version", f"{top['version']!r} is unknown; this gateway reads version {VERSION}")
    inputs = []
    for at, entry in enumerate(read_list(top.get("inputs", []), "inputs")):
        if not isinstance(entry, dict):
            raise SnapshotError(f"inputs[{at}]", "must be an object")
        inputs.append(entry)
    parameters = top.get("parameters", {})
    if not isinstance(parameters, dict):
        raise SnapshotError("parameters", "must be an object")
    night = top.get("night", {})
    if not isinstance(night, dict):
        raise SnapshotError("night", "must be an object")
    quotas = tuple(read_quota(entry, f"quotas[{at}]") for at, entry in enumerate(read_list(top["quotas"], "quotas")))
    try:
        _check_finite(document)  # numbers that overflow to infinity (1e999)
    except ArithmeticError:
        raise SnapshotError(*_find_non_number(document, "")) from None
    return Snapshot(
        computed_at=read_text(top["computed_at"], "computed_at"),
        code=read_text(top["code"], "code"),
        inputs=tuple(inputs),
        parameters=parameters,
        quotas=quotas,
        date=read_date(top["date"]) if "date" in top else None,
        night=night,
    )


def read_date(value: JSON) -> str:
    text = read_text(value, "date")
    try:
        if datetime.date.fromisoformat(text).isoformat() == text:
            return text
    except ValueError:
        pass
    raise SnapshotError("date", f"{text!r} is not a day like 2026-11-20")


def read_quota(entry: JSON, path: str) -> Quota:
    found = read_object(entry, path, required=("protocol", "topic"), optional=("messages", "bytes", "evidence"))
    protocol = read_text(found["protocol"], f"{path}.protocol")
    names = PROTOCOL_NAMES.get(protocol)
    if names is None:
        raise SnapshotError(f"{path}.protocol", f"{protocol!r} is unknown; known: {', '.join(PROTOCOL_NAMES)}")
    topic = read_text(found["topic"], f"{path}.topic")
    if len(names.topic_parts) > 1 and topic.count("/") != len(names.topic_parts) - 1:
        shape = "/".join(part.word for part in names.topic_parts)
        raise SnapshotError(f"{path}.topic", f"{topic!r} must be {shape}, each percent-encoded")
    messages = read_pair(found.get("messages"), f"{path}.messages")
    size = read_pair(found.get("bytes"), f"{path}.bytes")
    if messages is None and size is None:
        raise SnapshotError(path, "limits nothing; give messages or bytes, or leave the topic out")
    evidence = found.get("evidence", {})
    if not isinstance(evidence, dict):
        raise SnapshotError(f"{path}.evidence", "must be an object")
    raises = [read_hourly(found.get(name), f"{path}.{name}.hourly") for name in ("messages", "bytes")]
    return Quota(protocol, topic, messages, size, evidence, *raises)


def read_pair(value: JSON, path: str) -> tuple[float, int] | None:
    """A rate with its burst. Rate 0 refuses everything; then the burst may be 0 too."""
    if value is None:
        return None
    found = read_object(value, path, required=("rate", "burst"), optional=("hourly",))
    rate, burst = found["rate"], found["burst"]
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not math.isfinite(rate):
        raise SnapshotError(f"{path}.rate", f"{rate!r} is no rate per second")
    if not 0 <= rate <= MAX_PER_SECOND:
        raise SnapshotError(f"{path}.rate", f"{rate} is outside 0 to {MAX_PER_SECOND}")
    if isinstance(burst, float) and math.isfinite(burst) and burst == int(burst):
        burst = int(burst)
    if isinstance(burst, bool) or not isinstance(burst, int):
        raise SnapshotError(f"{path}.burst", f"{burst!r} is no whole number of tokens")
    if not (0 if rate == 0 else 1) <= burst <= MAX_PER_SECOND:
        raise SnapshotError(f"{path}.burst", f"{burst} is outside 1 to {MAX_PER_SECOND}")
    return drop_fraction(rate), burst


def read_hourly(limit: JSON, path: str) -> float | None:
    """The factor of the intraday raise, where the pair of a dimension has one."""
    value = limit.get("hourly") if isinstance(limit, dict) else None
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_HOURLY:
        raise SnapshotError(path, f"{value!r} is no factor above 0 and up to {MAX_HOURLY}")
    return drop_fraction(value)


def read_object(value: JSON, path: str, required: tuple[str, ...], optional: tuple[str, ...]) -> dict[str, JSON]:
    if not isinstance(value, dict):
        raise SnapshotError(path, f"must be an object, not {type(value).__name__}")
    for name in required:
        if name not in value:
            raise SnapshotError(f"{path}.{name}" if path else name, "is missing")
    for name in value:
        if name not in required and name not in optional:
            known = ", ".join((*required, *optional))
            raise SnapshotError(f"{path}.{name}" if path else name, f"is unknown; known: {known}")
    return value


def read_list(value: JSON, path: str) -> list[JSON]:
    if not isinstance(value, list):
        raise SnapshotError(path, f"must be a list, not {type(value).__name__}")
    return value


def read_text(value: JSON, path: str) -> str:
    if not isinstance(value, str) or not value:
        raise SnapshotError(path, f"{value!r} must be a text that is not empty")
    if len(value) > MAX_TEXT_CHARS:
        raise SnapshotError(path, f"{len(value)} characters, more than {MAX_TEXT_CHARS}")
    if not _is_utf8(value):
        raise SnapshotError(path, HALF_A_PAIR)
    return value
