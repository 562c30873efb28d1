"""Kinds of values: how each is read from text, shown again, and described in JSON Schema.

A kind is the only description of a value, so decoder, schema, `config show` and errors cannot disagree. A settings type
(`known_settings.py`) names the kind of every field with `setting()`; `sections.py` reads whole mappings with them.

A kind that cannot read a node raises `Invalid` with what is wrong and the way out; it never knows the path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

from config.document import Node, Scalar, kind_of
from config.origins import SettingOrigins
from config.problems import NOWHERE, Problems, SourceLocation, join_choices, quote_text, suggestion

T = TypeVar("T")
JSON = None | bool | int | float | str | list["JSON"] | dict[str, "JSON"]


class Invalid(Exception):  # noqa: N818  -- never leaves this package; it becomes a ConfigProblem
    """A node that is not of its kind: the fault, and the way out."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message}; {remedy}")
        self.message = message
        self.remedy = remedy


class Reading:
    """One load in progress: collects problems and the location of every value."""

    def __init__(self, problems: Problems, whole: Kind[Any] | None = None) -> None:
        self.problems = problems
        self.whole = whole  # the kind of the whole file, in which a misplaced key may have its place; None: of a part alone
        self.directories: dict[str, Path] = {}  # name of a file -> its directory, against which its relative paths are taken
        self.origins = SettingOrigins()  # path of a setting -> where it was written
        self.taken: dict[str, list[Any]] = {}  # path of a list that is read now -> what was read of it
        self.sections: list[tuple[str, object]] = []  # all sections read, with their paths, broken ones included

    def sections_of(self, cls: type[T]) -> Iterator[tuple[str, T]]:
        """The sections of this type, with their paths, in the order in which they were read."""
        return ((path, value) for path, value in self.sections if isinstance(value, cls))

    def written(self, section: str, *keys: str) -> str:
        """The path of the first of these settings of a section that was written; where none was, that of the last."""
        paths = [f"{section}.{key}" for key in keys]
        return next((path for path in paths if self.location(path).line), paths[-1])

    def has_fault(self, path: str) -> bool:
        """Whether the setting at `path` has a fault of its own, so that its value is a placeholder."""
        location = self.origins.get(path)
        return (location is not None and self.problems.is_silenced(location)) or any(
            problem.path == path for problem in self.problems.found
        )

    def location(self, path: str) -> SourceLocation:
        """Where the setting at `path` was written."""
        return self.origins.get(path, NOWHERE)

    def add_problem(self, path: str, message: str, remedy: str, *, at: str = "") -> None:
        """A fault of the setting at `path`. `at` is the setting whose line is shown, where `path` itself was not written."""
        self.problems.add(self.location(at or path), path, message, remedy)

    def directory(self, location: SourceLocation) -> Path:
        """The directory that relative paths at `location` start from: the file's; for flags and environment the current one."""
        return self.directories.get(location.file) or Path.cwd()


class Kind(Generic[T]):
    """A kind of value. `placeholder` stands in for a value that could not be read, so that reading goes on; it never leaves `load`."""

    placeholder: T
    hidden = False  # whether a value may hold a secret, so that `show` shows a part of it only

    def read(self, node: Node, path: str, reading: Reading) -> T:
        """The value of `node`; raises Invalid."""
        raise NotImplementedError

    def show(self, value: T) -> JSON:
        """The value as it would be written."""
        raise NotImplementedError

    def schema(self) -> dict[str, JSON]:
        """JSON Schema (2020-12) of what `read` accepts; ranges of quantities with units are not expressed."""
        raise NotImplementedError


class ScalarKind(Kind[T]):
    """A kind written as one word or number, which is shown as it is, or else as `str` has it."""

    wanted = "a value"  # for messages
    example = ""

    def __init__(self, example: str = "") -> None:
        self.example = example or self.example

    def parse(self, scalar: Scalar, path: str, reading: Reading) -> T:
        raise NotImplementedError

    def read(self, node: Node, path: str, reading: Reading) -> T:
        if not isinstance(node, Scalar) or node.null:
            raise Invalid(f"expected {self.wanted}, got {kind_of(node)}", f"write it like {self.example}")
        return self.parse(node, path, reading)

    def show(self, value: T) -> JSON:
        return value if isinstance(value, bool | int | float | str) else str(value)


class Text(ScalarKind[str]):
    """Any text; plain numbers and words that YAML would interpret stand for themselves."""

    placeholder = ""
    wanted = "a text"

    def __init__(self, example: str, pattern: str = "", allowed: str = "") -> None:
        self.example = example
        self.pattern = pattern  # what the whole text must match, as in JSON Schema
        self.allowed = allowed  # the pattern in words

    def parse(self, scalar: Scalar, path: str, reading: Reading) -> str:
        if self.pattern and re.fullmatch(self.pattern, scalar.text) is None:
            raise Invalid(f"{quote_text(scalar.text)} is not {self.allowed}", f"write it like {self.example}")
        return scalar.text

    def schema(self) -> dict[str, JSON]:
        found: dict[str, JSON] = {"type": ["string", "number", "boolean"]}
        if self.pattern:
            found["pattern"] = f"^(?:{self.pattern})$"
        return found


NAME_PATTERN: Final = "[A-Za-z0-9][A-Za-z0-9._-]{0,99}"


def Name(example: str) -> Text:  # noqa: N802  -- reads like the kinds beside it
    """A name that is safe in file names, URLs and labels."""
    return Text(example, NAME_PATTERN, "a name of letters, digits, `.`, `_` and `-`, at most 100")


class PathName(ScalarKind[Path]):
    """A path; relative ones are taken against the directory of the file they stand in (flag, environment: the current one)."""

    placeholder = Path()
    wanted = "a path"

    def parse(self, scalar: Scalar, path: str, reading: Reading) -> Path:
        if not scalar.text or "\0" in scalar.text:
            raise Invalid("an empty path", f"write it like {self.example}")
        if "://" in scalar.text:  # it may hold a secret, and is shown nowhere
            raise Invalid("a URL, where the name of a file or folder is wanted", f"write it like {self.example}")
        try:
            return reading.directory(scalar.location) / Path(scalar.text).expanduser()
        except RuntimeError:  # raised by pathlib where the user has no home
            user = scalar.text.partition("/")[0]
            raise Invalid(f"{quote_text(user)} is nobody's home directory", "write the path out") from None

    def schema(self) -> dict[str, JSON]:
        return {"type": ["string", "number", "boolean"], "minLength": 1}


class Whole(ScalarKind[int]):
    """A whole number without a unit, written plainly."""

    wanted = "a whole number"

    def __init__(self, minimum: int, maximum: int, example: int) -> None:
        self.minimum = minimum
        self.maximum = maximum
        self.placeholder = example
        self.example = str(example)

    def parse(self, scalar: Scalar, path: str, reading: Reading) -> int:
        if not scalar.plain:
            raise Invalid(f"expected a whole number, got the text {quote_text(scalar.text)}", "write it without quotes")
        if re.fullmatch(r"-?(?:0|[1-9][0-9]{0,18})", scalar.text) is None:
            plain = re.fullmatch(r"0*([0-9][0-9_,]{0,18})", scalar.text)
            meant = plain[1].replace("_", "").replace(",", "") if plain else self.example
            raise Invalid(f"expected a whole number, got {quote_text(scalar.text)}", f"write it like {meant}")
        number = int(scalar.text)
        if number < self.minimum:
            raise Invalid(f"{number} is too small", f"the least is {self.minimum}")
        if number > self.maximum:
            raise Invalid(f"{number} is too large", f"the most is {self.maximum}")
        return number

    def schema(self) -> dict[str, JSON]:
        return {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}


SWITCHED: Final[dict[str, JSON]] = {"off": False, "on": True}  # words that YAML 1.1 has for booleans (`Scalar.word`)


class Choice(ScalarKind[str]):
    """One of some words. `not_yet` are words of the contract that this version does not support."""

    wanted = "a word"

    def __init__(self, *options: str, not_yet: tuple[str, ...] = ()) -> None:
        self.options = options
        self.not_yet = not_yet
        self.placeholder = options[0]
        self.example = options[0]

    def parse(self, scalar: Scalar, path: str, reading: Reading) -> str:
        if scalar.word in self.options:
            return self.options[self.options.index(scalar.word)]  # one text for all
        if scalar.text in self.not_yet:
            raise Invalid(f"{scalar.text}: not supported yet", f"use {join_choices(self.options)}")
        meant = suggestion(scalar.text, self.options)
        hint = f"did you mean {meant}?" if meant and len(self.options) > 1 else f"use {join_choices(self.options)}"
        raise Invalid(f"{quote_text(scalar.text)} is not one of {', '.join(self.options)}", hint)

    def schema(self) -> dict[str, JSON]:
        return {"enum": [*self.options, *(value for word, value in SWITCHED.items() if word in self.options)]}


class YesNo(ScalarKind[bool]):
    """true or false, written plainly; YAML's other words for them (yes, on, ...) are easily meant as something else."""

    placeholder = False
    wanted = "true or false"
    example = "true"

    def parse(self, scalar: Scalar, path: str, reading: Reading) -> bool:
        if not scalar.plain or scalar.text not in ("true", "false"):
            raise Invalid(f"expected true or false, got {quote_text(scalar.text)}", "write true or false, without quotes")
        return scalar.text == "true"

    def schema(self) -> dict[str, JSON]:
        return {"type": "boolean"}


OFF: Final[dict[str, JSON]] = {"enum": ["off", SWITCHED["off"]]}  # its JSON Schema


class OrOff(ScalarKind[T | None]):
    """A kind, or the word `off`: None."""

    def __init__(self, kind: ScalarKind[T]) -> None:
        self.kind = kind
        self.placeholder = kind.placeholder
        self.wanted = f"{kind.wanted} or off"
        self.example = kind.example

    def parse(self, scalar: Scalar, path: str, reading: Reading) -> T | None:
        return None if scalar.word == "off" else self.kind.parse(scalar, path, reading)

    def show(self, value: T | None) -> JSON:
        return "off" if value is None else self.kind.show(value)

    def schema(self) -> dict[str, JSON]:
        return {"anyOf": [self.kind.schema(), OFF]}


class Only(ScalarKind[T]):
    """A kind of which this version supports one value; others are understood and refused with the reason."""

    def __init__(self, kind: ScalarKind[T], value: T, reason: str, remedy: str) -> None:
        self.kind = kind
        self.value = value
        self.reason = reason
        self.remedy = remedy
        self.placeholder = value
        self.wanted = kind.wanted
        self.example = kind.example

    def parse(self, scalar: Scalar, path: str, reading: Reading) -> T:
        value = self.kind.parse(scalar, path, reading)
        if value != self.value:
            raise Invalid(f"{scalar.text}: {self.reason}", self.remedy)
        return value

    def show(self, value: T) -> JSON:
        return self.kind.show(value)

    def schema(self) -> dict[str, JSON]:
        return {"const": self.kind.show(self.value)}


class NotYet(NamedTuple):
    """A key of the contract that this version does not support. `harmless` are the values that ask for nothing."""

    what: str
    harmless: tuple[str, ...] = ()
    remedy: str = ""

    def check(self, node: Node, key: str) -> None:
        """Raise Invalid unless the node asks for nothing."""
        if isinstance(node, Scalar) and node.plain and (node.null or node.text in self.harmless):
            return
        shown = f"{node.text}: " if isinstance(node, Scalar) and node.text.isprintable() and len(node.text) < 20 else ""
        remedy = self.remedy or f"remove {key}"
        raise Invalid(f"{shown}{self.what} not supported yet", remedy)

    def schema(self) -> dict[str, JSON]:
        words: dict[str, JSON] = {"false": False, "1": 1}
        harmless: list[JSON] = [None, *(words.get(word, word) for word in self.harmless)]
        return {"description": f"{self.what[0].upper()}{self.what[1:]} not supported yet.", "enum": harmless}


NotYets = Mapping[str, NotYet]
