"""The pages of the documentation as their readers copy from them: blocks of code, and commands within the text."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
_BLOCK: Final = re.compile(r"^( *)```(\w+)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
MAKE: Final = re.compile(
    r"^(?:\w+=\S* )*(?:make [\w./-]|\.venv/bin/(?:python|pytest) )"
)  # lines that run this project's own targets, benches, tests
_COMMAND: Final = re.compile(r"(?:^|[|&;(] *|\$\()(?:\.venv/bin/)?(sluice [a-z].*)")


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code: its page (from the repository's root), its first line's number there, its language, its text."""

    page: str
    line: int
    language: str
    text: str

    @property
    def id(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True, slots=True)
class Command:
    """A `sluice` command that a page shows, as words, `sluice` itself left out."""

    where: str  # page:line
    words: tuple[str, ...]

    @property
    def id(self) -> str:
        return f"{self.where} {' '.join(self.words)}"


def pages() -> list[Path]:
    """Pages that readers follow: the README, docs/ and docs/deploy/, and what stands beside the README."""
    docs = [*sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "deploy").glob("*.md"))]
    return [ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md")] + docs


def blocks(page: Path, *languages: str) -> list[Block]:
    """The page's blocks in these languages, in order; text without the block's indent."""
    text = page.read_text()
    name = str(page.relative_to(ROOT))
    return [
        Block(name, text.count("\n", 0, found.start()) + 2, found[2], re.sub(rf"^{found[1]}", "", found[3], flags=re.MULTILINE))
        for found in _BLOCK.finditer(text)
        if found[2] in languages
    ]


def shown(page: str, words: str) -> Block:
    """The one block for a shell (or a crontab) of a page that has these words: what a test runs is what the page shows, now and later."""
    found = [block for block in blocks(ROOT / page, "sh", "cron") if words in block.text]
    assert len(found) == 1, f"{page} has {len(found)} blocks with {words!r}"
    return found[0]


def inline(page: Path) -> Iterator[tuple[str, str]]:
    """What stands between backticks in the text and the tables of a page, blocks left out: page:line, and the words."""
    name = str(page.relative_to(ROOT))
    without_blocks = _BLOCK.sub(lambda found: "\n" * found[0].count("\n"), page.read_text())
    for found in re.finditer(r"`([^`\n]+(?:\n[^`\n]+)?)`", without_blocks):
        line = without_blocks.count("\n", 0, found.start()) + 1
        yield f"{name}:{line}", re.sub(r"\n *", " ", found[1]).replace("\\|", "|")


def commands(page: Path) -> Iterator[Command]:
    """Every `sluice VERB ...` of a page: of its blocks for the shell, and between backticks in its text."""
    name = str(page.relative_to(ROOT))
    for block in blocks(page, "sh", "text", "cron"):
        lines = re.sub(r"\\\n *", " ", block.text).splitlines()
        for number, line in enumerate(lines):
            yield from _commands_in(line, f"{name}:{block.line + number}")
    for where, words in inline(page):
        yield from _commands_in(words, where, whole=True)


def _commands_in(line: str, where: str, *, whole: bool = False) -> Iterator[Command]:
    found = re.match(r"(?:\.venv/bin/)?(sluice [a-z].*)", line) if whole else _COMMAND.search(line)
    if found is None:
        return
    try:
        words = shlex.split(re.sub(r"\$\([^)]*\)", "VALUE", found[1]), comments=True)
    except ValueError:
        words = found[1].split()
    for number, word in enumerate(words):  # the shell's: where the command ends
        if word in {"|", "&&", "||", ";", "&", ">", ">>", "<", "2>", "2>&1"}:
            words = words[:number]
            break
    yield Command(where, tuple(words[1:]))
