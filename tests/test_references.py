"""References lead somewhere: pages, their sections, links and anchors, paths and modules, wherever prose names them.

A comment that cites `docs/design/amqp.md` 1.3 is worth what the page says there. Pages are rewritten and files are moved; without a test
the reference rots in silence. Read as text, nothing is imported: comments, docstrings, settings' help, the Makefile, all pages.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WIDTH = 160  # characters of a line of prose; tables, code and lines that are one long link are as wide as they must be
PACKAGES = ("admin", "cli", "common", "config", "control_plane", "gateway", "limiter", "spark_jobs")
FOLDERS = (*PACKAGES, "bench", "deploy", "docs", "tests")
TEXT = (".md", ".py", ".toml", ".yaml", ".yml", ".sh", ".service", ".c")
FOREIGN = frozenset(
    {"ratelimit.md", "pip/pip-322.md", "config/rateLimitConfig.json", "report.md", "common/topic/TopicValidator.java"}
)  # of other projects, or written by sluice
MADE = (  # paths of what is made when something runs
    "bench/bin", "bench/results/STAMP", "bench/results/scale-NAME", "config/access-log", "config/state", "docs/images/algorithm-NAME",
    "tests/fuzz/crashes",
    "tests/dashboard/node_modules",
)  # fmt: skip

SECTION = r"(?:[FI]\d{1,2}|\d+(?:\.\d+)*)"
PAGE = re.compile(rf"(?<![\w/:.\"-])(?P<path>(?:[\w.-]+/)*[\w-]+\.md)\b`?(?:,? (?P<sections>{SECTION}(?:(?:, | and | to ){SECTION})*))?")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)|!\[[^\]]*\]\((?P<image>[^)\s]+)\)")
PATH = re.compile(rf"(?<![\w/.<*-])(?:{'|'.join(FOLDERS)})/[\w./*-]*[\w/*]")
MODULE = re.compile(rf"`((?:{'|'.join(PACKAGES)})(?:\.\w+){{2,}})")
ROW = re.compile(r"(?<![\w&#])F\d\d(?!\w)")
CONTINUED = re.compile(r"\n[ \t]*(?:# ?|\* )?")  # where a comment or docstring goes on


@cache
def files() -> tuple[Path, ...]:
    """What is under version control, or new and not ignored."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.splitlines()
    if not listed:
        assert not (ROOT / ".git").exists(), "git cannot read this repository"
        pytest.skip("no git repository: nobody can say which files belong to it")
    return tuple(path for path in (ROOT / name for name in listed) if path.is_file())


def prose() -> Iterator[tuple[Path, str]]:
    """Files whose text is ours, each as one text; lines of one comment or paragraph are joined."""
    for path in files():
        if (path.suffix in TEXT or path.name == "Makefile") and "results" not in path.parts and path != Path(__file__):
            yield path, CONTINUED.sub(" ", path.read_text(encoding="utf-8", errors="replace"))


def pages() -> list[Path]:
    return [path for path in files() if path.suffix == ".md" and "results" not in path.parts]


@cache
def slugs(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found = set()
    for line in without_code(page).splitlines():
        if heading := re.match(r"#+ (.*)", line):
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1])
            found.add(re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-"))
    return frozenset(found)


@cache
def sections(page: Path) -> frozenset[str]:
    """The numbers of a page's headings, and of table rows that begin with one."""
    return frozenset(re.findall(rf"^(?:#+ |\| )({SECTION})\b", page.read_text(), re.MULTILINE))


def without_code(page: Path) -> str:
    return re.sub(r"^( *)```.*?^\1```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def exists(base: Path, name: str) -> bool:
    """Whether `name` is a path from `base` or from the root; `*` stands for anything."""
    if "*" in name:
        return any(ROOT.glob(name))
    return (base / name).exists() or (ROOT / name).exists()


def test_pages_and_sections_that_are_named_exist() -> None:
    missing = []
    for path, text in prose():
        for found in PAGE.finditer(LINK.sub(r" \g<target> ", text)):
            name = found["path"]
            if name in FOREIGN:
                continue
            places = (ROOT, path.parent, ROOT / "docs" / "reference")  # the last: texts of tables that are written into its pages
            page = next((place / name for place in places if (place / name).is_file()), None)
            if page is None:
                missing.append(f"{path.relative_to(ROOT)}: {name}")
            elif page.parent.name == "design":
                named = re.findall(SECTION, found["sections"] or "")
                missing += [f"{path.relative_to(ROOT)}: {name} {each}" for each in named if each not in sections(page)]
    assert not missing, "\n" + "\n".join(missing)


def test_faults_that_tests_name_are_rows_of_the_page() -> None:
    known = sections(ROOT / "docs" / "design" / "reliability.md")
    missing = []
    for path, text in prose():
        if path.suffix == ".py":
            missing += [f"{path.relative_to(ROOT)}: {row}" for row in ROW.findall(text) if row not in known]
    assert not missing, "\n" + "\n".join(missing)


def test_links_and_anchors_lead_somewhere() -> None:
    missing = []
    for page in pages():
        for found in LINK.finditer(without_code(page)):
            target = found["target"] or found["image"]
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            aim = (page.parent / name).resolve() if name else page
            if not aim.exists() or (anchor and aim.suffix == ".md" and anchor not in slugs(aim)):
                missing.append(f"{page.relative_to(ROOT)}: {target}")
    assert not missing, "\n" + "\n".join(missing)


def test_paths_that_are_named_exist() -> None:
    missing = []
    for path, text in prose():
        if path.is_relative_to(ROOT / "tests"):
            continue  # full of paths that are made up
        names = [name for name in PATH.findall(re.sub(r"https?://\S+", "", text)) if name not in FOREIGN and not name.startswith(MADE)]
        missing += [f"{path.relative_to(ROOT)}: {name}" for name in names if not exists(path.parent, name)]
    assert not missing, "\n" + "\n".join(missing)


def test_modules_that_are_named_exist() -> None:
    """`limiter.fair_share.max_min`, in prose in backticks. Two words may be a setting as well: `gateway.workers`."""
    missing = []
    for path, text in prose():
        for name in MODULE.findall(text):
            first, second, third, *_ = name.split(".")
            package = ROOT / first / second
            if not package.is_dir() or (package / f"{third}.py").is_file() or (package / third).is_dir():
                continue
            if re.search(rf"\b{third}\b", (package / "__init__.py").read_text()) is None:
                missing.append(f"{path.relative_to(ROOT)}: {name}")
    assert not missing, "\n" + "\n".join(missing)


def test_lines_of_prose_can_be_read_side_by_side() -> None:
    long = []
    for page in pages():
        code = False
        for number, line in enumerate(page.read_text().splitlines(), 1):
            code = code != line.lstrip().startswith("```")
            words = [word for word in line.split() if len(word) > WIDTH - 20]
            if len(line) > WIDTH and not code and not line.startswith("|") and not words:
                long.append(f"{page.relative_to(ROOT)}:{number}: {len(line)}")
    assert not long, "\n" + "\n".join(long)
