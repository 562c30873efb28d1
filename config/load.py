"""Loading a configuration: from file, rules file, environment and flags to `Settings`, or to an error with every fault."""

from __future__ import annotations

import socket
from collections.abc import Mapping as MappingType
from dataclasses import replace
from pathlib import Path

from config.checks import CHECKS, FILE_CHECKS
from config.command_line import NAME, CommandLine
from config.document import Mapping, read
from config.kinds import Invalid, Reading
from config.problems import NOWHERE, Problems, SourceLocation
from config.rules import RULES
from config.sections import ListOf
from config.settings import ROOT, RULES_FILE, Settings
from config.sources import PREFIX, overlay
from limiter.rules.errors import RuleError
from limiter.rules.rule import Rule
from limiter.rules.rule_set import RuleSet


def load(
    path: Path | str | CommandLine,
    environ: MappingType[str, str] | None = None,
    flags: MappingType[str, str] | None = None,
    *,
    files: bool = True,
) -> Settings:
    """The settings in the file at `path`, under environment and flags (path of a setting -> text). Raises ConfigError with all faults.

    Without `files` certificates, keys and tokens are not looked at.
    """
    given = path if isinstance(path, CommandLine) else None
    path = NAME if given is not None else str(path)
    file = Path(path)
    environ = {name: text for name, text in (environ or {}).items() if name.startswith(PREFIX)}
    flags = dict(flags or {})
    problems = Problems()
    reading = Reading(problems, ROOT)
    tree = read(file, path, problems) if given is None else given.tree(problems)
    directory = file.absolute().parent if given is None else given.directory
    reading.directories = {path: directory, NOWHERE.file: directory}
    if tree is not None and not isinstance(tree, Mapping):
        problems.add(tree.location, "", "the file is not a mapping", f"its keys are {', '.join(ROOT.settings)}")
    if not isinstance(tree, Mapping):
        problems.check()
        raise AssertionError("a file without a tree has a problem")
    overlay(tree, ROOT, environ, flags, problems)
    if "listeners" not in tree.entries:
        problems.add(SourceLocation(path, 1, 1), "listeners", "is missing", f"add listeners, e.g. {_listeners_example()}")
    settings = ROOT.read(tree, "", reading)
    if "rules_file" in tree.entries and "rules" in tree.entries:
        problems.add(tree.key_at("rules"), "rules", "given twice: here and by rules_file", "keep one of the two")
    elif settings.rules_file is not None and settings.rules_file != Path():
        settings = replace(settings, rules=_rules(settings.rules_file, path, reading))
    for check in (*CHECKS, *FILE_CHECKS) if files else CHECKS:
        check(reading)
    problems.check()
    name = settings.gateway.name or socket.gethostname()
    return replace(
        settings,
        gateway=replace(settings.gateway, name=name),
        file=file.absolute() if given is None else file,
        command_line=given,
        environ=environ,
        flags=flags,
        origins=reading.origins,
        sources=problems,
    )


def reload(settings: Settings) -> Settings:
    """Read everything again, with the same environment and flags. Raises ConfigError."""
    return load(settings.command_line or settings.file, settings.environ, settings.flags)


def load_rules(path: Path | str) -> tuple[Rule, ...]:
    """The rules in the file at `path`, read as a gateway reads its `rules_file`. Raises ConfigError with all faults."""
    name = str(path)
    problems = Problems()
    reading = Reading(problems, ROOT)
    reading.directories = {name: Path(path).absolute().parent}
    rules = _read_rules(Path(path), name, reading)
    problems.check()
    try:
        RuleSet(rules)
    except RuleError as error:
        problems.add(SourceLocation(name, 1, 1), f"rules.{error.field}", error.message, "")
    problems.check()
    return rules


def _listeners_example() -> str:
    kind = ROOT.settings["listeners"][1].kind
    assert isinstance(kind, ListOf)
    return kind.example


def _rules(file: Path, main: str, reading: Reading) -> tuple[Rule, ...]:
    """The rules in `file`, named in messages beside the main file's name."""
    directory = reading.directories[main]
    name = str(Path(main).parent / file.relative_to(directory)) if file.is_relative_to(directory) else str(file)
    try:
        exists = file.exists()
    except OSError:
        exists = False
    if not exists:
        location = reading.origins["rules_file"]
        reading.problems.add(
            location, "rules_file", f"there is no file {name}", "relative paths start at this file's directory; check the name"
        )
        return ()
    reading.directories[name] = file.parent
    before = reading.origins.get("rules_file", NOWHERE)
    rules = _read_rules(file, name, reading)
    reading.origins["rules_file"] = before
    return rules


def _read_rules(file: Path, name: str, reading: Reading) -> tuple[Rule, ...]:
    tree = read(file, name, reading.problems, {"rules": lambda rule: RULES.take(rule, "rules", reading)})
    if tree is None:
        return ()
    try:
        return RULES_FILE.read(tree, "", reading).rules
    except Invalid as invalid:
        reading.problems.add(tree.location, "", invalid.message, invalid.remedy)
        return ()
