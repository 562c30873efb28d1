"""Rewriting: a route in JSON with the addresses of its brokers replaced, and every other byte as it was.

The naive way parses the body and writes it anew. But clients are particular: name servers write the keys of `brokerAddrs` as bare
numbers unless they know better (`{0:"10.0.0.1:10911"}`, not JSON), and the Go client takes the object apart with `strings.Split`, so a
blank in it is a broker it cannot find (`docs/design/rocketmq.md` 4.1). And a pattern such as `"brokerAddrs":{...}` overlooks
whatever it was not written for. So the body is read token by token, every level of it: each `brokerAddrs` is found, however it is written,
with the `brokerName` beside it (before or after); only the text between the quotes of an address is replaced. A route that cannot be read
for certain is an error, never passed on: a client that got a broker's own address would go there.

Taking an answer apart costs a hundred times what its client pays to ask, and topics of one set of brokers have equal answers. So what was
found in the latest ones is remembered by their bytes (`KnownRoutes`).

Bare names and numbers are taken for keys. Nothing else of a JSON reader is done here: the client reads the answer anyway.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from gateway.pipeline.routes import RouteError, Routes

TOKENS: Final = re.compile(rb'\s*("[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|[^\s{}\[\],:"]+)\s*', re.DOTALL)
ADDRESS: Final = "brokerAddr"  # of TopicList (304): any broker, to be asked the same; an empty one is none
NAMELESS: Final = -1  # broker id of such an address
ADDRESSES: Final = "brokerAddrs"  # of BrokerData (105, 106) and BrokerMemberGroup (901): broker id -> address
NAME: Final = "brokerName"
MAX_KNOWN_BYTES: Final = 1 << 20  # of answers whose addresses are remembered, with these; one of ten brokers has 8 kB: a guess
ENTRY_BYTES: Final = 400  # of what is remembered of an answer besides its bytes, and of each address in it: CPython's, at most
MAX_NUMBER_CHARACTERS: Final = 20  # characters of a broker id, a Java long


class OpenValue:
    """An object or array that has begun and not ended."""

    __slots__ = ("addresses", "broker", "expects_value", "found", "is_object", "key")

    def __init__(self, *, is_object: bool, addresses: bool) -> None:
        self.is_object = is_object
        self.addresses = addresses  # the value of `brokerAddrs`
        self.key: str | None = None  # the last that was read
        self.expects_value = not is_object
        self.broker: str | None = None  # the value of `brokerName`
        self.found: list[tuple[int, str, int, int]] = []  # of its `brokerAddrs`: broker id, address, and where the latter stands


class KnownRoutes:
    """What was found in the latest answers, by their bytes, the oldest first; of all connections together."""

    __slots__ = ("_bytes", "_found", "taken_apart")

    def __init__(self) -> None:
        self._found: dict[bytes, list[tuple[str, int, str, int, int]]] = {}
        self._bytes = 0  # of these answers and their addresses
        self.taken_apart = 0  # answers since the start

    def addresses_in(self, body: bytes) -> list[tuple[str, int, str, int, int]]:
        """As the function of this name."""
        found = self._found.get(body)
        if found is None:
            self.taken_apart += 1
            found = addresses_in(body)
            if size_of(body, found) > MAX_KNOWN_BYTES:
                return found
            self._found[body] = found
            self._bytes += size_of(body, found)
            while self._bytes > MAX_KNOWN_BYTES:
                oldest = next(iter(self._found))
                self._bytes -= size_of(oldest, self._found.pop(oldest))
        return found

    def __repr__(self) -> str:
        return f"<KnownRoutes answers={len(self._found)} bytes={self._bytes} taken_apart={self.taken_apart}>"


KNOWN: Final = KnownRoutes()


def size_of(body: bytes, found: list[tuple[str, int, str, int, int]]) -> int:
    return len(body) + ENTRY_BYTES * (1 + len(found))


def rewrite(body: bytes, routes: Routes) -> bytes:
    """`body` with each broker's address as `routes` says. Raises RouteError, also where the body cannot be read."""
    pieces: list[bytes] = []
    done = 0
    for broker, number, address, start, end in KNOWN.addresses_in(body):
        pieces.append(body[done:start])
        here = routes.find_known(address) if number == NAMELESS else routes.find(broker, number, address)
        pieces.append(here.encode())
        done = end
    if not pieces:
        return body
    pieces.append(body[done:])
    return b"".join(pieces)


def addresses_in(body: bytes) -> list[tuple[str, int, str, int, int]]:
    """Every address of a broker in `body`, in order: broker name, broker id, address, and the bytes it takes up. Raises RouteError.

    The id is NAMELESS, and the name empty, for an address without either.
    """
    found: list[tuple[str, int, str, int, int]] = []
    open_values: list[OpenValue] = []
    at = 0
    size = len(body)
    while at < size:
        match = TOKENS.match(body, at)
        if match is None:
            raise unreadable(at)
        at = match.end()
        token = match.group(1)
        if not open_values:
            if token != b"{":
                raise unreadable(match.start(1))
            open_values.append(OpenValue(is_object=True, addresses=False))
            continue
        innermost = open_values[-1]
        if token in (b"{", b"["):
            if not innermost.expects_value or innermost.addresses:
                raise unreadable(match.start(1))
            innermost.expects_value = False
            named = innermost.is_object and innermost.key == ADDRESSES
            if named and token == b"[":
                raise unreadable(match.start(1))
            open_values.append(OpenValue(is_object=token == b"{", addresses=named))
        elif token in (b"}", b"]"):
            if innermost.is_object != (token == b"}"):
                raise unreadable(match.start(1))
            open_values.pop()
            if innermost.addresses:
                open_values[-1].found.extend(innermost.found)
            elif innermost.found:
                if innermost.broker is None:
                    raise RouteError("the name server's route has addresses of a broker without its name (brokerName)")
                for number, address, start, end in innermost.found:
                    found.append((innermost.broker, number, address, start, end))
            if not open_values and at != size:
                raise unreadable(at)
        elif token == b",":
            innermost.expects_value = not innermost.is_object
            innermost.key = None
        elif token == b":":
            if not innermost.is_object or innermost.key is None or innermost.expects_value:
                raise unreadable(match.start(1))
            innermost.expects_value = True
        elif not innermost.expects_value:
            if not innermost.is_object or innermost.key is not None:
                raise unreadable(match.start(1))
            innermost.key = text_of(token, match.start(1))
        else:
            innermost.expects_value = False
            if innermost.addresses:
                innermost.found.append(address_of(innermost.key, token, match.start(1)))
            elif innermost.is_object and innermost.key == NAME and token != b"null":
                innermost.broker = text_of(token, match.start(1))
            elif innermost.is_object and innermost.key == ADDRESS and token.startswith(b'"') and len(token) > 2:
                start = match.start(1)
                found.append(("", NAMELESS, text_of(token, start), start + 1, start + len(token) - 1))
            elif innermost.is_object and innermost.key == ADDRESSES and token != b"null":
                raise unreadable(match.start(1))
    if open_values or not size:
        raise unreadable(size)
    found.sort(key=by_place)
    return found


def by_place(found: tuple[str, int, str, int, int]) -> int:
    return found[3]


def address_of(key: str | None, token: bytes, at: int) -> tuple[int, str, int, int]:
    """One entry of `brokerAddrs`: its key and the token of its value, which stands at `at`."""
    if key is None or len(key) > MAX_NUMBER_CHARACTERS or not key.isascii() or not key.isdecimal() or not token.startswith(b'"'):
        raise unreadable(at)
    return int(key), text_of(token, at), at + 1, at + len(token) - 1


def text_of(token: bytes, at: int) -> str:
    """What a token says: a JSON string, or a bare word or number as it stands."""
    try:
        if token.startswith(b'"'):
            text: str = msgspec.json.decode(token, type=str)
            return text
        return token.decode()
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise unreadable(at) from None


def unreadable(at: int) -> RouteError:
    return RouteError(f"the name server's route cannot be read at byte {at}, so its brokers' addresses cannot be replaced")
