"""Whatever the bytes: settings, or a ConfigError that names a location (`docs/design/reliability.md` F50)."""

# ruff: noqa: E501  -- tables, one case a line

from __future__ import annotations

import random
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from config import ConfigError, ConfigProblem, document, lint, load
from config.document import Mapping, Scalar, Sequence, parse
from config.problems import Problems

ROOT = Path(__file__).parents[2]
MAIN = (ROOT / "config" / "sluice.yaml").read_bytes()
LIMITS = (ROOT / "config" / "limits.yaml").read_bytes()
PIECES = [b"\t", b"\x00", b"\xff", b"\xef\xbb\xbf", b"- ", b": ", b"{", b"}", b"[", b"]", b"'", b'"', b"*a", b"&a ", b"!!x ", b"|\n", b"%", b"\n---\n",
          b"\n...\n", b"? ", b"#", b"\r", b"\xc2\x85", b"\xe2\x80\xa8", b"9" * 5000, b"\\", b"<<: ", b"~", b"null", b"@", b"`"]  # fmt: skip


def mutated(data: bytes, luck: random.Random) -> bytes:
    """`data` with one to four injuries: a piece put in, a stretch removed, doubled or cut off, a byte changed."""
    out = bytearray(data)
    for _ in range(luck.randint(1, 4)):
        at = luck.randrange(len(out) + 1)
        end = min(len(out), at + luck.randint(1, 40))
        match luck.randrange(5):
            case 0:
                out[at:at] = luck.choice(PIECES)
            case 1:
                del out[at:end]
            case 2:
                out[at:at] = out[at:end]
            case 3:
                del out[at:]
            case _:
                out[at:end] = bytes(luck.randrange(256) for _ in range(luck.randint(1, 3)))
    return bytes(out)


def problems_of(path: Path) -> list[ConfigProblem]:
    """What is wrong with the configuration at `path`; anything but a ConfigError is the test's failure."""
    try:
        lint(load(path))
    except ConfigError as error:
        return error.errors
    return []


def test_mutated_configurations_load_or_are_refused_by_place(tmp_path: Path) -> None:
    luck = random.Random(20261121)
    refused = 0
    for _ in range(150):
        (tmp_path / "sluice.yaml").write_bytes(mutated(MAIN, luck) if luck.random() < 0.5 else MAIN)
        (tmp_path / "limits.yaml").write_bytes(mutated(LIMITS, luck))
        problems = problems_of(tmp_path / "sluice.yaml")
        refused += bool(problems)
        for problem in problems:
            assert problem.message
            assert problem.remedy, problem.headline
            assert str(problem).startswith(str(tmp_path))
    assert refused > 60


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(st.binary(max_size=200), st.text(alphabet="ab:{}[]-#&*!|>'\"%@`,?\n \t\r\x85\u2028é0.", max_size=80).map(str.encode)))
def test_any_bytes_parse_or_have_problems(data: bytes) -> None:
    problems = Problems()
    tree = parse(data, "any.yaml", problems)
    assert tree is not None or problems.found
    for problem in problems.found:
        assert problem.line >= 1
        assert problem.column >= 1


@pytest.mark.parametrize("data", [MAIN, LIMITS])
def test_both_parsers_read_the_same(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where libyaml is missing, PyYAML's own parser gives the same tree with the same places."""
    fast = repr_of(parse(data, "x", Problems()))
    monkeypatch.setattr(document, "_LOADER", yaml.SafeLoader)
    assert repr_of(parse(data, "x", Problems())) == fast


def repr_of(node: object) -> object:
    """A tree with all its places, to be compared."""
    if isinstance(node, Scalar):
        return node.text, node.plain, str(node.location)
    if isinstance(node, Mapping):
        return {key: (str(node.key_at(key)), repr_of(inner)) for key, inner in node.entries.items()}
    assert isinstance(node, Sequence)
    return [repr_of(item) for item in node.items]
