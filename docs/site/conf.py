"""The documentation as a site: Sphinx reads the pages of this repository as they are. `make docs` builds it into build/site.

The pages are Markdown that also reads well in a plain checkout, so nothing here asks them for special words. The contents on the left are
made from docs/README.md: each of its sections is a caption, each page that it links is an entry.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT: Final = Path(__file__).resolve().parents[2]
INDEX: Final = ROOT / "docs" / "README.md"
sys.path.insert(0, str(ROOT))

from pygments.lexers import TextLexer  # noqa: E402
from sphinx.highlighting import lexers  # noqa: E402

from gateway.build import VERSION  # noqa: E402  -- the repository is not on the path before

lexers["cron"] = TextLexer()  # a crontab's lines; Pygments has no lexer for them
project = "sluice"
copyright = "the sluice developers, Apache-2.0"  # noqa: A001  -- Sphinx's name
version = release = VERSION
extensions = ["myst_parser", "sphinx_copybutton"]
root_doc = str(INDEX.relative_to(ROOT).with_suffix(""))
include_patterns = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md", "docs/*/*.md"]
source_suffix = {".md": "markdown"}
nitpicky = True

myst_enable_extensions = ["attrs_inline"]
myst_heading_anchors = 4
myst_linkify_fuzzy_links = False
copybutton_exclude = ".linenos, .gp, .go"

html_theme = "furo"
html_title = f"sluice {VERSION}"
html_static_path: list[str] = []
html_extra_path = ["extra"]
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True}

_SECTION: Final = re.compile(r"^## (.+)$", re.MULTILINE)
_PATH_LINK: Final = re.compile(r"\[([^\]]*)\]\(([^):#\s]+)\)")
_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)#\s]+\.md)(?:#[^)\s]*)?\)")


def contents(index: str) -> str:
    """Hidden tables of contents for the index page `index` (Markdown): a caption for each section, an entry for each page linked there."""
    parts = _SECTION.split(index)
    seen: set[Path] = set()
    trees = []
    for caption, text in zip(["Start", *parts[1::2]], parts[::2], strict=True):
        entries = []
        for target in _LINK.findall(text):
            page = (INDEX.parent / target).resolve()
            if page not in seen and page != INDEX:
                seen.add(page)
                entries.append(f"/{page.relative_to(ROOT).with_suffix('')}")
        if entries:
            trees.append("\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *entries, "```"]))
    return "\n\n".join(trees)


def without_strangers(text: str, folder: Path) -> str:
    """`text` (Markdown) with links to folders, and to Markdown that is no page here, as plain words. Other files can be downloaded."""

    def replaced(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        foreign = target.is_dir() or (target.suffix == ".md" and target.parent != ROOT and ROOT / "docs" not in target.parents)
        return link[1] if foreign else link[0]

    return _PATH_LINK.sub(replaced, text)


def _read(app: Sphinx, name: str, source: list[str]) -> None:
    source[0] = without_strangers(source[0], (Path(app.srcdir) / name).parent)
    if name == root_doc:
        source[0] += "\n\n" + contents(source[0]) + "\n"


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
