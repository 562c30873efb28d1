"""Rules of a file of their own are read one by one, as they come: faults and memory."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from config import ConfigError, document, load, load_rules

LISTENERS = "listeners:\n  - {name: rabbit, protocol: amqp, bind: 127.0.0.1:5672, upstream: 127.0.0.1:5673}\n"
ONE = "{name: a, limit: {messages: 1/s}}"
RULES = 300
MOST_BYTES = 2400  # for each rule, while they are read; measured 1,900 (2026-11), and 4,400 when all were a tree before the first was read


def found(path: Path) -> list[tuple[int, int, str, str, str]]:
    try:
        load(path)
    except ConfigError as error:
        return [(each.line, each.column, each.path, each.message, each.remedy) for each in error.errors]
    return []


@pytest.mark.parametrize(
    "text",
    [
        f"rules: [{ONE}]", f"rules: [orders, {ONE}, ~, {{name: b}}, {{nam: c}}]", f"rules: [[{ONE}], {ONE}]", f"rules: [{ONE}, {ONE}]",
        f"rules: {ONE}", "rules: ~", "rules: []", f"rules: [{ONE}]\nrules: [{ONE}, {{name: b}}]", f"rules: [{ONE}, {{name: b, limit: *c}}]",
        f"rules: [{ONE}, {{name: b, limit: {{messages: 5}}}}]",
        "rules: [{name: q, match: {queue: q}, algorithm: lag, limit: {messages: 9/s}, lag: {target: 5, slowest: 1/s, queue: q}}]",
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_rules_file_is_told_as_of_the_same_rules_in_the_main_file(tmp_path: Path, text: str) -> None:
    main, beside = tmp_path / "main.yaml", tmp_path / "beside.yaml"
    main.write_text(f"{LISTENERS}{text}\n")
    (tmp_path / "limits.yaml").write_text(f"#\n#\n{text}\n")
    beside.write_text(f"{LISTENERS}rules_file: limits.yaml\n")
    assert found(beside) == found(main)


def test_reading_a_file_takes_little_more_than_its_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rules(count: int) -> Path:
        path = tmp_path / f"{count}.yaml"
        limit = {"messages": "100M/s", "bytes": "1000GiB/s"}
        made = [
            {"name": f"topic-{number}", "match": {"protocol": "rocketmq", "topic": f"bench-{number:07}"}, "limit": limit}
            for number in range(count)
        ]
        path.write_text(json.dumps({"rules": made}))
        return path

    monkeypatch.setattr(document, "MAX_BYTES", 1 << 16)  # so much is asked of a file at once
    few, many = rules(10), rules(10 + RULES)
    load_rules(few)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = load_rules(many)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert len(kept) == 10 + RULES
    assert peak / len(kept) <= MOST_BYTES, f"{peak / len(kept):,.0f} bytes for each rule"


def test_rules_that_say_the_same_share_their_limit(tmp_path: Path) -> None:
    path = tmp_path / "limits.yaml"
    path.write_text(
        "rules:\n" + "".join(f"  - {{name: n{number}, match: {{topic: t{number}}}, limit: {{messages: 5/s}}}}\n" for number in (1, 2))
    )
    first, second = load_rules(path)
    assert first.limit is second.limit
