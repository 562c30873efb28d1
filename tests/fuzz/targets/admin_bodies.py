"""What is fuzzed of the admin API's bodies, and of the units in them: refused with every fault, or stored as they can be sent again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
from fuzz.scripts import check_reason

from admin.http import bodies
from admin.http.bodies import CandidateBody, ChangeContext, ConfirmBody, LimitBody, LogLevelBody, ReasonBody, RuleBody
from admin.http.problems import ProblemError
from admin.store.state import State, StoredOverride, StoredRule, as_json, decode_state, encode_state, live, rule_target
from config.rule_texts import RuleTexts
from limiter import units
from limiter.rules.errors import RuleError
from limiter.rules.rule_text import RuleTextError

KINDS: tuple[type[msgspec.Struct], ...] = (LimitBody, RuleBody, ReasonBody, LogLevelBody, ConfirmBody, CandidateBody)
NOW = 1_795_000_000.0
BY = ChangeContext("fuzzer", NOW, "why")


def check_problem(problem: ProblemError) -> None:
    """400 for what is no JSON, else 422 with faults that have a text and a pointer."""
    assert problem.status in (400, 422), problem.status
    assert problem.detail
    assert problem.status == 400 or problem.errors
    for fault in problem.errors:
        assert fault.message
        assert fault.pointer == "" or fault.pointer.startswith("/"), fault


def admin_body(data: bytes) -> None:
    """A body of any kind: ProblemError or a value; a change that is taken holds, is stored, and sent again changes nothing."""
    if not data:
        return
    kind, body = KINDS[data[0] % len(KINDS)], data[1:]
    try:
        value = bodies.decode(body, kind)
    except ProblemError as problem:
        check_problem(problem)
        return
    bodies.is_whole_rule(body)
    if isinstance(value, LimitBody):
        check_change(value, before=data[0] & 64 != 0)
    elif isinstance(value, RuleBody):
        check_rule(value)


def check_change(body: LimitBody, *, before: bool) -> None:
    base = StoredOverride(messages="5/s", burst="2s", mode="shadow", reason="earlier") if before else None
    try:
        stored = bodies.override(body, base, BY)
    except ProblemError as problem:
        check_problem(problem)
        return
    live(stored)
    again = bodies.override(bodies.decode(msgspec.json.encode(sent_again(stored)), LimitBody), None, ChangeContext(BY.by, NOW, ""))
    assert again == stored, f"sent again it is another change: {again} / {stored}"
    state = State().changed([("limits/rocketmq/orders", stored), (rule_target("orders"), stored)])
    assert decode_state(encode_state(state)) == state


def sent_again(stored: StoredOverride) -> dict[str, Any]:
    """The change as a client may send it, out of what it was shown."""
    shown = as_json(stored)
    assert shown is not None
    return {name: value for name, value in shown.items() if name not in ("by", "at")}


def check_rule(body: RuleBody) -> None:
    """A whole rule: the rules' own errors only; what is read and written is read as the same."""
    try:
        position = bodies.position_of(body)
        expires = bodies.expiry_of(body, NOW)
    except ProblemError as problem:
        check_problem(problem)
        return
    texts = RuleTexts()
    name = body.name if isinstance(body.name, str) else "orders"
    text = bodies.rule_text(body)
    try:
        rule = texts.read(name, text)
    except (RuleTextError, RuleError) as error:
        check_reason(error)
        return
    shown = texts.show(rule)
    assert texts.show(texts.read(name, shown)) == shown, f"shown, read and shown again it is another rule: {shown}"
    state = State().changed([(f"live-rules/{name}", StoredRule(text, 1, position, expires))])
    assert decode_state(encode_state(state)) == state


PARSERS: tuple[tuple[Callable[[str], Any], Callable[[Any], str]], ...] = (
    (units.parse_rate, units.format_rate),
    (units.parse_byte_rate, units.format_byte_rate),
    (units.parse_size, units.format_size),
    (units.parse_duration, units.format_duration),
    (units.parse_from_now, units.format_duration),
    (units.parse_share, units.format_share),
)


def quantity(data: bytes) -> None:
    """Rates, sizes, durations and shares: ValueError with a text, or a value that is read as the same when it is written."""
    text = data.decode(errors="replace")
    for parse, write in PARSERS:
        with suppress(UnicodeEncodeError):
            try:
                value = parse(text)
            except ValueError as error:
                check_reason(error)
                continue
            assert parse(write(value)) == value, f"{text!r} is {value}, written {write(value)!r}"
