"""YAML text as a tree of nodes that know their location. Nothing is interpreted here.

PyYAML's own loader resolves scalars by their looks: `010` becomes 8, `1:30` becomes 90, `no` becomes False, `1e3` stays text
(measured with 6.0.3). So only its parser is used, event by event, and every scalar stays the text that was written; what it means is
decided later by the setting it stands for (`kinds.py`). Going by events also means that nothing recurses: depth and size are capped
before they cost anything, and anchors, aliases and tags are refused where they stand.

All faults go to `Problems`; a syntax error ends the reading of that file, everything else is collected.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import yaml

from config.problems import LINE_END, NOWHERE, Problems, SourceLocation, quote_text
from config.surrogate_escapes import LoneSurrogateError, SurrogateEscapes

MAX_BYTES: Final = 4 << 20  # bytes; one file; about 30,000 rules, read in about a second
COLUMN_BITS: Final = 32
MAX_DEPTH: Final = 16  # levels; the deepest setting, rules[].limit.burst.messages, is at 6

_new: Final = tuple.__new__  # a third of the time that the type's own takes, which goes by way of a function
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's parser is ten times faster and gives the same events
_PLAIN: Final = re.compile("[\x09\x0a\x0d\x20-\x7e]*")
_UNPRINTABLE: Final = "[^\x09\x0a\x0d\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"  # 4 ms to compile
_COMMENT: Final = re.compile(r"(^|[ \t])#.*$")


class Scalar:
    """A piece of text. `plain` when it was written without quotes."""

    __slots__ = ("location", "plain", "text")

    def __init__(self, text: str, location: SourceLocation, *, plain: bool = True) -> None:
        self.text = text
        self.location = location
        self.plain = plain

    @property
    def null(self) -> bool:
        """Whether YAML says that there is no value: nothing, `~` or `null`, unquoted."""
        return self.plain and self.text in {"", "~", "null", "Null", "NULL"}

    @property
    def word(self) -> str:
        """Its text where that may be `off` or `on`: Helm and other programs that read YAML 1.1 make `false` and `true` of these words."""
        return {"false": "off", "true": "on"}.get(self.text, self.text) if self.plain else self.text

    def __repr__(self) -> str:
        return f"<Scalar {quote_text(self.text)} at {self.location}>"


class Mapping:
    """Keys and values in the order written."""

    __slots__ = ("entries", "location", "places")

    def __init__(self, location: SourceLocation) -> None:
        self.location = location
        self.entries: dict[str, Node] = {}
        self.places: list[int | SourceLocation] = []  # of the keys, in their order; a number: `place_of` it in this one's file

    def put(self, key: str, location: SourceLocation, node: Node) -> None:
        here = location.line and location.file == self.location.file
        place = place_of(location) if here else location
        if key in self.entries:
            self.places[list(self.entries).index(key)] = place
        else:
            self.places.append(place)
        self.entries[key] = node

    def key_at(self, key: str) -> SourceLocation:
        """Where a key was written that is here."""
        place = self.places[list(self.entries).index(key)]
        return place if isinstance(place, SourceLocation) else location_of(self.location.file, place)

    def __repr__(self) -> str:
        return f"<Mapping {', '.join(self.entries)} at {self.location}>"


class Sequence:
    """Items in the order written."""

    __slots__ = ("items", "location")

    def __init__(self, location: SourceLocation) -> None:
        self.location = location
        self.items: list[Node] = []

    def __repr__(self) -> str:
        return f"<Sequence of {len(self.items)} at {self.location}>"


def place_of(at: SourceLocation) -> int:
    """Line and column in one number."""
    return at.line << COLUMN_BITS | at.column


def location_of(file: str, place: int) -> SourceLocation:
    return SourceLocation(file, place >> COLUMN_BITS, place & ((1 << COLUMN_BITS) - 1))


Node = Scalar | Mapping | Sequence
TAKEN: Final = Scalar("", NOWHERE)
Takes = dict[str, Callable[[Node], None]]  # key of the file whose value is a list -> what reads each item of it


def kind_of(node: Node) -> str:
    """A node's kind, in words for a message."""
    if isinstance(node, Mapping):
        return "a mapping"
    if isinstance(node, Sequence):
        return "a list"
    return "nothing" if node.null else quote_text(node.text)


def read(path: Path, name: str, problems: Problems, takes: Takes | None = None) -> Node | None:
    """The tree of the YAML file at `path`, called `name` in messages; None when it cannot be read (the reason is in `problems`).

    Of lists in `takes` each item is given to its reader once it is whole, and TAKEN stands in its place: of 10,000 rules the tree is larger
    than the rules.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        problems.read(name, "")
        problems.add(SourceLocation(name), "", f"cannot be read: {reason}", "name a YAML file that exists and that this user may read")
        return None
    return parse(data, name, problems, takes)


def parse(data: bytes, name: str, problems: Problems, takes: Takes | None = None) -> Node | None:
    """The tree of the YAML text in `data`; at most MAX_BYTES and MAX_DEPTH levels are looked at. `takes`: as of `read`."""
    text = _decode(data, name, problems)
    if text is None:
        return None
    return _Composer(name, problems, takes or {}).compose(text)


def _decode(data: bytes, name: str, problems: Problems) -> str | None:
    """`data` as text that YAML's parser can read, or None with the reason in `problems`."""
    start = SourceLocation(name, 1, 1)
    problems.read(name, "")
    if len(data) > MAX_BYTES:
        problems.add(start, "", f"larger than {MAX_BYTES >> 20} MiB", "is this the right file? split rules over several gateways if so")
        return None
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        problems.add(start, "", "UTF-16 text", "save the file as UTF-8")
        return None
    if data.startswith(b"\xef\xbb\xbf"):
        problems.add(start, "", "begins with a byte order mark (EF BB BF)", "save the file as UTF-8 without BOM")
        data = data[3:]
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        problems.read(name, data.decode(errors="replace"))
        place = _place(name, data[: error.start].decode())
        problems.add(place, "", f"byte 0x{data[error.start]:02x} is not UTF-8", "save the file as UTF-8")
        return None
    problems.read(name, text)
    clean = True
    if _PLAIN.fullmatch(text) is None and (found := re.search(_UNPRINTABLE, text)) is not None:
        what = f"control character U+{ord(found[0]):04X}"
        remedy = 'is this a text file? write such characters as escapes in double quotes, "\\x07"'
        problems.add(_place(name, text[: found.start()]), "", what, remedy)
        clean = False
    if "\t" in text:
        for number, each in enumerate(LINE_END.split(text), 1):
            column = _COMMENT.sub("", each).find("\t") + 1
            if column:
                problems.add(SourceLocation(name, number, column), "", "tab character", 'use spaces (in double quotes: "\\t")')
                clean = False
    return text if clean else None


def _place(name: str, before: str) -> SourceLocation:
    """The place behind the text `before`, with which the file begins."""
    return SourceLocation(name, len(LINE_END.findall(before)) + 1, len(LINE_END.split(before)[-1]) + 1)


class _Composer:
    """Builds the tree of one file from the parser's events."""

    def __init__(self, name: str, problems: Problems, takes: Takes) -> None:
        self.name = name
        self.problems = problems
        self.takes = takes
        self.taken: tuple[Sequence, Callable[[Node], None]] | None = None  # the list that is open whose items are read as they come
        self.open: list[Mapping | Sequence] = []  # containers not yet closed, outermost first
        self.pending: list[tuple[str, int] | None] = []  # for each open container: the key whose value comes next, and its place
        self.root: Node | None = None
        self.escapes = SurrogateEscapes("")

    def compose(self, text: str) -> Node | None:
        documents = 0
        self.escapes = SurrogateEscapes(text)
        try:
            for event in iter(_LOADER(self.escapes.parsable).get_event, None):  # of 10,000 rules there are 200,000: the most frequent first
                kind = type(event)
                if kind is yaml.ScalarEvent:
                    self._scalar(event)
                elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                    if not self._begin(event):
                        return None
                elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                    self.open.pop()
                    self.pending.pop()
                    self._end_item()
                elif kind is yaml.AliasEvent:
                    self._alias(event)
                elif kind is yaml.DocumentStartEvent:
                    documents += 1
                    if documents > 1:
                        self._add(self._location(event), "a second YAML document", "keep one document per file: remove this `---`")
                        return self.root
        except yaml.MarkedYAMLError as error:
            self._syntax(error)
            return None
        if self.root is None:
            self._add(SourceLocation(self.name, 1, 1), "the file is empty", "let `sluice init` write one")
        return self.root

    def _alias(self, event: yaml.AliasEvent) -> None:
        location = self._location(event)
        self._add(location, f"alias {quote_text('*' + str(event.anchor))}", "aliases are not supported: write the value out")
        self.problems.silence(location)
        self._fit(Scalar("", location))

    def _begin(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> bool:
        """Open a container. False when it is no use to go on."""
        location = self._location(event)
        self._check_unmarked(event)
        if len(self.open) >= MAX_DEPTH:
            self._too_deep(location)
            return False
        container: Mapping | Sequence = Mapping(location) if isinstance(event, yaml.MappingStartEvent) else Sequence(location)
        self._fit(container)
        self.open.append(container)
        self.pending.append(None)
        return True

    def _check_unmarked(self, event: yaml.ScalarEvent | yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        """Refuse an anchor and a tag."""
        if event.anchor is not None:
            remedy = "anchors are not supported: write the value out where it is needed"
            self._add(self._location(event), f"anchor {quote_text('&' + str(event.anchor))}", remedy)
        if event.tag is not None and event.tag != "!":
            self._add(self._location(event), f"tag {quote_text(str(event.tag))}", "tags are not supported: remove it")

    def _end_item(self) -> None:
        """A node is whole, perhaps an item of a list in `takes`."""
        if self.taken is not None and self.open and self.open[-1] is self.taken[0]:
            items = self.taken[0].items
            self.taken[1](items[-1])
            items[-1] = TAKEN

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        if event.anchor is not None or event.tag is not None:
            self._check_unmarked(event)
        text = self._text_of(event) if self.escapes.stand_in else event.value
        if self.open and self.pending[-1] is None and isinstance(self.open[-1], Mapping):
            mark = event.start_mark
            assert mark is not None
            self.pending[-1] = (text, mark.line + 1 << COLUMN_BITS | mark.column + 1)
        else:
            self._fit(Scalar(text, self._location(event), plain=event.implicit[0] and not event.style))

    def _text_of(self, event: yaml.ScalarEvent) -> str:
        try:
            return self.escapes.value_of(event)
        except LoneSurrogateError as error:
            self._add(
                _place(self.name, self.escapes.text[: error.index]),
                f'"{error.escape}" is half a character: the other half of the pair does not stand beside it',
                'write both halves, as in "\\ud83d\\ude00", or the character itself',
            )
            self.problems.silence(self._location(event))
            return ""

    def _fit(self, node: Node) -> None:
        """Put `node` where the tree waits for one."""
        if not self.open:
            self.root = node
            return
        container = self.open[-1]
        if isinstance(container, Sequence):
            container.items.append(node)
            if isinstance(node, Scalar):
                self._end_item()
            return
        key = self.pending[-1]
        if key is not None:
            self.pending[-1] = None
            if key[0] in container.entries:
                first = container.key_at(key[0])
                remedy = f"remove one of the two; the first is in line {first.line}"
                self._add(location_of(self.name, key[1]), f"duplicate key {quote_text(key[0])}", remedy)
            else:
                container.entries[key[0]] = node
                container.places.append(key[1])
                if len(self.open) == 1:
                    reader = self.takes.get(key[0])
                    self.taken = (node, reader) if reader is not None and isinstance(node, Sequence) else None
            return
        if not isinstance(node, Scalar):
            self._add(node.location, f"{kind_of(node)} as a key", "keys are words")
        self.pending[-1] = (node.text if isinstance(node, Scalar) else f"?{len(container.entries)}", place_of(node.location))

    def _location(self, event: yaml.Event) -> SourceLocation:
        mark = event.start_mark
        assert mark is not None
        return _new(SourceLocation, (self.name, mark.line + 1, mark.column + 1))

    def _add(self, location: SourceLocation, message: str, remedy: str) -> None:
        self.problems.add(location, "", message, remedy)

    def _syntax(self, error: yaml.MarkedYAMLError) -> None:
        mark = error.problem_mark or error.context_mark
        location = SourceLocation(self.name, mark.line + 1, mark.column + 1) if mark is not None else SourceLocation(self.name, 1, 1)
        if "maximum nesting depth" in (error.problem or ""):  # libyaml 0.2.6 gives up before its first event
            self._too_deep(location)
            return
        context = f" {error.context}" if error.context else ""
        if error.context_mark is not None and (mark is None or error.context_mark.line != mark.line):
            context += f" begun in line {error.context_mark.line + 1}"
        self._add(location, f"not YAML: {error.problem or 'cannot be read'}{context}", _remedy(error))

    def _too_deep(self, location: SourceLocation) -> None:
        self._add(location, f"nested deeper than {MAX_DEPTH} levels", "no setting is that deep: check the brackets")


def _remedy(error: yaml.MarkedYAMLError) -> str:
    """What usually mends this kind of syntax error."""
    reason = f"{error.problem} {error.context}".lower()
    for sign, remedy in _REMEDIES:
        if sign in reason:
            return remedy
    return "check indentation, quotes and brackets here and in the line above"


_REMEDIES: Final = (
    ("mapping values are not allowed", "a `: ` too many: indent the line, or put the value in quotes"),
    (
        "invalid unicode character escape",
        'no character has this number: write one that Unicode has, as in "\\U0001F600", or the character itself',
    ),
    ("hexdecimal number", 'write all digits of the escape, as in "\\u00e9", or `\\\\` for a backslash'),
    ("hexadecimal numbers", 'write all digits of the escape, as in "\\u00e9", or `\\\\` for a backslash'),
    ("unknown escape", "write `\\\\` for a backslash, or use single quotes"),
    ("quoted scalar", "close the quotes"),
    ("flow node", 'put the value in quotes, as in "[::1]:5672"'),
    ("flow mapping", "close the brace `}` and put a comma between the entries"),
    ("flow sequence", "close the bracket `]` and put a comma between the items"),
    ("simple key", "write `key: value`, with a space after the colon"),
    ("block collection", "indent all items of the list alike"),
    ("block mapping", "indent all keys of a section alike"),
    ("cannot start any token", "put the value in quotes"),
    ("alias", "put a value that begins with `*` in quotes"),
    ("anchor", "put a value that begins with `&` in quotes"),
)
