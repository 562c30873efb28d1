"""Headers that somebody might write who wants to be charged to one topic and send to another: spelled oddly, said twice, cut, bent.

`Hostile(seed)` makes them from the spellings JSON parsers are known to differ about, and from honest headers with bytes changed. The same
seed makes the same headers.
"""

from __future__ import annotations

from random import Random

from support.rocketmq import frames as rocketmq

CODES = (310, 10, 320, 324, 325, 36, 11, 361, 200_050)
NAMES = ("code", "flag", "opaque", "extFields", "remark", "version", "language", "serializeTypeCurrentRPC", "body", "customHeader", "x")
EXTRA = ("a", "b", "m", "topic", "producerGroup", "batch", "group", "consumerGroup", "e", "queueId")


def parted(text: str) -> list[str]:
    """JSON values, parted by bars."""
    return text.split("|")


TOPICS = parted(
    '"t"|"u"|"\\u0074"|"\\x74"|"t\\u0000"|"\\ud800"|"t\\/"|"\u00e4"|5|-5|-0|1.50|1e2|1E400|05|5L|true|false|null|[1]|'
    '{"b":"v"}|\'t\'|t||"t|undefined|NaN|0x5|99999999999999999999|"\t"|+5|9.|"t"+"u"|`t`|"t\\\nu"|\uff11'
)
BOOLS = parted('"true"|"TRUE"|true|false|"false"|1|"1"|null|" true"|"true "|"tru\\u0065"|"\u0131"|"yes"|TRUE|"T"')
CODE_VALUES = parted(
    '"310"|310.0|3.1e2|0310|+310|310L|310n|0x136|" 310"|"310 "|"+310"|"0310"|true|null|""|{}|[]|[310]|"null"|4294967606|'
    '-4294966986|309.9999999999999999999|"3_10"|3_10|"\\u0033\\u0031\\u0030"|\uff13\uff11\uff10|"\uff13\uff11\uff10"|'
    '"310.0"|65846|"3,10"|1e400|310.9'
)
FLAGS = parted('0|1|2|3|"1"|"2"|true|false|null|-1|-2|2.0|4294967297|"0x1"|1.5|""|"1 "|01|+1')
SPACES = parted(" |\t|\n|\r|\f|\v|\x00|\u00a0|/*x*/|//x\n|\ufeff|#x\n|,|\b|\u2028")


class Hostile:
    """A source of headers."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def chance(self, percent: int) -> bool:
        return self.random.randrange(100) < percent

    def json(self) -> bytes:
        """A JSON header."""
        text = self._bent() if self.chance(40) else self._object().encode(errors="surrogatepass")
        return self._damaged(text) if self.chance(25) else text

    def binary(self) -> bytes:
        """A ROCKETMQ header."""
        random = self.random
        code = random.choice(CODES[:-1])
        entries = b""
        for _ in range(random.randrange(6)):
            name = random.choice((*EXTRA, "B", "", "bb", "topics", "\u00e4")).encode()
            value = random.choice((b"t", b"u", b"true", b"TRUE", b"false", b"", b"\xff", b"t\x00", b"\xc1\xa2", b"g" * 300))
            entries += self._size(len(name), 2) + name + self._size(len(value), 4) + value
        remark = random.choice((b"", b"", b"remark", b"\xff", b"\x00\x00\x00\x04"))
        fixed = (
            code.to_bytes(2, "big")
            + random.randbytes(3)
            + random.randbytes(4)
            + random.choice((0, 0, 0, 1, 2, 3, 0x80000000, 4)).to_bytes(4, "big")
        )
        text = fixed + self._size(len(remark), 4) + remark + self._size(len(entries), 4) + entries
        return self._damaged(text) if self.chance(20) else text

    def _size(self, size: int, width: int) -> bytes:
        """A length, now and then a wrong one."""
        if self.chance(4):
            size = self.random.choice((size + 1, size - 1, 0, -1, 0x7FFFFFFF, 0x8000, 0x10000 + size, 2**32 - size))
        return (size % (1 << 8 * width)).to_bytes(width, "big")

    def _damaged(self, text: bytes) -> bytes:
        """A few bytes taken out, put in or changed."""
        random = self.random
        changed = bytearray(text)
        for _ in range(random.randrange(1, 4)):
            at = random.randrange(len(changed) + 1)
            kind = random.randrange(4)
            if kind == 0:
                del changed[at : at + random.randrange(4)]
            elif kind == 1:
                changed[at:at] = random.choice(
                    (b'"', b"\\", b",", b"}", b"{", b"\xe5", b"\xf0", b"\xc3", b"\x00", b"\x80", b"0", b"\\u", b"\\x2", b'"b":"u",')
                )
            elif changed:
                changed[at % len(changed)] = random.randrange(256)
        return bytes(changed)

    def _bent(self) -> bytes:
        """An honest send with some value or name spelled otherwise, or said again."""
        random = self.random
        code = random.choice(CODES)
        fields = rocketmq.SHORT if code in (310, 320, 325) else rocketmq.LONG
        extra: dict[str, rocketmq.Value] = {
            fields["group"]: "g",
            fields["topic"]: "t",
            fields["batch"]: "false",
            "i": "p\x01v\x02",
            "e": "1",
            "group": "g",
        }
        text = rocketmq.json_header(code, extra, opaque=random.choice((1, -1, 77)), flag=random.choice((0, 0, 2))).decode()
        for _ in range(random.randrange(1, 4)):
            old = random.choice(
                (f'"{fields["topic"]}":', '"code":', '"flag":', '"extFields":', f'"{fields["batch"]}":', '"opaque":', '"i":', '"version":')
            )
            name = old[1:-2]
            new = random.choice(
                (
                    f"{self._name(name)}:",
                    f"{old}{self._value(name)},{old}",
                    f"{self._name(name)}:{self._value(name)},{old}",
                    f"{self._space()}{old}",
                )
            )
            text = text.replace(old, new, 1)
        return text.encode(errors="surrogatepass")

    def _object(self) -> str:
        random = self.random
        names = ["code", "extFields", *random.sample(NAMES, random.randrange(4))]
        random.shuffle(names)
        members = [self._member(name) for name in names]
        text = self._space() + "{" + ",".join(members) + "}" + self._space()
        return text + random.choice(("", "", "", ";", "{}", "\x00", "}", '{"code":310}')) if self.chance(10) else text

    def _member(self, name: str) -> str:
        separator = self.random.choice((":", ":", ":", ": ", " :", "=", "=>", "::")) if self.chance(8) else ":"
        return f"{self._space()}{self._name(name)}{separator}{self._space()}{self._value(name)}{self._space()}"

    def _value(self, name: str) -> str:
        random = self.random
        if name == "code":
            return random.choice(CODE_VALUES) if self.chance(25) else str(random.choice(CODES))
        if name == "flag":
            return random.choice(FLAGS)
        if name in ("opaque", "version"):
            return random.choice(("1", "2147483647", "-1", '"5"', "1.5", "null", "2147483648", '"x"', "true", "1e3", "-0", "01"))
        if name == "extFields":
            return self._extra()
        if name in ("m", "batch"):
            return random.choice(BOOLS)
        return random.choice(TOPICS) if self.chance(50) else '"t"'

    def _extra(self) -> str:
        if self.chance(8):
            return self.random.choice(("null", "[]", '[{"b":"t"}]', '"{}"', "{}", "5", '[["b","t"]]', "true", '""'))
        names = self.random.choices(EXTRA, k=self.random.randrange(1, 7))
        return "{" + ",".join(self._member(name) for name in ["b", "topic", "group", *names][self.random.randrange(4) :]) + "}"

    def _name(self, name: str) -> str:
        """`name`, spelled oddly now and then."""
        random = self.random
        if not self.chance(12):
            return f'"{name}"'
        at = random.randrange(len(name))
        letter = name[at]
        before, after = name[:at], name[at + 1 :]
        spellings = [
            name.upper(),
            name[0].upper() + name[1:],
            f"_{name}",
            f"{name}_",
            f"{before}-{letter}{after}",
            f"{before}_{letter}{after}",
        ]
        spellings += [
            f"{before}\\u{ord(letter):04x}{after}",
            f"{before}\\x{ord(letter):02x}{after}",
            f"{before}{chr(ord(letter) + 0xFEE0)}{after}",
        ]
        spellings += [
            f" {name}",
            f"{name} ",
            f"{name}\\u0000",
            f"is{name}",
            f"{name}s",
            f"$.{name}",
            f"\\{name}",
            f"{before}.{letter}{after}",
        ]
        spellings += [f"{before}\u0130{letter}{after}", "@type", "$ref"]
        return random.choice((*[f'"{spelling}"' for spelling in spellings], f"'{name}'", name))

    def _space(self) -> str:
        return self.random.choice(SPACES) if self.chance(3) else ""
