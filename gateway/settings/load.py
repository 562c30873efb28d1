"""Loading a configuration: from file, rules file, environment and flags to `Settings`, or to an error with every fault."""

# ruff: noqa: RUF009  -- setting() makes a dataclasses.field of immutable values

from __future__ import annotations

import dataclasses
import re
import socket
from collections.abc import Mapping as MappingType
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Final

from gateway.settings.checks import CHECKS
from gateway.settings.document import Mapping, read
from gateway.settings.kinds import JSON, Invalid, Only, PathName, Reading, Whole
from gateway.settings.lints import lint
from gateway.settings.problems import NOWHERE, ConfigProblem, Problems, SourceLocation
from gateway.settings.rules import RULES, RulesFile
from gateway.settings.sections import ListOf, Section, setting
from gateway.settings.sources import PREFIX, overlay
from gateway.settings.types import ACCESS_LOG, FLEET, AccessLog, Admin, Credit, Disk, Fleet, Gateway, Limiter, Listener, Log, Memory
from limiter.rules.rule import Rule

TLS: Final = ("tls", "upstream_tls")  # a reload puts them in force for listeners that are there already


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole configuration of one gateway, checked. Immutable; a reload makes another."""

    version: int = setting(
        Only(Whole(0, 1_000_000, 1), 1, "this version of sluice reads version 1", "set version: 1"), 1, "Version of this file's format."
    )
    gateway: Gateway = setting(Section(Gateway), Gateway(), "The gateway itself.")
    listeners: tuple[Listener, ...] = setting(
        ListOf(Section(Listener), "- {name: rabbit, protocol: amqp, bind: 127.0.0.1:5672, upstream: 127.0.0.1:5673}", least=1),
        (),
        "The addresses that clients connect to, and the brokers behind them.",
    )
    limiter: Limiter = setting(Section(Limiter), Limiter(), "The limiter's own executor.")
    fleet: Fleet | None = setting(FLEET, None, "Gateways that share one set of limits; off: each limits by itself.")
    credit: Credit = setting(Section(Credit), Credit(), "Credit between the stages of a connection.")
    memory: Memory = setting(Section(Memory), Memory(), "Bounds on memory.")
    disk: Disk = setting(Section(Disk), Disk(), "Bounds on the disk.")
    admin: Admin = setting(Section(Admin), Admin(), "The admin API, probes and metrics.")
    access_log: AccessLog | None = setting(ACCESS_LOG, AccessLog(), "The access log, or off.")
    log: Log = setting(Section(Log), Log(), "The gateway's own log.")
    rules_file: Path | None = setting(PathName("limits.yaml"), None, "File with the rules, relative to this one; or `rules:` inline.")
    rules: tuple[Rule, ...] = setting(RULES, (), "The rules, where they are not in a file of their own.")

    # Not settings: how this was loaded.
    file: Path = Path()
    environ: MappingType[str, str] = field(default_factory=dict, repr=False)  # only what may be settings; may hold secrets
    flags: MappingType[str, str] = field(default_factory=dict)
    origins: MappingType[str, SourceLocation] = field(default_factory=dict, repr=False)  # path -> where it was written
    sources: Problems = field(default_factory=Problems, repr=False, compare=False)  # the text of the files, for messages

    def problem(self, path: str, message: str, remedy: str) -> ConfigProblem:
        """A problem at the setting `path`, or at the nearest one around it that was written down."""
        inner = path
        while inner and not self.origins.get(inner, NOWHERE).line:
            inner = re.sub(r"(\.?[^.\[\]]+|\[[0-9]+\])$", "", inner)
        return self.sources.problem(self.origins.get(inner, SourceLocation(str(self.file))), path, message, remedy)

    def warnings(self) -> list[ConfigProblem]:
        """Settings that are allowed but probably not meant."""
        return lint(self)

    def describe(self) -> dict[str, object]:
        """The effective configuration as it would be written, rules included. Holds no secret: tokens stand in files."""
        shown = ROOT.show(self)
        assert isinstance(shown, dict)
        return {**shown}

    def origin(self, path: str) -> SourceLocation:
        """Where the value at `path` comes from: file, line and column, environment, flag or default."""
        return self.origins.get(path, NOWHERE)

    def reload(self) -> Settings:
        """Read everything again, with the same environment and flags; raises ConfigError."""
        return load(self.file, self.environ, self.flags)

    def diff(self, new: Settings) -> dict[str, list[str]]:
        """What changes from this to `new`: `in_force` on a reload (rules, TLS), `needs_restart` (everything else); lines for people."""
        return diff(self, new)

    def with_rules(self, new: Settings) -> Settings:
        """These settings with the rules of `new`, as a reload puts them in force."""
        kept = {path: location for path, location in self.origins.items() if not path.startswith("rules")}
        kept.update({path: location for path, location in new.origins.items() if path.startswith("rules")})
        return replace(self, rules=new.rules, rules_file=new.rules_file, origins=kept, sources=new.sources)

    def with_tls(self, new: Settings) -> Settings:
        """These settings with the TLS of those listeners that are in `new` too, as a reload puts it in force."""
        positions = {listener.name: number for number, listener in enumerate(new.listeners)}
        origins = dict(self.origins)
        listeners = []
        for number, listener in enumerate(self.listeners):
            position = positions.get(listener.name)
            if position is not None:
                after = new.listeners[position]
                listener = replace(listener, tls=after.tls, upstream_tls=after.upstream_tls)  # noqa: PLW2901
                for key in TLS:
                    here, there = f"listeners[{number}].{key}", f"listeners[{position}].{key}"
                    origins = {path: location for path, location in origins.items() if not path.startswith(here)}
                    origins |= {here + path[len(there) :]: location for path, location in new.origins.items() if path.startswith(there)}
            listeners.append(listener)
        return replace(self, listeners=tuple(listeners), origins=origins, sources=new.sources)


ROOT: Final = Section(Settings)
RULES_FILE: Final = Section(RulesFile)
_CONTENT: Final = attrgetter(*(each.name for each in dataclasses.fields(Rule) if each.name != "place"))  # a rule but for where it stands


def load(path: Path | str, environ: MappingType[str, str] | None = None, flags: MappingType[str, str] | None = None) -> Settings:
    """The settings in the file at `path`, under environment and flags (path of a setting -> text). Raises ConfigError with all faults."""
    file = Path(path)
    environ = {name: text for name, text in (environ or {}).items() if name.startswith(PREFIX)}
    flags = dict(flags or {})
    problems = Problems()
    reading = Reading(problems)
    tree = read(file, str(path), problems)
    directory = file.absolute().parent
    reading.directories = {str(path): directory, NOWHERE.file: directory}
    if tree is not None and not isinstance(tree, Mapping):
        problems.add(tree.location, "", "the file is not a mapping", f"its keys are {', '.join(ROOT.settings)}")
    if not isinstance(tree, Mapping):
        problems.check()
        raise AssertionError("a file without a tree has a problem")
    overlay(tree, ROOT, environ, flags, problems)
    if "listeners" not in tree.entries:
        problems.add(SourceLocation(str(path), 1, 1), "listeners", "is missing", f"add listeners, e.g. {_listeners_example()}")
    settings = ROOT.read(tree, "", reading)
    if "rules_file" in tree.entries and "rules" in tree.entries:
        problems.add(tree.keys["rules"], "rules", "given twice: here and by rules_file", "keep one of the two")
    elif settings.rules_file is not None and settings.rules_file != Path():
        settings = replace(settings, rules=_rules(settings.rules_file, str(path), reading))
    for check in CHECKS:
        check(reading)
    problems.check()
    name = settings.gateway.name or socket.gethostname()
    return replace(
        settings,
        gateway=replace(settings.gateway, name=name),
        file=file.absolute(),
        environ=environ,
        flags=flags,
        origins=reading.origins,
        sources=problems,
    )


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
    tree = read(file, name, reading.problems)
    if tree is None:
        return ()
    before = reading.origins.get("rules_file", NOWHERE)
    try:
        rules = RULES_FILE.read(tree, "", reading).rules
    except Invalid as invalid:
        reading.problems.add(tree.location, "", invalid.message, invalid.remedy)
        rules = ()
    reading.origins["rules_file"] = before
    return rules


def diff(old: Settings, new: Settings) -> dict[str, list[str]]:
    """What changes from `old` to `new`, one line each: rules and TLS are in force on a reload, the rest needs a restart."""
    in_force: list[str] = []
    before = {rule.name: rule for rule in old.rules}
    after = {rule.name: rule for rule in new.rules}
    for name in [*before, *(each for each in after if each not in before)]:
        if name not in after:
            in_force.append(f"rule {name}: removed")
        elif name not in before:
            in_force.append(f"rule {name}: added")
        else:
            in_force.extend(_changed_rule(before[name], after[name]))
    if [name for name in before if name in after] != [name for name in after if name in before]:
        in_force.append("rules: order changed")
    was, will_be = replace(old, rules=()).describe(), replace(new, rules=()).describe()
    kept = {listener.name for listener in old.listeners} & {listener.name for listener in new.listeners}
    in_force.extend(_changes(_take_tls(was, kept), _take_tls(will_be, kept), "listeners"))
    needs_restart = [
        line
        for key in ROOT.settings
        if key not in {"rules", "rules_file"}
        for line in _changes(was.get(key), will_be.get(key), key)
    ]  # fmt: skip
    return {"in_force": in_force, "needs_restart": needs_restart}


def _take_tls(described: dict[str, object], names: set[str]) -> dict[str, object]:
    """Take the TLS of the listeners of these names out of a described configuration: name -> its TLS."""
    listeners = described["listeners"]
    assert isinstance(listeners, list)
    return {each["name"]: {key: each.pop(key) for key in TLS} for each in listeners if each["name"] in names}


def _changed_rule(old: Rule, new: Rule) -> list[str]:
    """The differences between two rules of one name, whatever their line. Comparing first costs a hundredth of showing both."""
    if _CONTENT(old) == _CONTENT(new):
        return []
    return _changes(_shown(old), _shown(new), f"rule {old.name}: ")


def _shown(rule: Rule) -> JSON:
    return RULES.item.show(dataclasses.replace(rule, place=""))


def _changes(old: object, new: object, path: str) -> list[str]:
    """The leaves in which two described values differ: `admin.bind: 127.0.0.1:1 -> 127.0.0.1:2`."""
    if old == new:
        return []
    joint = path if path.endswith(": ") else f"{path}."
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            line
            for key in [*old, *(each for each in new if each not in old)]
            for line in _changes(old.get(key), new.get(key), f"{joint}{key}")
        ]
    if isinstance(old, list) and isinstance(new, list):
        named_old, named_new = _named(old), _named(new)
        if named_old is not None and named_new is not None:
            return _changes(named_old, named_new, path)
    return [f"{path}: {_text(old)} -> {_text(new)}"]


def _named(items: list[object]) -> dict[str, object] | None:
    """A list of named things by their names; None where they have none."""
    by_name = {str(item["name"]): item for item in items if isinstance(item, dict) and "name" in item}
    return {**by_name} if len(by_name) == len(items) else None


def _text(value: object) -> str:
    if value is None:
        return "(none)"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_text(inner)}" for key, inner in value.items()) + "}"
    return str(value)
