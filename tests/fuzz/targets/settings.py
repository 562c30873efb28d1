"""What is fuzzed of the configuration: YAML as a tree, whole configurations, files of rules."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from fuzz.scripts import own_folder

from config import ConfigError, ConfigProblem, lint, load, load_rules
from config.document import MAX_DEPTH, Mapping, Node, Scalar, Sequence, parse
from config.effective import values_with_origins
from config.problems import Problems
from config.rule_texts import RuleTexts
from limiter.rules.rule_set import RuleSet

MAIN = "listeners: [{name: rabbit, protocol: amqp, bind: '127.0.0.1:5672', upstream: '127.0.0.1:5673'}]\n"


@lru_cache(maxsize=1)
def folder() -> Path:
    return own_folder()


def check_problems(problems: list[ConfigProblem], file: Path | str) -> None:
    assert problems, "refused without a reason"
    for problem in problems:
        assert problem.message
        assert str(problem).startswith((str(file), "environment ", "flag ")), problem
        assert problem.line >= 1 or problem.file != str(file), problem
        assert problem.column >= 1 or problem.file != str(file), problem


def plain(node: Node) -> object:
    """The texts of a tree, without their places."""
    if isinstance(node, Scalar):
        return node.text
    if isinstance(node, Mapping):
        return {key: plain(inner) for key, inner in node.entries.items()}
    return [plain(inner) for inner in node.items]


def depth(node: Node) -> int:
    inner = list(node.entries.values()) if isinstance(node, Mapping) else node.items if isinstance(node, Sequence) else []
    return 1 + max(map(depth, inner), default=0)


LONG_KEY = re.compile(r'"(?:[^"\\]|\\.){1000,}":')  # YAML takes a key without `? ` only up to 1,024 characters


def yaml_tree(data: bytes) -> None:
    """YAML: a tree or problems, each with its place in the text; a tree that is written as JSON is read as the same tree."""
    problems = Problems()
    tree = parse(data, "any.yaml", problems)
    assert tree is not None or problems.found, "nothing, and no reason"
    lines = 1 + data.count(b"\n") + data.count(b"\r") + data.count(b"\xc2\x85") + data.count(b"\xe2\x80\xa8") + data.count(b"\xe2\x80\xa9")
    for problem in problems.found:
        assert problem.message
        assert 1 <= problem.line <= lines + 1, problem
        assert problem.column >= 1, problem
    if tree is None or problems.found:
        return
    assert depth(tree) <= MAX_DEPTH + 1
    text = json.dumps(plain(tree), ensure_ascii=True)
    if LONG_KEY.search(text):
        return
    again = Problems()
    same = parse(text.encode(), "again.yaml", again)
    with suppress(RecursionError):
        assert same is not None, (text, again.found)
        assert plain(same) == plain(tree)


def settings_file(data: bytes) -> None:
    """A configuration: ConfigError with every fault and its place, or settings that can be shown, and are the same when read again."""
    file = folder() / "sluice.yaml"
    file.write_bytes(data)
    try:
        settings = load(file)
    except ConfigError as error:
        check_problems(error.errors, file)
        return
    for problem in lint(settings):
        assert problem.message
    shown = settings.describe()
    json.dumps(shown)
    assert values_with_origins(settings)
    assert load(file).describe() == shown


def rules_file(data: bytes) -> None:
    """A file of rules: ConfigError with every fault and its place, or rules that can be shown, and are the same when written and read."""
    file = folder() / "limits.yaml"
    file.write_bytes(data)
    try:
        rules = load_rules(file)
    except ConfigError as error:
        check_problems(error.errors, file)
        return
    RuleSet(rules)
    texts = RuleTexts()
    for rule in rules:
        shown = texts.show(rule)
        assert texts.show(texts.read(rule.name, shown)) == shown, f"shown, read and shown again it is another rule: {shown}"
