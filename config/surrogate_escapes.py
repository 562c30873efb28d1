r"""JSON's way to escape a character beyond 16 bits, in YAML text: `"\ud83d\ude00"` is one character, and YAML's parser refuses its halves.

JSON writes such a character as the two halves of its surrogate pair, each an escape of its own; `json.dumps` does so for every emoji. YAML
knows `\U0001f600` instead, and libyaml ends at the first half. So before it parses, each half becomes the escape of a character that the
text has nowhere else. Both are six characters long: all places stay what they are. In the scalars that come back the halves are put in
again, in their order. In a double-quoted one that character stands for a half. In any other an escape has no meaning, and is the text that
was written.
"""

from __future__ import annotations

import re
from typing import Final

import yaml

_HALF: Final = re.compile(r"\\(?:\\|u([dD][89a-fA-F][0-9a-fA-F]{2}))")  # or an escaped backslash, behind which `u` is a letter
_LINE_END: Final = re.compile("[\n\r\x85\u2028\u2029]")
_PRIVATE: Final = range(0xE000, 0xF900)  # code points to which Unicode gives no meaning


class LoneSurrogateError(Exception):
    """The other half of `escape` does not stand beside it. `index`: its place in the text, in characters."""

    def __init__(self, half: re.Match[str]) -> None:
        super().__init__(half[0])
        self.escape = half[0]
        self.index = half.start()


class SurrogateEscapes:
    """Those of one text. `parsable` is the text for the parser: as it was, where it has none."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.parsable = text
        self.stand_in = ""  # the character; "": there is nothing to put in again
        if not any(match[1] for match in _HALF.finditer(text)):
            return
        lower = text.lower()
        code = next((code for code in _PRIVATE if chr(code) not in text and f"{code:04x}" not in lower), 0)
        if code:  # else the text has all of them, and the parser refuses it
            self.stand_in = chr(code)
            escape = f"\\u{code:04x}"
            self.parsable = _HALF.sub(lambda match: escape if match[1] else match[0], text)

    def value_of(self, event: yaml.ScalarEvent) -> str:
        """The text of a scalar. Raises LoneSurrogateError."""
        value: str = event.value
        if not self.stand_in:
            return value
        quoted = event.style == '"'
        pieces = value.split(self.stand_in if quoted else f"\\u{ord(self.stand_in):04x}")
        if len(pieces) == 1:
            return value
        assert event.start_mark is not None
        assert event.end_mark is not None
        start = int(event.start_mark.index)
        if event.style in {"|", ">"}:
            line_end = _LINE_END.search(self.text, start)  # the text begins below; a comment may stand beside the sign
            start = start if line_end is None else line_end.end()
        halves = [match for match in _HALF.finditer(self.text, start, event.end_mark.index) if match[1]]
        if not quoted:
            return pieces[0] + "".join([half[0] + piece for half, piece in zip(halves, pieces[1:], strict=True)])
        return pieces[0] + _joined(halves, pieces[1:])


def _joined(halves: list[re.Match[str]], pieces: list[str]) -> str:
    """The characters that `halves` make in pairs, each pair with the piece of text behind it."""
    joined: list[str] = []
    waiting: re.Match[str] | None = None  # the first half of a pair
    for half, piece in zip(halves, pieces, strict=True):
        unit = int(half[1], 16)
        if (unit < 0xDC00) != (waiting is None) or (waiting is None and piece):
            raise LoneSurrogateError(half if waiting is None else waiting)
        if waiting is None:
            waiting = half
        else:
            joined += [chr(0x10000 + (int(waiting[1], 16) - 0xD800 << 10) + unit - 0xDC00), piece]
            waiting = None
    if waiting is not None:
        raise LoneSurrogateError(waiting)
    return "".join(joined)
