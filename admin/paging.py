"""Pages of a list: sorted, filtered, cut, with a cursor that says after which item the next one begins.

The cursor holds the last item's sort key, not its number: items that come and go between two pages neither repeat nor hide others, unless
their own key moves past the cursor meanwhile (a rate does, a name does not).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

import msgspec

from admin.problems import Fault, invalid
from admin.routing import Parameter, Request

T = TypeVar("T")
SortKey = tuple[float, str]

MAX_ITEMS: Final = 500  # items; one page; docs/design/reliability.md 5
DEFAULT: Final = 100
LIMIT: Final = Parameter("limit", "count", f"items per page, at most {MAX_ITEMS}", most=MAX_ITEMS)
CURSOR: Final = Parameter("cursor", "text", "`next` of the page before")
QUERY: Final = Parameter("q", "text", "only items whose name contains this, upper and lower case alike")


def page(items: Iterable[T], key: Callable[[T], SortKey], request: Request) -> tuple[list[T], str | None]:
    """The items of the page that `request` asks for, in order of `key`, and the cursor of the next; raises ProblemError 422."""
    after = _decode(request.query.get("cursor"))
    count = request.count("limit", DEFAULT)
    keyed = ((key(item), at, item) for at, item in enumerate(items))
    left = sorted(entry for entry in keyed if after is None or entry[0] > after)  # no two are compared beyond `at`
    found = left[:count]
    return [item for _, _, item in found], _encode(found[-1][0]) if len(left) > count else None


def matches(request: Request, *names: str) -> bool:
    """Whether one of `names` contains the request's `q`."""
    wanted = request.query.get("q", "").casefold()
    return any(wanted in name.casefold() for name in names)


def _encode(key: SortKey) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(key)).rstrip(b"=").decode()


def _decode(cursor: str | None) -> SortKey | None:
    if cursor is None:
        return None
    try:
        data = base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4))
        return msgspec.json.decode(data, type=tuple[float, str])
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise invalid("the cursor cannot be used", [Fault("?cursor", "is not one this API gave; begin with the first page")]) from error
