"""Where settings come from: flag before environment before file before default.

Flags and environment are laid over the tree of the file before anything is decoded. So they are decoded and checked exactly as if they
stood in the file, and an error names their location: `environment SLUICE_ADMIN__BIND`, `flag --admin-bind`.

`SLUICE_ADMIN__BIND` is `admin.bind`: two underscores go one level down. Items of a list are named by number or by their name
(`SLUICE_LISTENERS__RABBIT__UPSTREAM`, `SLUICE_LISTENERS__0__UPSTREAM`). A whole section may be given in YAML:
`SLUICE_CREDIT='{initial: 100, more_after: 50}'`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from collections.abc import Mapping as MappingType
from typing import Any, Final

from config.document import Mapping, Node, Scalar, Sequence, parse
from config.kinds import Kind
from config.problems import Problems, SourceLocation, quote_text, suggestion
from config.sections import ListOf, OneOrMore, OrElse, Section, child_of, holds_more

PREFIX: Final = "SLUICE_"
NOT_FROM_OUTSIDE: Final = frozenset({"version", "rules"})  # set in the file only
# Flags of `sluice run`, `check` and `config show`; any other setting: `--set path=value`.
FLAGS: Final = {
    "--name": "gateway.name",
    "--state-directory": "gateway.state_directory",
    "--takeover": "gateway.takeover",
    "--admin-bind": "admin.bind",
    "--log-level": "log.level",
    "--log-format": "log.format",
    "--rules-file": "rules_file",
}


def overlay(root: Mapping, kind: Kind[Any], environ: MappingType[str, str], flags: MappingType[str, str], problems: Problems) -> None:
    """Lay environment and flags (path -> text) over the tree of the file."""
    for name, parts, text in from_environment(environ, kind):
        location = SourceLocation(f"environment {name}")
        _lay(root, kind, parts, text, location, problems)
    for path, text in flags.items():
        shown = next((flag for flag, known in FLAGS.items() if known == path), f"--set {path}")
        _lay(root, kind, path.replace("[", ".").replace("]", "").split("."), text, SourceLocation(f"flag {shown}"), problems)


def from_environment(environ: MappingType[str, str], kind: Kind[Any]) -> Iterator[tuple[str, list[str], str]]:
    """The variables that are settings: (name, path, text), outer settings first.

    A name without two underscores is a setting only if it is a top-level key: Kubernetes sets SLUICE_PORT and its like for a service named
    sluice, and the command line has SLUICE_ADMIN, SLUICE_TOKEN and SLUICE_CONFIG of its own.
    """
    assert isinstance(kind, Section)
    top = {key for key in kind.settings if key not in NOT_FROM_OUTSIDE}
    for name in sorted(environ, key=lambda each: (each.count("__"), each)):
        if not name.startswith(PREFIX):
            continue
        parts = name[len(PREFIX) :].lower().split("__")
        if len(parts) > 1 or (parts[0] in top and parts[0] != "admin"):
            yield name, parts, environ[name]


def _lay(root: Mapping, kind: Kind[Any], parts: list[str], text: str, location: SourceLocation, problems: Problems) -> None:
    """Put `text` at `parts`, making the sections on the way."""
    here: Node = root
    for number, part in enumerate(parts):
        path = ".".join(parts[: number + 1])
        last = number == len(parts) - 1
        if number == 0 and part in NOT_FROM_OUTSIDE:
            problems.add(location, path, "cannot be set from outside", "set it in the file")
            return
        if isinstance(here, Mapping):
            inner = child_of(kind, part)
            if inner is None:
                _report_unknown(kind, part, path, location, problems)
                return
            if last:
                node = _node(text, inner, location, problems)
                if node is not None:
                    here.put(part, location, node)
                return
            here = _enter(here, part, inner, location)
        elif isinstance(here, Sequence):
            index = _index(here, part)
            inner = child_of(kind, part)
            if index is None or inner is None or last:
                names = [_name(item) or str(at) for at, item in enumerate(here.items)]
                problems.add(location, path, f"there is no such item as {quote_text(part)}", f"known: {', '.join(names) or 'none'}")
                return
            here = here.items[index]
        else:
            problems.add(location, path, "lies inside a setting that has no parts", "check the name")
            return
        kind = inner


def _enter(here: Mapping, key: str, kind: Kind[Any], location: SourceLocation) -> Node:
    """The node below `key`. It is made where the file has none, or only a word (`access_log: off`) where parts are needed."""
    child = here.entries.get(key)
    if isinstance(child, Mapping | Sequence):
        return child
    made: Node = Scalar("", location)
    if isinstance(kind, Section | OrElse):
        made = Mapping(location)
    elif isinstance(kind, ListOf):
        made = Sequence(location)
    here.put(key, location, made)
    return made


def _node(text: str, kind: Kind[Any], location: SourceLocation, problems: Problems) -> Node | None:
    """`text` as a node: a scalar as it is, or read as YAML where the setting has parts. Faults go to `problems`."""
    if isinstance(kind, OneOrMore):
        return kind.node(text, location)
    if not holds_more(kind):
        return Scalar(text, location)
    node = parse(text.encode(errors="replace"), location.file, problems)
    if isinstance(node, Scalar):
        node.location = location
    return node


def _report_unknown(kind: Kind[Any], part: str, path: str, location: SourceLocation, problems: Problems) -> None:
    section = kind.section if isinstance(kind, OrElse) else kind
    if not isinstance(section, Section):
        problems.add(location, path, "lies inside a setting that has no parts", "check the name")
        return
    if part in section.not_yet:
        problems.add(location, path, f"{section.not_yet[part].what} not supported yet", "remove it")
        return
    meant = suggestion(part, section.settings)
    problems.add(location, path, "unknown setting", f"did you mean `{meant}`?" if meant else f"known here: {', '.join(section.settings)}")


def _index(items: Sequence, part: str) -> int | None:
    """The position of the item whose name is `part` (in any case, `_` for other signs), or whose number it is."""
    for number, item in enumerate(items.items):
        name = _name(item)
        if name and re.sub("[^a-z0-9]", "_", name.lower()) == re.sub("[^a-z0-9]", "_", part.lower()):
            return number
    return int(part) if re.fullmatch("[0-9]{1,4}", part) and int(part) < len(items.items) else None


def _name(item: Node) -> str:
    name = item.entries.get("name") if isinstance(item, Mapping) else None
    return name.text if isinstance(name, Scalar) else ""
