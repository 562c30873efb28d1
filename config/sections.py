"""Sections: mappings of settings, lists of them, and how a settings type says what each of its fields is.

A settings type is a frozen dataclass whose fields are made by `setting()`; the names in the file may differ from the fields' (units stand
in field names, `roll_every_ns`, and in values, `5min`). `not_yet` in the class names keys of the contract this version does not do, `gone`
those that it does not do any more, with the way out; `needs` those that a key cannot stand without, `one_of` keys of which exactly one is
there. These two are for editors (`schema`); what is said of them otherwise stands in `checks.py`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, overload

from common.records import dataclass
from config.document import TAKEN, Mapping, Node, Scalar, Sequence, kind_of
from config.kinds import JSON, OFF, Invalid, Kind, NotYets, OrOff, Reading, ScalarKind
from config.problems import NEARLY_THE_SAME, NOWHERE, SourceLocation, quote_text, suggestion

T = TypeVar("T")


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final[Any] = _Required()


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """What is known of one field: its name in the file, its kind, its default, and what it is for in one sentence."""

    key: str
    kind: Kind[T]
    default: T
    doc: str

    @property
    def required(self) -> bool:
        return self.default is REQUIRED


@overload
def setting(kind: Kind[T], default: T, doc: str, *, key: str = "") -> T: ...


@overload
def setting(kind: Kind[T], default: None, doc: str, *, key: str = "") -> T | None: ...


def setting(kind: Kind[Any], default: Any, doc: str, *, key: str = "") -> Any:
    """A field of a settings type. `default` is REQUIRED where the file must say; None where there is no value without it."""
    metadata = {"setting": Setting(key, kind, default, doc)}
    return dataclasses.field(default=kind.placeholder if default is REQUIRED else default, metadata=metadata, repr=not kind.hidden)


def settings_of(cls: type[Any]) -> dict[str, tuple[str, Setting[Any]]]:
    """Key in the file -> (field, setting), in order."""
    found: dict[str, tuple[str, Setting[Any]]] = {}
    for field in dataclasses.fields(cls):
        known = field.metadata.get("setting")
        if known is not None:
            found[known.key or field.name] = (field.name, known)
    return found


class Section(Kind[T]):
    """A mapping whose keys are the settings of `cls`. Unknown keys and missing ones are problems; the value is made all the same."""

    def __init__(self, cls: type[T]) -> None:
        self.cls = cls
        self.settings = settings_of(cls)
        self.not_yet: NotYets = getattr(cls, "not_yet", {})
        self.gone: dict[str, str] = getattr(cls, "gone", {})
        self.placeholder = cls()
        # The values of keys that are not there, where they need no reading: nine in ten of a rule's.
        self._defaults = {field: known.default for field, known in self.settings.values() if is_plain(known)}
        self._to_read: dict[tuple[str, ...], list[tuple[str, str, Setting[Any]]]] = {}  # by the keys that are there: many have the same

    def read(self, node: Node, path: str, reading: Reading) -> T:
        if isinstance(node, Scalar) and node.null:
            node = Mapping(node.location)  # a section whose keys are all commented out
        if not isinstance(node, Mapping):
            raise Invalid(f"expected a mapping, got {kind_of(node)}", f"its keys are {', '.join(self.settings)}")
        keys = tuple(node.entries)
        to_read = self._to_read.get(keys)
        if to_read is None:
            self._check_keys(node, path, reading)
            to_read = [(key, field, known) for key, (field, known) in self.settings.items() if key in keys or field not in self._defaults]
            if len(self._to_read) < MAX_KNOWN and self.settings.keys() >= {*keys}:
                self._to_read[keys] = to_read
        values: dict[str, object] = dict(self._defaults)
        for key, field, known in to_read:
            values[field] = self._value(node, key, f"{path}.{key}" if path else key, known, reading)
        value = self.cls(**values) if keys or len(values) > len(self._defaults) else self.placeholder
        reading.sections.append((path, value))
        return value

    def _value(self, node: Mapping, key: str, path: str, known: Setting[Any], reading: Reading) -> object:
        child = node.entries.get(key)
        if child is None:
            if not known.required:
                return default_of(known, path, reading)
            kind = known.kind.item if isinstance(known.kind, OneOrMore) else known.kind
            example = kind.example if isinstance(kind, ScalarKind) else known.doc
            reading.problems.add(node.location, path, "is missing", f"add {key}: {example}")
            return known.kind.placeholder
        reading.origins[path] = child.location
        try:
            return known.kind.read(child, path, reading)
        except Invalid as invalid:
            reading.problems.add(child.location, path, invalid.message, invalid.remedy)
            return known.kind.placeholder

    def _check_keys(self, node: Mapping, path: str, reading: Reading) -> None:
        for key, child in node.entries.items():
            inner = f"{path}.{key}" if path else key
            if key in self.not_yet:
                try:
                    self.not_yet[key].check(child, key)
                except Invalid as invalid:
                    reading.problems.add(node.key_at(key), inner, invalid.message, invalid.remedy)
            elif key not in self.settings:
                reading.problems.add(node.key_at(key), inner, "unknown key", self.remedy(key, reading.whole))

    def remedy(self, key: str, whole: Kind[Any] | None) -> str:
        """The way out for an unknown key, which may have its place elsewhere in the whole file."""
        if key == "<<":
            return "merge keys are not supported: write the values out"
        if key in self.gone:
            return self.gone[key]
        known = [*self.settings, *self.not_yet]
        place = None if whole is None or suggestion(key, known, NEARLY_THE_SAME) else place_elsewhere(whole, key)
        if place is not None:
            return place
        meant = suggestion(key, known)
        return f"did you mean `{meant}`?" if meant else f"known here: {', '.join(self.settings)}"

    def show(self, value: T) -> JSON:
        """The settings as they would be written; what is not set and has no default is left out."""
        shown: dict[str, JSON] = {}
        for key, (field, known) in self.settings.items():
            inner = getattr(value, field)
            if inner is not None or isinstance(known.kind, OrOff) or (isinstance(known.kind, OrElse) and isinstance(known.kind.other, Off)):
                shown[key] = known.kind.show(inner)
        return shown

    def schema(self) -> dict[str, JSON]:
        properties: dict[str, JSON] = {}
        for key, (_, known) in self.settings.items():
            described: dict[str, JSON] = {"description": known.doc, **known.kind.schema()}
            if not known.required and known.default not in (None, "") and not dataclasses.is_dataclass(known.default):
                described["default"] = known.kind.show(known.default)
            properties[key] = described
        properties.update({key: each.schema() for key, each in self.not_yet.items()})
        found: dict[str, JSON] = {"type": ["object", "null"], "properties": properties, "additionalProperties": False}
        required: list[JSON] = [key for key, (_, known) in self.settings.items() if known.required]
        if required:
            found |= {"type": "object", "required": required}
        needs: dict[str, tuple[str, ...]] = getattr(self.cls, "needs", {})
        if needs:
            found["dependentRequired"] = {key: list(others) for key, others in needs.items()}
        one_of: tuple[str, ...] = getattr(self.cls, "one_of", ())
        if one_of:
            found |= {"type": "object", "oneOf": [{"required": [key]} for key in one_of]}
        return found


MAX_KNOWN: Final = 1024  # sets of keys in a section, the first; a guess
MAX_PLACES: Final = 3  # of one key; of more, as of `name`, none is more likely than another


def place_elsewhere(whole: Kind[Any], key: str) -> str | None:
    """Where a key stands that stands somewhere else in the file than it was written; None where there is none, or too many places."""
    found = dict(places_of(whole, key))
    if not 0 < len(found) <= MAX_PLACES:
        return None
    if key in found:
        kind = "a section of its own" if found[key] else "a key at the top of the file"
        return f"{key} is {kind}: {key}: ..."
    return f"{key} has its place at {' or '.join(found)}"


def places_of(kind: Kind[Any], key: str, path: str = "") -> Iterator[tuple[str, bool]]:
    """The places in `kind` that are called `key`, as `limiter.threads` or `rules[].limit.messages`, and whether each is a section."""
    if isinstance(kind, Section):
        for name, (_, known) in kind.settings.items():
            inner = f"{path}.{name}" if path else name
            if name == key:
                yield inner, isinstance(unwrap_section(known.kind), Section)
            yield from places_of(known.kind, key, inner)
    elif isinstance(kind, ListOf | OneOrMore):
        yield from places_of(kind.item, key, f"{path}[]")
    elif unwrap_section(kind) is not kind:
        yield from places_of(unwrap_section(kind), key, path)


def unwrap_section(kind: Kind[Any]) -> Kind[Any]:
    """The section in a kind that is one or else something (`off`, a rule); any other as it is."""
    section = getattr(kind, "section", None)
    return section if isinstance(section, Kind) else kind


class ListOf(Kind[tuple[T, ...]]):
    """A list of things of one kind."""

    placeholder: tuple[T, ...] = ()

    def __init__(self, item: Kind[T], example: str, *, least: int = 0, most: int = 0) -> None:
        self.item = item
        self.example = example
        self.least = least
        self.most = most  # 0: any number

    def read(self, node: Node, path: str, reading: Reading) -> tuple[T, ...]:
        if isinstance(node, Scalar) and node.null and not self.least:
            return ()
        if not isinstance(node, Sequence):
            raise Invalid(f"expected a list, got {kind_of(node)}", f"begin each item with `- `, e.g. {self.example}")
        if len(node.items) < self.least:
            raise Invalid("the list is empty", f"add an item, e.g. {self.example}")
        if self.most and len(node.items) > self.most:
            raise Invalid(f"the list has {len(node.items)} items", f"the most is {self.most}")
        for number, item in enumerate(node.items):
            if item is not TAKEN:
                self.take(item, path, reading)
            if isinstance(item, Mapping):
                node.items[number] = TAKEN
        return tuple(reading.taken.pop(path, ()))

    def take(self, item: Node, path: str, reading: Reading) -> None:
        """Read `item`, the next of the list at `path`, which need not be kept."""
        found = reading.taken.setdefault(path, [])
        inner = f"{path}[{len(found)}]"
        mark = reading.origins.mark
        reading.origins[inner] = item.location
        try:
            value = self.item.read(item, inner, reading)
        except Invalid as invalid:
            reading.problems.add(item.location, inner, invalid.message, invalid.remedy)
            value = self.item.placeholder
        found.append(value)
        reading.origins.fold(inner, mark)

    def show(self, value: tuple[T, ...]) -> JSON:
        return [self.item.show(item) for item in value]

    def schema(self) -> dict[str, JSON]:
        bound: dict[str, JSON] = {"maxItems": self.most} if self.most else {}
        if self.least:
            return {"type": "array", "items": self.item.schema(), "minItems": self.least, **bound}
        return {"type": ["array", "null"], "items": self.item.schema(), **bound}


class OneOrMore(Kind[tuple[T, ...]]):
    """A list of different things of one kind, at least one; where it is one alone, it needs no list."""

    def __init__(self, item: ScalarKind[T], example: str, *, most: int) -> None:
        self.item = item
        self.items = ListOf(item, example, least=1, most=most)
        self.placeholder = (item.placeholder,)

    def read(self, node: Node, path: str, reading: Reading) -> tuple[T, ...]:
        if not isinstance(node, Sequence):
            if isinstance(node, Scalar) and len(parts := re.split(r"[\s,;]+", node.text.strip(" ,;"))) > 1:
                remedy = f"write a list: {path.rpartition('.')[2]}: [{', '.join(parts)}]"
                raise Invalid(f"{quote_text(node.text)} is not {self.item.wanted} but several", remedy)
            return (self.item.read(node, path, reading),)
        found = self.items.read(node, path, reading)
        for number, value in enumerate(found):
            if value in found[:number] and value != self.item.placeholder:
                reading.problems.add(node.items[number].location, f"{path}[{number}]", f"{value} is named twice", "take one out")
        return found

    def node(self, text: str, location: SourceLocation) -> Node:
        """`text` from outside a file: one, or several with commas, in brackets or not."""
        inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
        if inner == text and "," not in text:
            return Scalar(text, location)
        found = Sequence(location)
        found.items += [Scalar(each.strip(), location) for each in inner.split(",")]
        return found

    def show(self, value: tuple[T, ...]) -> JSON:
        return self.item.show(value[0]) if len(value) == 1 else self.items.show(value)

    def schema(self) -> dict[str, JSON]:
        return {"anyOf": [self.item.schema(), {**self.items.schema(), "uniqueItems": True}]}


class OrElse(Kind[Any]):
    """A mapping of settings, or something else in one word: `off` where it can be left out, a quantity where one number says it all."""

    def __init__(self, section: Section[Any], other: Kind[Any]) -> None:
        self.section = section
        self.other = other
        self.placeholder = section.placeholder

    def read(self, node: Node, path: str, reading: Reading) -> Any:
        if isinstance(node, Scalar) and not node.null:
            return self.other.read(node, path, reading)
        return self.section.read(node, path, reading)

    def show(self, value: Any) -> JSON:
        return self.section.show(value) if isinstance(value, self.section.cls) else self.other.show(value)

    def schema(self) -> dict[str, JSON]:
        return {"anyOf": [self.section.schema(), self.other.schema()]}


class Off(Kind[None]):
    """The word `off`. `on` is what to write where all defaults are wanted, for messages."""

    placeholder = None

    def __init__(self, on: str = "") -> None:
        self.on = on

    def read(self, node: Node, path: str, reading: Reading) -> None:
        if not isinstance(node, Scalar) or node.word != "off":
            raise Invalid(
                f"expected a mapping or off, got {kind_of(node)}", f"write {self.on and self.on + ', '}off, or the keys of the section"
            )

    def show(self, value: None) -> JSON:
        return "off"

    def schema(self) -> dict[str, JSON]:
        return {**OFF}


def child_of(kind: Kind[Any], key: str) -> Kind[Any] | None:
    """The kind of the setting `key` inside `kind`; None where there is no such setting."""
    if isinstance(kind, OrElse):
        kind = kind.section
    if isinstance(kind, Section):
        known = kind.settings.get(key)
        return known[1].kind if known else None
    return kind.item if isinstance(kind, ListOf) else None


def holds_more(kind: Kind[Any]) -> bool:
    """Whether a value of `kind` is more than one word."""
    return isinstance(kind, Section | ListOf | OrElse)


def is_plain(known: Setting[Any]) -> bool:
    """Whether its default is a value as it stands (`default_of`)."""
    return not (known.required or dataclasses.is_dataclass(known.default) or isinstance(known.default, Path))


def default_of(known: Setting[Any], path: str, reading: Reading) -> object:
    """The default of a setting: a section is read from nothing, so that its own are found; a path belongs beside the file."""
    if dataclasses.is_dataclass(known.default):
        return known.kind.read(Mapping(NOWHERE), path, reading)
    return reading.directory(NOWHERE) / known.default if isinstance(known.default, Path) else known.default
