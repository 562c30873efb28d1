"""The state: the changes of operators and the nightly job, apart from the configuration file. A value; `store.py` keeps it on disk.

It holds live changes of keys (`limits/...`), of rules (`rules/NAME`), rules that were added live (`live-rules/NAME`), which quota snapshot
is published (`quotas`), and which one is only tried (`quotas/shadow`). Every one of them is a **target** with a stored form like the
request's (`"500/s"`), so that the file, the history and the API have the same form.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgspec

from admin.store.journal import Change
from admin.store.level_targets import is_level_target, level_key_of
from common.records import dataclass
from limiter.limits import LimitChange
from limiter.rules.errors import RuleError
from limiter.rules.live_change import Override
from limiter.rules.rows import DURATION
from limiter.rules.rule import LIVE_SETTINGS
from limiter.topics import TopicName, parts_of_path, topic_of_parts
from limiter.units import parse_byte_rate, parse_duration, parse_rate

VERSION: Final = 2  # 2 has live rules, and live changes of other things than topics
OLD_VERSION: Final = 1  # written while there are none of them, so that an older gateway can go on with the state
QUOTAS: Final = "quotas"
SHADOW: Final = "quotas/shadow"
LIVE_RULES: Final = "live-rules/"
NO_CANDIDATE: Final = "none"
ENCODED_AT_ONCE: Final = 500  # live changes; some 0.1 ms
_HEAD: Final = b'{"sha256":"'
_MIDDLE: Final = b'","state":'


class Burst(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A burst in tokens. Bytes are a whole number here; the API takes `1MiB` too."""

    messages: int | None = None
    bytes: int | None = None


class StoredCandidate(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A limit to try; a member left out is as in the limit."""

    messages: str | None = None
    bytes: str | None = None
    burst: str | Burst | None = None


class StoredOverride(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A live change as it is stored and shown; a member left out is as in the rule. Times are RFC 3339, UTC."""

    messages: str | None = None  # 500/s
    bytes: str | None = None  # 5MiB/s
    burst: str | Burst | None = None  # 2s, or in tokens
    concurrent: int | None = None  # requests in flight
    action: str | None = None
    reply: str | None = None
    mode: str | None = None
    open_for: str | None = None
    max_delay: str | None = None
    fallback: str | None = None
    candidate: str | StoredCandidate | None = None  # "none": no candidate, even if the rule has one
    expires: str | None = None
    by: str = ""
    at: str = ""
    reason: str = ""


class PublishedQuotas(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A published snapshot, in force or only tried: its SHA-256 names its file."""

    sha256: str
    quotas: int  # how many topics have one
    computed_at: str
    by: str = ""
    at: str = ""
    reason: str = ""
    date: str = ""  # the last day that it was learned from; "": not said
    return_above_ppm: int | None = None  # messages refused per million, beyond which the quotas before are put back; None: never
    put_back: str = ""  # when it was put in force again by a rollback or a return
    nights: int = 0  # of a snapshot that is tried: nights (dates) on which one was, this one included
    since: str = ""  # of a snapshot that is tried: when the first of them was published
    target_refused_ppm: int | None = None  # messages per million that it may refuse, as its night computed it; None: not said


class StoredRule(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A rule that was added live, as it is stored and shown. Times are RFC 3339, UTC.

    `rule` is as in the rules file, without its name. `position`: first, last, `before NAME` or `after NAME`; "": in the place of the file's
    rule of that name, or first. `number` is the revision that placed it: of rules with the same position the order in which they came.
    """

    rule: dict[str, Any]
    number: int
    position: str = ""
    expires: str | None = None
    by: str = ""
    at: str = ""
    reason: str = ""


Stored: TypeAlias = StoredOverride | PublishedQuotas | StoredRule
Edit: TypeAlias = tuple[str, Stored | None]  # (target, what it becomes; None: removed)


class StateError(Exception):
    """The bytes are not a state."""


@lru_cache(maxsize=65536)
def live(stored: StoredOverride) -> Override:
    """A stored change as the limiter's; raises ValueError."""

    def read(text: str | None, parse: Any) -> Any:
        return None if text is None else parse(text)

    tokens = stored.burst if isinstance(stored.burst, Burst) else Burst()
    return Override(
        messages=read(stored.messages, parse_rate),
        bytes=read(stored.bytes, parse_byte_rate),
        messages_burst=tokens.messages,
        bytes_burst=tokens.bytes,
        burst_ns=parse_duration(stored.burst) if isinstance(stored.burst, str) else None,
        concurrent=stored.concurrent,
        open_for_ns=read(stored.open_for, parse_duration),
        **{name: read(getattr(stored, row.key), parse_duration if row.kind == DURATION else str) for name, row in LIVE_SETTINGS.items()},
        candidate=None if stored.candidate is None else tried(stored.candidate),
        expires_at=read(stored.expires, parse_time),
        by=stored.by,
        at=parse_time(stored.at) if stored.at else 0.0,
        reason=stored.reason,
    )


def tried(candidate: str | StoredCandidate) -> LimitChange:
    """A stored candidate as the limiter's; raises ValueError."""
    if isinstance(candidate, str):
        if candidate != NO_CANDIDATE:
            raise RuleError(
                "candidate", f"{candidate!r} is no candidate; give its messages, bytes or burst, or {NO_CANDIDATE!r} to have none"
            )
        return LimitChange()
    tokens = candidate.burst if isinstance(candidate.burst, Burst) else Burst()
    try:
        change = LimitChange(
            None if candidate.messages is None else parse_rate(candidate.messages),
            None if candidate.bytes is None else parse_byte_rate(candidate.bytes),
            tokens.messages,
            tokens.bytes,
            parse_duration(candidate.burst) if isinstance(candidate.burst, str) else None,
        )
    except ValueError as error:
        raise RuleError("candidate", str(error)) from None
    if change.is_empty():
        raise RuleError("candidate", f"is empty; give messages, bytes or burst, or {NO_CANDIDATE!r} in its place to have none")
    return change


def has_expired(stored: Stored | None, now: float) -> bool:
    end = end_of(stored)
    return end is not None and end <= now


def end_of(stored: Stored | None) -> float | None:
    """When (seconds since 1970) it ends; None: never."""
    if isinstance(stored, StoredOverride):
        return live(stored).expires_at
    return parse_time(stored.expires) if isinstance(stored, StoredRule) and stored.expires is not None else None


def format_time(seconds: float) -> str:
    """Seconds since 1970 as RFC 3339, UTC, with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_time(text: str) -> float:
    """Seconds since 1970; raises ValueError where `text` is not RFC 3339 with an offset."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no UTC offset; write Z for UTC, as in 2026-11-21T12:00:00Z")
    return moment.timestamp()


# ---- targets --------------------------------------------------------------------------------------------------------


def key_target(name: TopicName) -> str:
    """`limits/rocketmq/orders`, `limits/amqp/%2F/orders/order.created`: also the path of the key in the API, below /v1/."""
    return "/".join(["limits", name.protocol, *name.encoded_parts()])


@lru_cache(maxsize=65536)  # all of them are asked for at each change of one
def key_of(target: str) -> TopicName:
    """The inverse of `key_target`; raises StateError."""
    try:
        group, protocol, path = target.split("/", 2)
        if group == "limits":
            return topic_of_parts(protocol, parts_of_path(path))
    except (KeyError, ValueError):  # no such protocol; another number of parts
        pass
    raise StateError(f"{target!r} is not the path of a key")


def rule_target(name: str) -> str:
    return f"rules/{name}"


def live_rule_target(name: str) -> str:
    return f"{LIVE_RULES}{name}"


# ---- the value ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class State:
    """All live changes. `revision` counts changes; `sequence` is the journal's line of the last one."""

    revision: int = 0
    sequence: int = 0
    keys: Mapping[str, StoredOverride] = field(default_factory=dict)  # target -> change
    rules: Mapping[str, StoredOverride] = field(default_factory=dict)  # rule's name -> change
    quotas: PublishedQuotas | None = None
    snapshots: tuple[str, ...] = ()  # SHA-256 of snapshots kept for rollback, the latest first
    shadow: PublishedQuotas | None = None  # tried beside those in force
    levels: Mapping[str, StoredOverride] = field(default_factory=dict)  # target -> change, of what is not published to a topic
    live_rules: Mapping[str, StoredRule] = field(default_factory=dict)  # rule's name -> the rule

    def get(self, target: str) -> Stored | None:
        if target == SHADOW:
            return self.shadow
        if target == QUOTAS:
            return self.quotas
        if target.startswith("rules/"):
            return self.rules.get(target.removeprefix("rules/"))
        if target.startswith(LIVE_RULES):
            return self.live_rules.get(target.removeprefix(LIVE_RULES))
        return self.levels.get(target) if is_level_target(target) else self.keys.get(target)

    def changed(self, edits: Iterable[Edit]) -> State:
        """The state after `edits`, with the next revision; the store sets `sequence`."""
        keys, rules, levels, live_rules = dict(self.keys), dict(self.rules), dict(self.levels), dict(self.live_rules)
        quotas, snapshots, shadow = self.quotas, self.snapshots, self.shadow
        for target, after in edits:
            if target == SHADOW:
                assert after is None or isinstance(after, PublishedQuotas)
                shadow = after
            elif target == QUOTAS:
                assert after is None or isinstance(after, PublishedQuotas)
                quotas = after
                if after is not None:
                    snapshots = (after.sha256, *(name for name in snapshots if name != after.sha256))
            elif target.startswith(LIVE_RULES):
                assert after is None or isinstance(after, StoredRule)
                put_or_drop(live_rules, target.removeprefix(LIVE_RULES), after)
            else:
                assert after is None or isinstance(after, StoredOverride)
                if target.startswith("rules/"):
                    put_or_drop(rules, target.removeprefix("rules/"), after)
                else:
                    put_or_drop(levels if is_level_target(target) else keys, target, after)
        return replace(
            self, revision=self.revision + 1, keys=keys, rules=rules, quotas=quotas, snapshots=snapshots, shadow=shadow, levels=levels,
            live_rules=live_rules,
        )  # fmt: skip

    def changes(self, edits: Iterable[Edit]) -> list[Change]:
        """The changes that `edits` would make, as the history records them."""
        return [Change(target, as_json(self.get(target)), as_json(after)) for target, after in edits]

    def expired(self, now: float, believes: Callable[[float], bool] = lambda _: True) -> list[Edit]:
        """The edits that remove every live change that has ended by `now`, where that is believed of its end."""
        ends = {target: self.end_of(target) for target in self.live_changes()}
        return [(target, None) for target, end in ends.items() if end is not None and end <= now and believes(end)]

    def end_of(self, target: str) -> float | None:
        """When (seconds since 1970) the live change of `target` ends; None: never.

        One of a rule that was added live ends with it: the file's rule of that name was not meant.
        """
        stored = self.get(target)
        end = end_of(stored)
        with_rule = end_of(self.live_rules.get(target.removeprefix("rules/"))) if isinstance(stored, StoredOverride) else None
        if with_rule is None or not target.startswith("rules/") or live(stored).at >= with_rule:
            return end
        return with_rule if end is None else min(end, with_rule)

    def holding(self, target: str, now: float) -> Stored | None:
        """What `target` has, unless that has ended by `now`: then it is here until it is removed."""
        end = self.end_of(target)
        return self.get(target) if end is None or end > now else None

    def live_changes(self) -> dict[str, StoredOverride | StoredRule]:
        """All that may have an end, by its target."""
        return {
            **self.keys,
            **self.levels,
            **{rule_target(name): stored for name, stored in self.rules.items()},
            **{live_rule_target(name): stored for name, stored in self.live_rules.items()},
        }

    def __repr__(self) -> str:
        quotas = "none" if self.quotas is None else self.quotas.sha256[:8]
        return f"<State revision={self.revision} {len(self.keys) + len(self.levels)} keys, {len(self.rules)} rules, quotas={quotas}>"


K = TypeVar("K")
T = TypeVar("T")


def put_or_drop(group: dict[K, T], name: K, after: T | None) -> None:
    if after is None:
        group.pop(name, None)
    else:
        group[name] = after


def as_json(stored: Stored | None) -> dict[str, Any] | None:
    found: dict[str, Any] | None = msgspec.to_builtins(stored)
    return found


def from_json(target: str, value: dict[str, Any] | None) -> Stored | None:
    """A stored form out of the history; raises StateError."""
    if value is None:
        return None
    try:
        if target in (QUOTAS, SHADOW):
            return msgspec.convert(value, PublishedQuotas)
        if target.startswith(LIVE_RULES):
            rule = msgspec.convert(value, StoredRule)
            end_of(rule)
            return rule
        stored = msgspec.convert(value, StoredOverride)
        if is_level_target(target):
            level_key_of(target)
        elif not target.startswith("rules/"):
            key_of(target)
        live(stored)
    except (msgspec.ValidationError, ValueError, KeyError) as error:
        raise StateError(f"{target}: {error}") from error
    return stored


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    version: int
    revision: int
    sequence: int
    keys: dict[str, StoredOverride]
    rules: dict[str, StoredOverride]
    quotas: PublishedQuotas | None
    snapshots: list[str]
    shadow: PublishedQuotas | None = None
    levels: dict[str, StoredOverride] = {}
    live_rules: dict[str, StoredRule] = {}


def in_pieces(changes: Mapping[str, StoredOverride]) -> dict[str, StoredOverride]:
    """What msgspec encodes as it would `changes`. Thousands are encoded piece by piece: no other thread goes on during a call of it."""
    if len(changes) <= ENCODED_AT_ONCE:
        return dict(changes)
    items = iter(changes.items())
    pieces = iter(lambda: dict(islice(items, ENCODED_AT_ONCE)), {})
    encoded = b"{" + b",".join(msgspec.json.encode(piece)[1:-1] for piece in pieces) + b"}"
    return cast("dict[str, StoredOverride]", msgspec.Raw(encoded))


def encode_state(state: State) -> bytes:
    """The state as its file holds it: JSON, with a SHA-256 over the bytes of its inner object."""
    file = _File(
        VERSION if state.levels or state.live_rules else OLD_VERSION, state.revision, state.sequence, in_pieces(state.keys),
        dict(state.rules), state.quotas, list(state.snapshots), state.shadow, in_pieces(state.levels), dict(state.live_rules),
    )  # fmt: skip
    inner = msgspec.json.encode(file)
    return _HEAD + hashlib.sha256(inner).hexdigest().encode() + _MIDDLE + inner + b"}\n"


def decode_state(data: bytes) -> State:
    """Raises StateError for anything that `encode_state` has not written, and for values the limiter would not take."""
    start = len(_HEAD) + 64 + len(_MIDDLE)
    inner = data[start:-2]
    if not (data.startswith(_HEAD) and data.endswith(b"}\n") and data[start - len(_MIDDLE) : start] == _MIDDLE):
        raise StateError("this is not a state file")
    if data[len(_HEAD) : len(_HEAD) + 64] != hashlib.sha256(inner).hexdigest().encode():
        raise StateError("the file was altered or damaged: its checksum does not fit")
    try:
        file = msgspec.json.decode(inner, type=_File)
        if file.version not in {OLD_VERSION, VERSION}:
            raise StateError(f"the file is of version {file.version}; this gateway reads versions {OLD_VERSION} and {VERSION}")
        for target, stored in file.keys.items():
            key_of(target)
            live(stored)
        for target, stored in file.levels.items():
            level_key_of(target)
            live(stored)
        for stored in file.rules.values():
            live(stored)
        for rule in file.live_rules.values():
            end_of(rule)
    except (msgspec.MsgspecError, ValueError, KeyError) as error:
        raise StateError(str(error)) from error
    return State(
        file.revision, file.sequence, file.keys, file.rules, file.quotas, tuple(file.snapshots), file.shadow, file.levels, file.live_rules
    )
