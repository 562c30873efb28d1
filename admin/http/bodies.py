"""Bodies of requests, read strictly and with every fault at once.

msgspec stops at the first fault; people who type JSON by hand want all of them. So an object's members are read one by one, and faults
found by the units or the limiter have the same JSON Pointers.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import msgspec.structs
from msgspec import UNSET, UnsetType

from admin.http.problems import Fault, ProblemError, invalid, suggestion
from admin.store.state import NO_CANDIDATE, Burst, StoredCandidate, StoredOverride, format_time, live, parse_time
from common.records import dataclass
from limiter.rules.errors import RuleError
from limiter.rules.rows import DURATION
from limiter.rules.rule import LIVE_SETTINGS, RULE_SETTINGS
from limiter.units import (
    format_byte_rate,
    format_duration,
    format_rate,
    parse_byte_rate,
    parse_duration,
    parse_from_now,
    parse_rate,
    parse_size,
)

T = TypeVar("T", bound=msgspec.Struct)
ENCODINGS: Final = (b"gzip",)  # of a body that is sent; each that is not here is refused
GZIP: Final = 16 + zlib.MAX_WBITS  # zlib's number for gzip's frame

# Where the limiter's fields are called otherwise here.
POINTERS: Final = {
    "breaker.open_for": "open_for", "limit.burst": "burst", "limit.bytes": "bytes", "limit.concurrent": "concurrent",
}  # fmt: skip
_PATH: Final = re.compile(r" - at `\$(?:\.([^`]*))?`$")


class BurstBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A burst in tokens: messages as a number, bytes as a number or a size such as `1MiB`."""

    messages: int | None = None
    bytes: int | str | None = None


class CandidateBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A limit to try beside the enforced one: counted, never enforced. A member left out is as in the limit."""

    messages: str | None = None
    bytes: str | None = None
    burst: str | BurstBody | None = None


class LimitBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A live change of a limit. A member left out (PUT: or null) stays as in the rule; PATCH keeps members left out and removes nulls.

    `mode` is another matter: a key's limit that is set without one is enforced, whatever its rule's mode. PATCH keeps the mode of the live
    change. A change that sets no limit (`candidate`, `expires` or `reason` alone) keeps the rule's, and so does a change of a rule.

    `expires` is a duration (`30m`) or a time (`2026-11-21T12:00:00Z`). `candidate: "none"` takes a rule's candidate away. The history has
    the `reason` of each request alone, also where a PATCH leaves that of the live change as it is.
    """

    messages: str | UnsetType | None = UNSET
    bytes: str | UnsetType | None = UNSET
    burst: str | BurstBody | UnsetType | None = UNSET
    concurrent: int | UnsetType | None = UNSET
    action: str | UnsetType | None = UNSET
    reply: str | UnsetType | None = UNSET
    mode: str | UnsetType | None = UNSET
    open_for: str | UnsetType | None = UNSET
    max_delay: str | UnsetType | None = UNSET
    fallback: str | UnsetType | None = UNSET
    candidate: str | CandidateBody | UnsetType | None = UNSET
    expires: str | UnsetType | None = UNSET
    reason: str | UnsetType | None = UNSET


if TYPE_CHECKING:
    SettingsBody = msgspec.Struct
else:  # the settings of a rule that are one word or number
    settings = [(row.key, row.json_type | UnsetType, UNSET) for row in RULE_SETTINGS.values()]
    SettingsBody = msgspec.defstruct("SettingsBody", settings, frozen=True)


class RuleBody(SettingsBody, frozen=True, forbid_unknown_fields=True):
    """A whole rule, with the members that it has in the rules file, and its place among the others: `position` (first or last), or `before`
    or `after` the rule of a name. Without one it takes the place of the file's rule of its name, or is first.

    `expires` is a duration (`30m`) or a time (`2026-11-21T12:00:00Z`).
    """

    name: str | UnsetType = UNSET
    match: dict[str, str | list[str]] | UnsetType = UNSET
    limit: dict[str, Any] | UnsetType = UNSET
    adaptive: dict[str, Any] | UnsetType = UNSET
    warm_up: dict[str, Any] | UnsetType = UNSET
    lag: dict[str, Any] | UnsetType = UNSET
    breaker: dict[str, Any] | UnsetType = UNSET
    candidate: dict[str, Any] | UnsetType = UNSET
    adapt: dict[str, Any] | UnsetType = UNSET
    cost: dict[str, Any] | UnsetType = UNSET
    position: str | UnsetType | None = UNSET
    before: str | UnsetType | None = UNSET
    after: str | UnsetType | None = UNSET
    expires: str | UnsetType | None = UNSET
    reason: str | UnsetType | None = UNSET


WITHOUT_MODE: Final = [row for row in LIVE_SETTINGS.values() if row.key != "mode"]
LIMITING: Final = ("messages", "bytes", "burst", "concurrent", "open_for", *(row.key for row in WITHOUT_MODE))
OF_CHANGES: Final = frozenset(field.name for field in msgspec.structs.fields(LimitBody))
OF_RULES_ALONE: Final = frozenset(field.name for field in msgspec.structs.fields(RuleBody)) - OF_CHANGES
NOT_OF_THE_TEXT: Final = frozenset({"name", "position", "before", "after", "expires", "reason"})


def is_whole_rule(body: bytes) -> bool:
    """Whether it is a rule as in the file (match, per, limit, ...), and not a change of one (messages, bytes, ...)."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False  # which `decode` reports
    return isinstance(document, dict) and not OF_RULES_ALONE.isdisjoint(document)


def rule_text(body: RuleBody) -> dict[str, Any]:
    """The members that stand in the rules file, but for the name."""
    values = {field.name: getattr(body, field.name) for field in msgspec.structs.fields(RuleBody) if field.name not in NOT_OF_THE_TEXT}
    return {name: value for name, value in values.items() if value is not UNSET}


def position_of(body: RuleBody) -> str:
    """The place that it asks for, as `StoredRule.position`; "": none. Raises ProblemError 422."""
    given = {name: value for name in ("position", "before", "after") if isinstance(value := getattr(body, name), str)}
    if len(given) > 1:
        raise invalid("a rule has one place", [Fault(f"/{name}", "position, before and after exclude one another") for name in given])
    for name, value in given.items():
        if name == "position" and value not in {"first", "last"}:
            raise invalid("there is no such place", [Fault("/position", f"{value!r} is unknown; known: first, last")])
        return value if name == "position" else f"{name} {value}"
    return ""


class ReasonBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why."""

    reason: str | UnsetType | None = UNSET


class LiveChangesBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All live changes of limits and rules by their targets, in the form that `GET /v1/live-changes` of a gateway has, and why."""

    changes: dict[str, dict[str, Any]] | UnsetType = UNSET
    reason: str | UnsetType | None = UNSET


class LogLevelBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A level (`debug`, `info`, `warning`, `error`, `critical`), and for how long (`for: 10min`); without it until the next start."""

    level: str = ""
    duration: str | UnsetType | None = msgspec.field(name="for", default=UNSET)
    reason: str | UnsetType | None = UNSET


class ConfirmBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Must say `{"confirm": true}`: there is no way back."""

    confirm: bool = False
    reason: str | UnsetType | None = UNSET


@cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    """By their names in JSON. To work them out takes a fifth of a millisecond."""
    return {field.encode_name: field for field in msgspec.structs.fields(kind)}


def unpack(body: bytes, most: int) -> bytes:
    """A body that was compressed by gzip. Raises ProblemError 400 where it is none, 413 where more than `most` bytes are in it."""
    unpack = zlib.decompressobj(GZIP)
    try:
        found = unpack.decompress(body, most + 1)
    except zlib.error as error:
        raise ProblemError(400, "malformed", f"the body is not gzip: {error}") from error
    if len(found) > most:
        raise ProblemError(413, "too-large", f"the body is longer than {most} bytes, unpacked")
    if not unpack.eof:
        raise ProblemError(400, "malformed", "the body is not gzip: it ends too early")
    if unpack.unused_data:
        raise ProblemError(400, "malformed", "the body is not gzip alone: something follows it")
    return found


def decode(body: bytes, kind: type[T]) -> T:
    """`body` as a `kind`; raises ProblemError 400 where it is not JSON, 422 with every fault where it is not such an object."""
    try:
        document = msgspec.json.decode(body) if body else {}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProblemError(400, "malformed", f"the body is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise invalid("the body must be a JSON object", [Fault("", "must be an object")])
    fields = _fields(kind)
    faults: list[Fault] = []
    values: dict[str, Any] = {}
    for name, value in document.items():
        if name not in fields:
            faults.append(Fault(f"/{_escaped(name)}", f"unknown member{suggestion(name, list(fields))}"))
            continue
        try:
            values[fields[name].name] = msgspec.convert(value, fields[name].type)
        except msgspec.ValidationError as error:
            faults.append(_fault(name, value, str(error)))
    if faults:
        raise invalid("the body cannot be used", faults)
    return kind(**values)


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")  # RFC 6901


def _fault(name: str, value: object, message: str) -> Fault:
    found = _PATH.search(message)
    inner = "" if found is None or not found[1] else "/" + found[1].replace(".", "/")
    path = [name] if found is None or not found[1] else [name, *found[1].split(".")]
    for step in path[1:]:
        value = value.get(step) if isinstance(value, dict) else None
    number = isinstance(value, int | float) and path[-1] in ("messages", "bytes") and "burst" not in path
    hint = f'; write it with its unit, as a string: "{value}/s"' if number else ""
    return Fault(f"/{name}{inner}", (message[: found.start()] if found else message) + hint)


@dataclass(frozen=True, slots=True)
class ChangeContext:
    """The author of a change, its time (seconds since 1970), and its reason unless the body has one."""

    by: str
    now: float
    reason: str


def override(body: LimitBody, before: StoredOverride | None, change_context: ChangeContext, *, of_rule: bool = False) -> StoredOverride:
    """The live change that `body` describes, merged into `before` where there is one (PATCH); raises ProblemError 422.

    That of a key gets its mode here (`mode_of`); that of a rule (`of_rule`) has one only where the body names it.
    """
    base = before or StoredOverride()
    faults: list[Fault] = []

    def choose(name: str, read: Callable[[Any], Any]) -> Any:
        value = getattr(body, name)
        if value is UNSET:
            return getattr(base, name)
        if value is None:
            return None
        try:
            return read(value)
        except ProblemError as error:
            faults.extend(error.errors)
            return None
        except ValueError as error:
            faults.append(Fault(f"/{name}", str(error)))
            return None

    stored = StoredOverride(
        messages=choose("messages", lambda text: format_rate(parse_rate(text))),
        bytes=choose("bytes", lambda text: format_byte_rate(parse_byte_rate(text))),
        burst=choose("burst", _burst),
        concurrent=choose("concurrent", int),
        mode=choose("mode", str) if of_rule else mode_of(body, base),
        open_for=choose("open_for", _duration),
        **{row.key: choose(row.key, _duration if row.kind == DURATION else str) for row in WITHOUT_MODE},
        candidate=choose("candidate", _candidate),
        expires=choose("expires", lambda text: expiry(text, change_context.now)),
        by=change_context.by,
        at=format_time(change_context.now),
        reason=_reason(body, base, change_context),
    )
    if not faults:
        faults += limiter_faults(stored)
    if not faults and msgspec.structs.replace(stored, expires=None, by="", at="", reason="") == StoredOverride():
        faults.append(Fault("", "it changes nothing; give at least one of messages, bytes, burst, action, mode, or DELETE the change"))
    if faults:
        raise invalid("the limit cannot be used", faults)
    return stored


def mode_of(body: LimitBody, base: StoredOverride) -> str | None:
    """The mode of a key's live change: the body's, else the earlier change's, else enforce, because a limit that is set limits.

    None, which is the rule's mode, is left to a change that sets no limit: of a candidate, an end or a reason alone, or one that takes the
    last of its limits away.
    """
    if isinstance(body.mode, str):
        return body.mode
    said = [name for name in LIMITING if getattr(body, name) is not UNSET]
    given = any(getattr(body, name) is not None for name in said)
    kept = any(getattr(base, name) is not None for name in LIMITING if name not in said)
    if body.mode is UNSET and base.mode is not None:
        return None if base.mode == "enforce" and said and not given and not kept else base.mode
    return "enforce" if given or (body.mode is None and kept) else None


def _reason(body: LimitBody, base: StoredOverride, change_context: ChangeContext) -> str:
    """The body's reason, else the request's, else the earlier one (but null in the body removes that)."""
    if isinstance(body.reason, str):
        return body.reason
    return change_context.reason or (base.reason if body.reason is UNSET else "")


def limiter_faults(stored: StoredOverride) -> list[Fault]:
    """The fault that the limiter finds in it, if any."""
    try:
        live(stored)
    except RuleError as error:
        return [Fault(pointer(error.field), error.message)]
    return []


def pointer(field: str) -> str:
    """The JSON Pointer of the limiter's `field` in a body."""
    return "/" + POINTERS.get(field, field).replace(".", "/")


def _candidate(value: str | CandidateBody) -> str | StoredCandidate:
    """The stored form; raises ProblemError with every fault in it, ValueError for any word but NO_CANDIDATE."""
    if isinstance(value, str):
        if value != NO_CANDIDATE:
            raise ValueError(f"{value!r} is no candidate; send its messages, bytes or burst, or {NO_CANDIDATE!r} to have none")
        return value
    faults: list[Fault] = []

    def read(name: str, given: Any, form: Callable[[Any], Any]) -> Any:
        try:
            return None if given is None else form(given)
        except ValueError as error:
            faults.append(Fault(f"/candidate/{name}", str(error)))
            return None

    stored = StoredCandidate(
        messages=read("messages", value.messages, lambda text: format_rate(parse_rate(text))),
        bytes=read("bytes", value.bytes, lambda text: format_byte_rate(parse_byte_rate(text))),
        burst=read("burst", value.burst, _burst),
    )
    if faults:
        raise invalid("the candidate cannot be used", faults)
    return stored


def _burst(value: str | BurstBody) -> str | Burst:
    if isinstance(value, str):
        return _duration(value)
    return Burst(value.messages, parse_size(value.bytes) if isinstance(value.bytes, str) else value.bytes)


def _duration(text: str) -> str:
    return format_duration(parse_duration(text))


def expiry_of(body: RuleBody, now: float) -> str | None:
    """When a live rule ends, RFC 3339; raises ProblemError 422."""
    try:
        return expiry(body.expires, now) if isinstance(body.expires, str) else None
    except ValueError as error:
        raise invalid("the rule cannot be used", [Fault("/expires", str(error))]) from error


def expiry(text: str, now: float) -> str:
    """A future time in RFC 3339, from a duration or a time."""
    is_time = re.match(r"\d{4}-", text) is not None
    at = parse_time(text) if is_time else now + parse_from_now(text) / 1e9
    if at <= now:
        raise ValueError(f"{text!r} is not in the future")
    if at > now + 10 * 366 * 86400:
        raise ValueError(f"{text!r} is more than ten years away; leave it out where there is no end")
    return format_time(at)
